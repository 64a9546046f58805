//! What every reader of a format is: an [`Importer`] or a [`CountsImporter`].

use super::lines::unreadable;
use crate::Profile;
use crate::counts::Counts;
use bytepath_record::Fault;
use flate2::bufread::MultiGzDecoder;
use std::io::{self, BufRead, BufReader, Read};

/// A format that can be read.
pub struct Importer {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: which tool writes it.
    pub summary: &'static str,
    /// Whether what is recognised is never a text of counters: asked before `COUNTS`, for names and
    /// addresses in it may read like a line of those (`558123456789 alloc::drop`).
    pub certain: bool,
    /// Whether the beginning of a file (up to `HEAD` bytes) looks like it.
    pub recognises: fn(head: &[u8]) -> bool,
    /// Reads all of it. An error names `title` and, for text, the line.
    pub read: fn(title: &str, times: Times, input: &mut dyn BufRead) -> Result<Profile, Fault>,
}

/// What becomes of the moments at which samples were taken. Only one sample in
/// a line of events can keep its own; equal ones without take no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Kept, up to `TIMED` samples.
    #[default]
    Kept,
    /// Left out: for callers that only add up.
    LeftOut,
}

/// A format of counters, which have no functions.
pub struct CountsImporter {
    /// Name in the catalogue.
    pub name: &'static str,
    /// One line: which tool writes it.
    pub summary: &'static str,
    /// Whether the beginning of a text looks like it.
    pub recognises: fn(head: &[u8]) -> bool,
    /// Reads the table of this number, counted from 1; without, the only one.
    pub read:
        fn(title: &str, table: Option<usize>, input: &mut dyn BufRead) -> Result<Counts, Fault>,
}

/// Reading in large pieces, the best way to read from a trait object.
pub(super) const BUFFER: usize = 256 << 10;

/// Most bytes that a packed file may unpack to.
pub(super) const MOST_UNPACKED: u64 = 1 << 30;

/// What is unpacked, up to a limit: a packed file of a megabyte may hold a gigabyte.
struct Unpacked<R> {
    input: R,
    left: u64,
}

impl<R: Read> Read for Unpacked<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.input.read(buffer)?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| {
            let text = format!("it unpacks to more than {} MiB", MOST_UNPACKED >> 20);
            io::Error::new(io::ErrorKind::InvalidData, text)
        })?;
        Ok(count)
    }
}

/// Unpacks what gzip has packed, and hands it to `reader`.
pub(super) fn plain<T>(
    title: &str,
    input: &mut dyn BufRead,
    reader: &mut dyn FnMut(&mut dyn BufRead) -> Result<T, Fault>,
) -> Result<T, Fault> {
    let head = input.fill_buf().map_err(|e| unreadable(title, &e))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        let unpacked = Unpacked { input: MultiGzDecoder::new(input), left: MOST_UNPACKED };
        reader(&mut BufReader::with_capacity(BUFFER, unpacked))
    } else {
        reader(input)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::Compression;
    use flate2::write::GzEncoder;
    use std::io::Write;

    #[test]
    fn what_is_unpacked_is_bounded() {
        let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
        packed.write_all(&[b'x'; 1000]).unwrap();
        let packed = packed.finish().unwrap();
        let read = |left| {
            let mut unpacked = Unpacked { input: MultiGzDecoder::new(packed.as_slice()), left };
            unpacked.read_to_end(&mut Vec::new())
        };
        assert_eq!(read(1000).unwrap(), 1000);
        assert_eq!(read(999).unwrap_err().to_string(), "it unpacks to more than 1024 MiB");
    }
}
