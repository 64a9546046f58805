//! A software device in place of a DSA: its own thread takes the driver's 64-byte descriptors and
//! writes 32-byte completion records, at a configured latency and bandwidth. It shows that the
//! driver is correct, not how fast a device is.
#![allow(dead_code, reason = "each program that includes this file uses a part of it")]

use bytepath_engine::copy::dsa::status;
use bytepath_engine::copy::dsa::{Dsa, Queue, TIMEOUT};
use bytepath_engine::copy::{Engine, EngineKind, Shape, helper, pause};
use bytepath_record::{Fault, OptionKind, OptionSpec, Options};
use bytepath_sys::copying::{Memory, Method, Piece};
use bytepath_sys::idxd::{
    BATCH, BLOCK_ON_FAULT, DESCRIPTOR, Descriptor, Device, MEMMOVE, Memories, RECORD,
    RECORD_REQUESTED, RECORD_VALID, Record, TO_CACHE, WorkQueue,
};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Name of its thread, by which its work is not counted as CPU time, since it represents a device
/// (`crates/stats/src/cpu.rs`).
const THREAD: &str = "model";

pub(crate) static KIND: EngineKind = EngineKind {
    name: "dsa-model",
    summary: "a software device driven like a DSA; its times are a model's",
    options: &[
        OptionSpec::new("latency", OptionKind::Count(0, 1_000_000_000), "500")
            .help("nanoseconds from the end of a copy to its record"),
        OptionSpec::new("bandwidth", OptionKind::Size(1 << 20, 1 << 40), "30G")
            .help("bytes per second of the engine"),
        OptionSpec::new("size", OptionKind::Count(1, 4096), "128")
            .help("capacity of the queue in descriptors"),
        OptionSpec::new("queues", OptionKind::Count(1, 8), "1")
            .help("work queues, each with an engine"),
        OptionSpec::new("shared", OptionKind::Flag, "off")
            .help("a full queue requests a retry, as a shared one does"),
        OptionSpec::new("fault-every", OptionKind::Count(0, 1_000_000_000), "0")
            .help("every Nth copy is left half done for the CPU to finish; 0 means never"),
    ],
    open: |memories, shape, options| open(memories, shape, &Settings::of(options)),
};

/// Parameters of the device.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// Time from the end of a copy to its record.
    pub(crate) latency: Duration,
    /// Bytes per second.
    pub(crate) bandwidth: f64,
    /// Capacity of the queue in descriptors.
    pub(crate) size: usize,
    pub(crate) queues: usize,
    /// Whether a full queue rejects submissions with a retry.
    pub(crate) shared: bool,
    /// Maximum number of descriptors in a batch.
    pub(crate) batch: u32,
    /// Maximum number of bytes of a copy.
    pub(crate) longest: u32,
    /// Faults injected into particular descriptors.
    pub(crate) faults: Vec<InjectedFault>,
    /// Every N copies, one takes a page fault halfway; 0 means never.
    pub(crate) fault_every: u64,
    /// How long the driver waits for a record.
    pub(crate) timeout: Duration,
}

/// A fault injected into one descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct InjectedFault {
    /// [`MEMMOVE`] or [`BATCH`].
    pub(crate) operation: u8,
    /// Number of that descriptor among those of its operation, from 0.
    pub(crate) number: u64,
    /// The record to write, or `None` to never write one.
    pub(crate) record: Option<Record>,
}

impl Default for Settings {
    fn default() -> Self {
        Settings {
            latency: Duration::from_nanos(500),
            bandwidth: 30e9,
            size: 128,
            queues: 1,
            shared: false,
            batch: 1024,
            longest: 1 << 31,
            faults: Vec::new(),
            fault_every: 0,
            timeout: TIMEOUT,
        }
    }
}

