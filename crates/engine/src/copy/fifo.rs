//! A FIFO of bytes between one writer and one reader, which may be two threads. The writer's
//! bytes are copied in by an engine: it goes on while they are, several copies may be under
//! way, and the reader sees bytes once they and all before them are there. It takes no memory
//! after it was made.

use super::{Copy, Counter, Engine, Events, Memories, Place};
use bytepath_record::Fault;
use bytepath_sys::clock;
use bytepath_sys::copying::Memory;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How writer and reader keep out of each other's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A spin lock: the writer has it while it writes, the reader while it takes.
    Lock,
    /// Two counters, each on a line of its own. Where one thread has both sides they never
    /// leave its cache.
    LockFree,
}

/// What a writer has done. Times are in ticks of [`clock::tick_seconds`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of [`Writer::write`].
    pub attempts: u64,
    /// Those of which not a byte was taken.
    pub refused: u64,
    /// Of these, where there was room, but the engine had its depth in flight.
    pub busy: u64,
    /// Copies that the engine was given.
    pub copies: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Times the engine was asked what is done.
    pub polls: u64,
    pub submitting: u64,
    /// Time within polls that found something.
    pub polling: u64,
}

/// Makes a FIFO whose bytes are in the memory of number `ring`. `engine` copies between these
/// memories, at most `depth` copies at a time.
pub fn fifo(
    sharing: Sharing,
    memories: &Memories,
    ring: usize,
    (engine, depth): (Box<dyn Engine>, usize),
) -> (Writer, Reader) {
    let lock = (sharing == Sharing::Lock).then(SpinLock::default);
    let (written, taken) = Default::default();
    let shared = Arc::new(Shared { memories: memories.clone(), ring, lock, written, taken });
    // A write has two parts at most, and may find all others complete without a notification.
    let ends = VecDeque::with_capacity(depth + 2);
    let input = Input { engine, ends, begun: 0, done: 0, counts: Counts::default() };
    (Writer { shared: shared.clone(), input }, Reader { shared, taken: 0 })
}

pub struct Writer {
    shared: Arc<Shared>,
    input: Input,
}

pub struct Reader {
    shared: Arc<Shared>,
    taken: u64,
}

impl Writer {
    /// Begins to copy as many of `len` bytes as there is room for, and says how many those are.
    /// The memory they come from must not change before [`Writer::settle`] says that nothing
    /// is in flight, or as many bytes were published. An error is final.
    pub fn write(&mut self, from: Place, len: usize) -> Result<usize, Fault> {
        let _held = self.shared.hold();
        self.input.write(&self.shared, from, len)
    }

    /// Shows the reader what is there by now, and has the engine begin with all it was given.
    /// True once nothing is in flight any more.
    pub fn settle(&mut self) -> Result<bool, Fault> {
        let _held = self.shared.hold();
        self.input.engine.flush()?;
        self.input.poll(&self.shared)?;
        Ok(self.input.ends.is_empty())
    }

    /// Whether copies are in flight, as far as was known when it was last asked.
    pub fn is_under_way(&self) -> bool {
        !self.input.ends.is_empty()
    }

    /// Bytes that the reader was shown, over all.
    pub fn published(&self) -> u64 {
        self.shared.written.own()
    }

    /// Bytes that the reader has taken, over all.
    pub fn taken(&self) -> u64 {
        self.shared.taken.shown()
    }

    /// What it has done so far.
    pub fn counts(&self) -> Counts {
        self.input.counts
    }

    /// What its engine had to do besides copying.
    pub fn events(&self) -> Events {
        self.input.engine.events()
    }
}

impl Reader {
    /// Shows the available bytes to `take`, which returns how many of them, from the first one on,
    /// it has taken; gives that number. Panics where it says more than it was shown.
    pub fn take(&mut self, take: impl FnOnce(&Bytes) -> usize) -> usize {
        let Shared { memories, ring, written, taken, .. } = &*self.shared;
        let _held = self.shared.hold();
        let memory = &memories[*ring];
        let len = (written.shown() - self.taken) as usize;
        let at = (self.taken % memory.len() as u64) as usize;
        let count = take(&Bytes { memory, at, len });
        assert!(count <= len, "{count} bytes were taken of {len}");
        self.taken += count as u64;
        taken.show(self.taken);
        count
    }
}

