//! XDP: frames before the kernel makes an skb of them. `xdp-drop` counts and drops arriving frames,
//! `xdp-live` makes frames and hands them to the device.

use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{
    Account, Call, FRAME_WAIT_LIMIT, FramePlan, Group, HalfConfig, Recorder, Rx, Tx,
};
use bytepath_record::{Fault, Hops, Manner, OptionKind, OptionSpec};
use bytepath_sys::bpf::xdp::{Count, Dropper, LiveFrames, Mode, Passer};
use std::sync::Arc;
use std::time::Duration;

pub(super) static DROP: DataPath = DataPath {
    name: "xdp-drop",
    summary: "frames counted and dropped by an XDP program: no application sees them",
    rx: Some(
        HalfPath::rx(
            |job, _| frames::require_device(job).and(frames::never_seen(job, DROP.name)),
            open_rx,
        )
        .with_options(DROP_OPTIONS)
        .over(&[FRAMES]),
    ),
    ..DataPath::EMPTY
};

pub(super) static LIVE: DataPath = DataPath {
    name: "xdp-live",
    summary: "copies of a frame made in the kernel, without a socket buffer (XDP live frames)",
    tx: Some(
        HalfPath::tx(|job, _| frames::require_one_size(job, LIVE.name), open_tx)
            .with_options(LIVE_OPTIONS)
            .over(&[FRAMES]),
    ),
    ..DataPath::EMPTY
};

const DROP_OPTIONS: &[OptionSpec] =
    &[OptionSpec::new("mode", OptionKind::Choice(&["native", "generic"]), "native")
        .help("where the program runs: in the driver, or in the stack")];

const LIVE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("repeat", OptionKind::Count(1, 1 << 24), "262144").help(
        "frames per system call; a call takes some 20 ms of preparation and cannot notice an edge \
         of the window",
    ),
    OptionSpec::new("batch", OptionKind::Count(1, 256), "64")
        .help("frames handed to the device at once"),
];

/// Interval at which the count of dropped frames is read.
const LOOK: Duration = Duration::from_millis(1);

fn open_rx(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Rx> {
    let at = Attached::of(connection)?;
    let dropper = group.share(|| {
        Dropper::attach(at.device()?, FramePlan::MARK, frames::mode(job))
            .map_err(|refused| frames::unattached(&at, refused))
    })?;
    let counts = connection.index() == 0;
    let in_driver = frames::mode(job) == Mode::Native;
    Ok(Box::new(Dropping { at, dropper, counts, in_driver, seen: Count::default() }))
}

struct Dropping {
    at: Attached,
    /// One program for the whole device.
    dropper: Arc<Dropper>,
    /// Whether this flow counts the frames of all flows.
    counts: bool,
    in_driver: bool,
    seen: Count,
}

impl Rx for Dropping {
    /// Only reads the count: the frames need no work of this thread.
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.at.check()?;
        if !self.counts {
            std::thread::sleep(FRAME_WAIT_LIMIT);
            return Ok(false);
        }
        let mut waited = Duration::ZERO;
        loop {
            let now = self.dropper.count().map_err(|e| self.at.fault("reading a map", &e))?;
            let more = now.frames - self.seen.frames;
            self.seen = now;
            recorder.moved(more as usize);
            if more > 0 || waited >= FRAME_WAIT_LIMIT {
                std::thread::sleep(LOOK);
                return Ok(more > 0);
            }
            std::thread::sleep(LOOK);
            waited += LOOK;
        }
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let Count { frames, bytes } = self.seen;
        let dropped_as_asked = if self.in_driver { frames } else { 0 };
        let hops = Hops { received: frames, dropped_as_asked, ..Hops::default() };
        let source = "dropped by an XDP program";
        Ok(Account { hops, ..Account::of(Manner::Discarded, bytes, frames, source) })
    }
}

fn open_tx(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let enabled = frames::enable_xdp_if_needed(&at, group)?;
    let all = frames::plan(job)?.all(connection.index());
    let frame = all.first().map(Vec::as_slice).unwrap_or_default();
    let live = LiveFrames::new(at.device()?, frame)
        .map_err(|refused| frames::unloaded("loading the program that makes frames", refused))?;
    let is_tap = frames::plan(job)?.tap.is_some_and(|tap| !tap.macvtap);
    let number = |name, usual| job.options.number(name).unwrap_or(usual);
    Ok(Box::new(Generator {
        _enabled: enabled,
        live,
        size: frame.len() as u64,
        repeat: number("repeat", 1 << 18),
        batch: number("batch", 64) as u32,
        drops_untold: is_tap || frames::is_hardware(at.device()?),
        at,
        made: 0,
        calls: 0,
    }))
}

struct Generator {
    at: Attached,
    /// The program that some drivers require on a device for sending frames without an skb.
    _enabled: Option<Arc<Passer>>,
    live: LiveFrames,
    size: u64,
    repeat: u64,
    batch: u32,
    /// Whether not all drops are reported: a tap reports 16 times too few, the driver of a NIC
    /// none.
    drops_untold: bool,
    /// Number of frames made.
    made: u64,
    calls: u64,
}

impl Tx for Generator {
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        self.at.check()?;
        let count = most.min(self.repeat);
        let (live, batch) = (&self.live, self.batch);
        let send = || live.send(count as u32, batch);
        let made = recorder.timed_with(Call(0, "bpf"), send, |()| count as usize);
        made.map_err(|e| {
            let fault = self.at.fault("making frames (BPF_PROG_TEST_RUN)", &e);
            match e.raw_os_error() {
                Some(libc::EINVAL) => {
                    fault.remedy("live frames require Linux 5.18 and a page per frame")
                }
                _ => fault,
            }
        })?;
        self.made += count;
        self.calls += 1;
        recorder.moved(count as usize);
        Ok(count)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let hops = Hops { offered: self.made, drops_untold: self.drops_untold, ..Hops::default() };
        let (bytes, source) = (self.made * self.size, "XDP live frames: made in the kernel");
        Ok(frames::made_in_kernel(hops, bytes, self.calls, source))
    }
}