impl Settings {
    fn of(options: &Options) -> Settings {
        let number = |name: &str| options.number(name).unwrap_or_default();
        Settings {
            latency: Duration::from_nanos(number("latency")),
            bandwidth: number("bandwidth") as f64,
            size: number("size") as usize,
            queues: number("queues") as usize,
            shared: options.flag("shared"),
            fault_every: number("fault-every"),
            ..Settings::default()
        }
    }
}

/// Opens the driver on such a device.
pub(crate) fn open(
    memories: &Memories,
    shape: Shape,
    settings: &Settings,
) -> Result<Box<dyn Engine>, Fault> {
    let queues = (0..settings.queues).map(|_| {
        let setup = (memories.clone(), shape.depth, shape.batch, TO_CACHE);
        let device =
            |records: &Arc<Memory>, lists: &Arc<Memory>| -> Result<Box<dyn Device>, Fault> {
                let space = Space {
                    memories: memories.clone(),
                    records: Arc::clone(records),
                    lists: Arc::clone(lists),
                };
                Ok(Box::new(Model::start(space, settings.clone())?))
            };
        let queue = WorkQueue::software(setup, device)
            .map_err(|e| Fault::system("cannot map memory for the model", &e))??;
        // Posting to a full shared queue is safe: the queue reports that it is full.
        let size = if settings.shared { usize::MAX } else { settings.size };
        Ok(Queue::new(queue, size, settings.longest))
    });
    let queues = queues.collect::<Result<Vec<_>, Fault>>()?;
    Ok(Box::new(Dsa::new(memories, shape, queues, settings.timeout)))
}

/// Memory that the device can address.
struct Space {
    memories: Memories,
    records: Arc<Memory>,
    lists: Arc<Memory>,
}

impl Space {
    /// Returns the memory at an address, and the number of bytes from there to its end.
    fn translate(&self, address: u64) -> Option<(Piece<'_>, usize)> {
        let own = [&*self.records, &*self.lists];
        self.memories.iter().chain(own).find_map(|memory| {
            let at = memory.offset(address)?;
            Some((Piece { memory, at }, memory.len() - at))
        })
    }
}

/// The queue, shared by driver and device.
struct Shared {
    slots: Vec<[AtomicU64; 8]>,
    /// Number of descriptors posted.
    head: AtomicU64,
    /// Number of descriptors taken by the device.
    tail: AtomicU64,
    /// Number of descriptors lost because a dedicated queue was full.
    lost: AtomicU64,
    stop: AtomicBool,
}

/// The software device as seen through its portal.
pub(crate) struct Model {
    shared: Arc<Shared>,
    /// The tail as last read; cached because the device writes it all the time.
    tail: u64,
    reports_full: bool,
    thread: Option<JoinHandle<()>>,
}

impl Model {
    fn start(space: Space, settings: Settings) -> Result<Model, Fault> {
        let empty = || std::array::from_fn(|_| AtomicU64::new(0));
        let shared = Arc::new(Shared {
            slots: (0..settings.size).map(|_| empty()).collect(),
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        });
        let reports_full = settings.shared;
        let queue = Arc::clone(&shared);
        let thread = helper(THREAD, None, move || Worker::new(space, settings, queue).run())?;
        Ok(Model { shared, tail: 0, reports_full, thread: Some(thread) })
    }
}

impl Device for Model {
    fn post(&mut self, descriptor: [u8; DESCRIPTOR]) -> bool {
        let Shared { slots, head, tail, lost, .. } = &*self.shared;
        let number = head.load(Ordering::Relaxed);
        if number - self.tail >= slots.len() as u64 {
            self.tail = tail.load(Ordering::Acquire);
        }
        if number - self.tail >= slots.len() as u64 {
            // A dedicated queue cannot report that it is full (DSA specification, 3.6).
            lost.fetch_add(u64::from(!self.reports_full), Ordering::Relaxed);
            return !self.reports_full;
        }
        let slot = &slots[(number % slots.len() as u64) as usize];
        for (word, value) in slot.iter().zip(Descriptor::of(&descriptor).0) {
            word.store(value, Ordering::Relaxed);
        }
        head.store(number + 1, Ordering::Release);
        true
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let lost = self.shared.lost.load(Ordering::Relaxed);
        debug_assert_eq!(lost, 0, "descriptors were posted to a full dedicated queue");
    }
}

