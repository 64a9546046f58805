//! A FIFO of bytes between one writer and one reader, which may be two threads. An engine copies
//! the writer's bytes in: the writer continues meanwhile, several copies may be in flight, and the
//! reader sees bytes only once they and all before them are complete. It allocates nothing after
//! creation.

use super::{Copy, Counter, Engine, Events, Memories, Place};
use bytepath_record::Fault;
use bytepath_sys::clock;
use bytepath_sys::copying::Memory;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How writer and reader are synchronised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// A spin lock, held by the writer while it writes and by the reader while it takes.
    Lock,
    /// Two counters, each on its own cache line. If one thread has both sides, they never leave its
    /// cache.
    LockFree,
}

/// Statistics of a writer. Times are in ticks of [`clock::tick_seconds`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of [`Writer::write`].
    pub attempts: u64,
    /// Calls that accepted no byte.
    pub refused: u64,
    /// Refused calls for which there was room, but the engine was at its depth.
    pub busy: u64,
    /// Copies that were submitted to the engine.
    pub copies: u64,
    /// Bytes of these copies.
    pub bytes: u64,
    /// Polls of the engine.
    pub polls: u64,
    pub submitting: u64,
    /// Time within polls that found completions.
    pub polling: u64,
}

/// Creates a FIFO whose ring is the memory of index `ring`. `engine` copies between `memories`, at
/// most `depth` copies at a time.
pub fn fifo(
    sharing: Sharing,
    memories: &Memories,
    ring: usize,
    (engine, depth): (Box<dyn Engine>, usize),
) -> (Writer, Reader) {
    let lock = (sharing == Sharing::Lock).then(SpinLock::default);
    let (written, taken) = Default::default();
    let shared = Arc::new(Shared { memories: memories.clone(), ring, lock, written, taken });
    // A write has at most two parts, and all earlier copies may be complete but not yet polled.
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
    /// Begins to copy as many of `len` bytes as there is room for, and returns their number. The
    /// source memory must not change until [`Writer::settle`] reports that nothing is in flight, or
    /// these bytes are published. An error is final.
    pub fn write(&mut self, from: Place, len: usize) -> Result<usize, Fault> {
        let _held = self.shared.hold();
        self.input.write(&self.shared, from, len)
    }

    /// Publishes what is complete, and makes the engine start everything that was submitted. True
    /// once nothing is in flight.
    pub fn settle(&mut self) -> Result<bool, Fault> {
        let _held = self.shared.hold();
        self.input.engine.flush()?;
        self.input.poll(&self.shared)?;
        Ok(self.input.ends.is_empty())
    }

    /// True if copies were in flight at the last poll.
    pub fn is_under_way(&self) -> bool {
        !self.input.ends.is_empty()
    }

    /// Total number of bytes published to the reader.
    pub fn published(&self) -> u64 {
        self.shared.written.own()
    }

    /// Total number of bytes that the reader has taken.
    pub fn taken(&self) -> u64 {
        self.shared.taken.shown()
    }

    /// The statistics so far.
    pub fn counts(&self) -> Counts {
        self.input.counts
    }

    /// What the engine had to do besides copying.
    pub fn events(&self) -> Events {
        self.input.engine.events()
    }
}

impl Reader {
    /// Passes the available bytes to `take`, which returns how many of them, from the first on, it
    /// has taken; returns that number. Panics if it exceeds what is available.
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

/// Bytes available to a reader: one slice of the ring, or two if they wrap around.
#[derive(Debug)]
pub struct Bytes<'a> {
    memory: &'a Memory,
    at: usize,
    /// Number of bytes.
    pub len: usize,
}

impl Bytes<'_> {
    /// Copies bytes out, starting at offset `skip`, as many as there are and fit; returns their
    /// number.
    pub fn read(&self, skip: usize, into: &mut [u8]) -> usize {
        let count = into.len().min(self.len.saturating_sub(skip));
        let from = (self.at + skip) % self.memory.len();
        let (first, second) = into[..count].split_at_mut(count.min(self.memory.len() - from));
        self.memory.read(from, first);
        self.memory.read(0, second);
        count
    }
}

/// State that both sides access.
struct Shared {
    memories: Memories,
    ring: usize,
    lock: Option<SpinLock>,
    /// Number of bytes published.
    written: Counter,
    /// Number of bytes taken.
    taken: Counter,
}

