//! The data paths: one file per path, one line each in
//! [`CATALOG`]. Sender and receiver halves are chosen separately; [`PAIRS`] names
//! the combinations that make sense together.

mod af_xdp;
mod devmem;
mod discard;
mod frames;
mod msg_zerocopy;
mod nic;
mod packet;
mod packet_ring;
mod pktgen;
mod ring;
mod sendfile;
mod socket;
mod splice;
mod tap;
mod tcp_zerocopy_receive;
mod tls;
mod udp_gso;
mod uring;
mod uring_zc;
mod userspace;
mod vhost;
mod xdp;
mod zcrx;
mod zerocopy_send;

pub use nic::{OwnQueues, header_split, splits_by_merging, spread_ports, steering};
pub use tls::{encrypts, support as tls_support};
pub use userspace::offloaded;

use crate::connection::{Connection, FRAMES, KERNEL_TCP, Transport};
use crate::workload::{self, Direction, FramePlan, Group, Job, Pattern, Rx, Tx, Workload};
use bytepath_record::{
    Attempt, Cell, Facts, Fault, FaultKind, Half, OptionSpec, Options, Outcome, Protocol, Role,
    Setting, Support,
};
use bytepath_sys::memory::Region;
use serde::Serialize;
use std::io;
use std::net::IpAddr;

/// A way for bytes between application memory and the wire: a sending half, a receiving
/// half, or both.
pub struct DataPath {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: how the bytes move.
    pub summary: &'static str,
    /// Actually tries what its halves' `check` wants to know. Called once per host, in
    /// the agent, never during a trial, with the network device the bytes would take.
    pub attempt: fn(Option<&str>) -> Vec<Attempt>,
    /// Whether it works by io_uring, and may have worker threads therefore.
    pub uses_io_uring: bool,
    /// Its sending half, if it has one.
    pub tx: Option<HalfPath<OpenTx>>,
    /// Its receiving half, if it has one.
    pub rx: Option<HalfPath<OpenRx>>,
}

impl DataPath {
    /// The half that a role is named after: the sender's sends.
    pub fn half(&self, role: Role) -> Option<HalfPath> {
        match role {
            Role::Sender => self.tx.map(HalfPath::description),
            Role::Receiver => self.rx.map(HalfPath::description),
        }
    }

    /// Whether the half of a role can do the usual job, with its default options, on a
    /// host of which this is known. None where there is no such half.
    pub fn check(&self, role: Role, facts: &Facts) -> Option<Support> {
        let half = self.half(role)?;
        let default =
            |spec: &OptionSpec| Some((spec.name.to_owned(), spec.kind.parse(spec.default).ok()?));
        let options = Options(half.options.iter().filter_map(default).collect());
        let usual = Cell::new(self.name, Half::plain(self.name), Half::plain(self.name));
        let mut job = Job { options, ..Job::stream(&usual, role) };
        if half.transports.iter().all(|transport| transport.name() == FRAMES.name())
            && let Ok(frames) = FramePlan::parse("60", 32)
        {
            (job.message_size, job.frames) = (frames.largest().into(), Some(frames));
        }
        Some((half.check)(&job, facts))
    }
}

/// One half of a path. `Open` is [`OpenTx`] or [`OpenRx`]; where only the rest matters it is
/// left out.
#[derive(Clone, Copy)]
pub struct HalfPath<Open = ()> {
    pub options: &'static [OptionSpec],
    /// How this half can meet its peer.
    pub transports: &'static [&'static dyn Transport],
    /// Whether a host with these facts can do this, and whether the values fit together. Pure.
    pub check: fn(&Job, &Facts) -> Support,
    /// What has to be set on a NIC before this half with these options can be opened over it, in
    /// this order. Pure; nothing is set here, and nothing is requested on a virtual device.
    pub prepare: fn(&Options, &Wire) -> Result<Vec<Setting>, Fault>,
    /// Opens it for one flow: all memory is taken and touched here.
    pub open: Open,
}

