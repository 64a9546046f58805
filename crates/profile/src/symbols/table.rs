//! The symbols of a program that anyone may have written, and no more than those. Nothing is
//! unpacked or demangled, no other file is looked for, and a name is not longer than it may be.

use super::hexadecimal;
use object::Endianness;
use object::elf::{
    ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD, PT_NOTE, SHN_UNDEF, SHT_DYNSYM,
    SHT_SYMTAB, STT_FUNC,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};

/// Longest name that is shown, bytes.
const LONGEST_NAME: usize = 1024;

/// Functions of a file, by address.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// What is loaded from the file: place in it, length, address.
    segments: Vec<(u64, u64, u64)>,
    functions: Vec<Function>,
    pub build_id: String,
}

/// Ordered by address, and at one address by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    /// Bytes; 0 where it is unknown.
    size: u64,
    /// Where in the file its name begins, and the names end.
    name: (u64, u64),
}

impl Table {
    /// Reads a file of 64 bits.
    pub fn parse(bytes: Vec<u8>) -> object::Result<Table> {
        let data = bytes.as_slice();
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let (mut segments, mut build_id) = (Vec::new(), String::new());
        for segment in header.program_headers(endian, data)? {
            if segment.p_type(endian) == PT_LOAD {
                let (at, length) = segment.file_range(endian);
                segments.push((at, length, segment.p_vaddr(endian)));
            }
            if segment.p_type(endian) == PT_NOTE
                && let Ok(Some(mut notes)) = segment.notes(endian, data)
            {
                while let Ok(Some(note)) = notes.next() {
                    if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                        build_id = hexadecimal(note.desc());
                    }
                }
            }
        }
        let sections = header.sections(endian, data)?;
        let kinds = [SHT_SYMTAB, SHT_DYNSYM].into_iter();
        let mut functions: Vec<Function> =
            kinds.flat_map(|kind| functions(&sections, endian, data, kind)).collect();
        functions.sort_unstable();
        Ok(Table { bytes, segments, functions, build_id })
    }

    /// The function at an offset of the file.
    pub fn find(&self, offset: u64) -> Option<String> {
        let address = self.segments.iter().find_map(|(at, length, address)| {
            let within = offset.checked_sub(*at).filter(|within| within < length)?;
            address.checked_add(within)
        })?;
        let next = self.functions.partition_point(|function| function.address <= address);
        let function = self.functions.get(next.checked_sub(1)?)?;
        if function.size != 0 && address - function.address >= function.size {
            return None;
        }
        let (begin, end) = function.name;
        let names = self.bytes.get(usize::try_from(begin).ok()?..usize::try_from(end).ok()?)?;
        let name = names.split(|byte| *byte == 0).next()?;
        let name = &name[..name.len().min(LONGEST_NAME)];
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }
}

/// The functions of the first section of a kind, which is a symbol table.
fn functions<'data>(
    sections: &SectionTable<'data, FileHeader64<Endianness>>,
    endian: Endianness,
    data: &'data [u8],
    kind: object::elf::SectionType,
) -> Vec<Function> {
    let Ok(table) = sections.symbols(endian, data, kind) else { return Vec::new() };
    let strings = sections.section(table.string_section()).ok();
    let Some((at, length)) = strings.and_then(|section| section.file_range(endian)) else {
        return Vec::new();
    };
    let end = at.saturating_add(length);
    let is_function = |symbol: &&_| {
        let symbol: &object::elf::Sym64<Endianness> = symbol;
        symbol.st_type() == STT_FUNC && symbol.st_shndx(endian) != SHN_UNDEF
    };
    let function = |symbol: &object::elf::Sym64<Endianness>| Function {
        address: symbol.st_value(endian),
        size: symbol.st_size(endian),
        name: (at.saturating_add(symbol.st_name(endian).into()).min(end), end),
    };
    table.iter().filter(is_function).map(function).collect()
}
