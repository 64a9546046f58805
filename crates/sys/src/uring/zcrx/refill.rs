//! The refill ring, through which buffers go back to the kernel without a system call: we write
//! entries and move the tail, the kernel takes them and moves the head.
//! Documentation/networking/iou-zcrx.rst, "Recycling buffers".

use super::abi::{Offsets, RefillEntry, STATS};
use crate::memory::MappedMemory;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Our end of a refill ring. There is one for each queue, however many rings share it.
#[derive(Debug)]
pub(super) struct RefillRing {
    /// Ours, pinned by the kernel, or the kernel's, mapped through the io_uring's descriptor.
    memory: MappedMemory,
    head: usize,
    tail: usize,
    entries: usize,
    mask: u32,
    /// Index of the next entry: the tail plus the entries not yet published.
    next: u32,
    /// The tail as published to the kernel.
    shown: u32,
    stats: Option<usize>,
}

impl RefillRing {
    /// The ring that the kernel has laid out in `memory`. `entries` is the number the kernel chose
    /// for the number requested; `stats` is set if the kernel was asked to keep its statistics.
    /// Everything is checked to lie within the memory.
    pub(super) fn new(
        memory: MappedMemory,
        offsets: &Offsets,
        entries: u32,
        stats: Option<usize>,
    ) -> io::Result<Self> {
        let size = memory.len();
        let fits = |at: usize, len: usize, align: usize| {
            at.is_multiple_of(align) && at.checked_add(len).is_some_and(|end| end <= size)
        };
        let [head, tail, rqes] = [offsets.head, offsets.tail, offsets.rqes].map(|at| at as usize);
        let array = (entries as usize).checked_mul(size_of::<RefillEntry>());
        let sane = entries.is_power_of_two()
            && fits(head, 4, 4)
            && fits(tail, 4, 4)
            && array.is_some_and(|len| fits(rqes, len, align_of::<RefillEntry>()))
            && stats.is_none_or(|at| fits(at, STATS, 8));
        if !sane {
            let what = "the kernel placed the refill ring beyond its memory";
            return Err(io::Error::new(io::ErrorKind::InvalidData, what));
        }
        let mut ring = RefillRing {
            memory,
            head,
            tail,
            entries: rqes,
            mask: entries - 1,
            next: 0,
            shown: 0,
            stats,
        };
        ring.next = ring.word(tail).load(Ordering::Acquire);
        ring.shown = ring.next;
        Ok(ring)
    }

    /// Number of entries there is room for.
    pub(super) fn room(&self) -> usize {
        (self.mask as usize + 1).saturating_sub(self.held(self.next))
    }

    /// Entries that were published to the kernel and that it has not taken.
    #[cfg(test)]
    pub(super) fn waiting(&self) -> usize {
        self.held(self.shown)
    }

    fn held(&self, end: u32) -> usize {
        end.wrapping_sub(self.word(self.head).load(Ordering::Acquire)) as usize
    }

    /// Writes as many of the entries as there is room for and publishes them to the kernel at once;
    /// returns their number.
    pub(super) fn give(&mut self, entries: &[RefillEntry]) -> usize {
        let count = entries.len().min(self.room());
        for entry in entries.iter().take(count) {
            let slot = (self.next & self.mask) as usize * size_of::<RefillEntry>();
            // SAFETY: the slot lies in the array, which `new` has checked; the kernel does not read
            // entries past the tail, and there was room, so it has taken what was here before.
            unsafe {
                self.memory
                    .start()
                    .add(self.entries + slot)
                    .cast::<RefillEntry>()
                    .write_volatile(*entry);
            }
            self.next = self.next.wrapping_add(1);
        }
        if self.shown != self.next {
            self.word(self.tail).store(self.next, Ordering::Release);
            self.shown = self.next;
        }
        count
    }

    /// Number of fragments that the kernel reports as copied, and their bytes; `None` if it keeps
    /// no statistics (before Linux 7.2).
    pub(super) fn copied(&self) -> Option<(u64, u64)> {
        let at = self.stats?;
        // SAFETY: `new` has checked that both numbers lie aligned within the memory, and only the
        // kernel writes there.
        let number = |at: usize| unsafe {
            AtomicU64::from_ptr(self.memory.start().add(at).cast().as_ptr()).load(Ordering::Relaxed)
        };
        Some((number(at), number(at + 8)))
    }

