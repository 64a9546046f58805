//! The ways bytes can take: one file per data path, one line each in
//! [`CATALOG`]. Sender and receiver halves are chosen apart; [`PAIRS`] names
//! the combinations that make sense together.

mod devmem;
mod flow;
mod msg_zerocopy;
mod nic;
mod recorder;
mod ring;
mod sendfile;
mod socket;
mod splice;
mod tcp_zerocopy_receive;
mod uring;
mod uring_zc;
mod witness;
mod zcrx;
mod zerocopy_send;

pub use flow::Flow;
pub use recorder::Recorder;
pub use witness::{WITNESS_LEN, WitnessPage, read_witness};

use crate::record::{
    Attempt, Cell, Facts, Fault, FaultKind, Ledger, OptionSpec, Options, Outcome, Reading, Role,
    Setting, Stream, Support,
};
use crate::sys::memory::Region;
use crate::workload::Pattern;
use std::io;
use std::net::IpAddr;

/// A way for bytes between application memory and the wire.
pub trait DataPath: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: how the bytes move.
    fn summary(&self) -> &'static str;

    /// The roles it can play.
    fn roles(&self) -> &'static [Role];

    /// What can be set, for one role.
    fn options(&self, role: Role) -> &'static [OptionSpec];

    /// Tries for real what [`DataPath::probe`] wants to know. Called once per
    /// host, in the agent, never during a trial. `device` is the network
    /// device the bytes would take.
    fn attempt(&self, device: Option<&str>) -> Vec<Attempt> {
        let _ = device;
        Vec::new()
    }

    /// Whether the role can be played on a host of which this is known, with the
    /// default options.
    fn probe(&self, role: Role, facts: &Facts) -> Support;

    /// The same for a half with options, some of which ask for more of a host.
    fn probe_with(&self, role: Role, options: &Options, facts: &Facts) -> Support {
        let _ = options;
        self.probe(role, facts)
    }

    /// What has to be set on a NIC before a half with these options can be
    /// opened over it, in this order. Pure; nothing is set here, and nothing is
    /// asked for on a virtual device.
    fn preparation(
        &self,
        role: Role,
        options: &Options,
        wire: &Wire,
    ) -> Result<Vec<Setting>, Fault> {
        let _ = (role, options, wire);
        Ok(Vec::new())
    }

    /// Whether its engine works by io_uring, and may have worker threads therefore.
    fn uses_io_uring(&self) -> bool {
        false
    }

    /// Prepares one end of one flow: all memory is taken and touched here.
    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<Box<dyn Endpoint>, Fault>;
}

/// The NIC that flows come by, for [`DataPath::preparation`].
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
}

/// One end of one flow, ready to move bytes.
pub trait Endpoint: Send {
    /// Names of the calls this engine makes, in the order of the slots that it
    /// passes to [`Recorder::timed`]. At most 8.
    fn calls(&self) -> &'static [&'static str];

    /// Sender only: sends the witness page of [`WITNESS_LEN`] bytes the same
    /// way the stream will go, waits until the peer's kernel has it, then
    /// overwrites the page (see [`WitnessPage`]). Called once, before `run`.
    fn witness(&mut self) -> Result<(), Fault>;

    /// Moves bytes until the gate says stop and then ends the stream (sender),
    /// or until the end of the stream (receiver). Does not return before every
    /// byte is accounted for. The loop allocates nothing and locks nothing.
    fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault>;
}

/// What an engine knows at the end of its stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Copied or not, over the whole stream; `delivered` equals the bytes moved.
    pub ledger: Ledger,
    /// What the reader should know: "12 buffers ran out and were re-armed".
    pub notes: Vec<String>,
    /// What the path itself counted, over the whole stream: named after the path,
    /// `zcrx.returned`, and of the flow.
    pub readings: Vec<Reading>,
}

/// Every data path, in the order in which tables show them.
pub static CATALOG: &[&dyn DataPath] = &[
    &socket::Socket,
    &sendfile::Sendfile,
    &splice::Splice,
    &msg_zerocopy::MsgZerocopy,
    &tcp_zerocopy_receive::TcpZerocopyReceive,
    &uring::Uring,
    &uring_zc::UringZc,
    &zcrx::Zcrx,
    &devmem::Devmem,
];

/// A named combination of a sender's and a receiver's half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Name, as the user types it.
    pub name: &'static str,
    /// The sender's half.
    pub tx: &'static str,
    /// The receiver's half.
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
pub fn find<'a>(catalog: &[&'a dyn DataPath], name: &str) -> Option<&'a dyn DataPath> {
    catalog.iter().copied().find(|path| path.name() == name)
}

/// The refusal of a role that a path does not have.
fn lacks(path: &str, role: Role) -> Fault {
    Fault::new(FaultKind::Usage, format!("path '{path}' has no {role} half"))
        .remedy("choose another path for that role; 'bytepath paths' lists them")
}

/// A fault as the answer of a probe.
fn unsupported(fault: Fault) -> Support {
    Support::no(fault.message, fault.remedy.unwrap_or_default())
}

/// One message of the workload in memory of its own, filled in.
fn message(stream: &Stream, huge: bool) -> Result<Region, Fault> {
    let mut message = buffer("the message buffer", stream.message_size, huge)?;
    Pattern::new(stream.message_size).fill(&mut message, 0);
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

/// What came of something that was tried, as a fact; the text of a success is
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
