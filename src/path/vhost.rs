//! `vhost`: frames of a tap by the kernel's vhost worker, with this process in the place of
//! the virtual machine: the worker copies each into a buffer of our receive queue. It is what
//! a guest's network device is fed by, without the guest and without qemu.

use super::{DataPath, HalfPath, RxPath, frames};
use crate::connection::{Attached, Connection, FRAMES, Transport};
use crate::record::{
    Facts, Fault, FaultKind, Hops, Manner, OptionKind, OptionSpec, Outcome, Reading, Role, Scope,
    Support, Unit,
};
use crate::sys::thread;
use crate::sys::vhost::{self, HEADER, Piece, Receiver, Refused, Shape, Step, Trouble};
use crate::workload::{Account, Group, Job, Phase, QUIET, Recorder, Rx, Taken};
use std::os::fd::AsFd;
use std::time::Instant;

/// The `vhost` path.
pub static PATH: DataPath = DataPath {
    name: "vhost",
    summary: "frames of a tap by vhost-net, into a queue of this process: copied by its worker",
    attempt: |_| vec![super::tried(ATTEMPT, vhost::features().map(|bits| format!("{bits:#x}")))],
    uses_io_uring: false,
    tx: None,
    rx: Some(&Receive),
};

struct Receive;

/// What is tried on a host: which features its vhost-net has.
const ATTEMPT: &str = "vhost-net";

const REMEDY: &str = "modprobe vhost_net (CONFIG_VHOST_NET), and let /dev/vhost-net be opened; \
     the newer kernel of a guest has it: --testbed vm";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "ring",
        kind: OptionKind::Count(2, 32768),
        default: "256",
        help: "buffers of the receive queue, a power of two; 256 as qemu's",
    },
    OptionSpec {
        name: "mergeable",
        kind: OptionKind::Flag,
        default: "on",
        help: "VIRTIO_NET_F_MRG_RXBUF: a frame may take several buffers, as guests agree to",
    },
    OptionSpec {
        name: "spin",
        kind: OptionKind::Flag,
        default: "off",
        help: "never sleep while there is nothing: the worker has nobody to wake",
    },
    OptionSpec {
        name: "stop-after",
        kind: OptionKind::MaybeCount(0, 1_000_000_000_000),
        default: "none",
        help: "frames after which it takes no more, so that the queue is left full",
    },
];

/// Frames that are taken at once, after which their buffers are shown to the worker again.
const TURN: u64 = 64;

/// Least bytes of a buffer: room for a frame of the usual size, as guests offer it.
const BUFFER: u32 = 2048;

impl HalfPath for Receive {
    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check(&self, job: &Job, facts: &Facts) -> Support {
        frames::on_a_tap(job).and(super::fits(ring(job))).and(match facts.attempt(ATTEMPT) {
            Some(Outcome::Errno(libc::ENOENT | libc::ENODEV)) => {
                Support::no("this host has no vhost-net", REMEDY)
            }
            _ => facts.require(ATTEMPT, REMEDY),
        })
    }

    fn transports(&self) -> &'static [&'static dyn Transport] {
        &[FRAMES]
    }
}

/// Buffers of the queue.
fn ring(job: &Job) -> Result<u16, Fault> {
    let entries = job.options.number("ring").unwrap_or(256);
    u16::try_from(entries).ok().filter(|entries| entries.is_power_of_two()).ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("a queue of {entries} buffers"))
            .remedy("choose a power of two up to 32768")
    })
}

impl RxPath for Receive {
    fn open(
        &self,
        job: &Job,
        connection: &dyn Connection,
        _: &Group,
    ) -> Result<Box<dyn Rx>, Fault> {
        let at = Attached::of(connection)?;
        // Frames of ours take one buffer each, so that they can be looked at as a whole.
        let plan = frames::plan(job)?;
        let buffer = (plan.largest() + HEADER as u32).max(BUFFER);
        let mergeable = job.options.flag("mergeable");
        let shape = Shape { entries: ring(job)?, buffer, mergeable };
        let vhost = Receiver::new(at.queue()?.as_fd(), shape).map_err(|r| refused(&r))?;
        place(&vhost, plan.vhost)?;
        Ok(Box::new(Queue {
            at,
            vhost,
            flow: connection.index(),
            taken: Taken::new(job.touch, 0),
            spin: job.options.flag("spin"),
            left: job.options.number("stop-after").unwrap_or(u64::MAX),
            hops: Hops::default(),
            bytes: 0,
        }))
    }
}

/// The worker has the CPU of the thread that asked for it, which is about to be busy.
fn place(vhost: &Receiver, cpu: Option<u32>) -> Result<(), Fault> {
    let fault = |e| Fault::system("choosing the CPU of the vhost worker", &e);
    match (vhost.worker(), cpu) {
        (Some(worker), Some(cpu)) => thread::pin_other(worker, cpu).map_err(fault),
        (Some(worker), None) => thread::free_other(worker).map_err(fault),
        (None, Some(_)) => Err(Fault::new(FaultKind::Unsupported, "the vhost worker is not shown")
            .remedy(
                "leave vhost out of the placement, or run where /proc shows the kernel's threads",
            )),
        (None, None) => Ok(()),
    }
}

