//! Sources that a meter keeps open from trial to trial, found once per tree of files.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// A source, and the root folder that it was found in.
pub(super) struct SharedSource<T>(Mutex<Option<(PathBuf, T)>>);

impl<T: Clone> SharedSource<T> {
    pub(super) const fn new() -> SharedSource<T> {
        SharedSource(Mutex::new(None))
    }

    /// Returns the source below this root, from `open` unless it is already open.
    pub(super) fn get(&self, root: &Path, open: impl FnOnce(&Path) -> T) -> T {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some((known, source)) if known == root => source.clone(),
            _ => current.insert((root.to_owned(), open(root))).1.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opens_once_for_each_root() {
        let source = SharedSource::new();
        assert_eq!(source.get(Path::new("/a"), |_| 1), 1);
        assert_eq!(source.get(Path::new("/a"), |_| unreachable!("it is open")), 1);
        assert_eq!(source.get(Path::new("/b"), |_| 2), 2);
        assert_eq!(source.get(Path::new("/a"), |_| 3), 3, "one root is kept at a time");
    }
}
