//! Which build of bytepath a binary is: controller and agents have to be the same one.

use crate::record::wire::Reply;
use crate::record::{Fault, FaultKind, Role, SCHEMA_VERSION};
use object::{Object, ObjectSection, ReadCache};
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

/// Version of this package, as studies record it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version and build of the binary that runs.
pub fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| of(Path::new("/proc/self/exe")).unwrap_or_else(|| VERSION.to_owned()))
}

/// Version and build of the agents that a program starts; none where it is not an ELF
/// file. It is the same for a copy without debug information.
pub fn of(program: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let parsed = object::File::parse(&cache).ok()?;
    let id: String = match parsed.build_id() {
        Ok(Some(id)) => id.iter().map(|byte| format!("{byte:02x}")).collect(),
        // The linker gave it none.
        _ => {
            let mut crc = flate2::Crc::new();
            crc.update(parsed.section_by_name(".text")?.data().ok()?);
            format!("{:08x}-{:x}", crc.sum(), crc.amount())
        }
    };
    Some(format!("{VERSION}+{id}"))
}

/// Whether an agent that was started from a program is of the same build; gives its
/// process id.
pub(super) fn check(role: Role, hello: &Reply, program: &Path) -> Result<u32, Fault> {
    let ours = of(program).unwrap_or_else(|| own().to_owned());
    match hello {
        Reply::Hello { schema: SCHEMA_VERSION, build, pid } if *build == ours => Ok(*pid),
        Reply::Hello { schema, build, .. } => Err(Fault::new(
            FaultKind::Unsupported,
            format!(
                "the {role}'s agent is bytepath {build} (records v{schema}), this is {ours} \
                 (v{SCHEMA_VERSION})"
            ),
        )
        .remedy("install the same build at both ends")),
        other => Err(super::remote::unexpected(role, other)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_binary_is_the_same_build_wherever_it_is() {
        let own = own();
        assert!(own.starts_with(&format!("{VERSION}+")) && own.len() > VERSION.len() + 8, "{own}");
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("copy");
        std::fs::copy("/proc/self/exe", &copy).unwrap();
        assert_eq!(of(&copy).as_deref(), Some(own));
        assert_ne!(of(Path::new("/bin/sh")).as_deref(), Some(own));
        assert_eq!(of(Path::new("/proc/self/status")), None);
    }
}