pub type OpenTx = fn(&Job, &dyn Connection, &Group) -> Result<Box<dyn Tx>, Fault>;
pub type OpenRx = fn(&Job, &dyn Connection, &Group) -> Result<Box<dyn Rx>, Fault>;

impl<Open> HalfPath<Open> {
    /// A half without options, over the kernel's TCP.
    pub const fn new(check: fn(&Job, &Facts) -> Support, open: Open) -> Self {
        let prepare = |_: &Options, _: &Wire| Ok(Vec::new());
        HalfPath { options: &[], transports: &[KERNEL_TCP], check, prepare, open }
    }

    fn description(self) -> HalfPath {
        let HalfPath { options, transports, check, prepare, .. } = self;
        HalfPath { options, transports, check, prepare, open: () }
    }
}

/// The NIC that flows come by, for [`HalfPath::prepare`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire<'a> {
    /// Name of the device.
    pub device: &'a str,
    /// Its driver, as the kernel names it: `mlx5_core`, `gve`, `bnxt_en`, `fbnic`.
    pub driver: &'a str,
    /// Receive queues in use.
    pub queues: u32,
    /// Address of this end.
    pub own: IpAddr,
    /// Address of the other end.
    pub peer: IpAddr,
    /// Port of this end where it is known. Without it, everything that the peer
    /// sends to this address by TCP is taken for the flows.
    pub port: Option<u16>,
    /// How many flows there are.
    pub flows: u32,
    /// Whether this end connects, and the other one listens.
    pub connects: bool,
}

/// Every data path, in the order in which tables show them.
pub static CATALOG: &[&DataPath] = &[
    &socket::PATH,
    &sendfile::PATH,
    &splice::PATH,
    &msg_zerocopy::PATH,
    &tcp_zerocopy_receive::PATH,
    &uring::PATH,
    &uring_zc::PATH,
    &zcrx::PATH,
    &devmem::PATH,
    &discard::PATH,
    &userspace::PATH,
    &packet::PATH,
    &packet_ring::PATH,
    &tap::PATH,
    &vhost::PATH,
    &pktgen::PATH,
    &af_xdp::PATH,
    &xdp::LIVE,
    &xdp::DROP,
    &udp_gso::PATH,
];

/// A named combination of a sender's and a receiver's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Pair {
    /// Name, as the user types it.
    pub name: &'static str,
    pub tx: &'static str,
    pub rx: &'static str,
}

/// The named pairs, in the order in which tables show them. `TX+RX` reaches
/// every other combination.
pub static PAIRS: &[Pair] = &[
    Pair { name: "socket", tx: "socket", rx: "socket" },
    Pair { name: "sendfile", tx: "sendfile", rx: "socket" },
    Pair { name: "splice", tx: "splice", rx: "tcp-zerocopy-receive" },
    Pair { name: "msg-zerocopy", tx: "msg-zerocopy", rx: "tcp-zerocopy-receive" },
    Pair { name: "uring", tx: "uring", rx: "uring" },
    Pair { name: "uring-zc", tx: "uring-zc", rx: "uring" },
    Pair { name: "zcrx", tx: "uring-zc", rx: "zcrx" },
    Pair { name: "devmem", tx: "devmem", rx: "devmem" },
];

/// The entry of a catalogue with this name.
pub fn find<'a>(catalog: &[&'a DataPath], name: &str) -> Option<&'a DataPath> {
    catalog.iter().copied().find(|path| path.name == name)
}

/// A cell as one of its ends plays it. Where a workload opens both halves at each end, and they
/// are of different stacks so that no end can have both, each end takes the path of its own role
/// for both directions.
pub fn of_end(paths: &[&DataPath], cell: &Cell, role: Role) -> Cell {
    let meets = |cell: &Cell| {
        let find = |role: Role| find(paths, &cell.half(role).path);
        let both = find(Role::Sender).zip(find(Role::Receiver));
        let workload = workload::of(cell).ok();
        both.zip(workload)
            .is_some_and(|((tx, rx), workload)| transport(workload, cell, role, [tx, rx]).is_ok())
    };
    let own = cell.half(role).clone();
    let apart = Cell { tx: own.clone(), rx: own, ..cell.clone() };
    if !meets(cell) && meets(&apart) { apart } else { cell.clone() }
}

