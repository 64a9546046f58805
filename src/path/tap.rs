//! `tap`: frames read from the descriptors of a tap, one a read(2). The kernel copies each.

use super::{DataPath, HalfPath, RxPath, frames};
use crate::connection::{Attached, Connection, FRAMES, Transport};
use crate::record::{Facts, Fault, Hops, Manner, OptionKind, OptionSpec, Support};
use crate::sys::memory::Region;
use crate::sys::packet;
use crate::workload::{Account, Group, Job, Phase, QUIET, Recorder, Rx, Taken};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

/// The `tap` path.
pub static PATH: DataPath = DataPath {
    name: "tap",
    summary: "frames read from a tap, one a read: copied to user memory",
    attempt: super::nothing_to_try,
    uses_io_uring: false,
    tx: None,
    rx: Some(&Read),
};

struct Read;

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "stop-after",
    kind: OptionKind::MaybeCount(0, 1_000_000_000_000),
    default: "none",
    help: "frames after which it reads no more, so that the rest is left in the queues",
}];

/// Frames that are read in a turn: how often it looks whether the trial is over.
const TURN: usize = 64;

/// Bytes of a `struct virtio_net_hdr` (linux/virtio_net.h), as taps have it.
const VNET_HEADER: usize = 10;

impl HalfPath for Read {
    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check(&self, job: &Job, _: &Facts) -> Support {
        frames::on_a_tap(job)
    }

    fn transports(&self) -> &'static [&'static dyn Transport] {
        &[FRAMES]
    }
}

impl RxPath for Read {
    fn open(
        &self,
        job: &Job,
        connection: &dyn Connection,
        _: &Group,
    ) -> Result<Box<dyn Rx>, Fault> {
        let at = Attached::of(connection)?;
        let plan = frames::plan(job)?;
        let before = if plan.vnet_header { VNET_HEADER } else { 0 };
        // Room for a frame that is larger than any that was asked for, which is another's.
        let room = (plan.largest() as usize + before).max(4096) as u64;
        Ok(Box::new(Reader {
            queue: at.queue()?,
            at,
            room: super::buffer("the read buffer", room, false)?,
            taken: Taken::new(job.touch, before),
            left: job.options.number("stop-after").unwrap_or(u64::MAX),
            hops: Hops::default(),
            bytes: 0,
        }))
    }
}

struct Reader {
    at: Attached,
    queue: Arc<OwnedFd>,
    room: Region,
    taken: Taken,
    /// Frames that are still to be read.
    left: u64,
    hops: Hops,
    bytes: u64,
}

/// Slots of the reader's calls.
const READ: usize = 0;
const POLL: usize = 1;

impl Rx for Reader {
    fn calls(&self) -> &'static [&'static str] {
        &["read", "poll"]
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        for _ in 0..TURN {
            if self.left == 0 {
                return self.leave(recorder);
            }
            let (queue, room) = (self.queue.as_fd(), &mut self.room);
            let mut length = None;
            let read = recorder.timed(READ, || {
                length = packet::read(queue, room)?;
                Ok(length.unwrap_or(0))
            });
            read.map_err(|e| self.at.fault("read", &e))?;
            let Some(length) = length else { return self.wait_for_frames(recorder) };
            match self.taken.look(&self.room[..length])? {
                Some(size) => {
                    self.hops.received += 1;
                    self.bytes += size as u64;
                    self.left -= 1;
                    recorder.moved(1);
                    recorder.piece(size);
                }
                None => self.hops.strays += 1,
            }
        }
        Ok(true)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let mut account = Account { hops: self.hops, ..Account::default() };
        let source = "read(2) of a tap: copied to user memory";
        account.ledger.enter(Manner::Copied, self.bytes, self.hops.received, source);
        Ok(account)
    }
}

impl Reader {
    /// Leaves frames where they are, and at the end takes them to be counted.
    fn leave(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        if recorder.phase() != Phase::Stop {
            self.at.check()?;
            std::thread::sleep(QUIET);
            return Ok(false);
        }
        let read = packet::read(self.queue.as_fd(), &mut self.room);
        let Some(length) = read.map_err(|e| self.at.fault("read", &e))? else {
            return self.wait_for_frames(recorder);
        };
        match self.taken.look(&self.room[..length])? {
            Some(_) => self.hops.ring_queued += 1,
            None => self.hops.strays += 1,
        }
        Ok(true)
    }

    fn wait_for_frames(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.at.check()?;
        let mut there = false;
        let queue = self.queue.as_fd();
        let waited = recorder.timed(POLL, || {
            there = packet::wait_readable(queue, QUIET)?;
            Ok(0)
        });
        waited.map_err(|e| self.at.fault("poll", &e))?;
        Ok(there)
    }
}
