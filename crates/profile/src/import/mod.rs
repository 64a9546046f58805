//! Reads profiles of other tools: one file per format, one line each in [`CATALOG`]. Most readers
//! are streaming, so that memory grows with the number of different stacks and not with the size of
//! the file.

mod collect;
mod counters;
mod folded;
mod format;
mod header;
mod lines;
mod mail;
mod number;
mod perf_data;
mod perf_report;
mod perf_rows;
mod perf_script;
mod perf_stat;
mod perf_trace;
mod pprof;
mod readprofile;
mod tables;

pub use self::pprof::FORMAT as PPROF;
pub use collect::TIMED;
pub use format::{CountsImporter, Importer, Times};
pub use lines::HEAD;

use crate::Profile;
use crate::counts::Counts;
use bytepath_record::Fault;
use format::{BUFFER, plain};
use lines::unreadable;
use std::io::{BufRead, BufReader, Read};

/// Every format, the most distinctive beginnings first.
pub static CATALOG: &[&Importer] = &[
    &perf_data::FORMAT,
    &pprof::FORMAT,
    &perf_report::FORMAT,
    &readprofile::FORMAT,
    &mail::FORMAT,
    &perf_script::FORMAT,
    &folded::FORMAT,
];

/// Every format of counters. They are tried before the text formats of [`CATALOG`].
pub static COUNTS: &[&CountsImporter] = &[&perf_stat::FORMAT, &perf_trace::FORMAT];

/// Texts of other programs: how they begin, what they are, and what converts them to a profile.
const OTHERS: &[(&str, &str, &str)] = &[
    ("heap profile: ", "a heap profile of gperftools", "pprof -proto PROGRAM FILE converts it"),
    ("heap_v2/", "a heap profile of jemalloc", "jeprof --collapsed PROGRAM FILE converts it"),
    ("goroutine profile: ", GO, BINARY),
    ("--- ", GO, BINARY),
    ("Flat profile:", "a table of gprof", "perf record and perf script make a profile"),
    ("# tracer: ", "a trace of ftrace", "perf record and perf script make a profile"),
    ("Sampling at ", "stacks of bcc's profile", "its option -f prints them folded"),
    ("Attaching ", "stacks of bpftrace", "stackcollapse-bpftrace.pl converts them"),
    ("@[", "stacks of bpftrace", "stackcollapse-bpftrace.pl converts them"),
];

const GO: &str = "a profile of Go as text";
const BINARY: &str = "get it without debug=1: then it is pprof";

/// The content of a file.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "there is one for each file, and it is destructured")]
pub enum Content {
    Profile(Profile),
    Counts(Counts),
}

/// Returns the format with this name.
pub fn find(name: &str) -> Option<&'static Importer> {
    CATALOG.iter().copied().find(|importer| importer.name == name)
}

/// Reads a profile in any known format; `title` names it in errors. Unpacks gzip first.
pub fn read(title: &str, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    open(title, ReadOptions::default(), input)?.profile()
}

/// Which part of a file to read, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct ReadOptions<'a> {
    /// Name of its format; `None` to detect it from the first bytes.
    pub format: Option<&'a str>,
    /// Number of the table to read if a mail has several, counted from 1.
    pub table: Option<usize>,
    /// Whether to keep the times of samples.
    pub times: Times,
    /// Whether to look up addresses in this host's symbols, provided the kernel, module or program
    /// is still the one that was recorded. Only for `perf.data`, which contains no names.
    pub symbols: bool,
}

/// Beginning of the note that explains why functions of a profile are addresses.
pub const UNNAMED: &str = "functions without a name: ";

/// Like [`read`], with options, and for counters too.
pub fn open(
    title: &str,
    wanted: ReadOptions<'_>,
    input: &mut dyn BufRead,
) -> Result<Content, Fault> {
    let ReadOptions { format, table, times, symbols } = wanted;
    plain(title, input, &mut |input| {
        let mut head = Vec::new();
        input.take(HEAD as u64).read_to_end(&mut head).map_err(|e| unreadable(title, &e))?;
        let is = |name: &str, recognises: fn(&[u8]) -> bool| {
            format.map_or_else(|| recognises(&head), |format| format == name)
        };
        let profile = CATALOG.iter().find(|it| is(it.name, it.recognises));
        let counts = match profile {
            Some(importer) if importer.certain => None,
            _ => COUNTS.iter().find(|it| is(it.name, it.recognises)),
        };
        let mut input = BufReader::with_capacity(BUFFER, head.as_slice().chain(input));
        match (counts, profile) {
            (Some(importer), _) => (importer.read)(title, table, &mut input).map(Content::Counts),
            // Any other format has only one table, which may be embedded in a mail.
            (None, Some(_)) if table.is_some() => {
                mail::read(title, table, &mut input).map(Content::Profile)
            }
            (None, Some(importer)) if symbols && importer.name == perf_data::FORMAT.name => {
                perf_data::read_here(title, times, &mut input).map(Content::Profile)
            }
            (None, Some(importer)) => {
                (importer.read)(title, times, &mut input).map(Content::Profile)
            }
            (None, None) => {
                let known = CATALOG.iter().map(|importer| importer.name);
                let known: Vec<&str> = known.chain(COUNTS.iter().map(|it| it.name)).collect();
                let what = format!("{title} is not a profile of a known format");
                Err(match OTHERS.iter().find(|(start, ..)| head.starts_with(start.as_bytes())) {
                    Some((_, what_else, remedy)) => {
                        Fault::storage(format!("{what}: it looks like {what_else}")).remedy(*remedy)
                    }
                    None => Fault::storage(what).remedy(format!(
                        "known formats: {}; of perf script with -F, ip or time is needed",
                        known.join(", ")
                    )),
                })
            }
        }
    })
}

impl Content {
    /// Returns the profile; errors if there are counters.
    pub fn profile(self) -> Result<Profile, Fault> {
        match self {
            Content::Profile(profile) => Ok(profile),
            Content::Counts(Counts { title, .. }) => {
                let what = format!("{title} holds counters, not functions");
                Err(Fault::storage(what).remedy("bytepath diff compares two such texts"))
            }
        }
    }
}