/// How one end of a cell meets its peer: by the first transport that speaks what the
/// workload wants and that all halves it opens there have in common. An end that opens
/// none takes its peer's.
pub fn transport(
    workload: &dyn Workload,
    cell: &Cell,
    role: Role,
    [tx, rx]: [&DataPath; 2],
) -> Result<&'static dyn Transport, Fault> {
    let all = [role, role.peer()].map(|role| workload.halves(role));
    let directions = all.into_iter().find(|halves| !halves.is_empty()).unwrap_or_default();
    let opened = directions.iter().map(|direction| {
        let path = if *direction == Direction::Send { tx } else { rx };
        let half = path.half(direction.role());
        (path.name, half.map_or(&[][..], |half| half.transports))
    });
    let opened: Vec<_> = opened.collect();
    let protocol = workload.protocol(cell);
    let speaks = |transport: &&'static dyn Transport| transport.protocol() == protocol;
    if let Some((name, _)) = opened.iter().find(|(_, all)| !all.iter().any(speaks)) {
        let text = format!("path '{name}' does not speak {protocol}");
        let remedy = "choose another path, or another transport";
        return Err(Fault::new(FaultKind::Usage, text).remedy(remedy));
    }
    let has = |all: &[&dyn Transport], name: &str| all.iter().any(|t| t.name() == name);
    let common = |t: &&'static dyn Transport| opened.iter().all(|(_, all)| has(all, t.name()));
    let first = opened.first().map_or(&[][..], |(_, all)| all);
    first.iter().copied().filter(speaks).find(common).ok_or_else(|| {
        let names: Vec<&str> = opened.iter().map(|(name, _)| *name).collect();
        let text = format!("one end cannot have both {}", names.join(" and "));
        Fault::new(FaultKind::Usage, text).remedy("choose halves that use the same stack")
    })
}

/// For paths of which there is nothing to try.
fn nothing_to_try(_: Option<&str>) -> Vec<Attempt> {
    Vec::new()
}

/// Whether frames come to this half by a vhost worker, which can be placed.
pub fn has_vhost_worker(half: &str) -> bool {
    half == vhost::PATH.name
}

/// A fault as the answer of a check.
fn fits<T>(result: Result<T, Fault>) -> Support {
    match result {
        Ok(_) => Support::Yes,
        Err(fault) => Support::no(fault.message, fault.remedy.unwrap_or_default()),
    }
}

/// Refuses to wait for more than one message at once where the peer sends the next only
/// after it has been answered.
fn waits_within_messages(job: &Job, bytes: Option<u64>) -> Support {
    let size = job.message_size;
    match bytes.map(|bytes| bytes.min(job.read_size)) {
        Some(bytes) if job.batch == 1 && bytes > size => Support::no(
            format!("a receive that waits for {bytes} bytes never returns with messages of {size}"),
            format!("choose at most {size} bytes to wait for"),
        ),
        _ => Support::Yes,
    }
}

/// Refuses a working set where the kernel chooses the memory that bytes arrive in.
fn reads_into_kernel_memory(job: &Job, name: &str) -> Support {
    match job.read_memory > job.read_size {
        false => Support::Yes,
        true => Support::no(
            format!("{name} does not read into memory of its own"),
            "leave read-memory at auto, or choose a receiver that copies, such as socket",
        ),
    }
}

/// Refuses an option that says something of a stream alone.
fn needs_stream(job: &Job, option: &str, is_set: bool) -> Support {
    match (is_set, job.protocol) {
        (false, _) | (_, Protocol::Tcp) => Support::Yes,
        (true, other) => Support::no(
            format!("{option} has no meaning with {other}"),
            format!("leave {option} at its default, or choose TCP"),
        ),
    }
}

/// A message of this size in memory of its own, filled in.
fn message(size: u64, huge: bool) -> Result<Region, Fault> {
    let mut message = buffer("the message buffer", size, huge)?;
    Pattern::new(size).fill(&mut message, 0);
    Ok(message)
}

