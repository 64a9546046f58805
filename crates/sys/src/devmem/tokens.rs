//! The fragments that we hold: each has a token, which is returned to the kernel once, so that the
//! device can reuse the memory (`SO_DEVMEM_DONTNEED`).
//!
//! One call takes at most [`MOST_RANGES`] ranges of tokens, frees at most [`MOST_FRAGMENTS`]
//! fragments, in the order given, and returns how many it freed. A caller that does not return the
//! rest again loses buffers until the pool is empty.

use crate::dmabuf::Memory;
use std::collections::VecDeque;
use std::io;

/// `MAX_DONTNEED_TOKENS`, net/core/sock.c.
pub const MOST_RANGES: usize = 128;
/// `MAX_DONTNEED_FRAGS`, net/core/sock.c.
pub const MOST_FRAGMENTS: u32 = 1024;

/// Consecutive tokens: `struct dmabuf_token`.
#[repr(C)]
#[derive(Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TokenRange {
    pub start: u32,
    /// Number of tokens, at least one.
    pub count: u32,
}

/// A fragment lent by the kernel: its bytes stay unchanged until its token is returned, which only
/// [`Held`] does, and only for fragments handed over to it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Lent {
    /// The number that the dmabuf was bound under.
    pub dmabuf: u32,
    /// Offset within it in bytes.
    pub offset: u64,
    /// Length in bytes.
    pub len: u32,
    pub(super) token: u32,
}

impl Lent {
    /// Returns its bytes in the memory that was bound under its number; `None` if the CPU cannot
    /// read them, or the fragment is not within the memory.
    #[inline]
    pub fn bytes<'a>(&'a self, memory: &'a dyn Memory) -> Option<&'a [u8]> {
        let offset = usize::try_from(self.offset).ok()?;
        // SAFETY: the device writes only to memory that the kernel has not lent. This fragment came
        // from a receive, once, and its token cannot be returned while it is borrowed.
        unsafe { memory.view(offset, self.len as usize) }
    }
}

/// Something that takes tokens back: a kernel, or a fake one.
pub trait Freer {
    /// Frees the fragments of these ranges, in order. Returns how many it freed, which may be fewer
    /// than requested.
    fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize>;
}

/// Tokens to be returned. Allocates no memory after it is made unless it holds more ranges than it
/// has room for.
#[derive(Debug)]
pub struct Held {
    ranges: VecDeque<TokenRange>,
    tokens: u64,
    /// Calls that freed fewer than requested.
    short: u64,
    calls: u64,
}

impl Held {
    /// Makes an empty account with room for this many ranges.
    pub fn with_room(ranges: usize) -> Self {
        Held { ranges: VecDeque::with_capacity(ranges), tokens: 0, short: 0, calls: 0 }
    }

    /// Takes over a fragment that is no longer used.
    #[inline]
    pub fn take(&mut self, lent: Lent) {
        self.enter(lent.token);
    }

    /// Adds a token. The kernel mostly assigns consecutive numbers, so that one range represents
    /// many.
    #[inline]
    pub(super) fn enter(&mut self, token: u32) {
        self.tokens += 1;
        if let Some(last) = self.ranges.back_mut()
            && last.count < MOST_FRAGMENTS
            && last.start.checked_add(last.count) == Some(token)
        {
            last.count += 1;
            return;
        }
        self.ranges.push_back(TokenRange { start: token, count: 1 });
    }

    /// Number of tokens to return.
    #[inline]
    pub fn len(&self) -> u64 {
        self.tokens
    }

    /// True if there is nothing to return.
    pub fn is_empty(&self) -> bool {
        self.tokens == 0
    }

    /// Number of calls made, and of those that freed fewer than requested.
    pub fn calls(&self) -> (u64, u64) {
        (self.calls, self.short)
    }

    /// Returns as many tokens as one call takes, the oldest first. Call it until none are left.
    ///
    /// EBADMSG: the kernel freed nothing, or more than requested: it does not know these tokens. A
    /// token is returned again only if the kernel reported that it has not freed it; no receive may
    /// come in between, because the kernel reuses the numbers of freed tokens.
    pub fn give_back(&mut self, kernel: &mut impl Freer) -> io::Result<usize> {
        let mut ranges = [const { TokenRange { start: 0, count: 0 } }; MOST_RANGES];
        let (mut used, mut asked) = (0, 0);
        for (slot, held) in ranges.iter_mut().zip(&self.ranges) {
            let count = held.count.min(MOST_FRAGMENTS - asked);
            if count == 0 {
                break;
            }
            *slot = TokenRange { start: held.start, count };
            asked += count;
            used += 1;
        }
        if asked == 0 {
            return Ok(0);
        }
        let freed = kernel.free(&ranges[..used])?;
        self.calls += 1;
        let known = u32::try_from(freed).ok().filter(|freed| (1..=asked).contains(freed));
        let Some(freed) = known else {
            return Err(io::Error::from_raw_os_error(libc::EBADMSG));
        };
        self.short += u64::from(freed < asked);
        self.strike(freed);
        Ok(freed as usize)
    }

