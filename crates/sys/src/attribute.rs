//! Attributes of sysfs: small files with one value each (sysfs(5)).

use rustix::io::{pread, retry_on_intr};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Most bytes to read: an attribute has at most one page, other files of `/proc` have more.
const LONGEST: u64 = 1 << 20;

/// Returns the text of an attribute without surrounding white space; `None` if it cannot be read.
/// Bytes that are not UTF-8 are replaced.
pub fn text(path: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(LONGEST).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).trim().to_owned())
}

/// Returns the names in a folder, sorted; empty if there is no such folder.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort();
    names
}

/// Parses "0-3,8" into numbers, ascending (the kernel's list format, lib/bitmap.c); anything that
/// is not a number is skipped.
pub fn list(text: &str) -> Vec<u32> {
    // Far above what the kernel supports (8192 on x86-64); keeps an absurd range from filling the
    // memory.
    const MOST: u32 = 1 << 16;
    let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n < MOST);
    let mut all: Vec<u32> = text
        .split(',')
        .filter_map(|part| match part.split_once('-') {
            Some((first, last)) => Some(number(first)?..=number(last)?),
            None => number(part).map(|n| n..=n),
        })
        .flatten()
        .take(1 << 20)
        .collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// An attribute that is one number and is read repeatedly, without allocating, by one pread(2). It
/// stays open if it was opened by [`Number::open`].
#[derive(Debug)]
pub struct Number {
    path: PathBuf,
    file: Option<File>,
}

impl Number {
    /// Opens an attribute and keeps it open. EACCES: this user may not read it.
    pub fn open(path: PathBuf) -> io::Result<Number> {
        let file = Some(File::open(&path)?);
        Ok(Number { path, file })
    }

    /// An attribute that is opened for each reading, for use when there are more of them than a
    /// process may have open.
    pub fn closed(path: PathBuf) -> Number {
        Number { path, file: None }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the number. InvalidData: it is not a number.
    pub fn read(&self) -> io::Result<i64> {
        let mut buffer = [0; 64];
        let mut read = |file: &File| retry_on_intr(|| pread(file, &mut buffer[..], 0));
        let len = match &self.file {
            Some(file) => read(file),
            None => read(&File::open(&self.path)?),
        }?;
        let text = buffer.get(..len).map(String::from_utf8_lossy).unwrap_or_default();
        number(&text).ok_or_else(|| {
            let shown: String = text.trim().chars().take(30).collect();
            let what = format!("{} is not a number but '{shown}'", self.path.display());
            io::Error::new(ErrorKind::InvalidData, what)
        })
    }
}

/// Parses a whole number, ignoring surrounding white space. Numbers beyond 63 bits become the
/// largest.
pub fn number(text: &str) -> Option<i64> {
    let text = text.trim();
    text.parse().ok().or_else(|| text.parse::<u64>().ok().map(|_| i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_lists() {
        assert_eq!(number(" 42\n"), Some(42));
        assert_eq!(number("-7"), Some(-7));
        assert_eq!(number("18446744073709551615"), Some(i64::MAX));
        for nonsense in ["", "1.5", "x", "1 2"] {
            assert_eq!(number(nonsense), None, "{nonsense}");
        }
        assert_eq!(list("0-2,8, 5\n"), [0, 1, 2, 5, 8]);
        assert_eq!(list("x,3-1,4294967295,0-99999999"), [0u32; 0]);
    }

    #[test]
    fn a_number_is_what_the_file_says_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("energy_uj");
        fs::write(&path, "17\n").unwrap();
        let (open, closed) = (Number::open(path.clone()).unwrap(), Number::closed(path.clone()));
        assert_eq!((open.read().unwrap(), closed.read().unwrap()), (17, 17));
        fs::write(&path, "18\n").unwrap();
        assert_eq!((open.read().unwrap(), closed.read().unwrap()), (18, 18));
        fs::write(&path, "none\n").unwrap();
        let error = open.read().unwrap_err();
        assert!(error.to_string().contains("energy_uj is not a number but 'none'"), "{error}");
    }
}