impl Shared {
    fn hold(&self) -> Option<Held<'_>> {
        self.lock.as_ref().map(SpinLock::hold)
    }
}

/// State of the writer alone.
struct Input {
    engine: Box<dyn Engine>,
    /// Where in the stream each copy in flight ends.
    ends: VecDeque<u64>,
    /// Number of bytes submitted to the engine.
    begun: u64,
    /// Number of complete copies.
    done: u64,
    counts: Counts,
}

impl Input {
    fn write(&mut self, shared: &Shared, from: Place, len: usize) -> Result<usize, Fault> {
        let size = shared.memories[shared.ring].len();
        let room = size - (self.begun - shared.taken.shown()) as usize;
        let (wanted, mut given) = (len.min(room), 0);
        let before = clock::now();
        // Two copies if the ring wraps in between.
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
            // The reader may be waiting for copies that the engine holds back to batch them.
            self.engine.flush()?;
        }
        self.poll(shared)?;
        Ok(given)
    }

    /// Publishes completed copies.
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

/// A lock that is polled, like pthread_spin_lock(3), but yields now and then, since its owner may
/// need this core.
#[derive(Default)]
#[repr(align(128))]
struct SpinLock(AtomicBool);

impl SpinLock {
    /// Not inlined, so that the time spent here appears under its own name in a profile.
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

/// Guard that releases the lock when dropped.
struct Held<'a>(&'a SpinLock);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.0.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    //! The reader takes exactly the bytes written: checked against a queue of the standard library,
    //! with two threads, and with every status that a device may return.

    use super::*;
    use crate::copy::dsa::status;
    use crate::copy::dsa_model::{self, InjectedFault, Settings};
    use crate::copy::tests::{PORTABLE_ENGINES, dealt_with, header, kind, options};
    use crate::copy::{EngineKind, Shape};
    use bytepath_record::Options;
    use bytepath_sys::allocations;
    use bytepath_sys::idxd::{BATCH, MEMMOVE, Record};
    use proptest::prelude::*;
    use std::time::Duration;

    /// Indices of the memories: the source and the ring.
    const SOURCE: usize = 0;
    const RING: usize = 1;

    const BOTH: [Sharing; 2] = [Sharing::Lock, Sharing::LockFree];

    /// A source of this many bytes, in which no two stretches are alike, and an empty ring.
    fn memories(source: usize, ring: usize) -> (Memories, Vec<u8>) {
        let bytes: Vec<u8> = (0..source as u64).map(|n| (n.pow(3) >> 7 ^ n) as u8).collect();
        let memories = Memories::from([source, ring].map(|len| Memory::new(len).unwrap()));
        memories[SOURCE].write(0, &bytes);
        (memories, bytes)
    }

    fn opened(
        (kind, options): (&EngineKind, &Options),
        shape: Shape,
        sharing: Sharing,
        memories: &Memories,
    ) -> (Writer, Reader) {
        let engine = (kind.open)(memories, shape, options).unwrap();
        fifo(sharing, memories, RING, (engine, shape.depth))
    }

    /// Takes at most `most` bytes.
    fn taken(reader: &mut Reader, most: usize) -> Vec<u8> {
        let mut found = Vec::new();
        reader.take(|bytes| {
            found.resize(bytes.len.min(most), 0);
            bytes.read(0, &mut found)
        });
        found
    }

    fn source(at: usize) -> Place {
        Place { memory: SOURCE, at }
    }

    #[derive(Clone, Debug)]
    enum Step {
        Write { at: usize, len: usize },
        Take(usize),
        Settle,
    }

    fn steps() -> impl Strategy<Value = Vec<Step>> {
        let step = prop_oneof![
            4 => (0..3000_usize, 1..700_usize).prop_map(|(at, len)| Step::Write { at, len }),
            3 => (0..900_usize).prop_map(Step::Take),
            1 => Just(Step::Settle),
        ];
        prop::collection::vec(step, 1..60)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn behaves_like_a_queue(
            steps in steps(),
            ring in 1..2000_usize,
            (depth, batch) in (1..6_usize).prop_flat_map(|depth| (Just(depth), 1..=depth)),
            engine in 0..PORTABLE_ENGINES.len(),
            locked: bool,
        ) {
            let (memories, bytes) = memories(4096, ring);
            let (name, given) = PORTABLE_ENGINES[engine];
            let kind = kind(name);
            let sharing = BOTH[usize::from(locked)];
            let opening = (kind, &options(kind, given));
            let (mut writer, mut reader) = opened(opening, Shape { depth, batch }, sharing, &memories);
            let mut queue = VecDeque::new();
            let mut expected = Counts::default();
            for step in steps {
                match step {
                    Step::Write { at, len } => {
                        let room = ring - queue.len();
                        let given = writer.write(source(at), len).unwrap();
                        prop_assert!(given <= len.min(room));
                        prop_assert!(given == len.min(room) || name != "cpu", "it is never busy");
                        queue.extend(&bytes[at..at + given]);
                        expected.attempts += 1;
                        expected.refused += u64::from(given == 0);
                        expected.busy += u64::from(given == 0 && room > 0);
                        expected.bytes += given as u64;
                    }
                    Step::Take(most) => {
                        let found = taken(&mut reader, most);
                        let wanted: Vec<u8> = queue.drain(..found.len()).collect();
                        prop_assert_eq!(found, wanted);
                    }
                    Step::Settle => {
                        if writer.settle().unwrap() {
                            prop_assert_eq!(writer.published() - writer.taken(), queue.len() as u64);
                        }
                    }
                }
            }
            while !writer.settle().unwrap() {
                std::thread::yield_now();
            }
            prop_assert_eq!(taken(&mut reader, usize::MAX), Vec::from(queue));
            let counts = writer.counts();
            prop_assert!(counts.copies >= expected.attempts - expected.refused);
            prop_assert_eq!(
                [counts.attempts, counts.refused, counts.busy, counts.bytes],
                [expected.attempts, expected.refused, expected.busy, expected.bytes]
            );
        }
    }

    #[test]
    fn two_threads_transfer_all_bytes_in_order() {
        const ALL: usize = 2 << 20;
        for (name, given) in [PORTABLE_ENGINES[0], PORTABLE_ENGINES[4], PORTABLE_ENGINES[6]] {
            for sharing in BOTH {
                let (memories, bytes) = memories(100_003, 30_000);
                let opening = (kind(name), &options(kind(name), given));
                let shape = Shape { depth: 4, batch: 2 };
                let (mut writer, mut reader) = opened(opening, shape, sharing, &memories);
                std::thread::scope(|scope| {
                    scope.spawn(move || {
                        let mut at = 0;
                        for size in [1, 777, 40_000, 5_000].into_iter().cycle() {
                            let len = size.min(ALL - at).min(100_003 - at % 100_003);
                            at += writer.write(source(at % 100_003), len).unwrap();
                            if at == ALL {
                                break;
                            }
                        }
                        while !writer.settle().unwrap() {
                            std::thread::yield_now();
                        }
                    });
                    let mut at = 0;
                    while at < ALL {
                        let found = taken(&mut reader, 9_999);
                        for part in found.chunks(1000) {
                            let expected = bytes.iter().cycle().skip(at % bytes.len());
                            assert!(
                                part.iter().eq(expected.take(part.len())),
                                "{name} {sharing:?}"
                            );
                            at += part.len();
                        }
                        if found.is_empty() {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        }
    }

    /// Neither copies nor refusals allocate memory in this thread.
    #[test]
    fn allocates_nothing() {
        // Determines the clock, which may allocate.
        clock::tick_seconds();
        for (name, given) in PORTABLE_ENGINES {
            let (memories, _) = memories(1 << 16, 10_000);
            let opening = (kind(name), &options(kind(name), given));
            let shape = Shape { depth: 4, batch: 2 };
            let (mut writer, mut reader) = opened(opening, shape, Sharing::Lock, &memories);
            let mut some = [0; 3000];
            let before = allocations::of_this_thread();
            for n in 0..3000 {
                writer.write(source(n), 700 + n).unwrap();
                reader.take(|bytes| bytes.read(0, &mut some));
            }
            while !writer.settle().unwrap() {
                std::thread::yield_now();
            }
            assert_eq!(allocations::of_this_thread() - before, 0, "{name} {given:?}");
            drop(std::hint::black_box(vec![1_u8]));
            assert!(allocations::of_this_thread() > before, "it counts");
        }
    }

    #[test]
    fn hides_bytes_in_flight_and_refuses_when_full() {
        let (memories, bytes) = memories(4096, 1000);
        let silent = |number| InjectedFault { operation: MEMMOVE, number, record: None };
        let faults = vec![silent(0), silent(1)];
        let timeout = Duration::from_millis(1);
        let settings = Settings { faults, timeout, ..Settings::default() };
        let engine = dsa_model::open(&memories, Shape { depth: 2, batch: 1 }, &settings).unwrap();
        let (mut writer, mut reader) = fifo(Sharing::LockFree, &memories, RING, (engine, 2));
        assert_eq!(writer.write(source(0), 600).unwrap(), 600);
        assert_eq!(writer.write(source(600), 600).unwrap(), 400, "as much as there is room for");
        assert_eq!(writer.write(source(1000), 1).unwrap(), 0);
        assert_eq!(taken(&mut reader, 1000), [0; 0], "nothing is complete");
        assert_eq!((writer.counts().refused, writer.counts().busy), (1, 0));
        let (mut writer, mut reader) = {
            let shape = Shape { depth: 1, batch: 1 };
            opened((kind("cpu"), &options(kind("cpu"), &[])), shape, Sharing::Lock, &memories)
        };
        assert_eq!(writer.write(source(5), 2000).unwrap(), 1000);
        assert_eq!(writer.write(source(5), 1).unwrap(), 0);
        let mut some = [0; 100];
        let count = reader.take(|shown| {
            assert_eq!(shown.len, 1000);
            assert_eq!(shown.read(950, &mut some), 50, "to its end");
            shown.read(7, &mut some)
        });
        assert_eq!((count, &some[..]), (100, &bytes[12..112]));
    }

    /// Writes 4 x 1000 bytes through a modelled device. Returns the bytes the reader got, the bytes
    /// written, and the final result.
    fn over(settings: Settings, batch: usize) -> (Vec<u8>, Vec<u8>, Result<Events, Fault>) {
        let (memories, bytes) = memories(4000, 4096);
        let engine = dsa_model::open(&memories, Shape { depth: 4, batch }, &settings).unwrap();
        let (mut writer, mut reader) = fifo(Sharing::LockFree, &memories, RING, (engine, 4));
        let written: Result<usize, Fault> =
            (0..4).map(|n| writer.write(source(1000 * n), 1000)).sum();
        let ended = written.and_then(|written| {
            assert_eq!(written, 4000, "all at once");
            while !writer.settle()? {
                std::thread::yield_now();
            }
            Ok(writer.events())
        });
        (taken(&mut reader, 4000), bytes, ended)
    }

    /// For each status in the kernel's header, of a copy and of a batch: either the bytes arrive,
    /// or an error is returned and the reader sees nothing of that copy.
    #[test]
    fn fifo_handles_every_completion_status() {
        for (operation, batch) in [(MEMMOVE, 1), (MEMMOVE, 4), (BATCH, 4)] {
            for status in header() {
                let number = u64::from(operation == MEMMOVE) * 2;
                let completed = if operation == MEMMOVE { 300 } else { 2 };
                let completed = if status == status::SUCCESS { 1000 } else { completed };
                let record = Record { status, completed, ..Record::default() };
                let fault = InjectedFault { operation, number, record: Some(record) };
                let settings = Settings { faults: vec![fault], ..Settings::default() };
                let (shown, bytes, ended) = over(settings, batch);
                assert!(bytes.starts_with(&shown), "{status:#x}");
                match ended {
                    Ok(_) => {
                        assert!(dealt_with(operation).contains(&status), "{status:#x}");
                        assert_eq!(shown.len(), 4000, "{operation} {status:#x}");
                    }
                    Err(fault) => {
                        assert!(!dealt_with(operation).contains(&status), "{fault}");
                        assert!(fault.message.contains(&format!("({status:#04x})")), "{fault}");
                        assert!(shown.len() <= 1000 * number as usize, "{status:#x}");
                    }
                }
            }
        }
    }

    #[test]
    fn silent_device_is_an_error() {
        let faults = vec![InjectedFault { operation: MEMMOVE, number: 1, record: None }];
        let timeout = Duration::from_millis(500);
        let (shown, bytes, ended) = over(Settings { faults, timeout, ..Settings::default() }, 1);
        assert!(ended.unwrap_err().message.contains("completed nothing"));
        assert_eq!(shown, bytes[..1000]);
    }
}
