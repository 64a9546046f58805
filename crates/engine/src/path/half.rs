//! Types of a path: up to two halves, each a description with the functions that check and open it.

use super::HugePages;
use crate::connection::{Connection, FRAMES, KERNEL_TCP, KERNEL_UDP, Transport};
use crate::workload::{EventLoop, FramePlan, Group, HalfConfig, Rx, Tx, Workload};
use bytepath_record::{
    Attempt, Cell, Facts, Fault, Half, OptionSpec, Options, Role, Setting, Support,
};
use std::net::IpAddr;
use std::sync::Arc;

/// A way for bytes between application memory and the wire: a sending half, a receiving
/// half, or both.
pub struct DataPath {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: how the bytes move.
    pub summary: &'static str,
    /// Tests on the host what its halves' `check` has to know. Called once per host, in the agent,
    /// never during a trial, with the network device that the bytes would use.
    pub attempt: fn(Option<&str>) -> Vec<Attempt>,
    /// Whether it uses io_uring, and so may have worker threads.
    pub uses_io_uring: bool,
    /// Its sending half, if it has one.
    pub tx: Option<HalfPath<OpenTx>>,
    /// Its receiving half, if it has one.
    pub rx: Option<HalfPath<OpenRx>>,
    /// Opens it for all connections of a thread, if it is an event loop. Its halves are then the
    /// client's and the server's, and each end uses its own for both directions.
    pub event_loop: Option<OpenLoop>,
    /// Opens it as a loop that serves one connection at a time and blocks on it: for a path with a
    /// thread per connection, in workloads whose connections come and go.
    pub one_at_a_time: Option<OpenLoop>,
}

impl DataPath {
    /// Defaults shared by most paths.
    pub const EMPTY: DataPath = DataPath {
        name: "",
        summary: "",
        attempt: |_| Vec::new(),
        uses_io_uring: false,
        tx: None,
        rx: None,
        event_loop: None,
        one_at_a_time: None,
    };

    /// Returns the loop by which it plays a workload, if it uses one.
    pub fn loop_of(&self, workload: &Workload) -> Option<OpenLoop> {
        self.event_loop.or(self.one_at_a_time.filter(|_| workload.reconnects))
    }

    /// Returns the half of a role: the sender's sends.
    pub fn half(&self, role: Role) -> Option<HalfPath> {
        match role {
            Role::Sender => self.tx.map(HalfPath::description),
            Role::Receiver => self.rx.map(HalfPath::description),
        }
    }

    /// Checks whether the half of a role, with its default options, can run the stream workload (or
    /// the smallest frames) on a host with these facts. `None` if there is no such half.
    pub fn check(&self, role: Role, facts: &Facts) -> Option<Support> {
        let half = self.half(role)?;
        let default =
            |spec: &OptionSpec| Some((spec.name.to_owned(), spec.kind.parse(spec.default).ok()?));
        let options = Options(half.options.iter().filter_map(default).collect());
        let usual = Cell::new(self.name, Half::plain(self.name), Half::plain(self.name));
        let mut job = HalfConfig { options, ..HalfConfig::stream(&usual, role) };
        if half.transports.iter().all(|transport| transport.name == FRAMES.name)
            && let Ok(frames) = FramePlan::parse("60", 32)
        {
            (job.message_size, job.frames) = (frames.largest().into(), Some(frames));
        }
        Some((half.check)(&job, facts))
    }
}

/// One half of a path. `Open` is [`OpenTx`] or [`OpenRx`], or `()` if only the description matters.
#[derive(Clone, Copy)]
pub struct HalfPath<Open = ()> {
    pub options: &'static [OptionSpec],
    /// Transports by which this half can reach its peer.
    pub transports: &'static [&'static Transport],
    /// Checks whether a host with these facts can run it, and whether its values are compatible.
    /// Pure.
    pub check: fn(&HalfConfig, &Facts) -> Support,
    /// Settings that the NIC needs, in this order, before this half can be opened with these
    /// options. Pure: nothing is set here, and virtual devices get no settings.
    pub nic_settings: fn(&Options, &FlowNic) -> Result<Vec<Setting>, Fault>,
    /// The reserved huge pages that its flows over the adapter of this number take, on a host with
    /// these facts for that adapter's device. `check` leaves them out, since others take from the
    /// same pages.
    pub huge_pages: fn(&HalfConfig, &Facts, u32) -> HugePages,
    /// Returns the PCI address of the GPU whose memory this half uses with these options, on a host
    /// with these facts; `None` if it uses none. Pure.
    pub gpu: fn(&Options, &Facts) -> Option<String>,
    /// Whether reads have a size. False for a half whose memory the kernel fills by itself: it
    /// delivers whatever has arrived.
    pub sizes_reads: bool,
    /// Opens it for one flow; allocates and touches all memory.
    pub open: Open,
}

