//! The one shape that every profile has here, whatever it was read from.

use crate::record::Role;
use std::collections::HashMap;
use std::fmt;

/// A profile: samples, each a call stack with its weight. Made by a [`Builder`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What it is a profile of.
    pub header: Header,
    frames: Vec<Frame>,
    threads: Vec<Thread>,
    /// Frames of all stacks, one stack after the other, leaf first.
    links: Vec<FrameId>,
    /// Where each stack ends in `links`; it begins where the one before ends.
    ends: Vec<u32>,
    samples: Vec<Sample>,
}

/// What a profile is a profile of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Name for people: a cell and trial, or a file name.
    pub title: String,
    /// The event that was sampled: `cycles`, `cpu-clock`, `cache-misses`; may be empty.
    pub event: String,
    /// What the weight of a sample counts.
    pub weight: Weight,
    /// Weight between two samples, where it was constant.
    pub period: Option<f64>,
    /// Seconds of wall time that were sampled.
    pub seconds: Option<f64>,
    /// CPUs that were sampled.
    pub cpus: Option<u32>,
    /// Samples that the kernel took and nobody could read.
    pub lost: u64,
    /// What was done meanwhile.
    pub work: Work,
    /// Anything else worth keeping, one line each: host, kernel, command.
    pub notes: Vec<String>,
    /// What was counted meanwhile, to be drawn beside the samples.
    pub tracks: Vec<Track>,
}

/// A quantity over time: throughput, share of softirq.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    /// Its name.
    pub name: String,
    /// Unit of its values: `bytes/s`, `%`; may be empty.
    pub unit: String,
    /// Seconds from the start, and the value from then on; in order of time.
    pub points: Vec<(f64, f64)>,
}

/// What the weight of a sample counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weight {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Occurrences of the event.
    Events,
    /// Samples: nothing is known of how much each stands for.
    #[default]
    Samples,
    /// Hundredths of the whole; all that `perf report` leaves of a profile.
    Percent,
}

/// What was done while the samples were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes delivered.
    pub bytes: Option<f64>,
    /// Packets delivered.
    pub packets: Option<f64>,
}

/// A function, as one line of a call stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// Name of the function, or its address as `0x...` where it has no name.
    pub function: String,
    /// Where it is from: `[kernel]`, a kernel module as `[veth]`, the path of a
    /// file; empty if unknown.
    pub module: String,
    /// Build id of that file, hexadecimal; empty if unknown.
    pub build_id: String,
    /// Source file; empty if unknown.
    pub file: String,
    /// Kernel or user.
    pub kind: FrameKind,
    /// Whether the compiler had put it into its caller.
    pub inlined: bool,
}

/// On which side of the system call a function is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The kernel or a module of it.
    Kernel,
    /// A program or a library.
    User,
    /// Not told.
    #[default]
    Unknown,
}

/// A thread that was sampled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Thread {
    /// Its name (comm).
    pub name: String,
    /// Process id; 0 if unknown.
    pub pid: u32,
    /// Thread id; 0 if unknown.
    pub tid: u32,
}

/// For whom a sample's time was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Owner {
    /// An engine's thread: its own code and its system calls.
    Role(Role),
    /// Softirq work on top of whatever ran, on behalf of a role if its CPU tells.
    Softirq(Option<Role>),
    /// The kernel's softirq thread.
    Ksoftirqd,
    /// A kernel thread that polls a device.
    Napi,
    /// Workers of io_uring.
    IoWq,
    /// The kernel's virtual-machine network thread.
    Vhost,
    /// A program that is observed.
    Program,
    /// The idle task.
    Idle,
    /// Threads that have nothing to do with the stream.
    Foreign,
    /// Not told.
    #[default]
    Unknown,
}

/// Index of a frame of its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Index of a stack of its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Index of a thread of its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// Samples of one stack in one thread.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// Where.
    pub stack: StackId,
    /// In which thread.
    pub thread: ThreadId,
    /// For whom.
    pub owner: Owner,
    /// On which CPU; none if samples of several are in one or nobody told.
    pub cpu: Option<u32>,
    /// When, in seconds from the start; none if samples of several moments are in one.
    pub time: Option<f64>,
    /// How many samples it stands for.
    pub count: u64,
    /// How much of [`Header::weight`].
    pub weight: f64,
}

impl Profile {
    /// All samples, in the order in which they were added.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Every function, by [`FrameId`].
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Every thread, by [`ThreadId`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// How many different stacks there are.
    pub fn stacks(&self) -> usize {
        self.ends.len()
    }

    /// One function.
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// One thread.
    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id.0 as usize]
    }

    /// The frames of a stack, leaf first.
    pub fn stack(&self, id: StackId) -> &[FrameId] {
        let index = id.0 as usize;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] as usize };
        &self.links[begin..self.ends[index] as usize]
    }

    /// Weight of all samples together.
    pub fn total(&self) -> f64 {
        self.samples.iter().map(|sample| sample.weight).sum()
    }

    /// Number of all samples together.
    pub fn count(&self) -> u64 {
        self.samples.iter().map(|sample| sample.count).sum()
    }
}

/// Makes a profile, sample by sample; equal frames, threads and stacks are kept once.
#[derive(Debug, Default)]
pub struct Builder {
    profile: Profile,
    frames: HashMap<Frame, FrameId>,
    threads: HashMap<Thread, ThreadId>,
    stacks: HashMap<Box<[FrameId]>, StackId>,
    merged: HashMap<(StackId, ThreadId, Owner, Option<u32>), usize>,
}

