//! `stream`: one end sends as fast as it can, the other receives.

use super::{Actor, Direction, FlowEnd, Job, Workload};
use crate::record::{Cell, Fault, FaultKind, Protocol, Role, Work};

/// The workload.
pub(super) struct Stream;

impl Workload for Stream {
    fn name(&self) -> &'static str {
        "stream"
    }

    fn summary(&self) -> &'static str {
        "one end sends as fast as it can, the other receives: bytes, rate, cost per byte"
    }

    fn work(&self) -> Work {
        Work::Bytes
    }

    fn halves(&self, role: Role) -> &'static [Direction] {
        match role {
            Role::Sender => &[Direction::Send],
            Role::Receiver => &[Direction::Receive],
        }
    }

    fn job(&self, cell: &Cell, role: Role, _: Direction) -> Job {
        Job::stream(cell, role)
    }

    fn check(&self, cell: &Cell) -> Result<(), Fault> {
        match cell.stream.protocol {
            Protocol::Tcp => Ok(()),
            other => Err(Fault::new(FaultKind::Usage, format!("{other} carries no stream"))
                .remedy("choose protocol=tcp, or a workload of messages: --workload rr")),
        }
    }

    fn play(&self, actor: Actor) -> Result<FlowEnd, Fault> {
        match actor.role {
            Role::Sender => send(actor),
            Role::Receiver => receive(actor),
        }
    }
}

fn send(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut tx, mut recorder) = (actor.tx()?, actor.recorder);
    tx.begin()?;
    tx.send_until_stop(&mut recorder)?;
    actor.connection.end_stream()?;
    let account = tx.account(&mut recorder)?;
    Ok(FlowEnd { account, bytes: recorder.total(), tally: recorder.finish(tx.calls()) })
}

fn receive(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut rx, mut recorder) = (actor.rx()?, actor.recorder);
    rx.begin()?;
    rx.receive_to_end(&mut recorder)?;
    let account = rx.account(&mut recorder)?;
    Ok(FlowEnd { account, bytes: recorder.total(), tally: recorder.finish(rx.calls()) })
}
