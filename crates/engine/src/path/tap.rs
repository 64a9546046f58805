//! `tap`: frames read from the file descriptors of a tap or a macvtap: one per read(2), one per
//! readv(2) into two pieces, or by io_uring, which reads as many as it has buffers for without
//! being queued again. The kernel copies each.

use super::frames::ReceivedFrames;
use super::{DataPath, HalfPath, Opened, frames, ring};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, Call, FrameInspector, FramePlan, Group, HalfConfig, Recorder, Rx};
use bytepath_record::{Facts, Fault, Manner, OptionKind, OptionSpec, Support, TapSettings};
use bytepath_sys::memory::Region;
use bytepath_sys::uring::{self, Arrival, RecvRing, RecvShape};
use bytepath_sys::{packet, tap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

pub(super) static PATH: DataPath = DataPath {
    name: "tap",
    summary: "frames read from a tap or macvtap, by read, readv or io_uring: copied to user memory",
    attempt: |_| vec![ring::attempt(MULTISHOT, uring::try_read_multishot(), "")],
    uses_io_uring: true,
    rx: Some(HalfPath::rx(check, open).with_options(OPTIONS).over(&[FRAMES])),
    ..DataPath::EMPTY
};

/// Name of the attempt.
const MULTISHOT: &str = "io_uring.read-multishot";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("by", OptionKind::Choice(&["read", "readv", "uring"]), "read").help(
        "read; readv: its header and the rest into two pieces; uring: a multishot read \
               (Linux 6.7)",
    ),
    OptionSpec::new("depth", OptionKind::Count(1, 4096), "64")
        .help("with by=uring: frames read before any is examined"),
    frames::WAIT,
    frames::STOP_AFTER,
];

/// Frames read per turn, between checks whether the trial is over.
const TURN: usize = 64;

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    frames::require_tap(job).and(match job.options.word("by") {
        "uring" => ring::support(job, facts).and(ring::needs(
            facts,
            MULTISHOT,
            "multishot read; by=read works without it",
            "6.7",
        )),
        _ => Support::Yes,
    })
}

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let at = Attached::of(connection)?;
    let (plan, queue) = (frames::plan(job)?, at.queue()?);
    let TapSettings { vnet_header, uso, .. } = plan.tap.unwrap_or_default();
    let before = if vnet_header { FrameInspector::VNET_HEADER } else { 0 };
    // Room for a foreign frame that is larger than any requested one.
    let largest = if uso { MESSAGE } else { plan.largest() };
    let room = (largest as usize + before).max(4096);
    let received = ReceivedFrames::of(job, at, before);
    if job.options.word("by") == "uring" {
        return Ring::open(job, &queue, room, received).map(|ring| Box::new(ring) as _);
    }
    // The tap's own header, or the headers of the frame.
    let head = if vnet_header { before } else { FramePlan::HEADERS };
    let head = (job.options.word("by") == "readv").then_some(head);
    let room = super::buffer("the read buffer", room as u64, false)?;
    Ok(Box::new(Reader { queue, room, head, received }))
}

/// Maximum size in bytes of an unsegmented UDP message, with all headers.
const MESSAGE: u32 = 65_535 + 14;

struct Reader {
    queue: Arc<OwnedFd>,
    room: Region,
    /// Bytes of the first of two pieces, or `None` to read into one.
    head: Option<usize>,
    received: ReceivedFrames,
}

/// Calls that read a frame: into one piece, or two.
const READ: Call = Call(0, "read");
const READV: Call = Call(0, "readv");
const POLL: Call = Call(1, "poll");

impl Rx for Reader {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(TURN, recorder)? else { return Ok(false) };
        let call = if self.head.is_some() { READV } else { READ };
        for _ in 0..most {
            let (queue, room) = (self.queue.as_fd(), &mut self.room);
            let read = || match self.head {
                Some(head) => packet::read_in_two(queue, room, head),
                None => packet::read(queue, room),
            };
            let read = recorder.timed_with(call, read, |length| length.unwrap_or(0));
            let Some(length) = read.map_err(|e| self.received.at.fault(call.1, &e))? else {
                let wait = |time| packet::wait_readable(queue, time);
                return self.received.wait(recorder, POLL, wait);
            };
            self.received.enter(&self.room[..length], recorder)?;
        }
        Ok(true)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let source = "read of a tap: copied to user memory";
        Ok(self.received.account(0, Manner::Copied, source))
    }
}

/// A multishot read into provided buffers.
struct Ring {
    ring: RecvRing,
    received: ReceivedFrames,
}

impl Ring {
    fn open(
        job: &HalfConfig,
        queue: &OwnedFd,
        room: usize,
        received: ReceivedFrames,
    ) -> Result<Ring, Fault> {
        // io_uring would give up when there is no frame.
        tap::set_waiting(queue.as_fd()).map_err(|e| received.at.fault("making it block", &e))?;
        let shape = RecvShape {
            buffers: job.options.number("depth").unwrap_or(1) as u16,
            buffer_size: room as u32,
            bundle: false,
            incremental: false,
        };
        let ring = RecvRing::of_file(queue.as_fd(), shape)
            .map_err(|e| ring::fault("cannot set up a reading io_uring", &e))?;
        Ok(Ring { ring, received })
    }

    fn turn(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(TURN, recorder)? else { return Ok(false) };
        if !self.ring.pending() {
            let wait = |time| self.ring.wait(time);
            if !self.received.wait(recorder, ring::ENTER, wait)? {
                return Ok(false);
            }
        }
        for _ in 0..most {
            match self.ring.arrival() {
                Some(Arrival::Bytes(frame)) => self.received.enter(frame, recorder)?,
                Some(Arrival::Failed(e)) => {
                    return Err(self.received.at.fault("io_uring's read", &e));
                }
                Some(Arrival::End) | None => break,
            }
        }
        Ok(true)
    }
}

impl Rx for Ring {
    fn begin(&mut self) -> Result<(), Fault> {
        self.ring.activate().map_err(|e| ring::fault("cannot start the io_uring", &e))
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.turn(recorder).inspect_err(|_| self.ring.cancel())
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        self.ring.cancel();
        let source = "IORING_OP_READ_MULTISHOT copies into provided buffers";
        Ok(self.received.account(0, Manner::Copied, source))
    }
}
