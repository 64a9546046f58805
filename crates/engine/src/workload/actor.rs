//! The types of a workload and of an actor, which is one end of one flow.

use super::event_loop::PlayLoop;
use super::mover::{HalfConfig, Rx, Tx};
use super::recorder::Recorder;
use super::tally::FlowEnd;
use crate::connection::{Connection, limits};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, OptionSpec, Protocol, Reading, Role, RoleRecord, Tls, Work,
};
use std::sync::Arc;

/// A kind of work between two hosts.
pub struct Workload {
    /// Name in the catalogue, as the user types it.
    pub name: &'static str,
    /// One line: who does what.
    pub summary: &'static str,
    /// Options of the workload.
    pub options: &'static [OptionSpec],
    /// What is counted; its terms also name the actors.
    pub work: Work,
    /// Halves of the path that an actor needs; they are opened before anything moves.
    pub halves: fn(Role) -> &'static [Direction],
    /// The configuration of one half of one actor.
    pub job: fn(&Cell, Role, Direction) -> HalfConfig,
    /// Protocol that its connections require.
    pub protocol: fn(&Cell) -> Protocol,
    /// Maximum MTU of its link unless the user sets one, or `None` for the preset's.
    pub most_mtu: Option<u32>,
    /// Why the cells of a block may not run in alternating slices of a fraction of a second, or
    /// `None` if they may.
    pub no_slices: fn(&Cell) -> Option<&'static str>,
    /// Whether it ends after a requested amount of work rather than with the study's window. It is
    /// then one window as a whole, without a warm-up.
    pub ends_by_itself: fn(&Cell) -> bool,
    /// Refuses a cell with incompatible values.
    pub check: fn(&Cell) -> Result<(), Fault>,
    /// Play the sender's and the receiver's actor of one flow, from the first byte until everything
    /// is accounted for. The loops neither allocate nor lock.
    pub play: [fn(Actor) -> Result<FlowEnd, Fault>; 2],
    /// Plays many connections by an event loop, if the workload supports one.
    pub play_loop: Option<PlayLoop>,
    /// Whether connections come and go. A cell then has `flows` of them at a time, and those that
    /// the ends start with carry only the witness page and the end of the trial. Every path plays
    /// it by a loop.
    pub reconnects: bool,
    /// Checks what must agree at the end: the records of both roles, the sum of all ends' frame
    /// hops, and the readings.
    pub settle: Settle,
}

/// Why workloads measured by single events need whole trials.
pub(super) const SINGLE_EVENTS: &str =
    "a workload of this study measures single events, which slices would cut short";

/// Checks whether the records of both roles, the hops and the readings of a trial agree.
pub(super) type Settle = fn([&RoleRecord; 2], Option<&Hops>, &[Reading]) -> Result<(), Fault>;

impl Workload {
    /// Connections that last for the whole trial: the flows or, if connections come and go, one for
    /// each thread of the end with more threads.
    pub fn lasting(&self, cell: &Cell) -> u32 {
        match self.reconnects {
            true => Role::ALL.map(|role| cell.threads(role)).into_iter().max().unwrap_or(1),
            false => cell.stream.flows,
        }
    }

    /// Maximum number of connections that a role may have open at a time; a server may still have
    /// some that the client has already closed.
    pub fn most_open(&self, cell: &Cell, role: Role) -> u32 {
        let flows = cell.flows(role);
        match (self.reconnects, role) {
            (false, _) => flows,
            (true, Role::Sender) => self.lasting(cell).saturating_add(flows),
            (true, Role::Receiver) => self.lasting(cell).saturating_add(flows.saturating_mul(2)),
        }
    }

    /// Kernel parameters for a network that only bytepath uses, unless the study sets them.
    pub fn sysctls(&self, role: Role) -> &'static [(&'static str, &'static str)] {
        match (self.reconnects, role) {
            (false, _) => &[],
            (true, Role::Sender) => limits::CLIENT_SYSCTLS,
            (true, Role::Receiver) => limits::SERVER_SYSCTLS,
        }
    }

    /// True if the first flow's sender sends a witness page before anything else. UDP does not
    /// acknowledge it, and TLS in the program would send ciphertext instead of the page.
    pub fn has_witness(&self, cell: &Cell) -> bool {
        (self.protocol)(cell) == Protocol::Tcp && cell.stream.tls != Tls::User
    }
}

/// Halves of a workload whose sender only sends.
pub(super) fn one_way(role: Role) -> &'static [Direction] {
    match role {
        Role::Sender => &[Direction::Send],
        Role::Receiver => &[Direction::Receive],
    }
}

/// Errors unless both ends report the same number of bytes.
pub(super) fn same_bytes(work: Work, ends: [&RoleRecord; 2]) -> Result<(), Fault> {
    let [sent, got] = ends.map(|end| end.total_bytes);
    if sent == got {
        return Ok(());
    }
    let [sender, receiver] = work.terms().actors;
    let text = format!("the {sender} moved {sent} bytes and the {receiver} {got}");
    Err(Fault::new(FaultKind::Corrupt, text))
}

/// Direction in which a half of a path moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From memory to the connection.
    Send,
    /// From the connection to memory.
    Receive,
}

impl Direction {
    /// The role after which this half is named in a cell.
    pub fn role(self) -> Role {
        match self {
            Direction::Send => Role::Sender,
            Direction::Receive => Role::Receiver,
        }
    }
}

/// One end of one flow, opened.
pub struct Actor {
    pub role: Role,
    pub cell: Arc<Cell>,
    /// The connection that the movers use.
    pub connection: Arc<dyn Connection>,
    /// The sending half, if the workload requested one here.
    pub tx: Option<Box<dyn Tx>>,
    /// The receiving half, if the workload requested one here.
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
