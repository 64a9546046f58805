//! NVIDIA's driver libraries, which may be missing, loaded at run time.

use libloading::{Library, Symbol};
use std::io;

/// A library that stays loaded for good, because it starts threads of its own.
#[derive(Clone, Copy)]
pub(crate) struct Loaded {
    file: &'static str,
    library: &'static Library,
}

impl Loaded {
    /// Loads a library by its file name.
    pub(crate) fn load(file: &'static str) -> io::Result<Loaded> {
        // SAFETY: both libraries have initialisers that may run in any thread of any process.
        let library = unsafe { Library::new(file) }.map_err(|_| {
            io::Error::other(format!("{file} cannot be loaded: no NVIDIA driver is installed"))
        })?;
        Ok(Loaded { file, library: Box::leak(Box::new(library)) })
    }

    /// Looks up a function of the library.
    ///
    /// # Safety
    ///
    /// `T` is the type of the function with that name.
    pub(crate) unsafe fn find<T: Copy>(&self, name: &str) -> io::Result<T> {
        // SAFETY: by the caller's promise; the library is never unloaded.
        let symbol: Result<Symbol<T>, _> = unsafe { self.library.get(name) };
        let missing = |_| io::Error::other(format!("{} is too old: it has no {name}", self.file));
        symbol.map(|symbol| *symbol).map_err(missing)
    }
}
