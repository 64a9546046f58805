//! Files of programs, which may be anyone's: whole CPUs are sampled, so a profile taken by root
//! names functions of whatever else ran there.
//!
//! A file that only root or this user may write, in folders that no one else may change, is read
//! where it is, with its debugging information and that of files that it names. Of any other the
//! symbol tables alone are read, from a copy, and nothing in it may be compressed: the name of another
//! file may be that of a device, the length of a section any number, a file may shrink while it is
//! read.

use object::elf::SHF_COMPRESSED;
use object::{Object, ObjectSection, SectionFlags};
use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use std::fs::{File, Metadata, OpenOptions, metadata};
use std::io::{self, Error, ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file of a program, and how far it is believed.
#[derive(Debug)]
pub(super) struct Binary {
    /// Where it can be opened.
    pub path: PathBuf,
    /// Whether its debugging information may be read, too.
    pub is_trusted: bool,
    /// What `path` leads to if it is a copy.
    _copy: Option<File>,
}

impl Binary {
    /// Opens a file, and copies it if need be. `room` is how many bytes of copies there may still be.
    pub fn open(path: &Path, room: &mut u64) -> io::Result<Binary> {
        let refused = || Error::new(ErrorKind::InvalidInput, "not a regular file");
        // Already opening a device may change it, and that of a FIFO waits for its other end.
        if !metadata(path)?.is_file() {
            return Err(refused());
        }
        let nonblock = OFlags::NONBLOCK.bits() as i32;
        let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(refused());
        }
        if let Some(path) = trusted(path, &found) {
            return Ok(Binary { path, is_trusted: true, _copy: None });
        }
        if found.len() > *room {
            return Err(too_large());
        }
        let mut bytes = Vec::new();
        file.take(room.saturating_add(1)).read_to_end(&mut bytes)?;
        Binary::copy(&bytes, room)
    }

    /// A copy of a file with these bytes, which anyone may have written.
    pub fn copy(bytes: &[u8], room: &mut u64) -> io::Result<Binary> {
        let refused = |what: &str| Error::new(ErrorKind::InvalidData, what);
        *room = room.checked_sub(bytes.len() as u64).ok_or_else(too_large)?;
        let parsed = object::File::parse(bytes).map_err(Error::other)?;
        let is_compressed = |section: &object::Section| match section.flags() {
            SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(SHF_COMPRESSED),
            _ => true,
        };
        let is_debug =
            |of: &object::Section| of.name_bytes().is_ok_and(|name| name.starts_with(b".debug_"));
        if parsed.sections().any(|section| is_compressed(&section) && !is_debug(&section)) {
            return Err(refused("its symbols are compressed"));
        }
        let mut copy = File::from(memfd_create("symbols", MemfdFlags::CLOEXEC)?);
        copy.write_all(bytes)?;
        let path = format!("/proc/self/fd/{}", copy.as_raw_fd()).into();
        Ok(Binary { path, is_trusted: false, _copy: Some(copy) })
    }
}

fn too_large() -> Error {
    Error::new(ErrorKind::FileTooLarge, "there is no room for a copy")
}

/// The true path of a file that is trusted.
fn trusted(path: &Path, file: &Metadata) -> Option<PathBuf> {
    let is_same = |other: &Metadata| (other.dev(), other.ino()) == (file.dev(), file.ino());
    // Whoever may have written this very program.
    if metadata("/proc/self/exe").is_ok_and(|own| is_same(&own)) {
        return Some(path.to_owned());
    }
    let own = rustix::process::geteuid().as_raw();
    let sudo = std::env::var("SUDO_UID").ok().filter(|_| own == 0);
    let owners = [Some(0), Some(own), sudo.and_then(|uid| uid.parse().ok())];
    // The path of a process in another mount namespace may be of another file here.
    let path = path.canonicalize().ok()?;
    let is_safe = |(depth, part): (usize, &Path)| {
        let Ok(part) = metadata(part) else { return false };
        // In a sticky folder others may only add; next to the file that would be too much.
        let is_shared = part.mode() & 0o002 != 0 && (depth < 2 || part.mode() & 0o1000 == 0);
        owners.contains(&Some(part.uid())) && !is_shared && (depth > 0 || is_same(&part))
    };
    path.ancestors().enumerate().all(is_safe).then_some(path)
}
