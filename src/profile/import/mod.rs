//! Profiles that other tools took: one file per format, one line each in
//! [`CATALOG`]. Every reader is streaming, so that memory grows with the number
//! of different stacks and not with the size of the file.

mod readprofile;

use super::Profile;
use crate::record::{Fault, FaultKind};
use std::io::BufRead;

/// A format that can be read.
pub trait Importer: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: which tool writes it.
    fn summary(&self) -> &'static str;

    /// Whether the beginning of a file (up to [`HEAD`] bytes) looks like it.
    fn recognises(&self, head: &[u8]) -> bool;

    /// Reads all of it. An error names `title` and, for text, the line.
    fn read(&self, title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault>;
}

/// How much of a file is shown to [`Importer::recognises`].
pub const HEAD: usize = 64 << 10;

/// Every format, the most telling beginnings first.
pub static CATALOG: &[&dyn Importer] = &[&readprofile::Readprofile];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static dyn Importer> {
    CATALOG.iter().copied().find(|importer| importer.name() == name)
}

/// Reads a profile in whatever format it is; `title` is what errors call it.
pub fn read(title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let (head, rest) = peek(title, input)?;
    let importer = CATALOG.iter().find(|importer| importer.recognises(&head)).ok_or_else(|| {
        let known: Vec<&str> = CATALOG.iter().map(|importer| importer.name()).collect();
        Fault::new(FaultKind::Storage, format!("{title} is no profile of a known format"))
            .remedy(format!("known are: {}", known.join(", ")))
    })?;
    importer.read(title, &mut std::io::BufReader::new(std::io::Read::chain(&head[..], rest)))
}

/// The first [`HEAD`] bytes, and what comes after them.
fn peek<'a>(
    title: &str,
    input: &'a mut dyn BufRead,
) -> Result<(Vec<u8>, &'a mut dyn BufRead), Fault> {
    use std::io::Read;
    let mut head = Vec::new();
    (&mut *input)
        .take(HEAD as u64)
        .read_to_end(&mut head)
        .map_err(|e| Fault::new(FaultKind::Storage, format!("cannot read {title}: {e}")))?;
    Ok((head, input))
}
