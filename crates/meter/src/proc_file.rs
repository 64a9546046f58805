//! Files of `/proc` that meters read several times.

use bytepath_record::Fault;
use bytepath_sys::procfs::{Malformed, Source};
use std::path::PathBuf;

/// A file of `/proc` that is read at both edges of the window and whose errors contain its name.
pub(crate) struct ProcFile {
    source: Source,
    path: PathBuf,
}

impl ProcFile {
    pub(crate) fn open(path: PathBuf) -> Result<Self, Fault> {
        let source = Source::open(&path).map_err(|e| Fault::system(path.display(), &e))?;
        Ok(ProcFile { source, path })
    }

    /// Reads the file and parses it with `take`.
    pub(crate) fn read<T>(
        &mut self,
        take: impl FnOnce(&str) -> Result<T, Malformed>,
    ) -> Result<T, Fault> {
        let text = self.source.read().map_err(|e| Fault::system(self.path.display(), &e))?;
        take(&text).map_err(|e| {
            Fault::unsupported(e.to_string())
                .remedy("disable this meter, and please report the kernel version")
        })
    }
}