struct Queue {
    at: Attached,
    vhost: Receiver,
    flow: u32,
    taken: Taken,
    spin: bool,
    /// Frames that are still to be taken.
    left: u64,
    hops: Hops,
    bytes: u64,
}

/// Slot of the only call that it makes of its own accord.
const POLL: usize = 0;

impl Rx for Queue {
    fn calls(&self) -> &'static [&'static str] {
        &["poll"]
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let over = self.left == 0;
        if over && recorder.phase() != Phase::Stop {
            self.at.check()?;
            std::thread::sleep(QUIET);
            return Ok(false);
        }
        let most = if over { TURN } else { TURN.min(self.left) };
        let (mut known, mut changed) = (0, None);
        let visit = |piece: Piece| {
            // What takes several buffers is larger than any frame of ours.
            let looked = match (piece.begins && piece.ends, &changed) {
                (true, None) => self.taken.look(piece.bytes),
                _ => Ok(None),
            };
            match looked {
                Ok(Some(size)) => {
                    known += 1;
                    self.bytes += size as u64;
                    recorder.piece(size);
                }
                Ok(None) => self.hops.strays += u64::from(piece.ends),
                Err(fault) => changed = Some(fault),
            }
        };
        let frames = self.vhost.take(most as usize, visit).map_err(trouble)?;
        if let Some(fault) = changed {
            return Err(fault);
        }
        if over {
            // Emptied to be counted: it was left there.
            self.hops.ring_queued += known;
        } else {
            self.hops.received += known;
            self.left -= known;
            recorder.moved(known as usize);
        }
        if frames > 0 { Ok(true) } else { self.wait_for_frames(recorder) }
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let mut account = Account { hops: self.hops, ..Account::default() };
        let source = "vhost-net: its worker copies each frame into the queue's memory";
        account.ledger.enter(Manner::Copied, self.bytes, self.hops.received, source);
        let counts = self.vhost.counts();
        let scope = Scope::Flow(Role::Receiver, self.flow);
        for (name, value) in
            [("batches", counts.batches), ("kicks", counts.kicks), ("sleeps", counts.sleeps)]
        {
            let metric = format!("vhost.{name}");
            account.readings.push(Reading::sum(metric, Unit::Count, value as f64, scope.clone()));
        }
        Ok(account)
    }
}

impl Queue {
    fn wait_for_frames(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.at.check()?;
        if self.spin {
            let begin = Instant::now();
            while self.vhost.waiting() == 0 && begin.elapsed() < QUIET {
                std::hint::spin_loop();
            }
            self.vhost.examine().map_err(trouble)?;
            return Ok(self.vhost.waiting() > 0);
        }
        let vhost = &mut self.vhost;
        let mut there = Ok(false);
        let _ = recorder.timed(POLL, || {
            there = vhost.wait(QUIET);
            Ok(0)
        });
        there.map_err(trouble)
    }
}

fn trouble(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::System(e) => Fault::system("the queue that vhost-net fills", &e),
        Trouble::DeviceGone | Trouble::WorkerEnded(_) => {
            Fault::new(FaultKind::PeerLost, trouble.to_string())
                .remedy("see what removed the device, or ended the worker")
        }
        Trouble::QueueBroken | Trouble::Malformed(_) => {
            Fault::new(FaultKind::Corrupt, trouble.to_string()).remedy("see the kernel's log")
        }
    }
}

fn refused(refused: &Refused) -> Fault {
    let fault = Fault::system(refused.step.words(), &refused.error);
    match refused.step {
        Step::Open => fault.remedy(REMEDY),
        Step::Queue => fault.remedy("choose a smaller ring"),
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn a_worker_or_a_device_that_is_gone_is_a_peer_that_was_lost() {
        for (gone, word) in [
            (Trouble::WorkerEnded(77), "worker (thread 77) has ended"),
            (Trouble::DeviceGone, "the tap that vhost-net reads is gone"),
        ] {
            let fault = trouble(gone);
            assert_eq!(fault.kind, FaultKind::PeerLost);
            assert!(fault.message.contains(word) && fault.remedy.is_some(), "{fault}");
        }
        assert_eq!(trouble(Trouble::QueueBroken).kind, FaultKind::Corrupt);
    }

    #[test]
    fn a_host_without_vhost_net_is_told_what_to_load() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let fault = refused(&Refused { step: Step::Open, error });
        assert!(fault.message.contains("/dev/vhost-net"), "{fault}");
        assert!(fault.remedy.unwrap().contains("modprobe vhost_net"));
    }
}
