//! The closed list of subsystems.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strum::{Display, EnumString, IntoStaticStr, VariantArray};

/// A part of the kernel, or a kind of work outside it, in the order of tables. The list is closed,
/// so that the parts of a waterfall always mean the same.
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
    /// Bytes copied or set by the kernel: between user and kernel memory, and within the kernel.
    Copy,
    /// Bytes copied or set by a program itself: libc's `memcpy`, `memmove` and `memset`.
    ProgramCopy,
    /// Copy descriptors prepared and written to an engine's queue by a program.
    CopySubmission,
    Checksum,
    /// Ciphers, and TLS in the kernel.
    Encryption,
    /// Pages, slabs, the page pool, and their accounting.
    PageAllocation,
    /// Page tables, page faults, pinning of pages.
    MemoryMapping,
    /// Files, pipes, splice and the page cache.
    Files,
    /// Socket buffers: allocation, cloning, freeing.
    Skb,
    Tcp,
    /// IP, UDP, routes, neighbours, tunnels.
    Ip,
    /// Netfilter, qdiscs and their classifiers.
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
    /// Context switches, wake-ups, work queues, life of tasks.
    Scheduler,
    /// Interrupts, softirqs, calls to other CPUs, timers and clocks.
    InterruptsTimers,
    /// Retpolines, return thunks, hardened usercopy and lists.
    Mitigations,
    /// BPF, tracing, and the taking of samples itself.
    Tracing,
    /// The CPU was idle.
    Idle,
    User,
    Other,
}

impl Subsystem {
    pub const ALL: &[Subsystem] = Subsystem::VARIANTS;

    /// Whether it is work of programs, not of the kernel.
    pub fn is_of_programs(self) -> bool {
        matches!(self, Subsystem::ProgramCopy | Subsystem::CopySubmission | Subsystem::User)
    }

    /// Its name in rule files and JSON.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// Its title, which fits into a sentence such as "0.25 less ...".
    pub fn title(self) -> &'static str {
        match self {
            Subsystem::Copy => "copying",
            Subsystem::ProgramCopy => "copying by programs",
            Subsystem::CopySubmission => "submitting copies",
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
