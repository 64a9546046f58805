//! Intel's Data Streaming Accelerator through its user interface: work queues of the driver idxd.
//! The queues and their limits are read from `/sys/bus/dsa/devices`
//! (Documentation/ABI/stable/sysfs-driver-dma-idxd).

pub mod status;

use super::{Copy, Engine, EngineKind, Events, Shape};
use bytepath_record::{Fault, OptionKind, OptionSpec, Options, unit};
use bytepath_sys::copying::{Method, Piece};
use bytepath_sys::idxd::{BLOCK_ON_FAULT, Memories, TO_CACHE, WorkQueue};
use bytepath_sys::{Roots, attribute};
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

pub static KIND: EngineKind = EngineKind {
    name: "dsa",
    summary: "Intel DSA by its work queues (/dev/dsa/wqD.Q)",
    options: &[
        OptionSpec::new("queues", OptionKind::Text, "auto")
            .help("work queues with + between, wq0.0+wq1.0; auto uses all that exist"),
        OptionSpec::new("block-on-fault", OptionKind::Flag, "off")
            .help("let the engine wait for missing pages, if its queue allows it"),
        OptionSpec::new("cache", OptionKind::Flag, "on")
            .help("write to the cache (on) or to memory (off)"),
    ],
    open: |memories, shape, options| {
        let facts = chosen(&Roots::real(), options.word("queues"))?;
        let flags = flags(options);
        let queues = facts.iter().map(|facts| facts.open(memories, shape, flags));
        let queues = queues.collect::<Result<Vec<_>, Fault>>()?;
        Ok(Box::new(Dsa::new(memories, shape, queues, TIMEOUT)))
    },
};

/// How long to wait for any completion before the device is given up.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Empty polls between two checks of the timeout.
const GLANCES: u32 = 4096;

/// A queue and its limits.
pub struct Queue {
    queue: WorkQueue,
    /// Capacity in descriptors; a dedicated queue would silently lose one more.
    size: usize,
    /// Maximum number of bytes of a copy.
    longest: u32,
    /// Descriptors posted whose records have not been read yet.
    posted: usize,
}

impl Queue {
    pub fn new(queue: WorkQueue, size: usize, longest: u32) -> Queue {
        Queue { queue, size, longest, posted: 0 }
    }
}

/// State of a copy.
#[derive(Clone, Copy, Debug)]
enum State {
    /// Not posted to a device yet.
    Held,
    /// Posted to a queue, as a single descriptor or in a batch.
    Posted { queue: usize, batch: Option<Batch> },
}

/// A batch, identified by the slot of its first copy, which is also the index of its descriptor
/// list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Batch {
    first: usize,
    /// Index of this copy in the batch.
    number: u32,
}

/// The driver, over queues of a device or of a software model.
pub struct Dsa {
    memories: Memories,
    shape: Shape,
    queues: Vec<Queue>,
    /// By slot, which is the number of a copy modulo the depth.
    copies: Vec<(Copy, State)>,
    submitted: u64,
    /// Number of copies posted to a device so far.
    posted: u64,
    done: u64,
    /// Whether to post copies that are held back for a batch.
    flushing: bool,
    /// The copies being posted; kept so that posting does not allocate.
    list: Vec<(usize, Copy)>,
    /// Index of the queue to try first.
    turn: usize,
    events: Events,
    /// Empty polls since one found a completion.
    empty: u32,
    /// When the last copy completed, or the first one was posted.
    progress: Instant,
    timeout: Duration,
    /// Why a copy could not be made.
    failed: Option<Fault>,
}

impl Dsa {
    pub fn new(memories: &Memories, shape: Shape, queues: Vec<Queue>, timeout: Duration) -> Dsa {
        let none = super::Place { memory: 0, at: 0 };
        let copy = Copy { from: none, to: none, len: 0 };
        Dsa {
            memories: memories.clone(),
            shape,
            queues,
            copies: vec![(copy, State::Held); shape.depth],
            submitted: 0,
            posted: 0,
            done: 0,
            flushing: false,
            list: Vec::with_capacity(shape.batch),
            turn: 0,
            events: Events::default(),
            empty: 0,
            progress: Instant::now(),
            timeout,
            failed: None,
        }
    }

    fn slot(&self, number: u64) -> usize {
        (number % self.shape.depth as u64) as usize
    }

    /// Posts copies that are held back: whole batches and, when flushing, the rest.
    fn hand_over(&mut self) -> Result<(), Fault> {
        while self.posted < self.submitted {
            let held = (self.submitted - self.posted) as usize;
            if held < self.shape.batch && !self.flushing {
                return Ok(());
            }
            if !self.post(held.min(self.shape.batch))? {
                return Ok(());
            }
        }
        self.flushing = false;
        Ok(())
    }

