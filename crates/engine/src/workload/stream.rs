//! `stream`: one end sends as fast as it can, the other receives, and may load the sender with
//! unsolicited packets.

use super::actor::{one_way, same_bytes};
use super::load::{self, Load};
use super::{Account, Actor, FlowEnd, HalfConfig, Recorder, Shares, Workload};
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
    no_slices,
    ends_by_itself: |_| false,
    check,
    play: [send, receive],
    play_loop: Some(super::stream_loop::play),
    reconnects: false,
    settle: |ends, _, _| same_bytes(Work::Bytes, ends),
};

/// Connections of all cells of a block that may be open at once: each takes memory of the kernel.
const MOST_SLICED: u32 = 256;

fn no_slices(cell: &Cell) -> Option<&'static str> {
    (cell.stream.flows > MOST_SLICED)
        .then_some("slices keep the connections of all cells open at once, and some have many")
}

const OPTIONS: &[OptionSpec] = &[OptionSpec::new("load", OptionKind::Choice(&["none", "trickle", "flood"]), "none").help("UDP datagrams from the receiver's host to the sender's end: 160 per second, or as many as possible")];

fn check(cell: &Cell) -> Result<(), Fault> {
    if cell.stream.protocol != Protocol::Tcp {
        return Err(Fault::usage(format!("{} carries no stream", cell.stream.protocol))
            .remedy("choose protocol=tcp, or a workload of messages: --workload rr"));
    }
    if load::gap(cell).is_some() && cell.rx.options.number("threads").is_some() {
        let text =
            format!("the load comes from a thread for each flow, which '{}' has not", cell.rx.path);
        return Err(Fault::usage(text).remedy(
            "leave load at none, or choose a receiver with a thread per flow, such as socket",
        ));
    }
    Ok(())
}

fn send(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut tx, mut recorder) = (actor.tx()?, actor.recorder);
    tx.begin()?;
    tx.send_until_stop(&mut recorder)?;
    actor.connection.end_stream()?;
    let account = tx.account(&mut recorder)?;
    Ok(of_flow(account, recorder))
}

fn receive(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut rx, mut recorder) = (actor.rx()?, actor.recorder);
    let start = |gap| Load::start(gap, &*actor.connection, recorder.gate());
    let load = load::gap(&actor.cell).map(start).transpose()?;
    rx.begin()?;
    rx.receive_to_end(&mut recorder)?;
    let mut account = rx.account(&mut recorder)?;
    account.readings.extend(load.map(Load::end));
    Ok(of_flow(account, recorder))
}

fn of_flow(account: Account, recorder: Recorder) -> FlowEnd {
    let mut end = FlowEnd { account, bytes: recorder.total(), ..recorder.finish() };
    end.shares = Shares::of([end.window.count]);
    end
}