/// Records of one descriptor, to be written together.
struct Due {
    at: Instant,
    records: Vec<(u64, Record)>,
}

/// The engine behind a queue.
struct Worker {
    space: Space,
    settings: Settings,
    queue: Arc<Shared>,
    /// When it will have finished its current work.
    free: Instant,
    due: VecDeque<Due>,
    /// Number of copies and of batches so far.
    seen: [u64; 2],
}

impl Worker {
    fn new(space: Space, settings: Settings, queue: Arc<Shared>) -> Worker {
        let (free, due) = (Instant::now(), VecDeque::new());
        Worker { space, settings, queue, free, due, seen: [0; 2] }
    }

    /// Main loop; ends when stopped and nothing is left to do.
    fn run(&mut self) {
        let mut idle = 0_u32;
        loop {
            let stopped = self.queue.stop.load(Ordering::Acquire);
            let taken = self.take();
            let worked = taken.is_some() | self.report();
            if let Some(descriptor) = taken {
                self.serve(&descriptor);
            }
            if worked {
                idle = 0;
            } else if stopped && self.due.is_empty() {
                return;
            } else {
                idle = idle.saturating_add(1);
                pause(idle);
            }
        }
    }

    fn take(&self) -> Option<Descriptor> {
        let Shared { slots, head, tail, .. } = &*self.queue;
        let number = tail.load(Ordering::Relaxed);
        if number == head.load(Ordering::Acquire) {
            return None;
        }
        let slot = &slots[(number % slots.len() as u64) as usize];
        let words = slot.each_ref().map(|word| word.load(Ordering::Relaxed));
        tail.store(number + 1, Ordering::Release);
        Some(Descriptor(words))
    }

    /// Writes the records of one descriptor, if they are due. True if there were any.
    fn report(&mut self) -> bool {
        let Some(first) = self.due.front() else { return false };
        if first.at > Instant::now() {
            return false;
        }
        for (address, record) in self.due.pop_front().map(|due| due.records).unwrap_or_default() {
            if let Some((piece, room)) = self.space.translate(address)
                && room >= RECORD
            {
                record.write(piece.memory, piece.at);
            }
        }
        true
    }

    /// Executes a descriptor, and schedules its records.
    fn serve(&mut self, descriptor: &Descriptor) {
        let mut records = Vec::new();
        let bytes = match descriptor.operation() {
            BATCH => self.batch(descriptor, &mut records),
            _ => self.single(descriptor, &mut records),
        };
        let time = Duration::from_secs_f64(bytes as f64 / self.settings.bandwidth);
        self.free = self.free.max(Instant::now()) + time;
        self.due.push_back(Due { at: self.free + self.settings.latency, records });
    }

    /// Executes a copy and adds its record; returns the bytes copied.
    fn single(&mut self, descriptor: &Descriptor, records: &mut Vec<(u64, Record)>) -> u64 {
        let injected = self.injected_fault(MEMMOVE);
        let half = Record {
            status: status::PAGE_FAULT,
            completed: descriptor.size() / 2,
            ..Record::default()
        };
        let every = self.settings.fault_every;
        let scheduled = (every > 0 && self.seen[0].is_multiple_of(every)).then_some(Some(half));
        let record = match (injected.or(scheduled), refusal(descriptor, self.settings.longest)) {
            (None, Some(status)) => Some(Record { status, ..Record::default() }),
            (None, None) => Some(self.copy(descriptor, descriptor.size(), false)),
            (Some(record), _) => record.inspect(|record| {
                let end = record.result & 1 == 1;
                self.copy(descriptor, record.completed.min(descriptor.size()), end);
            }),
        };
        let bytes = record.map_or(0, |record| record.completed);
        records.extend(record.map(|record| (descriptor.addresses()[0], record)));
        bytes.into()
    }