    /// Posts the first `count` held copies as one descriptor. False if no queue accepts it.
    fn post(&mut self, count: usize) -> Result<bool, Fault> {
        let all = self.queues.len();
        let free = (0..all)
            .map(|n| (self.turn + n) % all)
            .find(|n| self.queues.get(*n).is_some_and(|queue| queue.posted < queue.size));
        let Some(index) = free else { return Ok(false) };
        let first = self.slot(self.posted);
        let mut list = std::mem::take(&mut self.list);
        list.clear();
        list.extend((self.posted..).take(count).map(|number| {
            let slot = self.slot(number);
            (slot, self.copies[slot].0)
        }));
        self.list = list;
        let queue = &mut self.queues[index];
        let taken = match self.list.as_slice() {
            [(slot, copy)] => queue.queue.post(*slot, copy),
            copies => queue.queue.post_batch(first, copies),
        };
        if !taken.map_err(|e| Fault::system("cannot submit to the work queue", &e))? {
            self.events.retries += 1;
            return Ok(false);
        }
        queue.posted += 1;
        self.events.batches += u64::from(count > 1);
        for (number, (slot, _)) in (0..).zip(&self.list) {
            let batch = (count > 1).then_some(Batch { first, number });
            self.copies[*slot].1 = State::Posted { queue: index, batch };
        }
        if self.done == self.posted {
            self.progress = Instant::now();
        }
        self.posted += count as u64;
        self.turn = (index + 1) % all;
        Ok(true)
    }

    /// Advances to the first copy that is not complete; returns the number of complete copies.
    fn advance(&mut self) -> Result<u64, Fault> {
        self.hand_over()?;
        let before = self.done;
        while self.done < self.posted && self.settle(self.slot(self.done))? {
            self.done += 1;
        }
        if self.done > before {
            self.empty = 0;
            self.progress = Instant::now();
        } else if self.done < self.posted {
            self.check_timeout()?;
        }
        Ok(self.done)
    }

    /// Returns whether the copy of a slot is complete; copies what the device left undone.
    fn settle(&mut self, slot: usize) -> Result<bool, Fault> {
        let (copy, State::Posted { queue: index, batch }) = self.copies[slot] else {
            return Ok(false);
        };
        let queue = &mut self.queues[index];
        let record = match batch {
            None => queue.queue.record(slot),
            // The device may read the list until the batch's own record is written, so wait for
            // that.
            Some(batch) => {
                let Some(whole) = queue.queue.record(self.shape.depth + batch.first) else {
                    return Ok(false);
                };
                match status::of_batch(&whole, batch.number)? {
                    status::Member::HasRecord => queue.queue.record(slot),
                    status::Member::NeverRan => Some(status::NOTHING_DONE),
                }
            }
        };
        let Some(record) = record else { return Ok(false) };
        if batch.is_none_or(|batch| batch.number == 0) {
            queue.posted -= 1;
        }
        if let Some(rest) = status::left_over(&record, copy.len)? {
            self.finish(&copy, rest);
        }
        Ok(true)
    }

    /// Copies what the device did not; touching the pages makes them present.
    fn finish(&mut self, copy: &Copy, rest: std::ops::Range<u32>) {
        let piece = |place: super::Place| {
            let Piece { memory, at } = place.of(&self.memories);
            Piece { memory, at: at + rest.start as usize }
        };
        Method::Memmove.copy(piece(copy.from), piece(copy.to), rest.len());
        self.events.faults += 1;
        self.events.by_cpu += rest.len() as u64;
    }

    /// Errors if nothing has completed for too long: the device cannot report a record that it
    /// fails to write.
    fn check_timeout(&mut self) -> Result<(), Fault> {
        self.empty += 1;
        if !self.empty.is_multiple_of(GLANCES) || self.progress.elapsed() < self.timeout {
            return Ok(());
        }
        let seconds = self.timeout.as_secs_f64();
        let what = format!("the work queue has completed nothing for {seconds} s");
        Err(Fault::failed(what).remedy("see /sys/bus/dsa/devices/dsa*/errors, and the kernel log"))
    }
}

impl Engine for Dsa {
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault> {
        if self.submitted - self.done >= self.shape.depth as u64 {
            return Ok(false);
        }
        let longest = self.queues.iter().map(|queue| queue.longest).min().unwrap_or_default();
        if copy.len == 0 || copy.len > longest {
            let what = format!("a copy of {} bytes is outside 1 to {longest}", copy.len);
            return Err(Fault::usage(what)
                .remedy("raise max_transfer_size of the work queue, or copy in parts"));
        }
        for place in [copy.from, copy.to] {
            place.address(&self.memories, copy.len as usize);
        }
        let slot = self.slot(self.submitted);
        self.copies[slot] = (*copy, State::Held);
        self.submitted += 1;
        self.hand_over()?;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        self.flushing = true;
        self.hand_over()
    }

