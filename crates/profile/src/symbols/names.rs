//! Names of addresses without a symbol, and of files.

use crate::text::hexadecimal;
use crate::{Frame, FrameKind};
use object::Endianness;
use object::elf::{ELF_NOTE_GNU, FileHeader64, NT_GNU_BUILD_ID};
use object::read::elf::{Note, NoteIterator};

type Header = FileHeader64<Endianness>;

pub(super) fn unnamed(address: u64, module: &str, kind: FrameKind) -> Frame {
    Frame { function: format!("{address:#x}"), module: module.to_owned(), kind, ..Frame::default() }
}

/// Finds the build id among the notes of a file, as hexadecimal digits.
pub(super) fn build_id(endian: Endianness, mut notes: NoteIterator<Header>) -> Option<String> {
    let mut notes = std::iter::from_fn(|| notes.next().ok()?);
    let is_id =
        |note: &Note<Header>| note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID;
    notes.find(is_id).map(|note| hexadecimal(note.desc()))
}
