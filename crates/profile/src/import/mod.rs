//! Profiles that other tools took: one file per format, one line each in
//! [`CATALOG`]. Every reader is streaming, so that memory grows with the number
//! of different stacks and not with the size of the file.

mod collect;
pub(super) mod conventions;
mod folded;
mod header;
mod lines;
mod number;
mod perf_data;
mod perf_report;
mod perf_script;
mod pprof;
mod readprofile;

pub use self::pprof::FORMAT as PPROF;
pub use collect::TIMED;
pub(super) use lines::quote;

use super::Profile;
use crate::record::{Fault, FaultKind};
use flate2::bufread::MultiGzDecoder;
use lines::unreadable;
use std::io::{BufRead, BufReader, Read};

/// A format that can be read.
pub struct Importer {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: which tool writes it.
    pub summary: &'static str,
    /// Whether the beginning of a file (up to [`HEAD`] bytes) looks like it.
    pub recognises: fn(head: &[u8]) -> bool,
    read: fn(title: &str, times: Times, input: &mut dyn BufRead) -> Result<Profile, Fault>,
}

impl Importer {
    /// Reads all of it. An error names `title` and, for text, the line.
    pub fn read(
        &self,
        title: &str,
        times: Times,
        input: &mut dyn BufRead,
    ) -> Result<Profile, Fault> {
        (self.read)(title, times, input)
    }
}

/// What becomes of the moments at which samples were taken. Only one sample in
/// a line of events can keep its own; equal ones without take no memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Kept, up to [`TIMED`] samples.
    #[default]
    Kept,
    /// Left out: for whoever only adds up.
    LeftOut,
}

/// How much of a file is shown to [`Importer::recognises`].
pub const HEAD: usize = 64 << 10;

/// Every format, the most telling beginnings first.
pub static CATALOG: &[&Importer] = &[
    &perf_data::FORMAT,
    &pprof::FORMAT,
    &perf_report::FORMAT,
    &perf_script::FORMAT,
    &readprofile::FORMAT,
    &folded::FORMAT,
];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static Importer> {
    CATALOG.iter().copied().find(|importer| importer.name == name)
}

/// Reads a profile in whatever format it is; `title` is what errors call it.
/// What gzip has packed is unpacked first.
pub fn read(title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    recognised(title, Times::Kept, input)
}

/// As [`read`], for whoever has no use for the times of samples.
pub fn read_sums(title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    recognised(title, Times::LeftOut, input)
}

fn recognised(title: &str, times: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    plain(title, input, &mut |input| {
        let head = peek(title, input)?;
        let importer =
            CATALOG.iter().find(|importer| (importer.recognises)(&head)).ok_or_else(|| {
                let known: Vec<&str> = CATALOG.iter().map(|importer| importer.name).collect();
                Fault::new(FaultKind::Storage, format!("{title} is no profile of a known format"))
                    .remedy(format!("known are: {}", known.join(", ")))
            })?;
        let mut input = BufReader::with_capacity(BUFFER, head.chain(input));
        importer.read(title, times, &mut input)
    })
}

/// Reads a profile of a known format, which gzip may have packed.
pub fn read_as(
    importer: &Importer,
    title: &str,
    input: &mut dyn BufRead,
) -> Result<Profile, Fault> {
    plain(title, input, &mut |input| importer.read(title, Times::Kept, input))
}

/// Reading in large pieces, which what is behind a trait object is best read in.
const BUFFER: usize = 256 << 10;

/// Unpacks what gzip has packed, and hands it to `reader`.
fn plain(
    title: &str,
    input: &mut dyn BufRead,
    reader: &mut dyn FnMut(&mut dyn BufRead) -> Result<Profile, Fault>,
) -> Result<Profile, Fault> {
    let head = input.fill_buf().map_err(|e| unreadable(title, &e))?;
    if head.starts_with(&[0x1f, 0x8b]) {
        reader(&mut BufReader::with_capacity(BUFFER, MultiGzDecoder::new(input)))
    } else {
        reader(input)
    }
}

/// The first [`HEAD`] bytes.
fn peek(title: &str, input: &mut dyn BufRead) -> Result<Vec<u8>, Fault> {
    let mut head = Vec::new();
    input.take(HEAD as u64).read_to_end(&mut head).map_err(|e| unreadable(title, &e))?;
    Ok(head)
}
