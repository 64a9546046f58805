//! Decodes completions of a zero-copy receive, and accounts for the pieces lent to the caller: the
//! pure part, which trusts no length.

use super::abi::{AREA_SHIFT, EVENT_ALLOC_FAIL, EVENT_COPY, RefillEntry};
use io_uring::cqueue;

/// User data of the one receive of a ring.
pub(super) const RECEIVE: u64 = 0;
/// User data of the queue's events.
pub(super) const EVENTS: u64 = 1;

/// One completion queue entry of 32 bytes, as the kernel posts it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RawCompletion {
    /// `user_data`.
    pub data: u64,
    /// `res`.
    pub result: i32,
    /// `flags`.
    pub flags: u32,
    /// `off` of `struct io_uring_zcrx_cqe`, in the second half of the entry.
    pub off: u64,
}

/// A decoded completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodedCompletion {
    /// The next bytes of the stream are in the area.
    Bytes(Piece),
    /// The receive direction is shut down.
    End,
    /// The receive is over because no buffer was left for bytes that had to be
    /// copied (ENOMEM, ENOBUFS).
    NoBuffer,
    /// The receive is over because the completion queue was full (ENOSPC).
    QueueFull,
    /// The NIC's page pool found no buffer (`ZCRX_EVENT_ALLOC_FAIL`).
    AllocFailed,
    /// A fragment was copied (`ZCRX_EVENT_COPY`).
    FragmentCopied,
    /// The receive is over with this error number.
    Failed(i32),
    /// Nothing that one of our receives can report: a piece outside the area, or an operation that
    /// was never started.
    Malformed,
}

/// A piece of the area, in bytes. It lies within the area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    pub at: usize,
    /// Its length, at least 1.
    pub len: usize,
}

/// Reads completions of one area.
#[derive(Clone, Copy, Debug)]
pub struct Reader {
    /// Bytes of the area.
    pub area: usize,
    /// The token that the kernel assigned to it, with its number in the upper bits.
    pub token: u64,
}

/// Bits of an offset that hold the number of the area.
const AREA: u64 = !((1 << AREA_SHIFT) - 1);

impl Reader {
    /// Decodes a completion.
    #[inline]
    pub fn read(&self, entry: &RawCompletion) -> DecodedCompletion {
        if entry.data == EVENTS {
            return match u32::try_from(entry.result) {
                Ok(EVENT_ALLOC_FAIL) => DecodedCompletion::AllocFailed,
                Ok(EVENT_COPY) => DecodedCompletion::FragmentCopied,
                _ => DecodedCompletion::Malformed,
            };
        }
        if entry.data != RECEIVE {
            return DecodedCompletion::Malformed;
        }
        match entry.result {
            1.. => self.piece(entry).map_or(DecodedCompletion::Malformed, DecodedCompletion::Bytes),
            // A receive that continues reports nothing but bytes.
            0 if cqueue::more(entry.flags) => DecodedCompletion::Malformed,
            0 => DecodedCompletion::End,
            error => match error.checked_neg() {
                Some(libc::ENOMEM | libc::ENOBUFS) => DecodedCompletion::NoBuffer,
                Some(libc::ENOSPC) => DecodedCompletion::QueueFull,
                Some(errno) => DecodedCompletion::Failed(errno),
                None => DecodedCompletion::Malformed,
            },
        }
    }

    #[inline]
    fn piece(&self, entry: &RawCompletion) -> Option<Piece> {
        if entry.off & AREA != self.token & AREA {
            return None;
        }
        let at = usize::try_from(entry.off & !AREA).ok()?;
        let len = usize::try_from(entry.result).ok()?;
        let end = at.checked_add(len)?;
        (end <= self.area).then_some(Piece { at, len })
    }

    /// Returns the refill ring's entry that gives a piece back.
    #[inline]
    pub fn entry(&self, piece: Piece) -> RefillEntry {
        RefillEntry { off: piece.at as u64 | self.token & AREA, len: piece.len as u32, pad: 0 }
    }
}

/// The pieces that one ring received and owes to the kernel. Each is owed from its completion on,
/// lent to the caller to be read, and given back once.
#[derive(Debug)]
pub struct Owed {
    reader: Reader,
    lent: Option<Piece>,
    returning: Vec<RefillEntry>,
    batch: usize,
}

impl Owed {
    /// Gives pieces back whenever `batch` of them have gathered; never holds more than `most`, or
    /// `batch` if that is larger.
    pub fn new(reader: Reader, batch: usize, most: usize) -> Self {
        let returning = Vec::with_capacity(most.max(batch).max(1));
        Owed { reader, lent: None, returning, batch: batch.max(1) }
    }

    /// Lends a piece to the caller; this ends the loan before it. Returns false if no more can be
    /// held until something is given back.
    #[inline]
    pub fn lend(&mut self, piece: Piece) -> bool {
        self.retire();
        if self.is_full() {
            return false;
        }
        self.lent = Some(piece);
        true
    }

    /// Ends the loan of the piece that was lent last.
    #[inline]
    pub fn retire(&mut self) {
        if let Some(piece) = self.lent.take() {
            // `lend` has checked that there is room.
            self.returning.push(self.reader.entry(piece));
        }
    }

    /// True if no more can be lent until something is given back.
    #[inline]
    pub fn is_full(&self) -> bool {
        self.returning.len() == self.returning.capacity()
    }