    /// Copies the first `len` bytes, or the last, as far as the addresses are mapped.
    fn copy(&self, descriptor: &Descriptor, len: u32, end: bool) -> Record {
        let [_, from, to] = descriptor.addresses();
        let skipped = if end { u64::from(descriptor.size() - len) } else { 0 };
        let [from, to] = [from, to].map(|address| self.space.translate(address + skipped));
        let (Some((from, left)), Some((to, room))) = (from, to) else {
            return Record { status: status::PAGE_FAULT, ..Record::default() };
        };
        let reached = (len as usize).min(left).min(room);
        Method::Memmove.copy(from, to, reached);
        let status = if reached == len as usize { status::SUCCESS } else { status::PAGE_FAULT };
        Record { status, completed: reached as u32, ..Record::default() }
    }

    /// Executes a list of copies; adds their records and that of the batch.
    fn batch(&mut self, descriptor: &Descriptor, records: &mut Vec<(u64, Record)>) -> u64 {
        let [own, list, _] = descriptor.addresses();
        let count = descriptor.size();
        let injected = self.injected_fault(BATCH);
        let refused = match (list % DESCRIPTOR as u64, count) {
            _ if descriptor.flags() & !(RECORD_VALID | RECORD_REQUESTED) != 0 => Some(0x11),
            (1.., _) => Some(0x18),
            (0, count) if count < 2 || count > self.settings.batch => Some(0x14),
            _ => None,
        };
        if let (None, Some(status)) = (injected, refused) {
            records.push((own, Record { status, ..Record::default() }));
            return 0;
        }
        let run = match injected {
            None => count,
            Some(None) => 0,
            Some(Some(record)) if record.status & !status::WRITE == status::BATCH_PAGE_FAULT => {
                record.completed.min(count)
            }
            Some(Some(Record { status: status::SUCCESS | status::BATCH_FAILED, .. })) => count,
            Some(Some(_)) => 0,
        };
        let mut bytes = 0;
        for number in 0..u64::from(run) {
            let address = list + number * DESCRIPTOR as u64;
            let Some((piece, DESCRIPTOR..)) = self.space.translate(address) else { break };
            let mut raw = [0; DESCRIPTOR];
            piece.memory.read(piece.at, &mut raw);
            bytes += self.single(&Descriptor::of(&raw), records);
        }
        let all = records.iter().all(|(_, record)| record.status == status::SUCCESS);
        let status = if all { status::SUCCESS } else { status::BATCH_FAILED };
        let record = Record { status, completed: run, ..Record::default() };
        records.extend(injected.unwrap_or(Some(record)).map(|record| (own, record)));
        bytes
    }

    /// Returns the fault to inject into the next descriptor of this operation.
    fn injected_fault(&mut self, operation: u8) -> Option<Option<Record>> {
        let seen = &mut self.seen[usize::from(operation == BATCH)];
        let number = *seen;
        *seen += 1;
        let all = self.settings.faults.iter();
        all.filter(|it| (it.operation, it.number) == (operation, number)).map(|it| it.record).next()
    }
}

/// Returns the status with which a device refuses an invalid descriptor, or `None` if it is valid.
fn refusal(descriptor: &Descriptor, longest: u32) -> Option<u8> {
    let known = BLOCK_ON_FAULT | RECORD_VALID | RECORD_REQUESTED | TO_CACHE;
    match descriptor {
        _ if descriptor.operation() != MEMMOVE => Some(0x10),
        _ if descriptor.flags() & !known != 0 => Some(0x11),
        Descriptor([what, .., a, b, c]) if what & 0xffff_ffff != 0 || a | b | c != 0 => Some(0x12),
        _ if !(1..=longest).contains(&descriptor.size()) => Some(0x13),
        _ if !descriptor.addresses()[0].is_multiple_of(RECORD as u64) => Some(0x1b),
        _ => None,
    }
}
