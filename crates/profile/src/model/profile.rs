//! The common form of all profiles, whatever they were read from.

use bytepath_record::Role;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::hash::{Hash, Hasher};
use strum::{Display, EnumString, IntoStaticStr};

/// A profile: samples, each a call stack with its weight. Made by a `Builder`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Description of the profile.
    pub header: Header,
    pub(super) frames: Vec<Frame>,
    pub(super) threads: Vec<Thread>,
    /// Frames of all stacks, one stack after the other, leaf first.
    pub(super) links: Vec<FrameId>,
    /// End of each stack in `links`; it begins where the previous one ends.
    pub(super) ends: Vec<usize>,
    pub(super) samples: Vec<Sample>,
}

/// Description of a profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Header {
    /// Human-readable name: a cell and trial, or a file name.
    pub title: String,
    /// The event that was sampled: `cycles`, `cpu-clock`, `cache-misses`; may be empty.
    pub event: String,
    /// What the weight of a sample counts.
    pub weight: Weight,
    /// Weight between two samples, if it was constant.
    pub period: Option<f64>,
    /// Seconds of wall time that were sampled.
    pub seconds: Option<f64>,
    /// CPUs that were sampled.
    pub cpus: Option<u32>,
    /// Samples that the kernel took but that were lost.
    pub lost: u64,
    /// The work done meanwhile.
    pub work: Work,
    /// Anything else worth keeping, one line each: host, kernel, command.
    pub notes: Vec<String>,
    /// Quantities measured meanwhile, to be drawn next to the samples.
    pub tracks: Vec<Track>,
}

/// A quantity over time: throughput, share of softirq.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Track {
    pub name: String,
    /// Unit of its values: `bytes/s`, `%`; may be empty.
    pub unit: String,
    /// Seconds from the start, and the value from then on; in order of time.
    pub points: Vec<(f64, f64)>,
}

/// What the weight of a sample counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Display, EnumString, IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum Weight {
    /// Nanoseconds of CPU time.
    Nanoseconds,
    /// Nanoseconds of other than CPU time: waiting, wall clock.
    Delay,
    /// Bytes, for instance of memory.
    Bytes,
    /// Occurrences of the event.
    Events,
    /// Samples: how much each represents is unknown.
    #[default]
    Samples,
    /// Hundredths of the whole; all that `perf report` retains.
    Percent,
}

/// The work done while the samples were taken.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Work {
    /// Bytes delivered.
    pub bytes: Option<f64>,
    /// Packets received by the receiver's device.
    pub packets: Option<f64>,
}

/// The unit of work that costs refer to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum WorkUnit {
    #[default]
    Gib,
    /// A packet, as counted by the receiver's device.
    Packet,
    /// Whatever a profile was taken over: repeated runs of the same work.
    Run,
}

/// A function, as one line of a call stack. Its texts are owned, or borrowed as in [`FrameRef`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Frame<Text = String> {
    /// Name of the function, or its address as `0x...` if it has none.
    pub function: Text,
    /// Origin: `[kernel]`, a kernel module such as `[veth]`, the path of a file; empty if unknown.
    pub module: Text,
    /// Build id of the origin, hexadecimal; empty if unknown.
    pub build_id: Text,
    /// Source file; empty if unknown.
    pub file: Text,
    pub kind: FrameKind,
    /// Whether the compiler had inlined it into its caller.
    pub inlined: bool,
}

/// A [`Frame`] with borrowed texts, to look one up before allocating memory for it.
pub type FrameRef<'a> = Frame<&'a str>;

impl Frame {
    /// Borrows the texts.
    pub fn borrowed(&self) -> FrameRef<'_> {
        let Frame { function, module, build_id, file, kind, inlined } = self;
        FrameRef { function, module, build_id, file, kind: *kind, inlined: *inlined }
    }
}

impl FrameRef<'_> {
    /// Copies the texts.
    pub fn to_frame(self) -> Frame {
        Frame {
            function: self.function.to_owned(),
            module: self.module.to_owned(),
            build_id: self.build_id.to_owned(),
            file: self.file.to_owned(),
            kind: self.kind,
            inlined: self.inlined,
        }
    }
}

impl<Text: AsRef<str>> PartialEq for Frame<Text> {
    /// Compares the hashed fields first; most of the rest is usually empty.
    fn eq(&self, other: &Self) -> bool {
        let same = |a: &Text, b: &Text| {
            let (a, b) = (a.as_ref(), b.as_ref());
            a.len() == b.len() && (a.is_empty() || a == b)
        };
        same(&self.function, &other.function)
            && (self.kind, self.inlined) == (other.kind, other.inlined)
            && same(&self.module, &other.module)
            && same(&self.build_id, &other.build_id)
            && same(&self.file, &other.file)
    }
}

impl<Text: AsRef<str>> Eq for Frame<Text> {}

impl<Text: AsRef<str>> Hash for Frame<Text> {
    /// Hashes name and module only: frames with the same hardly ever differ in other fields, which
    /// are left to the comparison.
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.function.as_ref().hash(state);
        self.module.as_ref().hash(state);
    }
}

