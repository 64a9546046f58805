//! `packets`: a generator sends frames to a device, a sink receives them, and every
//! frame must be accounted for: received, dropped at a named place, or queued.

use super::actor::{SINGLE_EVENTS, one_way};
use super::{Actor, Direction, FlowEnd, FramePlan, HalfConfig, Phase, Recorder, Tx, Workload};
use bytepath_record::{
    Cell, Fault, FaultKind, Hops, LinkSettings, OptionKind, OptionSpec, Protocol, Reading, Role,
    RoleRecord, Work,
};
use bytepath_sys::clock;
use std::time::Duration;

pub(super) static WORKLOAD: Workload = Workload {
    name: "packets",
    summary: "a generator sends frames, a sink receives them: packets, losses by place, cost per packet",
    options: OPTIONS,
    work: Work::Packets,
    halves: one_way,
    job,
    protocol: |_| Protocol::Frames,
    // Frames are small, and most drivers support XDP only up to about this MTU.
    most_mtu: Some(1500),
    no_slices: |_| Some(SINGLE_EVENTS),
    ends_by_itself: |cell| cell.workload.options.number("count").is_some(),
    check,
    play: [generate, take],
    play_loop: None,
    reconnects: false,
    settle,
};

/// How long a sink waits for a frame before it reports that none arrived.
pub const FRAME_WAIT_LIMIT: Duration = Duration::from_millis(10);

/// Number of consecutive empty waits, after the generator has ended, until nothing is assumed to be
/// in flight: kernel threads may have to wait for a CPU.
const MAX_EMPTY_WAITS: u32 = 5;

/// Longest sleep until a frame is due: a generator that sleeps longer would notice the edges
/// of the window late.
const NAP: Duration = Duration::from_millis(5);

/// How many nanoseconds before a frame is due the generator stops sleeping and polls the clock.
const SPIN_BEFORE_DUE_NS: u64 = 100_000;

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("frame", OptionKind::Text, "60")
        .help("frame size in bytes without the check sequence; a range (60-1514), or imix"),
    OptionSpec::new("burst", OptionKind::Count(1, 1024), "32")
        .help("maximum frames that a generator submits per call"),
    OptionSpec::new("rate", OptionKind::WordCount("auto", 1, 1_000_000_000), "auto")
        .help("frames per second of all generators together; auto: as fast as possible"),
    OptionSpec::new("count", OptionKind::WordCount("auto", 1, 1_000_000_000_000), "auto")
        .help("frames from all generators together after which the trial ends; auto: ends by time"),
];

fn job(cell: &Cell, role: Role, _: Direction) -> HalfConfig {
    // Cells with invalid frames are refused before the study.
    let frames = plan(cell).ok();
    let largest = frames.as_ref().map_or(0, FramePlan::largest).into();
    HalfConfig {
        message_size: largest,
        read_size: largest,
        read_memory: largest,
        batch: frames.as_ref().map_or(1, |frames| frames.burst),
        protocol: Protocol::Frames,
        frames,
        ..HalfConfig::stream(cell, role)
    }
}

fn check(cell: &Cell) -> Result<(), Fault> {
    let largest = plan(cell)?.largest();
    let LinkSettings { mtu, .. } = cell.link;
    if largest > mtu + 14 {
        let text = format!("a frame of {largest} bytes does not fit an MTU of {mtu}");
        let remedy = format!("choose frames of at most {} bytes, or a larger mtu", mtu + 14);
        return Err(Fault::usage(text).remedy(remedy));
    }
    Ok(())
}

/// Errors unless every frame is accounted for.
fn settle(_: [&RoleRecord; 2], hops: Option<&Hops>, _: &[Reading]) -> Result<(), Fault> {
    match hops.copied().unwrap_or_default() {
        hops if hops.unaccounted() == 0 => Ok(()),
        hops => Err(does_not_close(&hops)),
    }
}

fn does_not_close(hops: &Hops) -> Fault {
    let text = format!(
        "the counts of frames do not close: {} generated, and {} received, {} dropped in the \
         qdisc, {} at the device, {} on the wire, {} on arrival, {} at the sink, {} queued: {} are \
         unaccounted for",
        hops.generated(),
        hops.received,
        hops.qdisc_dropped,
        hops.device_dropped,
        hops.wire_dropped,
        hops.arrival_dropped,
        hops.sink_dropped,
        hops.queued(),
        hops.unaccounted()
    );
    Fault::new(FaultKind::Corrupt, text)
        .remedy("check whether anything else sends through that device, or removes frames from it")
}

