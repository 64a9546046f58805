//! Formats that a profile can be written in: one file per format, one line each in [`CATALOG`].

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
    /// One line: which program reads it.
    pub summary: &'static str,
    /// File name extension, without the dot.
    pub extension: &'static str,
    /// Whether it is not text.
    pub binary: bool,
    write: fn(profile: &Profile, out: &mut dyn Write) -> io::Result<()>,
}

impl Exporter {
    /// Returns whether it is unsuitable for a terminal: binary, or an image.
    pub fn for_files(&self) -> bool {
        self.binary || self.extension == "svg"
    }

    /// Writes the profile. Errors only if `out` does.
    pub fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        (self.write)(profile, out)
    }
}

pub static CATALOG: &[&Exporter] =
    &[&pprof::FORMAT, &folded::FORMAT, &svg::FORMAT, &firefox::FORMAT];

/// Returns the format with this name.
pub fn find(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| exporter.name == name)
}

/// Returns the first format with the extension of this file name.
pub fn find_by_file_name(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| {
        name.strip_suffix(exporter.extension).is_some_and(|rest| rest.ends_with('.'))
    })
}
