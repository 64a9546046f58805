//! Reads ELF files: the loader and the libraries that a program needs (elf(5), ld.so(8)), and the
//! dependencies of a kernel module. Removes debug information, and adds symbols for function names.

use object::build::elf::Builder;
use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, FileHeader64, PT_INTERP, SectionHeader64};
use object::endian::{U16, U32, U64};
use object::pod::{bytes_of_slice, from_bytes_mut};
use object::read::elf::{ElfFile, FileHeader, ProgramHeader, SectionHeader};
use object::{Endianness, Object, ObjectSection};
use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// What a program or library needs in order to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// Path of the loader; `None` for libraries and static programs.
    pub interpreter: Option<String>,
    /// Names of libraries, in search order.
    pub libraries: Vec<String>,
    /// Folders to search first; they may contain `$ORIGIN`.
    pub folders: Vec<String>,
}

/// Reads what a program or library needs. Errors with a description of what is wrong with the file.
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

/// Reads the dependencies of a kernel module (`depends=` in its section `.modinfo`, written by
/// scripts/mod/modpost.c). The names have `_` where file names may have `-`.
pub fn depends(bytes: &[u8]) -> Result<Vec<String>, String> {
    let file = parse(bytes)?;
    let section = file.section_by_name(".modinfo").ok_or("it has no section .modinfo")?;
    let information = section.data().map_err(|e| e.to_string())?;
    let entry = information.split(|b| *b == 0).find_map(|entry| entry.strip_prefix(b"depends="));
    let names = text(entry.unwrap_or_default())?;
    Ok(names.split(',').filter(|name| !name.is_empty()).map(normal).collect())
}

/// Removes the debug information of a program (sections `.debug_*` that are not loaded): most of
/// the file, and not needed to run. Symbols stay, so that functions have names. Errors with a
/// description of what is wrong with the file.
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

/// Whether the file has a symbol table, with names of functions that it does not export.
pub(crate) fn has_symbols(bytes: &[u8]) -> bool {
    parse(bytes).is_ok_and(|file| !file.elf_symbol_table().is_empty())
}

/// Returns the path of the debug file of a program or library on a machine whose root is `root`, or
/// `None` if the file has no build id.
pub(crate) fn debug_file(bytes: &[u8], root: &Path) -> Option<PathBuf> {
    let file = parse(bytes).ok()?;
    let id = file.build_id().ok()??.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let (first, rest) = id.split_at_checked(2)?;
    Some(root.join(format!("usr/lib/debug/.build-id/{first}/{rest}.debug")))
}

/// Appends the symbols of a debug file to a stripped library. What is loaded stays in place; a new
/// section table refers to the symbols. Errors with a description of what is wrong with the files.
pub fn with_symbols(library: &[u8], debug: &[u8]) -> Result<Vec<u8>, String> {
    let wrong = |e: object::Error| e.to_string();
    let (file, other) = (parse(library)?, parse(debug)?);
    let endian = file.endian();
    match [file.build_id(), other.build_id()] {
        [Ok(Some(own)), Ok(Some(theirs))] if own == theirs => {}
        _ => return Err("the debug file is of another build".into()),
    }
    let (theirs, table) = (other.elf_section_table(), other.elf_symbol_table());
    if table.is_empty() {
        return Err("the debug file has no symbols".into());
    }
    let symbols = theirs.section(table.section()).map_err(wrong)?;
    let names = theirs.section(table.string_section()).map_err(wrong)?;
    let mut sections: Vec<SectionHeader64<Endianness>> =
        file.elf_section_table().iter().copied().collect();
    // Index of the section with the symbols' names, which follows that of the symbols.
    let behind = sections.len() as u32 + 1;
    let titles = usize::from(file.elf_header().e_shstrndx(endian).0);
    let titles = sections.get_mut(titles).ok_or("its sections have no names")?;
    let mut text = titles.data(endian, library).map_err(wrong)?.to_vec();

    let mut bytes = library.to_vec();
    let mut title = |name: &str| {
        let at = text.len() as u32;
        text.extend(name.bytes().chain([0]));
        U32::new(endian, at)
    };
    let mut added = [*symbols, *names];
    for (section, name) in added.iter_mut().zip([".symtab", ".strtab"]) {
        let data = section.data(endian, debug).map_err(wrong)?;
        section.sh_name = title(name);
        section.sh_offset = U64::new(endian, append(&mut bytes, data));
    }
    added[0].sh_link = U32::new(endian, behind);
    titles.sh_size = U64::new(endian, text.len() as u64);
    titles.sh_offset = U64::new(endian, append(&mut bytes, &text));
    sections.extend(added);
    let place = append(&mut bytes, bytes_of_slice(&sections));
    let (header, _) = from_bytes_mut::<FileHeader64<Endianness>>(&mut bytes)
        .map_err(|()| "it has no header".to_owned())?;
    let count = u16::try_from(sections.len()).map_err(|_| "it has too many sections")?;
    (header.e_shoff, header.e_shnum) = (U64::new(endian, place), U16::new(endian, count));
    Ok(bytes)
}

