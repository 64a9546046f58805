//! Files of programs, possibly of other users: whole CPUs are sampled, so a profile taken by root
//! names functions of whatever else ran there.
//!
//! A file that only root or this user may write, in folders that no one else may change, is trusted
//! and read with its debug information, including that in files it refers to. From any other file
//! only the symbol tables are read: the file that it refers to may be a device or a FIFO, and its
//! compressed sections may unpack to any size.

use super::table::Table;
use rustix::fs::OFlags;
use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of a program.
#[derive(Debug)]
pub(super) enum Binary {
    /// A trusted file, which is read in place.
    Trusted(PathBuf),
    /// The symbols of an untrusted one.
    Other(Table),
}

impl Binary {
    /// Opens a file. `room` is the number of bytes of untrusted files that may still be read.
    pub(super) fn open(path: &Path, room: &mut u64) -> Option<Binary> {
        let file = open(path)?;
        let found = file.metadata().ok()?;
        if let Some(path) = trusted(path, &found) {
            return Some(Binary::Trusted(path));
        }
        if found.len() > *room {
            return None;
        }
        let mut bytes = Vec::new();
        file.take(*room).read_to_end(&mut bytes).ok()?;
        Binary::other(bytes, room)
    }

    /// Reads an untrusted file from its bytes.
    pub(super) fn other(bytes: Vec<u8>, room: &mut u64) -> Option<Binary> {
        *room = room.checked_sub(bytes.len() as u64)?;
        Table::parse(bytes).ok().map(Binary::Other)
    }
}

/// Opens a regular file only: merely opening a device may change its state, and opening a FIFO
/// waits for the other end.
fn open(path: &Path) -> Option<File> {
    let is_regular = |found: io::Result<Metadata>| found.is_ok_and(|found| found.is_file());
    let nonblock = OFlags::NONBLOCK.bits() as i32;
    let open = || OpenOptions::new().read(true).custom_flags(nonblock).open(path).ok();
    let file = is_regular(metadata(path)).then(open)??;
    is_regular(file.metadata()).then_some(file)
}

/// Returns the canonical path of a trusted file; `None` if it is not trusted.
fn trusted(path: &Path, file: &Metadata) -> Option<PathBuf> {
    let is_same = |other: &Metadata| (other.dev(), other.ino()) == (file.dev(), file.ino());
    // This program itself is trusted, whoever may have written it.
    if metadata("/proc/self/exe").is_ok_and(|own| is_same(&own)) {
        return Some(path.to_owned());
    }
    let own = rustix::process::geteuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().filter(|_| own == 0);
    let owners = [Some(0), Some(own), sudo.and_then(|uid| uid.parse().ok())];
    // The path of a process in another mount namespace may refer to another file here.
    let path = path.canonicalize().ok()?;
    let is_safe = |(depth, part): (usize, &Path)| {
        let Ok(part) = metadata(part) else { return false };
        // In a sticky folder others can only add files; for the file's own folder even that is too
        // much.
        let is_shared = part.mode() & 0o002 != 0 && (depth < 2 || part.mode() & 0o1000 == 0);
        owners.contains(&Some(part.uid())) && !is_shared && (depth > 0 || is_same(&part))
    };
    path.ancestors().enumerate().all(is_safe).then_some(path)
}