/// Bytes that a reader may take: a slice of the ring, or two where they wrap.
#[derive(Debug)]
pub struct Bytes<'a> {
    memory: &'a Memory,
    at: usize,
    len: usize,
}

impl Bytes<'_> {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Copies bytes out, from the one of number `skip` on, as many as there are and fit; says
    /// how many.
    pub fn read(&self, skip: usize, into: &mut [u8]) -> usize {
        let count = into.len().min(self.len.saturating_sub(skip));
        let from = (self.at + skip) % self.memory.len();
        let (first, second) = into[..count].split_at_mut(count.min(self.memory.len() - from));
        self.memory.read(from, first);
        self.memory.read(0, second);
        count
    }
}

/// What both sides see.
struct Shared {
    memories: Memories,
    ring: usize,
    lock: Option<SpinLock>,
    /// Bytes that were published.
    written: Counter,
    /// Bytes that were taken.
    taken: Counter,
}

impl Shared {
    fn hold(&self) -> Option<Held<'_>> {
        self.lock.as_ref().map(SpinLock::hold)
    }
}

/// The writer's own part.
struct Input {
    engine: Box<dyn Engine>,
    /// Where in the stream each copy in flight ends.
    ends: VecDeque<u64>,
    /// Bytes that were given to the engine.
    begun: u64,
    /// Copies that are complete.
    done: u64,
    counts: Counts,
}

impl Input {
    fn write(&mut self, shared: &Shared, from: Place, len: usize) -> Result<usize, Fault> {
        let size = shared.memories[shared.ring].len();
        let room = size - (self.begun - shared.taken.shown()) as usize;
        let (wanted, mut given) = (len.min(room), 0);
        let before = clock::now();
        // Twice where the ring ends in between.
        while given < wanted {
            let at = (self.begun % size as u64) as usize;
            let part = (wanted - given).min(size - at);
            let to = Place { memory: shared.ring, at };
            let from = Place { at: from.at + given, ..from };
            if !self.engine.submit(&Copy { from, to, len: part as u32 })? {
                break;
            }
            given += part;
            self.begun += part as u64;
            self.ends.push_back(self.begun);
            self.counts.copies += 1;
        }
        self.counts.attempts += 1;
        if given > 0 {
            self.counts.bytes += given as u64;
            self.counts.submitting += clock::now() - before;
        } else {
            self.counts.refused += 1;
            self.counts.busy += u64::from(wanted > 0);
            // What it holds back may be what the reader waits for.
            self.engine.flush()?;
        }
        self.poll(shared)?;
        Ok(given)
    }

    /// Publishes what is complete.
    fn poll(&mut self, shared: &Shared) -> Result<(), Fault> {
        if self.ends.is_empty() {
            return Ok(());
        }
        let before = clock::now();
        let done = self.engine.poll()?;
        self.counts.polls += 1;
        if done > self.done {
            let mut new = self.ends.drain(..(done - self.done) as usize);
            if let Some(end) = new.next_back() {
                shared.written.show(end);
            }
            self.done = done;
            self.counts.polling += clock::now() - before;
        }
        Ok(())
    }
}

/// A lock that is waited for by asking again, as pthread_spin_lock(3) does; but now and then
/// others may run, since its owner may need this core.
#[derive(Default)]
#[repr(align(128))]
struct SpinLock(AtomicBool);

impl SpinLock {
    /// Not inlined, so that a profile has a name for the time it takes.
    #[inline(never)]
    fn hold(&self) -> Held<'_> {
        let mut tries = 0_u32;
        while self.0.swap(true, Ordering::Acquire) {
            while self.0.load(Ordering::Relaxed) {
                tries = tries.saturating_add(1);
                super::pause(tries);
            }
        }
        Held(self)
    }
}

/// The lock, until it is dropped.
struct Held<'a>(&'a SpinLock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests;