/// Appends data at the next multiple of eight bytes; returns its offset.
fn append(bytes: &mut Vec<u8>, data: &[u8]) -> u64 {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    let at = bytes.len() as u64;
    bytes.extend_from_slice(data);
    at
}

/// Returns the kernel's spelling of a module's name, with `_` for `-`.
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
    use bytepath_testing::skip;
    use object::ObjectSymbol;
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
        // It still runs: this copy of a test program lists its tests.
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

    /// Marks the symbol table as having no content in the file (SHT_NOBITS).
    fn without_table(bytes: &[u8]) -> Vec<u8> {
        let file = parse(bytes).unwrap();
        let header = file.elf_header().e_shoff.get(file.endian()) as usize;
        let at = header + 64 * file.elf_symbol_table().section().0 + 4;
        let mut bytes = bytes.to_vec();
        bytes[at] = 8;
        bytes
    }

    #[test]
    fn a_stripped_library_gets_the_symbols_of_its_debug_file() {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let libc = maps.split_whitespace().find(|word| word.contains("/libc.so"));
        let Some(libc) = libc else { return skip!("this test is linked statically") };
        let library = std::fs::read(libc).unwrap();
        let debug = debug_file(&library, Path::new("/")).and_then(|path| std::fs::read(path).ok());
        let Some(debug) = debug.filter(|_| !has_symbols(&library)) else {
            return skip!("{libc} is not stripped, or the package libc6-dbg is not installed");
        };
        let named = with_symbols(&library, &debug).unwrap();
        let names = |bytes: &[u8]| -> Vec<String> {
            let file = parse(bytes).unwrap();
            file.symbols().filter_map(|s| Some(s.name().ok()?.to_owned())).collect()
        };
        let inner = |name: &String| name.starts_with("__memmove_") && name.ends_with("_unaligned");
        assert!(has_symbols(&named) && names(&named).iter().any(inner));
        assert_eq!(names(&named), names(&debug), "the same, in the same order");
        // Only the offset and the number of its sections differ.
        let changed = (0..library.len()).filter(|at| library[*at] != named[*at]);
        assert!(changed.clone().all(|at| (40..48).contains(&at) || (60..62).contains(&at)));
        assert_eq!(needs(&named).unwrap(), needs(&library).unwrap());
        // It can be loaded in place of the original, and its exports work.
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("libc.so.6"), &named).unwrap();
        let mut command = std::process::Command::new("/bin/cat");
        let out = command.env("LD_LIBRARY_PATH", folder.path()).arg("/proc/self/maps").output();
        let text = String::from_utf8(out.unwrap().stdout).unwrap();
        assert!(text.contains(folder.path().to_str().unwrap()), "{text}");

        let own = std::fs::read("/proc/self/exe").unwrap();
        let why = with_symbols(&own, &debug).unwrap_err();
        assert_eq!(why, "the debug file is of another build");
        assert!(with_symbols(&library, &library).unwrap_err().contains("no symbols"));
        // A table without content in the file has no symbols.
        let empty = without_table(&debug);
        assert!(!has_symbols(&empty));
        assert!(with_symbols(&library, &empty).unwrap_err().contains("no symbols"));
        assert!(with_symbols(&library, &debug[..4096]).is_err());
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
