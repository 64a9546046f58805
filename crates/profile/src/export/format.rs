//! What every writer of a format is: an [`Exporter`].

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
    /// Whether it is unfit for a terminal.
    pub binary: bool,
    pub(super) write: fn(profile: &Profile, out: &mut dyn Write) -> io::Result<()>,
}

impl Exporter {
    /// Writes the profile. Fails only where `out` does.
    pub fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        (self.write)(profile, out)
    }
}