/// The side of the system-call boundary that a function is on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// The kernel or one of its modules.
    Kernel,
    /// A program or a library.
    User,
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
    /// Softirq work on top of whatever ran, on behalf of a role if its CPU identifies one.
    Softirq(Option<Role>),
    /// The kernel's softirq thread.
    Ksoftirqd,
    /// A kernel thread that polls a device.
    Napi,
    IoWq,
    /// The kernel's thread that moves frames in the place of an end: vhost's worker.
    Vhost(Role),
    /// What runs the guest that plays an end, but for its virtual CPUs.
    Qemu(Role),
    /// A virtual CPU of such a guest, whose own samples include what ran there.
    VirtualCpu,
    /// The kernel's packet generator.
    Pktgen,
    /// An observed program.
    Program,
    Idle,
    /// Threads that have nothing to do with the stream.
    Foreign,
    #[default]
    Unknown,
}

/// Index of a frame in its profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// Index of a stack in its profile.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StackId(pub u32);

/// Index of a thread in its profile.
#[derive(Default, Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ThreadId(pub u32);

/// One or more samples of a stack in a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    pub stack: StackId,
    pub thread: ThreadId,
    pub owner: Owner,
    /// The CPU; `None` if unknown, or if samples of several CPUs are merged.
    pub cpu: Option<u32>,
    /// Seconds from the start; `None` if samples of several moments are merged.
    pub time: Option<f64>,
    /// Number of samples that it represents.
    pub count: u64,
    /// Its weight, in the unit of [`Header::weight`].
    pub weight: f64,
}

impl Profile {
    /// Returns all samples, in the order in which they were added.
    pub fn samples(&self) -> &[Sample] {
        &self.samples
    }

    /// Returns every function, by [`FrameId`].
    pub fn frames(&self) -> &[Frame] {
        &self.frames
    }

    /// Returns every thread, by [`ThreadId`].
    pub fn threads(&self) -> &[Thread] {
        &self.threads
    }

    /// Returns the number of different stacks.
    pub fn stacks(&self) -> usize {
        self.ends.len()
    }

    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    pub fn thread(&self, id: ThreadId) -> &Thread {
        &self.threads[id.0 as usize]
    }

    /// Returns the frames of a stack, leaf first.
    pub fn stack(&self, id: StackId) -> &[FrameId] {
        let index = id.0 as usize;
        let begin = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.links[begin..self.ends[index]]
    }

    /// Returns the weight of all samples together.
    pub fn total(&self) -> f64 {
        // An empty sum is -0.0.
        self.samples.iter().map(|sample| sample.weight).sum::<f64>() + 0.0
    }

    /// Returns the number of all samples together. It saturates: a profile of other programs may
    /// state any number.
    pub fn count(&self) -> u64 {
        self.samples.iter().fold(0, |sum, sample| sum.saturating_add(sample.count))
    }
}

impl Owner {
    /// Every owner, in the order in which tables show them, with its name as profiles on disk and
    /// tables spell it.
    const NAMES: [(Owner, &str); 18] = [
        (Owner::Role(Role::Sender), "sender"),
        (Owner::Softirq(Some(Role::Sender)), "softirq for sender"),
        (Owner::Role(Role::Receiver), "receiver"),
        (Owner::Softirq(Some(Role::Receiver)), "softirq for receiver"),
        (Owner::Softirq(None), "softirq"),
        (Owner::Ksoftirqd, "ksoftirqd"),
        (Owner::Napi, "napi thread"),
        (Owner::IoWq, "io-wq"),
        (Owner::Vhost(Role::Receiver), "vhost"),
        (Owner::Vhost(Role::Sender), "vhost for sender"),
        (Owner::Qemu(Role::Sender), "qemu for sender"),
        (Owner::Qemu(Role::Receiver), "qemu for receiver"),
        (Owner::VirtualCpu, "virtual CPU"),
        (Owner::Pktgen, "pktgen"),
        (Owner::Program, "program"),
        (Owner::Idle, "idle"),
        (Owner::Foreign, "foreign"),
        (Owner::Unknown, "unknown"),
    ];

    /// Returns every owner, in the order in which tables show them.
    pub fn all() -> impl Iterator<Item = Owner> {
        Owner::NAMES.into_iter().map(|(owner, _)| owner)
    }

    /// Returns the owner with this [`name`](Owner::name).
    pub fn parse(text: &str) -> Option<Owner> {
        Owner::NAMES.into_iter().find(|(_, name)| *name == text).map(|(owner, _)| owner)
    }

    /// Returns the end of a study's stream that it worked for: pktgen works in the sender's place.
    /// `None` if unknown.
    pub fn end(self) -> Option<Role> {
        match self {
            Owner::Role(role) | Owner::Softirq(Some(role)) => Some(role),
            Owner::Vhost(role) | Owner::Qemu(role) => Some(role),
            Owner::Pktgen => Some(Role::Sender),
            _ => None,
        }
    }

    /// Whether no sum of what the stream cost includes it: it is unrelated to the stream, or the
    /// samples of a guest include its time.
    pub fn is_apart(self) -> bool {
        matches!(self, Owner::Foreign | Owner::VirtualCpu)
    }

    /// Returns its name, as profiles on disk and tables spell it.
    pub fn name(self) -> &'static str {
        let known = Owner::NAMES.into_iter().find(|(owner, _)| *owner == self);
        known.map_or("unknown", |(_, name)| name)
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
    fn owners_have_names_of_their_own() {
        for owner in Owner::all() {
            assert_eq!(Owner::parse(owner.name()), Some(owner));
        }
    }
}
