//! Many descriptors for poll(2), which a caller keeps from one call to the next.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::time::Duration;

pub use crate::tcp::Ready;

/// Descriptors, named by their place, and what each is waited for.
#[derive(Debug)]
pub struct PollSet {
    entries: Vec<libc::pollfd>,
}

impl PollSet {
    /// Waits for input on each of these, which have to stay open as long as they are in the set:
    /// of one that is closed, poll(2) reports POLLNVAL.
    pub fn new<'a>(all: impl IntoIterator<Item = BorrowedFd<'a>>) -> PollSet {
        let entry = |fd: BorrowedFd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: Ready::IN.bits() as i16,
            revents: 0,
        };
        PollSet { entries: all.into_iter().map(entry).collect() }
    }

    /// From now on waits for this at the descriptor of this place. Nothing takes it out of the set
    /// for good: after a stream's end poll(2) would report it again and again.
    pub fn wait_for(&mut self, place: usize, ready: Ready) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        // A negative descriptor is ignored, whichever it was (poll(2)).
        entry.fd = if ready.is_empty() { -1 } else { entry.fd };
        entry.events = ready.bits() as i16;
    }

    /// Makes room for so many places, which are empty.
    pub fn reserve(&mut self, places: usize) {
        self.entries.resize(places, libc::pollfd { fd: -1, events: 0, revents: 0 });
    }

    /// From now on this descriptor is the one of a place; see [`PollSet::new`].
    pub fn put(&mut self, place: usize, fd: BorrowedFd, ready: Ready) {
        let Some(entry) = self.entries.get_mut(place) else { return };
        *entry = libc::pollfd { fd: fd.as_raw_fd(), events: ready.bits() as i16, revents: 0 };
    }

    /// Waits at most this long, or without a limit: how many are ready (ppoll(2)).
    pub fn wait(&mut self, limit: Option<Duration>) -> io::Result<usize> {
        let limit = limit.map(|time| libc::timespec {
            tv_sec: time.as_secs() as libc::time_t,
            tv_nsec: time.subsec_nanos().into(),
        });
        let limit = limit.as_ref().map_or(null(), std::ptr::from_ref);
        let count = self.entries.len() as libc::nfds_t;
        // SAFETY: the entries and the time live until the call returns.
        check(unsafe { libc::ppoll(self.entries.as_mut_ptr(), count, limit, null()) }.into())
    }

    /// Bytes that the set takes.
    pub fn memory(&self) -> usize {
        size_of_val(&self.entries[..])
    }

    /// Those that the last wait found ready, in their order, and for what.
    pub fn ready(&self) -> impl Iterator<Item = (usize, Ready)> {
        let ready = |(place, entry): (usize, &libc::pollfd)| {
            (entry.revents != 0).then(|| (place, Ready::from_bits_retain(entry.revents as _)))
        };
        self.entries.iter().enumerate().filter_map(ready)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    #[test]
    fn reports_what_is_ready_and_leaves_out_what_was_taken_out() {
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let mut set = PollSet::new(pairs.iter().map(|(here, _)| here.as_fd()));
        let soon = Some(Duration::ZERO);
        assert_eq!(set.wait(soon).unwrap(), 0);
        (&pairs[1].1).write_all(b"x").unwrap();
        set.wait_for(2, Ready::IN | Ready::OUT);
        assert_eq!(set.wait(soon).unwrap(), 2);
        let ready: Vec<_> = set.ready().collect();
        assert_eq!(ready, [(1, Ready::IN), (2, Ready::OUT)]);
        set.wait_for(1, Ready::empty());
        assert_eq!(set.wait(soon).unwrap(), 1);
        set.wait_for(2, Ready::empty());
        set.reserve(5);
        assert_eq!(set.wait(soon).unwrap(), 0, "room alone is never ready");
        set.put(4, pairs[1].0.as_fd(), Ready::IN);
        assert_eq!(set.wait(soon).unwrap(), 1);
        assert_eq!(set.ready().collect::<Vec<_>>(), [(4, Ready::IN)]);
    }
}
