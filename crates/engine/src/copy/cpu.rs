//! The caller's own CPU: a copy is complete when it is submitted.

use super::{Copy, Engine, EngineKind};
use bytepath_record::{Fault, OptionKind, OptionSpec};
use bytepath_sys::clock;
use bytepath_sys::copying::{Method, Piece};
use bytepath_sys::idxd::Memories;

pub(super) static KIND: EngineKind = EngineKind {
    name: "cpu",
    summary: "the caller's own CPU",
    options: &[OptionSpec::new("method", OptionKind::Choice(&["memmove", "rep-movsb", "non-temporal", "best"]), "memmove").help("the C library's memmove, the instruction, non-temporal stores, or the fastest at each size")],
    open: |memories, _, options| {
        let word = options.word("method");
        let method = match word {
            "rep-movsb" => Method::RepMovsb,
            "non-temporal" => Method::NonTemporal,
            _ => Method::Memmove,
        };
        if !method.available() {
            return Err(Fault::unsupported(format!("this processor has no way to copy by {word}")).remedy("choose method=memmove"));
        }
        let memories = memories.clone();
        let trials = (word == "best").then(Box::default);
        Ok(Box::new(Cpu { memories, method, trials, done: 0 }))
    },
};

struct Cpu {
    memories: Memories,
    method: Method,
    /// For `best`: one entry per power of two of copy sizes, for each of which the fastest method
    /// is found.
    trials: Option<Box<[Trials; 32]>>,
    done: u64,
}

impl Engine for Cpu {
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault> {
        let [from, to] = [copy.from, copy.to].map(|place| place.of(&self.memories));
        match &mut self.trials {
            Some(trials) => trials[copy.len.max(1).ilog2() as usize].copy(from, to, copy.len),
            None => self.method.copy(from, to, copy.len as usize),
        }
        self.done += 1;
        Ok(true)
    }

    fn poll(&mut self) -> Result<u64, Fault> {
        Ok(self.done)
    }
}

/// Copies of about one size. The first ones use each method in turn, several copies in a row; all
/// later ones use the method whose median row was fastest. Timing single copies would not do: after
/// non-temporal stores, the next method has to fetch the target from memory, and a method's
/// deferred writes to memory slow down the copies after it.
#[derive(Default)]
struct Trials {
    /// The current row, and the copy in it.
    at: (usize, u32),
    begin: u64,
    /// Ticks of each row.
    times: [[u64; ROWS]; WAYS.len()],
    best: Option<Method>,
}

const WAYS: [Method; 3] = [Method::Memmove, Method::RepMovsb, Method::NonTemporal];

/// Rows per method: an odd number, so that there is a median.
const ROWS: usize = 5;

/// Untimed copies at the start of a row, until the caches no longer reflect the previous method.
const WARM_UP_COPIES: u32 = 2;

/// Returns the number of timed copies of this size in a row: 2 MiB of them, so that a cache cannot
/// absorb a method's writes to memory; but not so few that a single copy decides, nor so many that
/// the trials take long.
fn row(len: u32) -> u32 {
    ((2 << 20) / len.max(1)).clamp(4, 512)
}

impl Trials {
    #[inline]
    fn copy(&mut self, from: Piece, to: Piece, len: u32) {
        match self.best {
            Some(best) => best.copy(from, to, len as usize),
            None => self.timed(from, to, len),
        }
    }

    #[cold]
    fn timed(&mut self, from: Piece, to: Piece, len: u32) {
        let (row_number, copy) = self.at;
        let (way, turn) = (row_number % WAYS.len(), row_number / WAYS.len());
        if copy == WARM_UP_COPIES {
            self.begin = clock::now();
        }
        WAYS[way].copy(from, to, len as usize);
        self.at.1 += 1;
        if self.at.1 < WARM_UP_COPIES + row(len) {
            return;
        }
        self.times[way][turn] = clock::now() - self.begin;
        self.at = (row_number + 1, 0);
        if self.at.0 == WAYS.len() * ROWS {
            self.times.iter_mut().for_each(|times| times.sort_unstable());
            let best = (0..WAYS.len()).min_by_key(|way| self.times[*way][ROWS / 2]);
            self.best = best.map(|way| WAYS[way]);
        }
    }
}
