//! Sizes of the messages that an end of a connection sends or receives, in order. Both ends know
//! them in advance, so messages carry no length.

use bytepath_record::Sizes;
use rand::SeedableRng;
use rand::rngs::StdRng;
use rand::seq::SliceRandom;

/// Number of messages after which sizes repeat; a power of two.
const LENGTH: usize = Sizes::WEIGHTS as usize;

/// Offset between the starting positions of two connections with successive indices.
const STRIDE: u32 = 797;

/// An endless sequence. Connections start at different positions ([`Sequence::begin`]).
pub(super) enum Sequence {
    Same(u64),
    /// The sizes in numbers given by their weights, in random order that is the same at both ends.
    Mixed(Box<[u64]>),
}

impl Sequence {
    /// One direction of a connection; both ends use the same `seed`.
    pub(super) fn new(sizes: &Sizes, seed: u64) -> Sequence {
        if let [(size, _)] = sizes.all() {
            return Sequence::Same(*size);
        }
        let sum: u64 = sizes.all().iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut all = Vec::with_capacity(LENGTH);
        let mut weights = 0;
        for (size, weight) in sizes.all() {
            weights += u64::from(*weight);
            all.resize((weights * LENGTH as u64 / sum) as usize, *size);
        }
        all.shuffle(&mut StdRng::seed_from_u64(seed));
        Sequence::Mixed(all.into())
    }

    /// Returns the starting position of a connection.
    pub(super) fn begin(index: u32) -> u32 {
        index.wrapping_mul(STRIDE)
    }

    /// Returns the total bytes of the next `messages` messages, and advances `at`.
    #[inline]
    pub(super) fn take(&self, at: &mut u32, messages: u64) -> u64 {
        match self {
            Sequence::Same(size) => messages * size,
            Sequence::Mixed(all) => (0..messages).map(|_| next(all, at)).sum(),
        }
    }

    /// Returns how many of the next messages are complete in `bytes`, which is reduced by their
    /// sizes.
    #[inline]
    pub(super) fn take_complete(&self, at: &mut u32, bytes: &mut u64) -> u64 {
        match self {
            Sequence::Same(size) => {
                let whole = *bytes / size;
                *bytes %= size;
                whole
            }
            Sequence::Mixed(all) => {
                let mut whole = 0;
                loop {
                    let mut after = *at;
                    let Some(left) = bytes.checked_sub(next(all, &mut after)) else { return whole };
                    (*bytes, *at) = (left, after);
                    whole += 1;
                }
            }
        }
    }

    /// Bytes of memory.
    pub(super) fn memory(&self) -> usize {
        match self {
            Sequence::Same(_) => 0,
            Sequence::Mixed(all) => size_of_val(&all[..]),
        }
    }
}

#[inline]
fn next(all: &[u64], at: &mut u32) -> u64 {
    let size = all[*at as usize % LENGTH];
    *at = at.wrapping_add(1);
    size
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_as_often_as_their_weights_require_and_at_both_ends_alike() {
        let sizes: Sizes = "64@90+16K@9+1M@1".parse().unwrap();
        let ends = [(); 2].map(|()| Sequence::new(&sizes, 1));
        let (mut sent, mut came) = (Sequence::begin(7), Sequence::begin(7));
        let messages = LENGTH as u64;
        let mut bytes = ends[0].take(&mut sent, messages);
        let mean = bytes as f64 / messages as f64;
        let exact = 0.9 * 64.0 + 0.09 * f64::from(16 << 10) + 0.01 * f64::from(1 << 20);
        assert!((mean / exact - 1.0).abs() < 0.02, "{mean} {exact}");
        // One byte less is one complete message less.
        bytes -= 1;
        assert_eq!(ends[1].take_complete(&mut came, &mut bytes), messages - 1);
        bytes += 1;
        assert_eq!((ends[1].take_complete(&mut came, &mut bytes), bytes, came), (1, 0, sent));
        // Connections are at different positions.
        let first = |index| ends[0].take(&mut Sequence::begin(index), 8);
        assert!((1..100).any(|index| first(index) != first(0)));
    }

    #[test]
    fn every_size_comes() {
        let all: Vec<String> = (1..=Sizes::WEIGHTS).map(|size| format!("{size}@1")).collect();
        let Sequence::Mixed(mut sizes) = Sequence::new(&all.join("+").parse().unwrap(), 1) else {
            panic!("several");
        };
        sizes.sort_unstable();
        assert!((1..=u64::from(Sizes::WEIGHTS)).eq(sizes.iter().copied()));
        let Sequence::Mixed(sizes) = Sequence::new(&"1@4095+2@1".parse().unwrap(), 1) else {
            panic!("two");
        };
        assert_eq!(sizes.iter().sum::<u64>(), 4097);
    }

    #[test]
    fn one_size_needs_no_table() {
        let one = Sequence::new(&Sizes::one(10), 1);
        let (mut at, mut bytes) = (0, 35);
        assert_eq!((one.take(&mut at, 3), one.memory()), (30, 0));
        assert_eq!((one.take_complete(&mut at, &mut bytes), bytes), (3, 5));
    }
}
