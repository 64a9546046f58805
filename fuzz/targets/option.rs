//! Text typed by users: whatever parses can be printed, and what is printed parses to the same.
//! Also the small files that users write: inventories and rules of subsystems.

use bytepath::profile::subsystem::Rules;
use bytepath::profile::{Frame, FrameKind};
use bytepath::record::{OptionKind, unit};
use bytepath::spec::{self, Inventory};
use bytepath::stats::Threshold;
use bytepath::sys::perf::Event;
use bytepath::{study, testbed};
use std::path::Path;

const KINDS: [OptionKind; 11] = [
    OptionKind::Size(0, u64::MAX),
    OptionKind::Size(4096, 1 << 30),
    OptionKind::Sizes(1, 1 << 30),
    OptionKind::Count(0, u64::MAX),
    OptionKind::Count(1, 32_768),
    OptionKind::Flag,
    OptionKind::Choice(&["none", "read", "verify"]),
    OptionKind::AutoSize(4096, u64::MAX),
    OptionKind::WordCount("none", 0, u64::MAX),
    OptionKind::Load(1, u64::MAX),
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
    if let Ok(limit) = Threshold::parse(text) {
        assert_eq!(Threshold::parse(&limit.text).as_ref(), Ok(&limit), "{text:?}");
    }
    if let Ok(event) = Event::parse(text, Path::new("/nonexistent")) {
        assert_eq!(event.name, text.trim());
    }
    inventory(text);
    if let Ok(rules) = Rules::built_in().with("rules.toml", text) {
        assert!(rules.len() >= Rules::built_in().len());
        let function = text.lines().next_back().unwrap_or_default().to_owned();
        rules.class(&Frame { function, kind: FrameKind::Kernel, ..Frame::default() });
    }
}

/// Whatever the names of a pair's hosts are, they make one testbed.
fn inventory(text: &str) {
    let Ok(inventory) = Inventory::parse("hosts.toml", text) else { return };
    let declared = study::testbed_spec(testbed::CATALOG);
    let names = text.split(|c: char| c.is_whitespace() || ".[]".contains(c)).take(64);
    for name in names {
        let Ok(chosen) = inventory.chosen(&[name.to_owned()]) else { continue };
        for pair in chosen {
            if let Ok(choice) = spec::parse_testbed(&pair.testbed, &declared) {
                assert_eq!(choice.name, "hosts");
            }
        }
    }
}
