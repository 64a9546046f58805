//! The symbols of an untrusted program, and nothing else. Nothing is decompressed or demangled, no
//! other file is searched for, and whatever the file contains, the time taken grows only with its
//! size.

use super::names::build_id;
use object::Endianness;
use object::elf::{
    FileHeader64, PT_LOAD, PT_NOTE, ProgramHeader64, SHN_UNDEF, SHT_DYNSYM, SHT_SYMTAB, STT_FUNC,
    SectionType, Sym64,
};
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader, SectionTable, Sym};

/// Longest name that is shown, in bytes.
const LONGEST_NAME: usize = 1024;

/// Most segments: the kernel runs nothing with more (`load_elf_phdrs`, fs/binfmt_elf.c). Each may
/// cover the whole file.
const MOST_SEGMENTS: usize = 65_536 / 56;

/// Largest note segment that is searched for a build id, in bytes.
const LARGEST_NOTES: u64 = 1 << 16;

/// Functions of a file, by address.
#[derive(Debug)]
pub(super) struct Table {
    bytes: Vec<u8>,
    /// Loaded segments: offset in the file, length, address.
    segments: Vec<(u64, u64, u64)>,
    functions: Vec<Function>,
    pub build_id: String,
}

/// Ordered by address, then by size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    /// In bytes; 0 if unknown.
    size: u64,
    /// Offsets in the file of the beginning of its name and of the end of the string table.
    name: (u64, u64),
}

impl Table {
    /// Parses a 64-bit file.
    pub(super) fn parse(bytes: Vec<u8>) -> object::Result<Table> {
        let data = bytes.as_slice();
        let header = FileHeader64::<Endianness>::parse(data)?;
        let endian = header.endian()?;
        let all = header.program_headers(endian, data)?;
        let all = &all[..all.len().min(MOST_SEGMENTS)];
        let of_kind = |kind| all.iter().filter(move |segment| segment.p_type(endian) == kind);
        let place = |segment: &ProgramHeader64<Endianness>| {
            let (at, length) = segment.file_range(endian);
            (at, length, segment.p_vaddr(endian))
        };
        let segments = of_kind(PT_LOAD).map(place).collect();
        let notes = of_kind(PT_NOTE).filter(|notes| notes.p_filesz(endian) <= LARGEST_NOTES);
        let mut notes = notes.filter_map(|segment| segment.notes(endian, data).ok()?);
        let build_id = notes.find_map(|notes| build_id(endian, notes)).unwrap_or_default();
        let sections = header.sections(endian, data)?;
        let kinds = [SHT_SYMTAB, SHT_DYNSYM].into_iter();
        let mut functions: Vec<Function> =
            kinds.flat_map(|kind| functions(&sections, endian, data, kind)).collect();
        functions.sort_unstable();
        Ok(Table { bytes, segments, functions, build_id })
    }

    /// Returns the function at an offset of the file.
    pub(super) fn find(&self, offset: u64) -> Option<String> {
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
        let name = names[..names.len().min(LONGEST_NAME)].split(|byte| *byte == 0).next()?;
        (!name.is_empty()).then(|| String::from_utf8_lossy(name).into_owned())
    }
}

/// Returns the functions of the first section of this kind, which is a symbol table.
fn functions<'data>(
    sections: &SectionTable<'data, FileHeader64<Endianness>>,
    endian: Endianness,
    data: &'data [u8],
    kind: SectionType,
) -> Vec<Function> {
    let Ok(table) = sections.symbols(endian, data, kind) else { return Vec::new() };
    let strings = sections.section(table.string_section()).ok();
    let Some((at, length)) = strings.and_then(|section| section.file_range(endian)) else {
        return Vec::new();
    };
    let end = at.saturating_add(length);
    let is_function =
        |symbol: &&Sym64<_>| symbol.st_type() == STT_FUNC && symbol.st_shndx(endian) != SHN_UNDEF;
    let function = |symbol: &Sym64<_>| Function {
        address: symbol.st_value(endian),
        size: symbol.st_size(endian),
        name: (at.saturating_add(symbol.st_name(endian).into()).min(end), end),
    };
    table.iter().filter(is_function).map(function).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each of its 60,000 program headers states that the whole file consists of notes.
    #[test]
    fn headers_that_repeat_the_file_take_no_more_time() {
        const HEADERS: u16 = 60_000;
        let mut bytes =
            include_bytes!("../../../../fuzz/seeds/symbols/with-debug-information").to_vec();
        let zeros = bytes.len().next_multiple_of(8);
        let (headers, length) = (zeros + (4 << 20), 4u64 << 20);
        bytes.resize(headers, 0);
        for _ in 0..HEADERS {
            let words = [PT_NOTE.0.into(), zeros as u64, 0, 0, length, 0, 4];
            words.iter().for_each(|word: &u64| bytes.extend(word.to_le_bytes()));
        }
        // e_phoff and e_phnum.
        bytes[32..40].copy_from_slice(&(headers as u64).to_le_bytes());
        bytes[56..58].copy_from_slice(&HEADERS.to_le_bytes());
        let table = Table::parse(bytes).unwrap();
        assert_eq!((table.build_id.as_str(), table.segments.len()), ("", 0));
    }
}
