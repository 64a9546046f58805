//! Pipes as containers of pages: pipe(7), tee(2), splice(2), vmsplice(2).

use super::memory::Region;
use rustix::io::retry_on_intr;
use rustix::pipe::{IoSliceRaw, PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A pipe of which we have both ends. It counts the bytes it contains, so that no call on it can
/// block for lack of bytes or room.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity: usize,
    held: usize,
}

impl Pipe {
    /// Makes an empty pipe that can hold at least `capacity` bytes, in a power of two of pages.
    /// EPERM: more than `fs.pipe-max-size` without `CAP_SYS_RESOURCE`, or more than
    /// `fs.pipe-user-pages-soft` pages in all pipes of an unprivileged user (`F_SETPIPE_SZ`,
    /// fcntl(2)).
    pub fn new(capacity: usize) -> io::Result<Self> {
        let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
        let capacity = fcntl_setpipe_size(&write, capacity)?;
        Ok(Pipe { read, write, capacity, held: 0 })
    }

    /// Bytes it can hold, if every page is full.
    pub fn capacity(&self) -> usize {
        self.capacity
    }

    /// Bytes it contains.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Copies bytes into an empty pipe. The kernel allocates fresh pages for them, each but the
    /// last full: not page cache, not compound (`anon_pipe_write`, fs/pipe.c). EINVAL: the pipe is
    /// not empty, or too small.
    pub fn fill(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.held != 0 || bytes.len() > self.capacity {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while self.held < bytes.len() {
            self.held += retry_on_intr(|| rustix::io::write(&self.write, &bytes[self.held..]))?;
        }
        Ok(())
    }

    /// Puts a reference to user memory into an empty pipe (vmsplice(2)). Later writes to the memory
    /// are visible at the other end. EINVAL: the pipe is not empty, or too small.
    pub fn lend(&mut self, memory: &Region) -> io::Result<()> {
        if self.held != 0 || memory.len() > self.capacity {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        while self.held < memory.len() {
            let rest = [IoSliceRaw::from_slice(&memory[self.held..])];
            // SAFETY: the slice is live for the call and only ever read. The
            // kernel keeps references to its pages, which outlive the mapping.
            let lend =
                || unsafe { rustix::pipe::vmsplice(&self.write, &rest, SpliceFlags::empty()) };
            self.held += retry_on_intr(lend)?;
        }
        Ok(())
    }

    /// Puts references to the first `len` bytes of this pipe into an empty one without consuming
    /// them (tee(2)). Returns the number of bytes referenced; a length inside a page refers to the
    /// front of that page.
    #[inline]
    pub fn tee(&self, into: &mut Pipe, len: usize) -> io::Result<usize> {
        if self.held == 0 || into.held != 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        into.held = rustix::pipe::tee(&self.read, &into.write, len, SpliceFlags::empty())?;
        Ok(into.held)
    }

    /// Moves up to `len` bytes to a socket by reference (splice(2)); waits while the socket has no
    /// room. With `more`, the last segment may wait for further bytes. A process that does not
    /// ignore SIGPIPE is killed by it if the connection is closed.
    #[inline]
    pub fn splice(&mut self, socket: BorrowedFd, len: usize, more: bool) -> io::Result<usize> {
        if self.held == 0 {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let flags = if more { SpliceFlags::MORE } else { SpliceFlags::empty() };
        let moved = rustix::pipe::splice(&self.read, None, socket, None, len, flags)?;
        self.held -= moved.min(self.held);
        Ok(moved)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn drain(pipe: &Pipe) -> Vec<u8> {
        let mut bytes = vec![0; pipe.held()];
        assert_eq!(rustix::io::read(&pipe.read, &mut bytes).unwrap(), bytes.len());
        bytes
    }

    #[test]
    fn a_tee_leaves_its_source_full_and_cuts_inside_a_page() {
        let (mut source, mut copy) = (Pipe::new(65536).unwrap(), Pipe::new(65536).unwrap());
        let bytes: Vec<u8> = (0..20_000u32).map(|i| (i % 251) as u8).collect();
        source.fill(&bytes).unwrap();
        assert_eq!(source.tee(&mut copy, 5000).unwrap(), 5000);
        assert_eq!((source.held(), copy.held()), (20_000, 5000));
        assert_eq!(drain(&copy), bytes[..5000]);
        assert_eq!(drain(&source), bytes);
    }

    #[test]
    fn lent_memory_shows_what_is_written_later() {
        let mut page = Region::new(4096, false).unwrap();
        page.fill(1);
        let mut pipe = Pipe::new(65536).unwrap();
        pipe.lend(&page).unwrap();
        page.fill(2);
        assert_eq!(drain(&pipe), [2; 4096]);
    }

    #[test]
    fn what_would_block_for_ever_is_refused() {
        let mut pipe = Pipe::new(4096).unwrap();
        let mut other = Pipe::new(4096).unwrap();
        assert!(pipe.fill(&vec![0; pipe.capacity() + 1]).is_err());
        assert!(pipe.tee(&mut other, 1).is_err());
        pipe.fill(&[1; 100]).unwrap();
        assert!(pipe.fill(&[1]).is_err());
        assert_eq!(pipe.tee(&mut other, 100).unwrap(), 100);
        assert!(pipe.tee(&mut other, 100).is_err());
        let (tx, _rx) = std::os::unix::net::UnixStream::pair().unwrap();
        assert_eq!(other.splice(tx.as_fd(), 100, false).unwrap(), 100);
        assert!(other.splice(tx.as_fd(), 100, false).is_err());
    }
}
