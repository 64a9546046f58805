//! The ring buffer of one event (perf_event_open(2), "MMAP layout"): a page of positions, then data
//! of a power of two pages. The kernel moves the head and the reader the tail; nothing between them
//! is overwritten before the tail has passed it.

use super::record::Malformed;
use crate::memory::{MappedMemory, READ_WRITE};
use perf_event_open_sys::bindings::perf_event_mmap_page;
use std::io;
use std::ops::Range;
use std::os::fd::AsFd;
use std::slice;
use std::sync::atomic::{AtomicU64, Ordering};

/// A range of bytes in a ring's data.
pub type Span = Range<usize>;

/// Returns the unread data between two positions of a ring of `size` bytes (a power of two): up to
/// the end of the data, and from its beginning on. Positions only ever grow. Both parts together
/// are whole records.
pub fn spans(tail: u64, head: u64, size: usize) -> Result<(Span, Span), Malformed> {
    let malformed = |what| Malformed { at: 0, what };
    if !size.is_power_of_two() {
        return Err(malformed("the ring's size is not a power of two"));
    }
    let unread = usize::try_from(head.wrapping_sub(tail)).ok().filter(|unread| *unread <= size);
    let unread = unread.ok_or(malformed("its head is behind its tail or too far ahead"))?;
    let begin = (tail & (size as u64 - 1)) as usize;
    let first = unread.min(size - begin);
    Ok((begin..begin + first, 0..unread - first))
}

#[derive(Debug)]
pub(super) struct Ring {
    memory: MappedMemory,
    page: usize,
}

impl Ring {
    /// Maps the ring of an event with `pages` pages of data (a power of two).
    pub(super) fn map(event: impl AsFd, pages: usize) -> io::Result<Ring> {
        let page = rustix::param::page_size();
        // Writable, so that the kernel respects the tail.
        let memory = MappedMemory::on_demand(event, page + pages * page, READ_WRITE)?;
        Ok(Ring { memory, page })
    }

    /// Bytes of data that it can hold.
    pub(super) fn size(&self) -> usize {
        self.memory.len() - self.page
    }

    /// Hands over all unread records, in one or two pieces, and frees their space.
    pub(super) fn drain(&mut self, mut take: impl FnMut(&[u8], &[u8])) -> Result<(), Malformed> {
        // The head must be read before the data, and the data before the tail is written.
        let head = self.position(std::mem::offset_of!(perf_event_mmap_page, data_head));
        let tail = self.position(std::mem::offset_of!(perf_event_mmap_page, data_tail));
        let (head, old) = (head.load(Ordering::Acquire), tail.load(Ordering::Relaxed));
        let (first, second) = spans(old, head, self.size())?;
        if !first.is_empty() {
            take(self.bytes(first), self.bytes(second));
            tail.store(head, Ordering::Release);
        }
        Ok(())
    }

    fn position(&self, offset: usize) -> &AtomicU64 {
        debug_assert!(offset + 8 <= self.page);
        // SAFETY: the offset is that of an aligned u64 within the first page of
        // the mapping, which lives as long as `self`. The kernel reads and writes
        // these positions atomically.
        unsafe { AtomicU64::from_ptr(self.memory.start().as_ptr().add(offset).cast()) }
    }

    fn bytes(&self, span: Span) -> &[u8] {
        assert!(span.start <= span.end && span.end <= self.size());
        // SAFETY: the span lies within the data, which is mapped and readable,
        // and between tail and head, where the kernel does not write. The borrow
        // ends before `drain` moves the tail.
        unsafe {
            let begin = self.memory.start().as_ptr().add(self.page + span.start);
            slice::from_raw_parts(begin, span.len())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::record::tests::sample;
    use super::super::{Record, records};
    use super::*;

    #[test]
    fn spans_wrap() {
        assert_eq!(spans(0, 0, 64), Ok((0..0, 0..0)));
        assert_eq!(spans(0, 64, 64), Ok((0..64, 0..0)));
        assert_eq!(spans(48, 80, 64), Ok((48..64, 0..16)));
        assert_eq!(spans(64 * 1000 + 8, 64 * 1000 + 16, 64), Ok((8..16, 0..0)));
        let near = u64::MAX - 7;
        assert_eq!(spans(near, near.wrapping_add(24), 64), Ok((56..64, 0..16)));
        assert!(spans(8, 0, 64).is_err());
        assert!(spans(0, 65, 64).is_err());
        assert!(spans(0, 8, 48).is_err());
        assert!(spans(0, 0, 0).is_err());
    }

    /// A ring filled as by the kernel and drained after every few records: however a record wraps
    /// around the end, it comes out whole.
    #[test]
    fn records_across_the_end_come_out_whole() {
        const SIZE: usize = 256;
        let (mut ring, mut head, mut tail) = ([0u8; SIZE], 0u64, 0u64);
        let (mut expected, mut found) = (0, Vec::new());
        for turn in 0..200u32 {
            let chain: Vec<u64> = (0..u64::from(turn % 9)).collect();
            for byte in sample(turn, &chain) {
                ring[head as usize % SIZE] = byte;
                head += 1;
            }
            expected += 1;
            if turn % 2 == 1 {
                let (first, second) = spans(tail, head, SIZE).unwrap();
                let bytes = [&ring[first], &ring[second]].concat();
                for record in records(&bytes) {
                    let Ok(Record::Sample(sample)) = record else { panic!("{record:?}") };
                    found.push(sample.task.tid);
                }
                tail = head;
            }
        }
        assert_eq!(found, (0..expected).collect::<Vec<u32>>());
    }
}
