//! What an ELF file needs: the loader and the libraries of a program
//! (elf(5), ld.so(8)), the other modules of a kernel module. And what it does not
//! need in order to run.

use object::build::elf::Builder;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64, PT_INTERP};
use object::read::elf::{ElfFile, ProgramHeader};
use object::{Endianness, Object, ObjectSection};
use std::borrow::Cow;

/// What has to be there before a program or a library can run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// The loader, a path; a library has none, and neither has a static program.
    pub interpreter: Option<String>,
    /// Names of libraries, in the order in which they are looked for.
    pub libraries: Vec<String>,
    /// Folders in which they are looked for first; `$ORIGIN` may be in them.
    pub folders: Vec<String>,
}

/// Reads what a program or a library needs. The error is what is wrong with
/// the file.
pub fn needs(bytes: &[u8]) -> Result<Needs, String> {
    let file = parse(bytes)?;
    let endian = file.endian();
    let mut needs = Needs::default();
    let interpreters =
        file.elf_program_headers().iter().filter(|header| header.p_type(endian) == PT_INTERP);
    for header in interpreters {
        let path = header.data(endian, bytes).map_err(|()| "its PT_INTERP lies outside of it")?;
        needs.interpreter = Some(text(path.split(|b| *b == 0).next().unwrap_or_default())?);
    }
    let table = file.elf_dynamic_table().map_err(|e| e.to_string())?;
    for entry in table.iter() {
        let read = || table.string(entry).map_err(|e| e.to_string()).and_then(text);
        match entry.tag {
            DT_NEEDED => needs.libraries.push(read()?),
            DT_RUNPATH | DT_RPATH => {
                needs.folders.extend(read()?.split(':').map(str::to_owned));
            }
            _ => {}
        }
    }
    Ok(needs)
}

/// Reads which modules a kernel module depends on (`depends=` in its section
/// `.modinfo`, written by scripts/mod/modpost.c). Names have `_` where file
/// names may have `-`.
pub fn depends(bytes: &[u8]) -> Result<Vec<String>, String> {
    let file = parse(bytes)?;
    let section = file.section_by_name(".modinfo").ok_or("it has no section .modinfo")?;
    let information = section.data().map_err(|e| e.to_string())?;
    let entry = information.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = text(entry.unwrap_or_default())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(normal).collect())
}

/// A program without its debug information (sections `.debug_*` that are not
/// loaded), which is most of it and which nothing needs to run. Its symbols stay,
/// so that functions have names. The error is what is wrong with the file.
pub(super) fn without_debug(program: &[u8]) -> Result<Cow<'_, [u8]>, String> {
    let is_debug = |name: &[u8]| name.starts_with(b".debug_");
    let file = parse(program)?;
    if !file.sections().any(|s| s.address() == 0 && s.name_bytes().is_ok_and(is_debug)) {
        return Ok(program.into());
    }
    let mut file = Builder::read64(program).map_err(|e| e.to_string())?;
    for section in file.sections.iter_mut() {
        section.delete |= !section.is_alloc() && is_debug(section.name.as_slice());
    }
    file.delete_orphan_symbols();
    let mut bytes = Vec::new();
    file.write(&mut bytes).map_err(|e| e.to_string())?;
    Ok(bytes.into())
}

/// The name of a module as the kernel has it: `-` and `_` are the same.
pub(super) fn normal(name: &str) -> String {
    name.replace('-', "_")
}

fn parse(bytes: &[u8]) -> Result<ElfFile<'_, FileHeader64<Endianness>>, String> {
    ElfFile::parse(bytes).map_err(|e| format!("it is not a 64-bit ELF file: {e}"))
}

fn text(bytes: &[u8]) -> Result<String, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "a name in it is not UTF-8")?;
    Ok(text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use object::build::elf::SectionData;

    #[test]
    fn our_own_test_program_needs_a_loader_and_the_c_library() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let needs = needs(&own).unwrap();
        assert!(needs.libraries.iter().any(|name| name.starts_with("libc.so")), "{needs:?}");
        assert!(needs.interpreter.unwrap().contains("ld-"), "the loader is named");
    }

    #[test]
    fn a_program_without_its_debug_information_is_the_same_program() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        let mut with_debug = Builder::read64(&*own).unwrap();
        let added = with_debug.sections.add();
        added.name = b".debug_made_up"[..].into();
        added.sh_type = object::elf::SHT_PROGBITS;
        added.sh_addralign = 1;
        added.data = SectionData::Data(vec![7; 1 << 20].into());
        let mut own = Vec::new();
        with_debug.write(&mut own).unwrap();
        let lean = without_debug(&own).unwrap();
        assert!(lean.len() + (1 << 20) <= own.len(), "{} of {}", lean.len(), own.len());
        assert!(matches!(without_debug(&lean), Ok(Cow::Borrowed(_))), "nothing is left to remove");
        assert_eq!(needs(&lean).unwrap(), needs(&own).unwrap());
        let sections = |bytes: &[u8]| -> Vec<String> {
            let file = parse(bytes).unwrap();
            file.sections().filter_map(|s| Some(s.name().ok()?.to_owned())).collect()
        };
        let debug = |name: &String| name.starts_with(".debug_") && name != ".debug_gdb_scripts";
        let kept: Vec<String> = sections(&own).into_iter().filter(|name| !debug(name)).collect();
        assert_eq!(sections(&lean), kept, "and symbols are among them");
        assert!(kept.contains(&".symtab".to_owned()), "{kept:?}");
        // It runs: another name of a test program lists its tests.
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lean");
        std::fs::write(&path, &lean).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&path, mode).unwrap();
        let mut command = std::process::Command::new(&path);
        let listed = bytepath_testing::run_copied(command.arg("--list")).unwrap();
        let text = String::from_utf8_lossy(&listed.stdout).into_owned();
        assert!(text.contains("elf::tests::a_program_without"), "{text}");
        assert!(without_debug(b"#!/bin/sh\n").is_err());
    }

    #[test]
    fn refuses_truncated_and_foreign_files() {
        let own = std::fs::read("/proc/self/exe").unwrap();
        for length in [0, 1, 63, 64, 4096, own.len() / 2] {
            let part = own.get(..length).unwrap();
            let _ = needs(part);
            assert!(depends(part).is_err(), "{length}");
        }
        assert!(needs(b"#!/bin/sh\n").unwrap_err().contains("not a 64-bit ELF"));
    }
}
