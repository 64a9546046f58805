//! The build of a bytepath binary: controller and agents must be of the same one.

use object::elf::{FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ReadCache};
use std::fs::File;
use std::path::Path;
use std::sync::OnceLock;

/// Version of this package, as studies record it.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Version and build of the running binary.
pub fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| of(Path::new("/proc/self/exe")).unwrap_or_else(|| VERSION.to_owned()))
}

/// Returns version and build of the agents that a program starts; `None` if it is not an ELF file.
/// A copy without debug information has the same.
pub fn of(program: &Path) -> Option<String> {
    let cache = ReadCache::new(File::open(program).ok()?);
    let id = build_id(&cache).or_else(|| {
        // The linker wrote no build id.
        let parsed = object::File::parse(&cache).ok()?;
        let mut crc = flate2::Crc::new();
        crc.update(parsed.section_by_name(".text")?.data().ok()?);
        Some(format!("{:08x}-{:x}", crc.sum(), crc.amount()))
    })?;
    Some(format!("{VERSION}+{id}"))
}

/// Returns the build id that the linker wrote. It is found by the program headers alone: every
/// agent sends it before anything else, in emulated guests too, and the tables of sections and
/// symbols are megabytes.
fn build_id(program: &ReadCache<File>) -> Option<String> {
    let header = FileHeader64::<Endianness>::parse(program).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, program).ok()?;
    let mut notes = segments.iter().filter_map(|s| s.notes(endian, program).ok()?);
    let id = notes.find_map(|mut notes| {
        let all = std::iter::from_fn(|| notes.next().ok()?);
        let ours = |note: &object::read::elf::Note<_>| note.n_type(endian) == NT_GNU_BUILD_ID;
        all.filter(ours).map(|note| note.desc().to_vec()).next()
    })?;
    Some(id.iter().map(|byte| format!("{byte:02x}")).collect())
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