    /// True if a batch has gathered.
    #[inline]
    pub fn due(&self) -> bool {
        self.returning.len() >= self.batch
    }

    /// The pieces to be given back, in order of arrival.
    pub fn returning(&self) -> &[RefillEntry] {
        &self.returning
    }

    /// Removes the first `count` of them, which have been given back.
    pub fn mark_returned(&mut self, count: usize) {
        self.returning.drain(..count.min(self.returning.len()));
    }
}

#[cfg(test)]
mod tests {
    use super::super::refill::tests::fake;
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashMap;

    const MORE: u32 = 2;
    const AREA_LEN: usize = 16 << 12;
    const READER: Reader = Reader { area: AREA_LEN, token: 3 << 48 };

    fn bytes(off: u64, result: i32) -> RawCompletion {
        RawCompletion { data: RECEIVE, result, flags: MORE, off }
    }

    #[test]
    fn every_end_of_a_receive_is_distinguished() {
        let ended = |result| READER.read(&RawCompletion { result, ..Default::default() });
        assert_eq!(ended(0), DecodedCompletion::End);
        assert_eq!(ended(-libc::ENOMEM), DecodedCompletion::NoBuffer);
        assert_eq!(ended(-libc::ENOBUFS), DecodedCompletion::NoBuffer);
        assert_eq!(ended(-libc::ENOSPC), DecodedCompletion::QueueFull);
        assert_eq!(ended(-libc::ECONNRESET), DecodedCompletion::Failed(libc::ECONNRESET));
        assert_eq!(ended(i32::MIN), DecodedCompletion::Malformed);
        let event = |result| READER.read(&RawCompletion { data: EVENTS, result, ..bytes(0, 0) });
        assert_eq!(event(0), DecodedCompletion::AllocFailed);
        assert_eq!(event(1), DecodedCompletion::FragmentCopied);
        assert_eq!([event(2), event(-1)], [DecodedCompletion::Malformed; 2]);
    }

    #[test]
    fn offset_and_area_are_split_and_put_together_again() {
        let at = 5 << 12 | 7;
        let DecodedCompletion::Bytes(piece) = READER.read(&bytes(at | 3 << 48, 100)) else {
            panic!("these are bytes")
        };
        assert_eq!(piece, Piece { at: at as usize, len: 100 });
        let entry = READER.entry(piece);
        assert_eq!((entry.off, entry.len, entry.pad), (at | 3 << 48, 100, 0));
    }

    #[test]
    fn a_piece_outside_of_the_area_is_malformed() {
        let area = AREA_LEN as u64;
        for (off, len) in [
            (area | 3 << 48, 1),
            ((area - 1) | 3 << 48, 2),
            (0, 1),
            (4 << 48, 1),
            (u64::MAX, i32::MAX),
        ] {
            assert_eq!(
                READER.read(&bytes(off, len)),
                DecodedCompletion::Malformed,
                "{off:x} {len}"
            );
        }
    }

    proptest! {
        /// Whatever the kernel posts and however slowly it takes entries: what was lent is given
        /// back exactly once, in order, and nothing else is.
        #[test]
        fn no_buffer_is_lost_or_given_back_twice(
            batch in 1usize..40,
            most in 1usize..60,
            entries in 0u32..6,
            start in any::<u32>(),
            course in prop::collection::vec((0usize..5, 0usize..20), 1..300),
        ) {
            let (mut ring, mut kernel) = fake(1 << entries, start);
            let mut owed = Owed::new(READER, batch, most);
            let (mut lent, mut back) = (Vec::new(), Vec::new());
            let mut posted = 0u64;
            for (arrivals, takes) in course {
                for _ in 0..arrivals {
                    let off = (posted * 777 % (AREA_LEN as u64 - 100)) | (3 << 48);
                    let completion = READER.read(&bytes(off, 1 + posted as i32 % 99));
                    let DecodedCompletion::Bytes(piece) = completion else {
                        panic!("these are bytes")
                    };
                    if !owed.lend(piece) {
                        prop_assert!(owed.is_full());
                        break;
                    }
                    posted += 1;
                    lent.push(READER.entry(piece));
                }
                if owed.due() || owed.is_full() {
                    let gone = ring.give(owed.returning());
                    owed.mark_returned(gone);
                }
                back.extend(kernel.take(takes));
            }
            owed.retire();
            while !owed.returning().is_empty() {
                let gone = ring.give(owed.returning());
                owed.mark_returned(gone);
                back.extend(kernel.take(3));
            }
            back.extend(kernel.take(usize::MAX));
            let count = |all: &[RefillEntry]| {
                let mut sums: HashMap<u64, u32> = HashMap::new();
                all.iter().for_each(|entry| *sums.entry(entry.off >> 12).or_default() += 1);
                sums
            };
            prop_assert_eq!(count(&lent), count(&back), "each buffer as often as it was lent");
            prop_assert_eq!(lent, back, "and in the order in which it came");
        }

        #[test]
        fn no_completion_makes_a_piece_outside_of_the_area(
            data in 0u64..3, result: i32, flags: u32, off: u64, area in 0usize..1 << 40, token: u64,
        ) {
            let reader = Reader { area, token };
            let completion = reader.read(&RawCompletion { data, result, flags, off });
            if let DecodedCompletion::Bytes(piece) = completion {
                prop_assert!(piece.len > 0 && piece.at + piece.len <= area);
            }
        }
    }
}
