//! What is sent, and what the receiver does with it; the same for every path.

use super::Recorder;
use bytepath_record::{Fault, FaultKind, Touch};
use std::hint::black_box;
use std::sync::Arc;

/// Bytes after which the pattern repeats within one message.
pub const PATTERN_PERIOD: usize = 1 << 20;

/// The deterministic payload. A stream consists of messages of one size; the byte at position `p`
/// of a message depends only on `p` modulo [`PATTERN_PERIOD`], so that a path may send one buffer,
/// or a pipe of pages, again and again. A displaced, stale or damaged page is detected. A
/// displacement by whole periods is not, but it changes the byte count, which is compared, too.
#[derive(Clone, Debug)]
pub struct Pattern {
    period: Arc<[u8]>,
    message_size: u64,
}

impl Pattern {
    /// The pattern of messages of this size.
    pub fn new(message_size: u64) -> Self {
        assert!(message_size > 0, "a message has at least one byte");
        let mut period = vec![0u8; PATTERN_PERIOD];
        for (i, word) in period.chunks_exact_mut(8).enumerate() {
            word.copy_from_slice(&mix(i as u64).to_le_bytes());
        }
        Pattern { period: period.into(), message_size }
    }

    /// Fills a buffer with the stream's bytes from this offset on.
    pub fn fill(&self, buffer: &mut [u8], offset: u64) {
        let mut done = 0;
        while done < buffer.len() {
            let piece = self.piece(offset + done as u64, buffer.len() - done);
            buffer[done..done + piece.len()].copy_from_slice(piece);
            done += piece.len();
        }
    }

    /// Compares a buffer with the stream's bytes from this offset on. The error is the stream
    /// offset of the first byte that differs.
    pub fn check(&self, buffer: &[u8], offset: u64) -> Result<(), u64> {
        let mut done = 0;
        while done < buffer.len() {
            let piece = self.piece(offset + done as u64, buffer.len() - done);
            let found = &buffer[done..done + piece.len()];
            if found != piece {
                let at = found.iter().zip(piece).position(|(a, b)| a != b).unwrap_or(0);
                return Err(offset + (done + at) as u64);
            }
            done += piece.len();
        }
        Ok(())
    }

    /// Returns the longest piece of the period that starts at a stream offset, at most `want`
    /// bytes.
    fn piece(&self, offset: u64, want: usize) -> &[u8] {
        let in_message = offset % self.message_size;
        let in_period = (in_message % PATTERN_PERIOD as u64) as usize;
        let left_of_message = (self.message_size - in_message).min(usize::MAX as u64) as usize;
        let len = want.min(left_of_message).min(PATTERN_PERIOD - in_period);
        &self.period[in_period..in_period + len]
    }
}

/// A bijection of 64-bit words without short patterns (the finalizer of SplitMix64).
fn mix(index: u64) -> u64 {
    let mut z = index.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The receiving application's side of the contract; must be passed every byte, in order.
#[derive(Debug)]
pub struct Toucher {
    touch: Touch,
    pattern: Option<Pattern>,
    offset: u64,
}

impl Toucher {
    /// A toucher at the start of a stream.
    pub fn new(touch: Touch, message_size: u64) -> Self {
        let pattern = (touch == Touch::Verify).then(|| Pattern::new(message_size));
        Toucher { touch, pattern, offset: 0 }
    }

    /// Touches the bytes as the contract requires.
    #[inline]
    pub fn take(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        match self.touch {
            Touch::None => {}
            Touch::Read => {
                black_box(sum(bytes));
            }
            Touch::Verify => self.verify(bytes)?,
        }
        self.offset += bytes.len() as u64;
        Ok(())
    }

    /// Delivers bytes that arrived at once, in pieces of at most `most` bytes, and records them.
    #[inline]
    pub fn deliver(
        &mut self,
        bytes: &[u8],
        most: usize,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        for piece in bytes.chunks(most) {
            self.take(piece)?;
            recorder.piece(piece.len());
        }
        recorder.moved(bytes.len());
        Ok(())
    }

    /// True if it reads the bytes at all.
    #[inline]
    pub fn reads_bytes(&self) -> bool {
        self.touch != Touch::None
    }

    /// Like [`Toucher::take`], for bytes that the contract does not require to be read, wherever
    /// they are.
    #[inline]
    pub fn pass(&mut self, bytes: u64) {
        debug_assert!(!self.reads_bytes(), "the contract requires these bytes to be read");
        self.offset += bytes;
    }

    fn verify(&self, bytes: &[u8]) -> Result<(), Fault> {
        let Some(pattern) = &self.pattern else { return Ok(()) };
        pattern.check(bytes, self.offset).map_err(|at| {
            let found = bytes[(at - self.offset) as usize];
            Fault::new(
                FaultKind::Corrupt,
                format!("byte {at} of the stream is 0x{found:02x}, which is not what was sent"),
            )
        })
    }
}

/// Reads every byte once. Written so that the compiler can vectorise it.
fn sum(bytes: &[u8]) -> u64 {
    let (head, words, tail) = (bytes.chunks_exact(8), 0u64, bytes.chunks_exact(8).remainder());
    let words = head.fold(words, |acc, w| {
        acc.wrapping_add(u64::from_ne_bytes(w.try_into().expect("chunks of eight")))
    });
    tail.iter().fold(words, |acc, b| acc.wrapping_add(u64::from(*b)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifies_own_pattern_at_any_offset() {
        for message in [1, 7, 4096, 1 << 20, (1 << 20) + 4096, 3 << 20] {
            let pattern = Pattern::new(message);
            for offset in [0, 1, 4095, (1 << 20) - 3, 5 << 20] {
                let mut buffer = vec![0; 10_000];
                pattern.fill(&mut buffer, offset);
                assert_eq!(pattern.check(&buffer, offset), Ok(()), "{message} at {offset}");
            }
        }
    }

    #[test]
    fn reports_offset_of_wrong_byte() {
        let pattern = Pattern::new(1 << 20);
        let mut buffer = vec![0; 8192];
        pattern.fill(&mut buffer, 100);
        buffer[5000] ^= 1;
        assert_eq!(pattern.check(&buffer, 100), Err(5100));
    }

    #[test]
    fn detects_swapped_pages() {
        let pattern = Pattern::new(64 << 20);
        let mut pages = vec![0; 16384];
        pattern.fill(&mut pages, 0);
        let (a, b) = pages.split_at_mut(4096);
        a.swap_with_slice(&mut b[..4096]);
        assert_eq!(pattern.check(&pages, 0), Err(0));
    }

    #[test]
    fn verifies_stream_in_pieces() {
        let pattern = Pattern::new(5000);
        let mut stream = vec![0; 20_000];
        pattern.fill(&mut stream, 0);
        let mut toucher = Toucher::new(Touch::Verify, 5000);
        for piece in stream.chunks(777) {
            toucher.take(piece).unwrap();
        }
        let fault = toucher.take(&[0, 1, 2]).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Corrupt);
    }
}
