//! `vhost`: frames of a tap by the kernel's vhost worker, with this process in place of the virtual
//! machine: the worker copies each frame into a buffer of our receive queue. This is what feeds a
//! guest's network device, without the guest and without qemu.

use super::frames::ReceivedFrames;
use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, Call, FRAME_WAIT_LIMIT, Group, HalfConfig, Recorder, Rx};
use bytepath_record::{
    Facts, Fault, FaultKind, Manner, OptionKind, OptionSpec, Outcome, Role, Scope, Support, Unit,
};
use bytepath_sys::thread;
use bytepath_sys::vhost::{self, HEADER, Piece, Receiver, Refused, Shape, Step, Trouble};
use std::os::fd::AsFd;

pub(super) static PATH: DataPath = DataPath {
    name: "vhost",
    summary: "frames of a tap by vhost-net, into a queue of this process: copied by its worker",
    attempt: |_| vec![super::tried(ATTEMPT, vhost::features().map(|bits| format!("{bits:#x}")))],
    rx: Some(HalfPath::rx(check, open).with_options(OPTIONS).over(&[FRAMES])),
    ..DataPath::EMPTY
};

/// Name of the attempt, which finds out the features of vhost-net.
const ATTEMPT: &str = "vhost-net";

const REMEDY: &str = "modprobe vhost_net (CONFIG_VHOST_NET), and let /dev/vhost-net be opened; \
     the newer kernel of a guest has it: --testbed vm";

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("ring", OptionKind::Count(2, 32768), "256")
        .help("buffers of the receive queue, a power of two; 256 as in qemu"),
    OptionSpec::new("mergeable", OptionKind::Flag, "on")
        .help("VIRTIO_NET_F_MRG_RXBUF: a frame may take several buffers, as guests negotiate"),
    frames::WAIT,
    frames::STOP_AFTER,
];

/// Frames received at once, after which their buffers are offered to the worker again.
const TURN: usize = 64;

/// Minimum size of a buffer in bytes: room for a frame of up to 1500 bytes, as guests offer it.
const BUFFER: u32 = 2048;

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    frames::require_tap(job)
        .and(frames::refuse_unsegmented(job, PATH.name))
        .and(super::fits(frames::ring(job, 256)))
        .and(match facts.attempt(ATTEMPT) {
            Some(Outcome::Errno(libc::ENOENT | libc::ENODEV)) => {
                Support::no("this host has no vhost-net", REMEDY)
            }
            _ => facts.require(ATTEMPT, REMEDY),
        })
}

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let at = Attached::of(connection)?;
    // Our own frames fit into one buffer each, so that they can be inspected as a whole.
    let plan = frames::plan(job)?;
    let buffer = (plan.largest() + HEADER as u32).max(BUFFER);
    let mergeable = job.options.flag("mergeable");
    let shape = Shape { entries: frames::ring(job, 256)? as u16, buffer, mergeable };
    let vhost = Receiver::new(at.queue()?.as_fd(), shape).map_err(|r| refused(&r))?;
    place(&vhost, plan.vhost)?;
    Ok(Box::new(Queue { vhost, received: ReceivedFrames::of(job, at, 0) }))
}

/// Places the worker. It starts on the CPU of the thread that requested it, which will be busy.
fn place(vhost: &Receiver, cpu: Option<u32>) -> Result<(), Fault> {
    let fault = |e| Fault::system("choosing the CPU of the vhost worker", &e);
    match (vhost.worker, cpu) {
        (Some(worker), Some(cpu)) => thread::pin_other(worker, cpu).map_err(fault),
        (Some(worker), None) => thread::free_other(worker).map_err(fault),
        (None, Some(_)) => Err(Fault::unsupported("the vhost worker is not visible").remedy(
            "leave vhost out of the placement, or run where /proc shows the kernel's threads",
        )),
        (None, None) => Ok(()),
    }
}

struct Queue {
    vhost: Receiver,
    received: ReceivedFrames,
}

/// The only call made while receiving.
const POLL: Call = Call(0, "poll");

impl Rx for Queue {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(TURN, recorder)? else { return Ok(false) };
        let mut entered = Ok(());
        let visit = |piece: Piece| {
            // A frame that takes several buffers is larger than any of ours.
            if piece.begins && piece.ends {
                if entered.is_ok() {
                    entered = self.received.enter(piece.bytes, recorder);
                }
            } else if piece.ends {
                self.received.stray();
            }
        };
        let frames = self.vhost.take(most, visit).map_err(trouble)?;
        entered?;
        if frames > 0 { Ok(true) } else { self.wait_for_frames(recorder) }
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let source = "vhost-net: its worker copies each frame into the queue's memory";
        let mut account = self.received.account(0, Manner::Copied, source);
        let counts = self.vhost.counts;
        let scope = Scope::Flow(Role::Receiver, self.received.at.index());
        let counts =
            [("batches", counts.batches), ("kicks", counts.kicks), ("sleeps", counts.sleeps)];
        account.count("vhost", &scope, Unit::Count, counts);
        Ok(account)
    }
}

impl Queue {
    fn wait_for_frames(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        self.received.at.check()?;
        if self.received.spins {
            frames::spin(|| self.vhost.waiting() > 0);
            self.vhost.examine().map_err(trouble)?;
            return Ok(self.vhost.waiting() > 0);
        }
        let waited = recorder.timed_with(POLL, || self.vhost.wait(FRAME_WAIT_LIMIT), |_| 0);
        waited.map(|there| self.received.woken(there)).map_err(trouble)
    }
}

fn trouble(trouble: Trouble) -> Fault {
    match trouble {
        Trouble::System(e) => Fault::system("the queue that vhost-net fills", &e),
        Trouble::DeviceGone | Trouble::WorkerEnded(_) => Fault::peer_lost(trouble.to_string())
            .remedy("find out what removed the device or ended the worker"),
        Trouble::QueueBroken | Trouble::Malformed(_) => {
            Fault::new(FaultKind::Corrupt, trouble.to_string()).remedy("see the kernel's log")
        }
    }
}

fn refused(refused: &Refused) -> Fault {
    let fault = Fault::system(refused.step, &refused.error);
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
    fn lost_worker_is_peer_lost() {
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
    fn missing_vhost_net_has_remedy() {
        let error = io::Error::from_raw_os_error(libc::ENOENT);
        let fault = refused(&Refused { step: Step::Open, error });
        assert!(fault.message.contains("/dev/vhost-net"), "{fault}");
        assert!(fault.remedy.unwrap().contains("modprobe vhost_net"));
    }
}
