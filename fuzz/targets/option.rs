//! What a user types: whatever parses can be printed, and what is printed
//! parses to the same.

use bytepath::record::{OptionKind, unit};
use bytepath::spec;

const KINDS: [OptionKind; 9] = [
    OptionKind::Size(0, u64::MAX),
    OptionKind::Size(4096, 1 << 30),
    OptionKind::Count(0, u64::MAX),
    OptionKind::Count(1, 32_768),
    OptionKind::Flag,
    OptionKind::Choice(&["none", "read", "verify"]),
    OptionKind::AutoSize(4096, u64::MAX),
    OptionKind::MaybeCount(0, u64::MAX),
    OptionKind::Name,
];

pub fn check(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for kind in KINDS {
        if let Ok(value) = kind.parse(text) {
            let printed = kind.print(&value);
            assert_eq!(kind.parse(&printed), Ok(value), "{text:?}, printed {printed:?}, as {kind}");
        }
    }
    if let Ok(bytes) = unit::parse_bytes(text) {
        assert_eq!(unit::parse_bytes(&unit::bytes(bytes)), Ok(bytes), "{text:?}");
    }
    const CPUS: &[u32] = &[0, 1, 2];
    if let Ok(cores) = spec::read_cores(text, CPUS) {
        let id = cores.difference.strip_prefix("cores=").unwrap_or("two").replace('/', ",");
        assert_eq!(spec::read_cores(&id, CPUS), Ok(cores), "{text:?}, in ids {id:?}");
    }
    if let Ok(duration) = unit::parse_duration(text) {
        let printed = unit::seconds(duration);
        assert_eq!(unit::parse_duration(&printed), Ok(duration), "{text:?}, printed {printed:?}");
    }
}