/// An opened half, or the reason why it could not be opened.
pub type Opened<Half> = Result<Box<Half>, Fault>;

/// Opens an event loop over these connections, with the configurations for sending and receiving.
pub type OpenLoop = fn([&HalfConfig; 2], &[Arc<dyn Connection>], &Group) -> Opened<dyn EventLoop>;

pub type OpenTx = fn(&HalfConfig, &dyn Connection, &Group) -> Opened<dyn Tx>;
pub type OpenRx = fn(&HalfConfig, &dyn Connection, &Group) -> Opened<dyn Rx>;

impl HalfPath<OpenTx> {
    /// A sending half without options, over the kernel's TCP.
    pub const fn tx(check: fn(&HalfConfig, &Facts) -> Support, open: OpenTx) -> Self {
        HalfPath::new(check, open)
    }
}

impl HalfPath<OpenRx> {
    /// A receiving half without options, over the kernel's TCP.
    pub const fn rx(check: fn(&HalfConfig, &Facts) -> Support, open: OpenRx) -> Self {
        HalfPath::new(check, open)
    }
}

impl<Open: Copy> HalfPath<Open> {
    const fn new(check: fn(&HalfConfig, &Facts) -> Support, open: Open) -> Self {
        let nic_settings = |_: &Options, _: &FlowNic| Ok(Vec::new());
        let huge_pages = |_: &HalfConfig, _: &Facts, _: u32| HugePages::default();
        let gpu = |_: &Options, _: &Facts| None;
        let (options, transports, sizes_reads) = (&[], &[KERNEL_TCP], true);
        HalfPath { options, transports, check, nic_settings, huge_pages, gpu, sizes_reads, open }
    }

    /// The same half, but it delivers whatever has arrived, regardless of the read size.
    pub const fn without_read_size(self) -> Self {
        HalfPath { sizes_reads: false, ..self }
    }

    pub const fn with_options(self, options: &'static [OptionSpec]) -> Self {
        HalfPath { options, ..self }
    }

    /// The same half over these transports instead of the kernel's TCP.
    pub const fn over(self, transports: &'static [&'static Transport]) -> Self {
        HalfPath { transports, ..self }
    }

    /// The same half over the kernel's TCP and UDP.
    pub const fn over_kernel(self) -> Self {
        self.over(&[KERNEL_TCP, KERNEL_UDP])
    }

    fn description(self) -> HalfPath {
        HalfPath {
            options: self.options,
            transports: self.transports,
            check: self.check,
            nic_settings: self.nic_settings,
            huge_pages: self.huge_pages,
            gpu: self.gpu,
            sizes_reads: self.sizes_reads,
            open: (),
        }
    }
}

/// The NIC that flows arrive on, for [`HalfPath::nic_settings`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowNic<'a> {
    /// Name of the network interface.
    pub device: &'a str,
    /// Receive queues in use.
    pub queues: u32,
    /// Whether a setting of the user's gives it that many.
    pub given: bool,
    /// Address of this end.
    pub own: IpAddr,
    /// Address of the other end.
    pub peer: IpAddr,
    /// Port that the receiver listens on, if known. If not, all TCP traffic from the peer to this
    /// address counts as the flows'.
    pub port: Option<u16>,
    /// Number of flows, over all adapters.
    pub flows: u32,
    /// Index of this adapter.
    pub adapter: u32,
    /// Number of adapters over which flows are distributed round-robin.
    pub adapters: u32,
    /// True if this end connects and the other one listens.
    pub connects: bool,
}