/// Page-aligned memory of an engine, touched.
fn buffer(what: &str, bytes: u64, huge: bool) -> Result<Region, Fault> {
    let too_large = || io::Error::from(io::ErrorKind::OutOfMemory);
    usize::try_from(bytes).map_err(|_| too_large()).and_then(|len| Region::new(len, huge)).map_err(
        |e| {
            Fault::system(format_args!("{what} of {bytes} bytes"), &e)
                .remedy("choose a smaller message or read size, or fewer flows")
        },
    )
}

/// The outcome of an attempt, as a fact; the text of a success is
/// a detail.
fn tried(name: &str, result: io::Result<String>) -> Attempt {
    let outcome = match result {
        Ok(detail) => Outcome::Works(detail),
        Err(e) => match e.raw_os_error() {
            Some(errno) => Outcome::Errno(errno),
            None => Outcome::Missing(e.to_string()),
        },
    };
    Attempt { name: name.to_owned(), outcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_job_of_a_path_of_frames_is_a_frame() {
        let facts = Facts::default();
        let all = CATALOG.iter().filter(|path| ["af-xdp", "udp-gso"].contains(&path.name));
        let halves =
            all.flat_map(|path| [Role::Sender, Role::Receiver].map(|r| path.check(r, &facts)));
        let found: Vec<Support> = halves.flatten().collect();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(Support::is_yes), "{found:?}");
    }

    #[test]
    fn an_end_meets_its_peer_by_what_the_workload_wants() {
        let cell = Cell::new("test", Half::plain("socket"), Half::plain("socket"));
        let stream = workload::CATALOG[0];
        let mut udp = cell.clone();
        udp.workload.name = "rr".into();
        udp.stream.protocol = Protocol::Udp;
        let rr = workload::of(&udp).unwrap();
        let packets = workload::CATALOG[2];
        let of = |workload: &dyn Workload, cell: &Cell, role, halves: [&DataPath; 2]| {
            transport(workload, cell, role, halves).map(|transport| transport.name())
        };
        for role in Role::ALL {
            assert_eq!(
                of(stream, &cell, role, [&splice::PATH, &socket::PATH]).unwrap(),
                "the kernel's TCP"
            );
            assert_eq!(
                of(rr, &udp, role, [&socket::PATH, &uring::PATH]).unwrap(),
                "the kernel's UDP"
            );
            let fault = of(rr, &udp, role, [&splice::PATH, &socket::PATH]).unwrap_err();
            assert_eq!(fault.message, "path 'splice' does not speak UDP");
            let frames = of(packets, &cell, role, [&packet::PATH, &tap::PATH]);
            assert_eq!(frames.unwrap(), "frames of the link");
            assert!(of(packets, &cell, role, [&socket::PATH, &socket::PATH]).is_err());
        }
        assert!(of(stream, &cell, Role::Sender, [&packet::PATH, &socket::PATH]).is_err());
    }

    #[test]
    fn ends_of_different_stacks_take_their_own_path_for_both_directions() {
        let names = |tx: &str, rx: &str, workload: &str, role| {
            let mut cell = Cell::new("test", Half::plain(tx), Half::plain(rx));
            cell.workload.name = workload.into();
            let cell = of_end(CATALOG, &cell, role);
            [cell.tx.path, cell.rx.path]
        };
        let [own, other] = ["userspace", "socket"];
        assert_eq!(names(own, other, "rr", Role::Sender), [own, own]);
        assert_eq!(names(own, other, "rr", Role::Receiver), [other, other]);
        assert_eq!(names(other, own, "rr", Role::Receiver), [own, own]);
        // One end opens one half alone, or can have both.
        assert_eq!(names(own, other, "stream", Role::Sender), [own, other]);
        assert_eq!(names("uring-zc", "uring", "rr", Role::Sender), ["uring-zc", "uring"]);
        // A path without the half that it would have to take stays refused.
        assert_eq!(names(own, "splice", "rr", Role::Receiver), [own, "splice"]);
    }
}
