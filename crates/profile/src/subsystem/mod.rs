//! Which part of the kernel a sample was in, by rules about the names of
//! functions, their modules and their source folders. The rules are data
//! (`subsystems.toml`); users add their own.

mod rules;

pub use rules::{Class, Rules};

use super::{FrameKind, Owner, Profile, Sample, StackId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A part of the kernel, or what is not the kernel, in the order in which tables show
/// them. The list is closed, so that the parts of a waterfall always mean the same.
#[derive(
    Clone,
    Copy,
    Debug,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
    Display,
    EnumString,
    IntoStaticStr,
    VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Subsystem {
    /// Bytes moved or set: between user and kernel, and within the kernel.
    Copy,
    Checksum,
    /// Ciphers, and TLS in the kernel.
    Encryption,
    /// Pages, slabs, the page pool, and their accounting.
    PageAllocation,
    /// Page tables, page faults, pinning of pages.
    MemoryMapping,
    /// Files, pipes, splice and the page cache.
    Files,
    /// Socket buffers: made, cloned, freed.
    Skb,
    Tcp,
    /// IP, UDP, routes, neighbours, tunnels.
    Ip,
    /// Netfilter, queue disciplines and their classifiers.
    NetfilterQdisc,
    /// Generic receive and segmentation offload.
    GroGso,
    /// The device layer, NAPI, drivers, virtual devices, DMA.
    Driver,
    /// Sockets, polling, file descriptors, security hooks, system-call entry.
    SocketSyscall,
    #[serde(rename = "io_uring")]
    #[strum(serialize = "io_uring")]
    IoUring,
    /// Spin locks, mutexes, RCU, futexes.
    Locks,
    /// Switching, waking up, work queues, life of tasks.
    Scheduler,
    /// Interrupts, softirqs, calls to other CPUs, timers and clocks.
    InterruptsTimers,
    /// Retpolines, return thunks, hardened usercopy and lists.
    Mitigations,
    /// BPF, tracing, and the taking of samples itself.
    Tracing,
    /// The CPU had nothing to do.
    Idle,
    User,
    Other,
}

impl Subsystem {
    pub const ALL: &[Subsystem] = Subsystem::VARIANTS;

    /// Its name in rule files and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// What it is, so that a sentence can say "0.25 less ...".
    pub fn title(self) -> &'static str {
        match self {
            Subsystem::Copy => "copying",
            Subsystem::Checksum => "checksums",
            Subsystem::Encryption => "encryption",
            Subsystem::PageAllocation => "page allocation",
            Subsystem::Files => "files and splice",
            Subsystem::Skb => "skb handling",
            Subsystem::Tcp => "TCP",
            Subsystem::Ip => "IP",
            Subsystem::NetfilterQdisc => "netfilter and qdisc",
            Subsystem::Driver => "device layer",
            Subsystem::GroGso => "GRO and GSO",
            Subsystem::SocketSyscall => "sockets and system calls",
            Subsystem::Locks => "locks",
            Subsystem::Scheduler => "scheduling",
            Subsystem::IoUring => "io_uring",
            Subsystem::MemoryMapping => "page mapping",
            Subsystem::InterruptsTimers => "interrupts and timers",
            Subsystem::Mitigations => "security mitigations",
            Subsystem::Tracing => "BPF and tracing",
            Subsystem::Idle => "idling",
            Subsystem::User => "user space",
            Subsystem::Other => "other kernel code",
        }
    }
}

/// The subsystem of every stack of a profile.
#[derive(Clone, Debug)]
pub struct Classes {
    frames: Vec<Option<Class>>,
    stacks: Vec<Subsystem>,
}

impl Classes {
    /// Classifies every stack. Each function is looked up once.
    pub fn of(profile: &Profile, rules: &Rules) -> Classes {
        let frames: Vec<Option<Class>> = profile.frames().iter().map(|f| rules.class(f)).collect();
        let stack = |index: usize| {
            let stack = profile.stack(StackId(index as u32));
            let known = |id: &super::FrameId| frames.get(id.0 as usize).copied().flatten();
            for id in stack {
                match (profile.frame(*id).kind, known(id)) {
                    (FrameKind::User, _) if Some(id) == stack.first() => return Subsystem::User,
                    // A helper that no function of the kernel called.
                    (FrameKind::User, _) => break,
                    (_, Some(Class::Is(subsystem))) => return subsystem,
                    (_, Some(Class::Caller)) => {}
                    (FrameKind::Kernel, None) => return Subsystem::Other,
                    // Of a stack about which nothing is known, and no function of which
                    // is one of the kernel's, only user space is left.
                    (FrameKind::Unknown, None) if stack.iter().all(|id| known(id).is_none()) => {
                        return Subsystem::User;
                    }
                    (FrameKind::Unknown, None) => return Subsystem::Other,
                }
            }
            // Nothing but helpers.
            let leaf = stack.first().map(|id| profile.frame(*id));
            leaf.and_then(|leaf| rules.alone(leaf)).unwrap_or(Subsystem::Other)
        };
        let stacks = (0..profile.stacks()).map(stack).collect();
        Classes { frames, stacks }
    }

    /// What the rules say of every function, in the order of the profile.
    pub fn frames(&self) -> &[Option<Class>] {
        &self.frames
    }

    /// The subsystem of a sample.
    pub fn sample(&self, sample: &Sample) -> Subsystem {
        match sample.owner {
            Owner::Idle => Subsystem::Idle,
            _ => self.stacks.get(sample.stack.0 as usize).copied().unwrap_or(Subsystem::Other),
        }
    }
}

/// How much of the kernel's time the rules could name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Coverage {
    /// Weight of the samples in the kernel that were not idle.
    pub kernel: f64,
    /// The part of that weight which no rule fits.
    pub other: f64,
}

impl Coverage {
    pub fn of(profile: &Profile, classes: &Classes) -> Coverage {
        let mut coverage = Coverage::default();
        for sample in profile.samples() {
            match classes.sample(sample) {
                Subsystem::User | Subsystem::Idle => {}
                subsystem => {
                    coverage.kernel += sample.weight;
                    if subsystem == Subsystem::Other {
                        coverage.other += sample.weight;
                    }
                }
            }
        }
        coverage
    }

    pub fn and(self, other: Coverage) -> Coverage {
        Coverage { kernel: self.kernel + other.kernel, other: self.other + other.other }
    }

    /// The part that was named, 0 to 1; none without a sample in the kernel.
    pub fn share(self) -> Option<f64> {
        (self.kernel > 0.0).then(|| 1.0 - self.other / self.kernel)
    }
}

/// Whether a sample is of a CPU that had nothing to do: the idle task says so, or
/// its thread is the idle task and the function one that waits. Softirqs that ran
/// on top of the idle task are work.
pub fn is_idle(profile: &Profile, classes: &Classes, sample: &Sample) -> bool {
    let thread = &profile.thread(sample.thread).name;
    let swapper = thread == "swapper" || thread.starts_with("swapper/");
    sample.owner == Owner::Idle || swapper && classes.sample(sample) == Subsystem::Idle
}

#[cfg(test)]
mod tests;
