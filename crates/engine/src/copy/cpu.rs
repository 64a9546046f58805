//! The caller's own CPU: a copy is done when it is submitted.

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
    /// By the power of two that a size is at least, at which to find the fastest.
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

/// Copies of about one size. The first ones are made by each way in turn, several in a row, and
/// the rest by the way whose rows were fastest in the middle. One copy by itself would not do:
/// stores past the caches leave its target there for the next way to fetch, and what they owe to
/// memory is paid by the copies after them.
#[derive(Default)]
struct Trials {
    /// The row, and the copy in it.
    at: (usize, u32),
    begin: u64,
    /// Ticks of a row.
    times: [[u64; ROWS]; WAYS.len()],
    best: Option<Method>,
}

const WAYS: [Method; 3] = [Method::Memmove, Method::RepMovsb, Method::NonTemporal];

/// Rows of each way: an odd number, so that one is in the middle.
const ROWS: usize = 5;

/// Copies of a row before its time begins, while the caches still are as the last way left them.
const BEFORE: u32 = 2;

/// Copies of a row that are timed, of this size: 2 MiB of them, so that a cache does not hold back
/// what a way owes to memory, but neither so few that one decides, nor so many that the trials last.
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
        if copy == BEFORE {
            self.begin = clock::now();
        }
        WAYS[way].copy(from, to, len as usize);
        self.at.1 += 1;
        if self.at.1 < BEFORE + row(len) {
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
