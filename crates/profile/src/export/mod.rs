//! What a profile can become: one file per format, one line each in [`CATALOG`].

mod firefox;
mod folded;
mod pprof;
mod svg;

pub use pprof::FORMAT as PPROF;

use crate::Profile;
use std::io::{self, Write};

/// A format that can be written.
pub struct Exporter {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: what reads it.
    pub summary: &'static str,
    /// How the name of a file of this format ends, without the dot.
    pub extension: &'static str,
    /// Whether it is anything but text.
    pub binary: bool,
    write: fn(profile: &Profile, out: &mut dyn Write) -> io::Result<()>,
}

impl Exporter {
    /// Whether it is unfit for a terminal: binary, or a figure.
    pub fn for_files(&self) -> bool {
        self.binary || self.extension == "svg"
    }

    /// Writes the profile. Fails only where `out` does.
    pub fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        (self.write)(profile, out)
    }
}

pub static CATALOG: &[&Exporter] =
    &[&pprof::FORMAT, &folded::FORMAT, &svg::FORMAT, &firefox::FORMAT];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| exporter.name == name)
}

/// The first format whose files are named like this one.
pub fn find_by_file_name(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| {
        name.strip_suffix(exporter.extension).is_some_and(|rest| rest.ends_with('.'))
    })
}
