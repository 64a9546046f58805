//! The description of a format that can be read: [`Importer`] or [`CountsImporter`].

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
    /// Whether a match excludes counters. Then it takes precedence over `COUNTS`, because names and
    /// addresses in it may look like counters (`558123456789 alloc::drop`).
    pub certain: bool,
    /// Whether the beginning of a file (up to `HEAD` bytes) looks like this format.
    pub recognises: fn(head: &[u8]) -> bool,
    /// Reads the whole input. Errors name `title` and, for text, the line.
    pub read: fn(title: &str, times: Times, input: &mut dyn BufRead) -> Result<Profile, Fault>,
}

/// Whether the times of samples are kept. Only single samples can keep theirs; equal samples
/// without times are merged and take no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Kept, for up to `TIMED` samples.
    #[default]
    Kept,
    /// Left out, for callers that only add up.
    LeftOut,
}

/// A format of counters, which have no functions.
pub struct CountsImporter {
    /// Name in the catalogue.
    pub name: &'static str,
    /// One line: which tool writes it.
    pub summary: &'static str,
    /// Whether the beginning of a text looks like this format.
    pub recognises: fn(head: &[u8]) -> bool,
    /// Reads the table with this number, counted from 1; with `None`, the only one.
    pub read:
        fn(title: &str, table: Option<usize>, input: &mut dyn BufRead) -> Result<Counts, Fault>,
}

/// Large reads are the most efficient with a trait object.
pub(super) const BUFFER: usize = 256 << 10;

/// Most bytes that a compressed file may unpack to.
pub(super) const MOST_UNPACKED: u64 = 1 << 30;

/// Limits the unpacked bytes: a compressed file of a megabyte may contain a gigabyte.
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

/// Unpacks gzip if necessary, and passes the input to `reader`.
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