    fn poll(&mut self) -> Result<u64, Fault> {
        // A failure is permanent, and its record is read only once.
        if let Some(fault) = &self.failed {
            return Err(fault.clone());
        }
        self.advance().inspect_err(|fault| self.failed = Some(fault.clone()))
    }

    fn events(&self) -> Events {
        self.events
    }
}

impl Drop for Dsa {
    /// Waits for what is in flight, so that a software device touches nothing afterwards.
    fn drop(&mut self) {
        while self.done < self.posted && self.poll().is_ok() {
            std::hint::spin_loop();
        }
    }
}

/// A work queue as described in sysfs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct QueueFacts {
    /// `wq0.0`.
    pub name: String,
    /// Whether it is enabled for user programs (driver `user`).
    pub usable: bool,
    /// Whether other programs may have it open, too.
    pub shared: bool,
    pub size: usize,
    /// Maximum number of descriptors in a batch; 0 if the device has no batches.
    pub batch: usize,
    /// Maximum number of bytes of a copy.
    pub longest: u32,
}

impl fmt::Display for QueueFacts {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let QueueFacts { name, shared, size, batch, longest, .. } = self;
        let mode = if *shared { "shared" } else { "dedicated" };
        let longest = unit::bytes((*longest).into());
        write!(
            f,
            "{name} is {mode}, of {size} places; batches of up to {batch}, copies of up to {longest}"
        )
    }
}

/// Returns the work queues of the machine, sorted by name.
pub fn found(roots: &Roots) -> Vec<QueueFacts> {
    let folder = roots.sys.join("bus/dsa/devices");
    let mut names = attribute::names(&folder);
    names.retain(|name| name.starts_with("wq"));
    names.into_iter().map(|name| facts(&folder.join(&name), name.clone())).collect()
}

fn facts(folder: &Path, name: String) -> QueueFacts {
    let word = |file: &str| attribute::text(&folder.join(file)).unwrap_or_default();
    let number = |file: &str| word(file).parse::<u64>().unwrap_or_default();
    QueueFacts {
        name,
        usable: word("state") == "enabled" && word("type") == "user",
        shared: word("mode") == "shared",
        size: number("size") as usize,
        batch: number("max_batch_size") as usize,
        longest: u32::try_from(number("max_transfer_size")).unwrap_or(u32::MAX),
    }
}

/// Returns the queues that the option selects: those with these names, or all usable ones (`auto`).
pub fn chosen(roots: &Roots, names: &str) -> Result<Vec<QueueFacts>, Fault> {
    let remedy =
        "bytepath doctor lists what is missing; docs/reference/paths/copy.md has the commands";
    let all = found(roots);
    let usable: Vec<QueueFacts> = match names {
        "auto" => all.into_iter().filter(|facts| facts.usable).collect(),
        names => {
            let one = |name: &str| {
                let name = name.trim_start_matches("/dev/dsa/");
                let known = all.iter().find(|facts| facts.name == name);
                let what = match known {
                    Some(facts) if facts.usable => return Ok(facts.clone()),
                    Some(_) => format!("the work queue {name} is not enabled for programs"),
                    None => format!("there is no work queue {name}"),
                };
                Err(Fault::unsupported(what).remedy(remedy))
            };
            names.split('+').map(one).collect::<Result<_, _>>()?
        }
    };
    if usable.is_empty() {
        let what = "no work queue of a DSA device is enabled for programs here";
        return Err(Fault::unsupported(what).remedy(remedy));
    }
    Ok(usable)
}

/// Flags of every copy.
fn flags(options: &Options) -> u32 {
    let flag = |name: &str, flag: u32| if options.flag(name) { flag } else { 0 };
    flag("block-on-fault", BLOCK_ON_FAULT) | flag("cache", TO_CACHE)
}

impl QueueFacts {
    fn open(&self, memories: &Memories, shape: Shape, flags: u32) -> Result<Queue, Fault> {
        let path = PathBuf::from("/dev/dsa").join(&self.name);
        if shape.batch > self.batch.max(1) {
            let what = format!("batches of {} are larger than {} accepts", shape.batch, self.name);
            return Err(Fault::usage(what).remedy(format!("its max_batch_size is {}", self.batch)));
        }
        let setup = (memories.clone(), shape.depth, shape.batch, flags);
        let queue = WorkQueue::open(&path, self.shared, setup).map_err(|e| {
            let what = format!("cannot open {}", path.display());
            Fault::system(what, &e).remedy(match e.raw_os_error() {
                Some(libc::EBUSY) => "another program has this dedicated queue: end it",
                Some(libc::EOPNOTSUPP) => {
                    "the processor lacks the instruction for this queue's mode"
                }
                _ if e.kind() == io::ErrorKind::PermissionDenied => {
                    "run as root, or own the device file"
                }
                _ => "bytepath doctor lists what is missing",
            })
        })?;
        Ok(Queue::new(queue, self.size, self.longest))
    }
}
