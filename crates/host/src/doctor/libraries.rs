//! Checks whether functions of the C library have names in profiles, here and in guests, which use
//! a copy of this machine's.

use super::findings::Findings;
use crate::guest::{debug_file, named};
use bytepath_record::Finding;
use bytepath_sys::Roots;
use std::fs;
use std::path::Path;

/// Returns findings about the C library of this program; empty if it is linked statically.
pub fn examine_libraries(roots: &Roots) -> Vec<Finding> {
    found(roots, Path::new("/")).0
}

fn found(roots: &Roots, root: &Path) -> Findings {
    let mut all = Findings::default();
    let maps = fs::read_to_string(roots.proc.join("self/maps")).unwrap_or_default();
    let Some(path) = maps.split_whitespace().find(|word| word.contains("/libc.so")) else {
        return all;
    };
    let Ok(bytes) = fs::read(path) else { return all };
    if let Err(why) = named(&bytes, root) {
        let remedy = match debug_file(&bytes, root) {
            Some(_) => {
                "apt-get install --reinstall libc6-dbg (Fedora: dnf debuginfo-install glibc)"
            }
            None => "install a C library with a build id, by which debug files are found",
        };
        all.note(
            format!("{path} is stripped, and {why}"),
            "profiles show memmove and other functions that it chooses by the processor as \
             offsets (0x152ca0), here and in guests",
            remedy,
        );
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;
    use object::read::elf::{ElfFile64, FileHeader};
    use std::fs::{create_dir_all, write};

    /// Uses a C library without symbols, and its debug file.
    #[test]
    fn names_the_package_that_has_the_symbols() {
        let folder = tempfile::tempdir().unwrap();
        let said = |maps: &str| {
            let proc = folder.path().join("proc");
            create_dir_all(proc.join("self")).unwrap();
            write(proc.join("self/maps"), maps).unwrap();
            let roots = Roots { proc, sys: "/nowhere".into(), nics: None };
            found(&roots, folder.path()).0
        };
        assert_eq!(said(""), []);
        let program = "/proc/self/exe";
        let own = fs::read(program).unwrap();
        let library = folder.path().join("libc.so.6");
        let line = format!("7f00-7f01 r-xp 00000000 08:01 7 {}\n", library.display());
        write(&library, &own).unwrap();
        assert_eq!(said(&line), [], "a test program is not stripped");
        let Some(debug) = debug_file(&own, folder.path()) else {
            return skip!("the linker writes no build id");
        };
        // Its symbol table has no content in the file (SHT_NOBITS), so it contains no names.
        let file = ElfFile64::<object::Endianness>::parse(&*own).unwrap();
        let sections = file.elf_header().e_shoff(file.endian()) as usize;
        let mut stripped = own.clone();
        stripped[sections + 64 * file.elf_symbol_table().section().0 + 4] = 8;
        write(&library, &stripped).unwrap();
        let found = said(&line);
        assert!(found[0].what.ends_with("its debug file is not installed"), "{found:?}");
        assert!(found[0].what.contains("libc.so.6 is stripped"), "{found:?}");
        assert!(found[0].command.contains("libc6-dbg"), "{found:?}");
        create_dir_all(debug.parent().unwrap()).unwrap();
        write(&debug, b"").unwrap();
        let found = said(&line);
        assert!(found[0].what.contains("not a 64-bit ELF file"), "{found:?}");
        write(&debug, &own).unwrap();
        assert_eq!(said(&line), []);
        // Without a build id, no package can help.
        write(&library, b"#!/bin/sh").unwrap();
        assert!(!said(&line)[0].command.contains("libc6-dbg"));
    }
}
