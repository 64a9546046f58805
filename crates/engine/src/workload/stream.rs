//! `stream`: one end sends as fast as it can, the other receives, and may load the sender with
//! unsolicited packets.

use super::actor::{one_way, same_bytes};
use super::load::{self, Load};
use super::{Actor, FlowEnd, HalfConfig, Workload};
use bytepath_record::{Cell, Fault, OptionKind, OptionSpec, Protocol, Work};

pub(super) static WORKLOAD: Workload = Workload {
    name: "stream",
    summary: "one end sends as fast as it can, the other receives: bytes, rate, cost per byte",
    options: OPTIONS,
    work: Work::Bytes,
    halves: one_way,
    job: |cell, role, _| HalfConfig::stream(cell, role),
    protocol: |cell| cell.stream.protocol,
    most_mtu: None,
    suits_slices: true,
    ends_by_itself: |_| false,
    check,
    play: [send, receive],
    play_loop: None,
    reconnects: false,
    settle: |ends, _, _| same_bytes(Work::Bytes, ends),
};

const OPTIONS: &[OptionSpec] = &[OptionSpec::new("load", OptionKind::Choice(&["none", "trickle", "flood"]), "none").help("UDP datagrams from the receiver's host to the sender's end: 160 per second, or as many as possible")];

fn check(cell: &Cell) -> Result<(), Fault> {
    match cell.stream.protocol {
        Protocol::Tcp => Ok(()),
        other => Err(Fault::usage(format!("{other} carries no stream"))
            .remedy("choose protocol=tcp, or a workload of messages: --workload rr")),
    }
}

fn send(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut tx, mut recorder) = (actor.tx()?, actor.recorder);
    tx.begin()?;
    tx.send_until_stop(&mut recorder)?;
    actor.connection.end_stream()?;
    let account = tx.account(&mut recorder)?;
    Ok(FlowEnd { account, bytes: recorder.total(), ..recorder.finish() })
}

fn receive(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut rx, mut recorder) = (actor.rx()?, actor.recorder);
    let start = |gap| Load::start(gap, &*actor.connection, recorder.gate());
    let load = load::gap(&actor.cell).map(start).transpose()?;
    rx.begin()?;
    rx.receive_to_end(&mut recorder)?;
    let mut account = rx.account(&mut recorder)?;
    account.readings.extend(load.map(Load::end));
    Ok(FlowEnd { account, bytes: recorder.total(), ..recorder.finish() })
}
