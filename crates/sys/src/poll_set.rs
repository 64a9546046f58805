//! A set of descriptors for poll(2) that is kept from one call to the next.

use super::check;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::null;
use std::time::Duration;

pub use crate::tcp::Ready;

/// Descriptors, identified by index, and the events to wait for. The kernel reads every entry, so
/// there are entries only for the indices in use.
#[derive(Debug)]
pub struct PollSet {
    entries: Vec<libc::pollfd>,
    /// The index that each entry belongs to.
    places: Vec<u32>,
    /// The entry for each index; [`NONE`] if it is not in use.
    at: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl PollSet {
    /// Waits for input on each of these, which must stay open as long as they are in the set: for a
    /// closed one, poll(2) reports POLLNVAL.
    pub fn new<'a>(all: impl IntoIterator<Item = BorrowedFd<'a>>) -> PollSet {
        let entry = |fd: BorrowedFd| libc::pollfd {
            fd: fd.as_raw_fd(),
            events: Ready::IN.bits() as i16,
            revents: 0,
        };
        let entries: Vec<_> = all.into_iter().map(entry).collect();
        let places: Vec<u32> = (0..entries.len() as u32).collect();
        PollSet { entries, at: places.clone(), places }
    }

    /// From now on waits for these events at the descriptor with this index. Waiting for nothing
    /// removes it for good: after the end of a stream, poll(2) would report it again and again.
    pub fn wait_for(&mut self, place: usize, ready: Ready) {
        match self.entry(place) {
            Some(at) if ready.is_empty() => self.take_out(place, at),
            Some(at) => self.entries[at].events = ready.bits() as i16,
            None => {}
        }
    }

    /// Makes room for indices below `places`; new ones are not in use.
    pub fn reserve(&mut self, places: usize) {
        self.at.resize(places, NONE);
        let more = places.saturating_sub(self.entries.len());
        self.entries.reserve_exact(more);
        self.places.reserve_exact(more);
    }

    /// Assigns a descriptor to an index; see [`PollSet::new`].
    pub fn put(&mut self, place: usize, fd: BorrowedFd, ready: Ready) {
        let entry = libc::pollfd { fd: fd.as_raw_fd(), events: ready.bits() as i16, revents: 0 };
        if let Some(at) = self.entry(place) {
            self.entries[at] = entry;
        } else if let Some(at) = self.at.get_mut(place) {
            *at = self.entries.len() as u32;
            self.entries.push(entry);
            self.places.push(place as u32);
        }
    }

    fn entry(&self, place: usize) -> Option<usize> {
        self.at.get(place).filter(|at| **at != NONE).map(|at| *at as usize)
    }

    /// Moves the last entry into the position of the removed one.
    fn take_out(&mut self, place: usize, at: usize) {
        self.entries.swap_remove(at);
        self.places.swap_remove(at);
        self.at[place] = NONE;
        if let Some(moved) = self.places.get(at) {
            self.at[*moved as usize] = at as u32;
        }
    }

    /// Waits at most `limit`, if given; returns how many descriptors are ready (ppoll(2)).
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

    /// Bytes of memory that the set takes.
    pub fn memory(&self) -> usize {
        let numbers = self.places.capacity() + self.at.capacity();
        self.entries.capacity() * size_of::<libc::pollfd>() + numbers * size_of::<u32>()
    }

    /// Returns the indices that the last wait found ready, with the events.
    pub fn ready(&self) -> impl Iterator<Item = (usize, Ready)> {
        let ready = |(place, entry): (&u32, &libc::pollfd)| {
            let found = Ready::from_bits_retain(entry.revents as _);
            (entry.revents != 0).then_some((*place as usize, found))
        };
        self.places.iter().zip(&self.entries).filter_map(ready)
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

    /// As in a server whose listener has the last of many indices.
    #[test]
    fn the_kernel_is_given_only_the_places_in_use() {
        let pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        let mut set = PollSet::new([]);
        set.reserve(1000);
        let memory = set.memory();
        for place in [999, 0, 1] {
            set.put(place, pairs[place % 3].0.as_fd(), Ready::IN);
        }
        assert_eq!(set.entries.len(), 3);
        set.wait_for(999, Ready::empty());
        set.wait_for(999, Ready::IN);
        (&pairs[1].1).write_all(b"x").unwrap();
        assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), 1);
        assert_eq!(set.ready().collect::<Vec<_>>(), [(1, Ready::IN)]);
        set.wait_for(1, Ready::empty());
        set.put(1, pairs[1].0.as_fd(), Ready::IN);
        assert_eq!(set.wait(Some(Duration::ZERO)).unwrap(), 1);
        assert_eq!((set.entries.len(), set.memory()), (2, memory), "nothing is allocated");
    }
}