impl Builder {
    /// An empty profile.
    pub fn new(header: Header) -> Self {
        Builder { profile: Profile { header, ..Profile::default() }, ..Builder::default() }
    }

    /// The header, to be filled in as it becomes known.
    pub fn header(&mut self) -> &mut Header {
        &mut self.profile.header
    }

    /// The id of a function.
    pub fn frame(&mut self, frame: Frame) -> FrameId {
        let next = FrameId(self.profile.frames.len() as u32);
        let known = &mut self.profile.frames;
        *self.frames.entry(frame).or_insert_with_key(|frame| {
            known.push(frame.clone());
            next
        })
    }

    /// The id of a thread.
    pub fn thread(&mut self, thread: Thread) -> ThreadId {
        let next = ThreadId(self.profile.threads.len() as u32);
        let known = &mut self.profile.threads;
        *self.threads.entry(thread).or_insert_with_key(|thread| {
            known.push(thread.clone());
            next
        })
    }

    /// A function that was given an id here.
    pub fn function(&self, frame: FrameId) -> Option<&Frame> {
        self.profile.frames.get(frame.0 as usize)
    }

    /// Name of a thread that was given an id here; empty for any other.
    pub fn name(&self, thread: ThreadId) -> &str {
        self.profile.threads.get(thread.0 as usize).map_or("", |thread| &thread.name)
    }

    /// The id of a stack, given leaf first.
    pub fn stack(&mut self, frames: &[FrameId]) -> StackId {
        if let Some(id) = self.stacks.get(frames) {
            return *id;
        }
        let id = StackId(self.profile.ends.len() as u32);
        self.profile.links.extend_from_slice(frames);
        self.profile.ends.push(self.profile.links.len() as u32);
        self.stacks.insert(frames.into(), id);
        id
    }

    /// Adds a sample. One without a time is added up with its like, so that the
    /// memory needed does not grow with the number of samples.
    pub fn add(&mut self, sample: Sample) {
        let samples = &mut self.profile.samples;
        if sample.time.is_some() {
            samples.push(sample);
            return;
        }
        let key = (sample.stack, sample.thread, sample.owner, sample.cpu);
        match self.merged.get(&key) {
            Some(index) => {
                samples[*index].count += sample.count;
                samples[*index].weight += sample.weight;
            }
            None => {
                self.merged.insert(key, samples.len());
                samples.push(sample);
            }
        }
    }

    /// The profile.
    pub fn build(mut self) -> Profile {
        self.profile.samples.shrink_to_fit();
        self.profile
    }
}

impl Owner {
    /// Every owner there is, in the order in which tables show them.
    pub const ALL: [Owner; 13] = [
        Owner::Role(Role::Sender),
        Owner::Softirq(Some(Role::Sender)),
        Owner::Role(Role::Receiver),
        Owner::Softirq(Some(Role::Receiver)),
        Owner::Softirq(None),
        Owner::Ksoftirqd,
        Owner::Napi,
        Owner::IoWq,
        Owner::Vhost,
        Owner::Program,
        Owner::Idle,
        Owner::Foreign,
        Owner::Unknown,
    ];

    /// The owner whose [`name`](Owner::name) this is.
    pub fn parse(text: &str) -> Option<Owner> {
        Owner::ALL.into_iter().find(|owner| owner.name() == text)
    }

    /// Its name, as profiles on disk and tables spell it.
    pub fn name(self) -> &'static str {
        match self {
            Owner::Role(Role::Sender) => "sender",
            Owner::Role(Role::Receiver) => "receiver",
            Owner::Softirq(Some(Role::Sender)) => "softirq for sender",
            Owner::Softirq(Some(Role::Receiver)) => "softirq for receiver",
            Owner::Softirq(None) => "softirq",
            Owner::Ksoftirqd => "ksoftirqd",
            Owner::Napi => "napi thread",
            Owner::IoWq => "io-wq",
            Owner::Vhost => "vhost",
            Owner::Program => "program",
            Owner::Idle => "idle",
            Owner::Foreign => "foreign",
            Owner::Unknown => "unknown",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_are_kept_once_and_untimed_samples_add_up() {
        let mut builder = Builder::new(Header::default());
        let frame = Frame { function: "f".into(), ..Frame::default() };
        let f = builder.frame(frame.clone());
        assert_eq!(builder.frame(frame), f);
        let g = builder.frame(Frame { function: "g".into(), ..Frame::default() });
        let thread = builder.thread(Thread::default());
        let (deep, flat) = (builder.stack(&[g, f]), builder.stack(&[f]));
        assert_eq!(builder.stack(&[g, f]), deep);
        let sample = Sample {
            stack: deep,
            thread,
            owner: Owner::Unknown,
            cpu: None,
            time: None,
            count: 1,
            weight: 2.0,
        };
        builder.add(sample);
        builder.add(sample);
        builder.add(Sample { stack: flat, ..sample });
        builder.add(Sample { time: Some(0.5), ..sample });
        let profile = builder.build();
        assert_eq!(profile.samples().len(), 3);
        assert_eq!((profile.count(), profile.total()), (4, 8.0));
        assert_eq!(profile.stack(deep), [g, f]);
        assert_eq!(profile.stack(flat), [f]);
    }

    #[test]
    fn owners_have_names_of_their_own() {
        for owner in Owner::ALL {
            assert_eq!(Owner::parse(owner.name()), Some(owner));
        }
    }
}