/// Returns the frames that a cell requests.
fn plan(cell: &Cell) -> Result<FramePlan, Fault> {
    let options = &cell.workload.options;
    let burst = options.number("burst").unwrap_or(1) as u32;
    let mut plan = FramePlan::parse(options.word("frame"), burst)?;
    plan.tap = cell.link.tap;
    plan.queued = cell.link.qdisc != "none";
    plan.vhost = cell.placement.vhost;
    (plan.rate, plan.count) = (options.number("rate"), options.number("count"));
    Ok(plan)
}

fn generate(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut tx, index) = (actor.tx()?, actor.connection.index());
    let (cell, mut recorder) = (actor.cell, actor.recorder);
    let share = |name| Some(share(cell.workload.options.number(name)?, cell.stream.flows, index));
    let (count, rate) = (share("count"), share("rate"));
    tx.begin()?;
    // Held until all are ready, so that the window of a counted run begins with its first frame.
    recorder.phase();
    match (rate, count) {
        (Some(rate), count) => paced(&mut *tx, &mut recorder, rate.max(1), count)?,
        (None, Some(count)) => tx.send_up_to(count, &mut recorder)?,
        (None, None) => tx.send_until_stop(&mut recorder)?,
    }
    if count.is_some() {
        recorder.close_window();
    }
    let account = tx.account(&mut recorder)?;
    let bytes = account.ledger.delivered;
    Ok(FlowEnd { account, bytes, ..recorder.finish() })
}

/// Returns the share of one of several flows in `all`; the shares add up to `all`.
pub fn share(all: u64, flows: u32, index: u32) -> u64 {
    let (flows, index) = (u64::from(flows), u64::from(index));
    all / flows + u64::from(index < all % flows)
}

/// Sends `rate` frames per second, in bursts of those that are due.
fn paced(
    tx: &mut dyn Tx,
    recorder: &mut Recorder,
    rate: u64,
    count: Option<u64>,
) -> Result<(), Fault> {
    let begin = clock::monotonic();
    let most = count.unwrap_or(u64::MAX);
    // Dropped frames are not replaced.
    let mut tried = 0;
    while recorder.phase() != Phase::Stop && tried < most {
        let elapsed = clock::monotonic() - begin;
        let due = (u128::from(elapsed) * u128::from(rate) / 1_000_000_000) as u64;
        let behind = due.min(most).saturating_sub(tried);
        if behind > 0 {
            tried += tx.send_at_most(behind, recorder)?;
            continue;
        }
        let next = (u128::from(due + 1) * 1_000_000_000).div_ceil(u128::from(rate)) as u64;
        let left = next.saturating_sub(clock::monotonic() - begin);
        match Duration::from_nanos(left.saturating_sub(SPIN_BEFORE_DUE_NS)).min(NAP) {
            Duration::ZERO => std::hint::spin_loop(),
            sleep => std::thread::sleep(sleep),
        }
    }
    Ok(())
}

/// Receives frames until the generator has ended, then the rest.
fn take(mut actor: Actor) -> Result<FlowEnd, Fault> {
    let (mut rx, mut recorder) = (actor.rx()?, actor.recorder);
    rx.begin()?;
    while recorder.phase() != Phase::Stop {
        rx.receive(&mut recorder)?;
    }
    let mut looks = 0;
    while looks < MAX_EMPTY_WAITS {
        looks = if rx.receive(&mut recorder)? { 0 } else { looks + 1 };
    }
    let account = rx.account(&mut recorder)?;
    let bytes = account.ledger.delivered;
    Ok(FlowEnd { account, bytes, ..recorder.finish() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Half, OptionValue};

    fn cell(frame: &str) -> Cell {
        let mut cell = Cell::new("test", Half::plain("packet"), Half::plain("tap"));
        cell.workload.name = "packets".into();
        cell.workload.options.0.insert("frame".into(), OptionValue::Word(frame.into()));
        cell.link.mtu = 1500;
        cell
    }

    #[test]
    fn refuses_frames_larger_than_mtu() {
        check(&cell("60-1514")).unwrap();
        let fault = check(&cell("1515")).unwrap_err();
        assert!(fault.message.contains("does not fit an MTU of 1500"), "{fault}");
        assert!(check(&cell("huge")).is_err());
        let job = job(&cell("60-1514"), Role::Sender, Direction::Send);
        assert!(job.message_size > 1400 && job.frames.is_some());
    }

    #[test]
    fn shares_add_up() {
        for (all, flows) in [(100, 3), (2, 4), (1_000_000_007, 64)] {
            let parts = (0..flows).map(|index| share(all, flows, index));
            assert_eq!(parts.sum::<u64>(), all);
        }
    }

    #[test]
    fn unaccounted_frame_fails_trial() {
        let hops = Hops { offered: 10, received: 8, device_dropped: 1, ..Hops::default() };
        let fault = does_not_close(&hops);
        assert_eq!(fault.kind, FaultKind::Corrupt);
        assert!(fault.message.ends_with("0 queued: 1 are unaccounted for"), "{fault}");
    }
}