    /// Returns a word of the header.
    fn word(&self, at: usize) -> &AtomicU32 {
        // SAFETY: `new` has checked that the word lies aligned within the
        // memory, which lives as long as `self`; it is only ever used as an
        // atomic, on both sides.
        unsafe { AtomicU32::from_ptr(self.memory.start().add(at).cast().as_ptr()) }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::memory::Region;
    use std::ptr::NonNull;

    /// Offsets a kernel might choose: different from those of any real one.
    const OFFSETS: Offsets =
        Offsets { head: 64, tail: 72, rqes: 192, reserved: 0, reserved_too: [0; 2] };

    /// A ring in plain memory, with the kernel's end of it.
    pub(crate) fn fake(entries: u32, start: u32) -> (RefillRing, FakeKernel) {
        let len = OFFSETS.rqes as usize + entries as usize * 16 + STATS;
        let mut region = Region::new(len, false).unwrap();
        for at in [OFFSETS.head, OFFSETS.tail] {
            region[at as usize..at as usize + 4].copy_from_slice(&start.to_ne_bytes());
        }
        let kernel = FakeKernel { base: region.start(), mask: entries - 1 };
        let stats = Some(OFFSETS.rqes as usize + entries as usize * 16);
        let ring = RefillRing::new(region.into_shared(), &OFFSETS, entries, stats).unwrap();
        (ring, kernel)
    }

    /// Plays the kernel's end. Must not outlive its ring.
    pub(crate) struct FakeKernel {
        base: NonNull<u8>,
        mask: u32,
    }

    impl FakeKernel {
        /// Takes up to `most` entries.
        pub(crate) fn take(&mut self, most: usize) -> Vec<RefillEntry> {
            // SAFETY: the ring of the test lives, and its memory has these words.
            let word = |at: u32| unsafe {
                AtomicU32::from_ptr(self.base.add(at as usize).cast().as_ptr())
            };
            let (head, tail) = (word(OFFSETS.head), word(OFFSETS.tail));
            let begin = head.load(Ordering::Relaxed);
            let count = tail.load(Ordering::Acquire).wrapping_sub(begin).min(most as u32);
            let taken = (0..count).map(|n| {
                let slot = (begin.wrapping_add(n) & self.mask) as usize;
                // SAFETY: as above; the index is masked.
                unsafe { self.base.add(OFFSETS.rqes as usize + slot * 16).cast().read_volatile() }
            });
            let taken: Vec<RefillEntry> = taken.collect();
            head.store(begin.wrapping_add(count), Ordering::Release);
            taken
        }
    }

    fn entry(number: u64) -> RefillEntry {
        RefillEntry { off: number << 12, len: 4096, pad: 0 }
    }

    #[test]
    fn entries_come_out_as_they_went_in_also_where_the_counters_wrap() {
        for start in [0, u32::MAX - 5] {
            let (mut ring, mut kernel) = fake(8, start);
            let (mut given, mut taken) = (0u64, 0u64);
            for turn in 0..1000 {
                let want: Vec<_> = (given..given + 1 + turn % 7).map(entry).collect();
                let room = ring.room();
                let fitted = ring.give(&want);
                assert_eq!(fitted, want.len().min(room));
                given += fitted as u64;
                assert_eq!(ring.waiting() as u64, given - taken);
                for got in kernel.take(turn as usize % 5) {
                    assert_eq!(got, entry(taken));
                    taken += 1;
                }
            }
            assert!(taken > 100, "the ring wrapped many times");
        }
    }

    /// The kernel's end, on another thread.
    struct Elsewhere(FakeKernel);

    // SAFETY: the memory stays where it is, and both ends may be used at the same time: that is the
    // purpose of the ring, and what the test shows.
    unsafe impl Send for Elsewhere {}

    impl Elsewhere {
        fn take(&mut self) -> Vec<RefillEntry> {
            self.0.take(3)
        }
    }

    #[test]
    fn entries_come_out_whole_while_both_ends_are_at_work() {
        const ALL: u64 = 20_000;
        let (mut ring, kernel) = fake(8, u32::MAX - 5);
        let mut kernel = Elsewhere(kernel);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                let mut taken = 0;
                while taken < ALL {
                    for got in kernel.take() {
                        assert_eq!(got, entry(taken));
                        taken += 1;
                    }
                    std::thread::yield_now();
                }
            });
            let mut given = 0;
            while given < ALL {
                let want: Vec<_> = (given..ALL.min(given + 5)).map(entry).collect();
                given += ring.give(&want) as u64;
            }
        });
        assert_eq!(ring.waiting(), 0);
    }

    #[test]
    fn a_full_ring_takes_nothing_and_loses_nothing() {
        let (mut ring, mut kernel) = fake(4, 0);
        let all: Vec<_> = (0..6).map(entry).collect();
        assert_eq!(ring.give(&all), 4);
        assert_eq!((ring.give(&all[4..]), ring.room(), ring.waiting()), (0, 0, 4));
        assert_eq!(kernel.take(1), [entry(0)]);
        assert_eq!(ring.give(&all[4..]), 1);
        assert_eq!(kernel.take(9), all[1..5]);
    }

    #[test]
    fn a_layout_beyond_the_memory_is_refused() {
        let region = || Region::new(4096, false).unwrap().into_shared();
        let new = |offsets: Offsets, entries, stats| {
            RefillRing::new(region(), &offsets, entries, stats).map(drop)
        };
        new(OFFSETS, 64, Some(192 + 1024)).unwrap();
        for (offsets, entries, stats) in [
            (OFFSETS, 256, None),
            (OFFSETS, 3, None),
            (OFFSETS, 0, None),
            (OFFSETS, 64, Some(4090)),
            (OFFSETS, 64, Some(usize::MAX - 7)),
            (Offsets { tail: 4096, ..OFFSETS }, 64, None),
            (Offsets { head: 2, ..OFFSETS }, 64, None),
            (Offsets { rqes: u32::MAX, ..OFFSETS }, 64, None),
        ] {
            let error = new(offsets, entries, stats).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{offsets:?} {entries}");
        }
    }
}
