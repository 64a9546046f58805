//! What a meter keeps open from trial to trial, found once in a tree of files.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Sources of a meter, and the root folder they were found in.
pub(super) struct Held<T>(Mutex<Option<(PathBuf, Arc<T>)>>);

impl<T> Held<T> {
    /// Nothing is open yet.
    pub(super) const fn new() -> Held<T> {
        Held(Mutex::new(None))
    }

    /// The sources below this root; `open` finds them if they are not held yet.
    pub(super) fn get(&self, root: &Path, open: impl FnOnce(&Path) -> T) -> Arc<T> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            Some((held, sources)) if held == root => Arc::clone(sources),
            _ => {
                let sources = Arc::new(open(root));
                *known = Some((root.to_owned(), Arc::clone(&sources)));
                sources
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sources_are_found_once_for_each_root() {
        let held = Held::new();
        let first = held.get(Path::new("/a"), |_| 1);
        assert_eq!(*held.get(Path::new("/a"), |_| unreachable!("it is held")), *first);
        assert_eq!(*held.get(Path::new("/b"), |_| 2), 2);
        assert_eq!(*held.get(Path::new("/a"), |_| 3), 3, "one root is held at a time");
    }
}
