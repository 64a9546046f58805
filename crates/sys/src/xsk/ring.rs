//! A ring shared with the kernel: one side moves the producer's index, the other the consumer's.
//! Each side trusts only its own.

use crate::memory::MappedMemory;
use rustix::net::xdp::{XdpMmapOffsets, XdpRingOffset};
use std::io;
use std::marker::PhantomData;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU32, Ordering};

/// One of a socket's four rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Memory that the kernel may write frames to.
    Fill,
    /// Memory of frames that were sent.
    Completed,
    /// Frames that were received.
    Received,
    /// Frames to be sent.
    Send,
}

impl Kind {
    /// Returns the socket option that makes it, the offset to map it from, and the offsets of its
    /// parts.
    pub(super) fn layout(self, all: &XdpMmapOffsets) -> (i32, u64, XdpRingOffset) {
        use libc::{XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING};
        let (rx, tx) = (libc::XDP_PGOFF_RX_RING as u64, libc::XDP_PGOFF_TX_RING as u64);
        match self {
            Kind::Fill => (libc::XDP_UMEM_FILL_RING, XDP_UMEM_PGOFF_FILL_RING, all.fr),
            Kind::Completed => {
                (libc::XDP_UMEM_COMPLETION_RING, XDP_UMEM_PGOFF_COMPLETION_RING, all.cr)
            }
            Kind::Received => (libc::XDP_RX_RING, rx, all.rx),
            Kind::Send => (libc::XDP_TX_RING, tx, all.tx),
        }
    }
}

/// `struct xdp_desc`: a frame in the socket's memory.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Filled {
    pub address: u64,
    pub len: u32,
    pub options: u32,
}

/// Our side of a ring whose entries are `u64` (an address) or [`Filled`].
#[derive(Debug)]
pub(super) struct Ring<T> {
    memory: MappedMemory,
    producer: usize,
    consumer: usize,
    flags: usize,
    entries: usize,
    mask: u32,
    /// Our own index, counting entries not yet published.
    ours: u32,
    of: PhantomData<T>,
}

impl<T: Copy> Ring<T> {
    /// Maps a ring that was made with `entries` entries, a power of two, from the offset `place` of
    /// the socket. Everything is checked to lie within the mapping.
    pub(super) fn map(
        socket: BorrowedFd,
        place: u64,
        XdpRingOffset { producer, consumer, desc, flags }: XdpRingOffset,
        entries: u32,
    ) -> io::Result<Self> {
        let [producer, consumer, array, flags] = [producer, consumer, desc, flags.unwrap_or(0)]
            .map(|at| usize::try_from(at).unwrap_or(usize::MAX));
        let len = array.checked_add(entries as usize * size_of::<T>());
        let word_fits = |at: usize| at.is_multiple_of(4) && at < array;
        let words = [producer, consumer, flags];
        let Some(len) = len.filter(|_| {
            entries.is_power_of_two() && array.is_multiple_of(8) && words.into_iter().all(word_fits)
        }) else {
            let what = "the kernel placed an AF_XDP ring beyond its memory";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        };
        let memory = MappedMemory::new(socket, place, len)?;
        let (mask, of) = (entries - 1, PhantomData);
        Ok(Ring { memory, producer, consumer, flags, entries: array, mask, ours: 0, of })
    }

    pub(super) fn entries(&self) -> u32 {
        self.mask + 1
    }

    // As the producer.

    /// Returns the number of entries that can be put.
    #[inline]
    pub(super) fn room(&self) -> u32 {
        let consumed = self.word(self.consumer).load(Ordering::Acquire);
        self.entries().saturating_sub(self.ours.wrapping_sub(consumed))
    }

    /// Puts an entry, for which there must be room; [`Self::show`] publishes it.
    #[inline]
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: the slot lies within the mapping, which is writable.
        unsafe { self.slot().write_volatile(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Publishes the entries that were put.
    #[inline]
    pub(super) fn show(&self) {
        self.word(self.producer).store(self.ours, Ordering::Release);
    }

    /// Whether the kernel must be woken to continue. To be checked after [`Self::show`].
    #[inline]
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    // As the consumer.

    /// Returns the number of entries that can be taken.
    #[inline]
    pub(super) fn filled(&self) -> u32 {
        let produced = self.word(self.producer).load(Ordering::Acquire);
        produced.wrapping_sub(self.ours).min(self.entries())
    }

    /// Takes the next entry, which must exist.
    #[inline]
    pub(super) fn take(&mut self) -> T {
        // SAFETY: the slot lies within the mapping; every value of the type is valid.
        let entry = unsafe { self.slot().read_volatile() };
        self.ours = self.ours.wrapping_add(1);
        entry
    }

    /// Gives back to the kernel what was taken.
    #[inline]
    pub(super) fn release(&self) {
        self.word(self.consumer).store(self.ours, Ordering::Release);
    }

    /// Takes all entries without reading them; returns how many there were.
    #[inline]
    pub(super) fn discard(&mut self) -> u32 {
        let count = self.filled();
        self.ours = self.ours.wrapping_add(count);
        self.release();
        count
    }

    #[inline]
    fn slot(&self) -> *mut T {
        let at = self.entries + (self.ours & self.mask) as usize * size_of::<T>();
        // SAFETY: `map` has checked that all entries lie within the mapping.
        unsafe { self.memory.start().as_ptr().add(at).cast() }
    }

    #[inline]
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `map` has checked that the word lies aligned within the mapping, which
        // lives as long as `self`; both sides use it as an atomic.
        unsafe { AtomicU32::from_ptr(self.memory.start().as_ptr().add(at).cast()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    #[test]
    fn a_layout_beyond_its_memory_is_refused() {
        let file = tempfile::tempfile().unwrap();
        for (values, entries) in [
            ([0, 64, 192, 128], 3),
            ([0, 64, 192, 128], 0),
            ([2, 64, 192, 128], 4),
            ([0, 192, 192, 128], 4),
            ([0, 64, 192, u64::MAX], 4),
            ([0, 64, u64::MAX - 7, 128], 4),
            ([0, 64, 190, 128], 4),
        ] {
            let [producer, consumer, desc, flags] = values;
            let offsets = XdpRingOffset { producer, consumer, desc, flags: Some(flags) };
            let error = Ring::<u64>::map(file.as_fd(), 0, offsets, entries);
            let error = error.unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{values:?} {entries}");
        }
    }
}
