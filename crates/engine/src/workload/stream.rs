//! `stream`: one end sends as fast as it can, the other receives, and may load the sender with
//! unsolicited packets.

use super::actor::{one_way, same_bytes};
use super::load::{self, Load};
use super::{Account, Actor, FlowEnd, HalfConfig, Recorder, Shares, Workload};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, OptionKind, OptionSpec, Protocol, REVERSE, Reading, RoleRecord,
    Work,
};

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
    settle,
};

/// Maximum number of connections of a cell for slices, which keep the connections of all cells open
/// at once: each takes kernel memory.
const MOST_SLICED: u32 = 256;

fn no_slices(cell: &Cell) -> Option<&'static str> {
    if cell.goes_both_ways() {
        return Some(
            "slices hold the sender while other cells have their turn, and both ends send",
        );
    }
    (cell.stream.flows > MOST_SLICED)
        .then_some("slices keep the connections of all cells open at once, and some have many")
}

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("load", OptionKind::Choice(&["none", "trickle", "flood"]), "none").help(
        "UDP datagrams from the receiver's host to the sender's end: 160 per second, or as many as possible",
    ),
    OptionSpec::new("direction", OptionKind::Choice(&["forward", "both"]), "forward").help(
        "both: each end sends and receives at once over every connection; needs event loops",
    ),
];

/// Metrics of the bytes per second that arrived in a window: at the receiver, and at the sender.
pub(super) const DIRECTION_METRICS: [&str; 2] = ["throughput.forward", REVERSE];

/// Returns the bytes per second that arrived at both ends together, or `None` unless both send.
pub fn both_ways(readings: &[Reading]) -> Option<f64> {
    let of = |name| readings.iter().find(|reading| reading.metric == name);
    let [forward, reverse] = DIRECTION_METRICS.map(of);
    Some(forward?.value + reverse?.value)
}

fn check(cell: &Cell) -> Result<(), Fault> {
    if cell.stream.protocol != Protocol::Tcp {
        return Err(Fault::usage(format!("{} carries no stream", cell.stream.protocol))
            .remedy("choose protocol=tcp, or a workload of messages: --workload rr"));
    }
    for half in [&cell.tx, &cell.rx] {
        if cell.goes_both_ways() && !half.is_event_loop() {
            let text = format!("a thread of path '{}' moves bytes one way", half.path);
            let remedy =
                "choose event loops for both ends, such as epoll+epoll, or direction=forward";
            return Err(Fault::usage(text).remedy(remedy));
        }
    }
    if load::gap(cell).is_some() && cell.rx.is_event_loop() {
        let text =
            format!("the load comes from a thread for each flow, which '{}' has not", cell.rx.path);
        return Err(Fault::usage(text).remedy(
            "leave load at none, or choose a receiver with a thread per flow, such as socket",
        ));
    }
    Ok(())
}

/// Checks that what one end sent is what the other received, in each direction if the ends can tell
/// directions apart.
fn settle(ends: [&RoleRecord; 2], _: Option<&Hops>, _: &[Reading]) -> Result<(), Fault> {
    same_bytes(Work::Bytes, ends)?;
    let [sender, receiver] = ends.map(|end| {
        let bytes = |came_in| {
            let entries = end.ledger.evidence.iter().filter(move |entry| entry.came_in == came_in);
            entries.map(|entry| entry.bytes).sum::<u64>()
        };
        [bytes(false), bytes(true)]
    });
    // An end that only receives does not distinguish directions.
    if receiver[1] == 0 || sender[1] == receiver[0] {
        return Ok(());
    }
    let text =
        format!("the receiver sent {} bytes and {} came in at the sender", receiver[0], sender[1]);
    Err(Fault::new(FaultKind::Corrupt, text))
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

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Ledger, Manner, Role};

    fn record(role: Role, [sent, came_in]: [u64; 2]) -> RoleRecord {
        let mut ledger = Ledger::default();
        ledger.enter(Manner::Copied, came_in, 1, "recv");
        ledger = ledger.mark_received();
        ledger.enter(Manner::Copied, sent, 1, "send");
        RoleRecord { total_bytes: sent + came_in, window: 1.0, ledger, ..RoleRecord::blank(role) }
    }

    #[test]
    fn each_way_has_to_have_arrived() {
        let settles = |sender, receiver| {
            let ends = [record(Role::Sender, sender), record(Role::Receiver, receiver)];
            settle([&ends[0], &ends[1]], None, &[]).map_err(|fault| fault.message)
        };
        assert_eq!(settles([5, 3], [3, 5]), Ok(()));
        assert_eq!(settles([5, 0], [0, 5]), Ok(()));
        // A receiver with a thread per flow.
        assert_eq!(settles([5, 0], [5, 0]), Ok(()));
        assert!(settles([5, 3], [3, 4]).unwrap_err().contains("moved"));
        let text = settles([5, 3], [2, 6]).unwrap_err();
        assert!(text.contains("the receiver sent 2 bytes and 3 came in"), "{text}");
    }
}
