//! What a workload is, and an actor of it: one end of one flow.

use super::mover::{HalfConfig, Rx, Tx};
use super::recorder::Recorder;
use super::tally::FlowEnd;
use crate::connection::Connection;
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, OptionSpec, Protocol, Role, RoleRecord, Tls, Work,
};
use std::sync::Arc;

/// Something to do between two hosts.
pub trait Workload: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: who does what.
    fn summary(&self) -> &'static str;

    /// What can be set of it.
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// What is counted; its terms name the actors, too.
    fn work(&self) -> Work;

    /// Which halves of the path an actor needs, open before anything moves.
    fn halves(&self, role: Role) -> &'static [Direction];

    /// The job of one half at one actor.
    fn job(&self, cell: &Cell, role: Role, direction: Direction) -> HalfConfig;

    /// What its connections have to speak.
    fn protocol(&self, cell: &Cell) -> Protocol {
        cell.stream.protocol
    }

    /// Whose count and window are the trial's.
    fn counted_by(&self) -> Role {
        self.work().counted_by()
    }

    /// Whether the first flow's sender shows a witness page before anything else moves.
    /// Nothing acknowledges a datagram, and what the program encrypts is not the
    /// page.
    fn has_witness(&self, cell: &Cell) -> bool {
        self.protocol(cell) == Protocol::Tcp && cell.stream.tls != Tls::User
    }

    /// Whether the cells of a block may take turns in slices of a fraction of a second.
    /// What one measures by single events needs whole trials.
    fn suits_slices(&self) -> bool {
        true
    }

    /// Whether it ends once it has done a requested amount, and not when the study's
    /// window does: that is its window then, without a warm-up.
    fn ends_by_itself(&self, cell: &Cell) -> bool {
        let _ = cell;
        false
    }

    /// Refuses a cell whose values do not fit together.
    fn check(&self, cell: &Cell) -> Result<(), Fault> {
        let _ = cell;
        Ok(())
    }

    /// Plays an actor of one flow, from the first byte until everything is accounted
    /// for. The loops allocate nothing and lock nothing.
    fn play(&self, actor: Actor) -> Result<FlowEnd, Fault>;

    /// What must agree at the end. `hops` are those of frames, all ends added up.
    fn settle(
        &self,
        sender: &RoleRecord,
        receiver: &RoleRecord,
        hops: Option<&Hops>,
    ) -> Result<(), Fault> {
        let _ = hops;
        if sender.total_bytes == receiver.total_bytes {
            return Ok(());
        }
        let (sent, got) = (sender.total_bytes, receiver.total_bytes);
        Err(Fault::new(
            FaultKind::Corrupt,
            format!(
                "the {} moved {sent} bytes and the {} {got}",
                self.work().actor(Role::Sender),
                self.work().actor(Role::Receiver)
            ),
        ))
    }
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
    Fault::new(FaultKind::System, text).remedy("report this as a bug")
}
