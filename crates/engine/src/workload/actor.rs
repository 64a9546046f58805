//! What a workload is, and an actor of it: one end of one flow.

use super::event_loop::PlayLoop;
use super::mover::{HalfConfig, Rx, Tx};
use super::recorder::Recorder;
use super::tally::FlowEnd;
use crate::connection::{Connection, limits};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, OptionSpec, Protocol, Reading, Role, RoleRecord, Tls, Work,
};
use std::sync::Arc;

/// Something to do between two hosts.
pub struct Workload {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: who does what.
    pub summary: &'static str,
    /// What can be set of it.
    pub options: &'static [OptionSpec],
    /// What is counted; its terms name the actors, too.
    pub work: Work,
    /// Which halves of the path an actor needs, open before anything moves.
    pub halves: fn(Role) -> &'static [Direction],
    /// The job of one half at one actor.
    pub job: fn(&Cell, Role, Direction) -> HalfConfig,
    /// What its connections have to speak.
    pub protocol: fn(&Cell) -> Protocol,
    /// The largest MTU that its link has where the user gives none; `None`: the preset's.
    pub most_mtu: Option<u32>,
    /// Why the cells of a block may not take turns in slices of a fraction of a second; `None` if
    /// they may.
    pub no_slices: fn(&Cell) -> Option<&'static str>,
    /// Whether it ends once it has done a requested amount, and not when the study's
    /// window does: that is its window then, without a warm-up.
    pub ends_by_itself: fn(&Cell) -> bool,
    /// Refuses a cell whose values do not fit together.
    pub check: fn(&Cell) -> Result<(), Fault>,
    /// Play the sender's and the receiver's actor of one flow, from the first byte until everything
    /// is accounted for. The loops allocate nothing and lock nothing.
    pub play: [fn(Actor) -> Result<FlowEnd, Fault>; 2],
    /// The same of many connections by an event loop, if it suits one.
    pub play_loop: Option<PlayLoop>,
    /// Whether connections come and go: a cell has `flows` at a time then, and those that the ends
    /// begin with carry only the witness page and the end of the trial. Every path plays it by a loop.
    pub reconnects: bool,
    /// What must agree at the end: the records of both roles, the hops of frames, all ends added up,
    /// and what was read.
    pub settle: Settle,
}

/// Why what is measured by single events needs whole trials.
pub(super) const SINGLE_EVENTS: &str =
    "a workload of this study measures single events, which slices would cut short";

/// Whether the records of both roles, the hops and the readings of a trial agree.
pub(super) type Settle = fn([&RoleRecord; 2], Option<&Hops>, &[Reading]) -> Result<(), Fault>;

impl Workload {
    /// Connections that last from the beginning of a trial to its end: the flows, or one for each
    /// thread of the end that has more.
    pub fn lasting(&self, cell: &Cell) -> u32 {
        match self.reconnects {
            true => Role::ALL.map(|role| cell.threads(role)).into_iter().max().unwrap_or(1),
            false => cell.stream.flows,
        }
    }

    /// Connections that a role may have open at a time; of those that the client has closed, the
    /// server has some left.
    pub fn most_open(&self, cell: &Cell, role: Role) -> u32 {
        let flows = cell.flows(role);
        match (self.reconnects, role) {
            (false, _) => flows,
            (true, Role::Sender) => self.lasting(cell).saturating_add(flows),
            (true, Role::Receiver) => self.lasting(cell).saturating_add(flows.saturating_mul(2)),
        }
    }

    /// Kernel parameters of a network that only bytepath uses, where the study sets no others.
    pub fn sysctls(&self, role: Role) -> &'static [(&'static str, &'static str)] {
        match (self.reconnects, role) {
            (false, _) => &[],
            (true, Role::Sender) => limits::RECONNECTING,
            (true, Role::Receiver) => limits::RECONNECTED,
        }
    }

    /// Whether the first flow's sender shows a witness page before anything else moves.
    /// Nothing acknowledges a datagram, and what the program encrypts is not the
    /// page.
    pub fn has_witness(&self, cell: &Cell) -> bool {
        (self.protocol)(cell) == Protocol::Tcp && cell.stream.tls != Tls::User
    }
}

/// The halves of a workload whose sender only sends.
pub(super) fn one_way(role: Role) -> &'static [Direction] {
    match role {
        Role::Sender => &[Direction::Send],
        Role::Receiver => &[Direction::Receive],
    }
}

/// Both ends have to report the same number of bytes.
pub(super) fn same_bytes(work: Work, ends: [&RoleRecord; 2]) -> Result<(), Fault> {
    let [sent, got] = ends.map(|end| end.total_bytes);
    if sent == got {
        return Ok(());
    }
    let [sender, receiver] = work.terms().actors;
    let text = format!("the {sender} moved {sent} bytes and the {receiver} {got}");
    Err(Fault::new(FaultKind::Corrupt, text))
}

/// Which way a half of a path moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From memory to the connection.
    Send,
    /// From the connection to memory.
    Receive,
}

impl Direction {
    /// The role that this half is named after in a cell.
    pub fn role(self) -> Role {
        match self {
            Direction::Send => Role::Sender,
            Direction::Receive => Role::Receiver,
        }
    }
}

/// One end of one flow, open.
pub struct Actor {
    pub role: Role,
    pub cell: Arc<Cell>,
    /// What the movers move over.
    pub connection: Arc<dyn Connection>,
    /// The sending half, if the workload requested one here.
    pub tx: Option<Box<dyn Tx>>,
    /// The receiving half, likewise.
    pub rx: Option<Box<dyn Rx>>,
    pub recorder: Recorder,
}

impl Actor {
    pub(super) fn tx(&mut self) -> Result<Box<dyn Tx>, Fault> {
        self.tx.take().ok_or_else(|| not_opened(Direction::Send))
    }

    pub(super) fn rx(&mut self) -> Result<Box<dyn Rx>, Fault> {
        self.rx.take().ok_or_else(|| not_opened(Direction::Receive))
    }
}

fn not_opened(direction: Direction) -> Fault {
    let text = format!("the half that has to {direction:?} is not open");
    Fault::failed(text).remedy("report this as a bug")
}
