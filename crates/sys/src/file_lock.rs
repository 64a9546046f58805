//! Locks that belong to an open file and are released with it (fcntl(2), "open file description
//! locks"): a process that was killed holds none. Unlike flock(2), they can be tested without
//! taking them.

use super::check;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// Locks a whole file that is open for writing. Returns false if another process holds the lock.
pub fn take(file: &File) -> io::Result<bool> {
    match fcntl(file, libc::F_OFD_SETLK, libc::F_WRLCK) {
        Ok(_) => Ok(true),
        Err(e) if matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::EACCES)) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Whether another process holds the lock.
pub fn is_taken(file: &File) -> io::Result<bool> {
    Ok(fcntl(file, libc::F_OFD_GETLK, libc::F_WRLCK)?.l_type != libc::F_UNLCK as libc::c_short)
}

/// Releases the lock. Closing the file would not suffice while another thread is starting a child,
/// which has the file open, too, until it executes its program.
pub fn release(file: &File) -> io::Result<()> {
    fcntl(file, libc::F_OFD_SETLK, libc::F_UNLCK).map(drop)
}

fn fcntl(file: &File, command: libc::c_int, kind: libc::c_int) -> io::Result<libc::flock> {
    // SAFETY: all-zero bytes are a valid `flock`: it is plain data. OFD locks require `l_pid` to be
    // zero; start and length of zero mean the whole file.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    // SAFETY: the call reads and writes one `flock`, which is live.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), command, &raw mut lock) };
    check(result.into()).map(|_| lock)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn a_lock_is_seen_and_ends_with_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let open = || OpenOptions::new().write(true).create(true).truncate(false).open(&path);
        let (first, second) = (open().unwrap(), open().unwrap());
        assert!(!is_taken(&second).unwrap());
        assert!(take(&first).unwrap());
        assert!(is_taken(&second).unwrap() && !take(&second).unwrap());
        assert!(!is_taken(&first).unwrap(), "one's own lock does not count as taken");
        drop(first);
        assert!(!is_taken(&second).unwrap() && take(&second).unwrap());
    }

    #[test]
    fn a_lock_that_was_released_is_free_though_a_child_has_the_file() {
        let dir = tempfile::tempdir().unwrap();
        let open = || File::create(dir.path().join("lock")).unwrap();
        let (first, second) = (open(), open());
        assert!(take(&first).unwrap());
        // What a child has between fork and exec: the same open file.
        let child = first.try_clone().unwrap();
        release(&first).unwrap();
        drop(first);
        assert!(take(&second).unwrap());
        drop(child);
    }
}