    /// Removes the oldest tokens.
    fn strike(&mut self, mut freed: u32) {
        self.tokens -= u64::from(freed);
        while let Some(first) = self.ranges.front_mut().filter(|_| freed > 0) {
            if first.count > freed {
                // No overflow: the range's last token is also a u32.
                first.start += freed;
                first.count -= freed;
                return;
            }
            freed -= first.count;
            self.ranges.pop_front();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    /// A kernel that knows which tokens it has lent, and frees at most `most` per call.
    struct Kernel {
        out: HashSet<u32>,
        most: usize,
        calls: Vec<(usize, u32)>,
    }

    impl Freer for Kernel {
        fn free(&mut self, ranges: &[TokenRange]) -> io::Result<usize> {
            assert!(!ranges.is_empty() && ranges.len() <= MOST_RANGES);
            self.calls.push((ranges.len(), ranges.iter().map(|r| r.count).sum()));
            let mut freed = 0;
            for range in ranges {
                assert!(range.count > 0);
                for token in (0..range.count).map(|i| range.start + i) {
                    if freed == self.most {
                        return Ok(freed);
                    }
                    assert!(self.out.remove(&token), "{token} was freed twice or never dealt out");
                    freed += 1;
                }
            }
            Ok(freed)
        }
    }

    fn held(tokens: &[u32]) -> Held {
        let mut held = Held::with_room(16);
        tokens.iter().for_each(|token| held.enter(*token));
        held
    }

    #[test]
    fn tokens_in_a_row_are_one_range() {
        let mut held = held(&[7, 8, 9, 20, 10, 11, u32::MAX, 0]);
        let mut kernel = Kernel { out: HashSet::new(), most: 1024, calls: vec![] };
        kernel.out.extend([7, 8, 9, 20, 10, 11, u32::MAX, 0]);
        assert_eq!(held.give_back(&mut kernel).unwrap(), 8);
        assert_eq!(kernel.calls, [(5, 8)]);
        assert!(held.is_empty() && kernel.out.is_empty());
        assert_eq!(held.give_back(&mut kernel).unwrap(), 0, "nothing is asked of the kernel");
    }

    #[test]
    fn no_call_requests_more_than_the_kernel_takes() {
        let row: Vec<u32> = (0..3000).collect();
        let every_other: Vec<u32> = (0..300).map(|i| 10_000 + 2 * i).collect();
        let tokens = [row, every_other].concat();
        let mut held = held(&tokens);
        let out = tokens.iter().copied().collect();
        let mut kernel = Kernel { out, most: 1024, calls: vec![] };
        while !held.is_empty() {
            held.give_back(&mut kernel).unwrap();
        }
        assert_eq!(
            kernel.calls,
            [(1, 1024), (1, 1024), (1 + 72, 952 + 72), (128, 128), (100, 100)]
        );
        assert_eq!(held.calls(), (5, 0));
    }

    #[test]
    fn a_kernel_that_frees_nothing_or_too_much_ends_the_matter() {
        struct Odd(usize);
        impl Freer for Odd {
            fn free(&mut self, _: &[TokenRange]) -> io::Result<usize> {
                Ok(self.0)
            }
        }
        for freed in [0, 4, usize::MAX] {
            let mut held = held(&[1, 2, 3]);
            let error = held.give_back(&mut Odd(freed)).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADMSG));
            assert_eq!(held.len(), 3);
        }
    }

    proptest! {
        #[test]
        fn no_token_is_lost_or_freed_twice(
            gaps in prop::collection::vec(prop_oneof![9 => Just(1u32), 1 => 2u32..50], 1..3000),
            most in 1usize..2000,
        ) {
            let tokens: Vec<u32> = gaps
                .iter()
                .scan(0u32, |at, gap| {
                    *at += gap;
                    Some(*at)
                })
                .collect();
            let mut held = held(&tokens);
            let mut kernel =
                Kernel { out: tokens.iter().copied().collect(), most, calls: vec![] };
            let mut freed = 0;
            while !held.is_empty() {
                let before = held.len();
                freed += held.give_back(&mut kernel).unwrap();
                prop_assert!(held.len() < before);
            }
            prop_assert_eq!(freed, tokens.len());
            prop_assert!(kernel.out.is_empty());
        }
    }
}
