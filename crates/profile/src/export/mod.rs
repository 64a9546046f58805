//! What a profile can become: one file per format, one line each in [`CATALOG`].

mod firefox;
mod folded;
mod pprof;
mod svg;

pub use pprof::Pprof;

use super::Profile;
use std::io::{self, Write};

/// A format that can be written.
pub trait Exporter: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: what reads it.
    fn summary(&self) -> &'static str;

    /// How the name of a file of this format ends, without the dot.
    fn extension(&self) -> &'static str;

    /// Whether it is unfit for a terminal.
    fn binary(&self) -> bool {
        false
    }

    /// Writes the profile. Fails only where `out` does.
    fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()>;
}

/// Every format.
pub static CATALOG: &[&dyn Exporter] =
    &[&pprof::Pprof, &folded::Folded, &svg::Svg, &firefox::Firefox];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static dyn Exporter> {
    CATALOG.iter().copied().find(|exporter| exporter.name() == name)
}

/// The first format whose files are named like this one.
pub fn find_by_file_name(name: &str) -> Option<&'static dyn Exporter> {
    CATALOG.iter().copied().find(|exporter| {
        name.strip_suffix(exporter.extension()).is_some_and(|rest| rest.ends_with('.'))
    })
}
