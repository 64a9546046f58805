//! `packet-ring`: frames in memory shared with the kernel, by the rings of packet sockets. One
//! send(2) passes many; received frames are already in the ring.

use super::frames::ReceivedFrames;
use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, Call, Group, HalfConfig, Recorder, Rx, Tx};
use bytepath_record::{Fault, Manner, OptionKind, OptionSpec, Support};
use bytepath_sys::packet;
use bytepath_sys::packet_ring::{Receiver, Sender};

pub(super) static PATH: DataPath = DataPath {
    name: "packet-ring",
    summary: "frames in rings of packet sockets (PACKET_TX_RING, PACKET_RX_RING), many per call",
    tx: Some(
        HalfPath::tx(|_, _| Support::Yes, open_tx).with_options(GENERATE_OPTIONS).over(&[FRAMES]),
    ),
    rx: Some(
        HalfPath::rx(|job, _| frames::require_device(job), open_rx)
            .with_options(TAKE_OPTIONS)
            .over(&[FRAMES]),
    ),
    ..DataPath::EMPTY
};

const SLOTS: OptionSpec = OptionSpec::new("slots", OptionKind::Count(64, 65536), "4096")
    .help("minimum number of frames in the ring");

const GENERATE_OPTIONS: &[OptionSpec] = &[SLOTS, frames::BYPASS];

const TAKE_OPTIONS: &[OptionSpec] = &[SLOTS, frames::WAIT, frames::STOP_AFTER];

fn slots(job: &HalfConfig) -> usize {
    job.options.number("slots").unwrap_or(0) as usize
}

fn open_tx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let plan = frames::plan(job)?;
    let ring = Sender::open(at.device()?, &plan.all(connection.index()), slots(job));
    let ring = ring.map_err(|e| {
        at.fault("making a ring to send from", &e)
            .remedy("run as root, or with CAP_NET_RAW; or choose fewer slots")
    })?;
    if job.options.flag("bypass") {
        packet::bypass_qdisc(ring.socket()).map_err(|e| at.fault("PACKET_QDISC_BYPASS", &e))?;
    }
    let burst = plan.burst.into();
    Ok(Box::new(Generator { at, ring, burst, submitted: frames::SubmittedFrames::default() }))
}

struct Generator {
    at: Attached,
    ring: Sender,
    burst: u64,
    submitted: frames::SubmittedFrames,
}

const SEND: Call = Call(0, "send");

impl Tx for Generator {
    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        let most = most.min(self.burst) as usize;
        let batch = recorder.timed_with(SEND, || self.ring.send(most), |batch| batch.sent);
        let batch = batch.map_err(|e| self.at.fault("send from the ring", &e))?;
        let tried = self.submitted.enter(batch, recorder);
        if tried == 0 {
            self.at.check()?;
        }
        Ok(tried)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let source =
            "PACKET_TX_RING: the kernel references the ring, what the device did is not reported";
        Ok(self.submitted.account(Manner::Unknown, source))
    }
}

fn open_rx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let at = Attached::of(connection)?;
    let plan = frames::plan(job)?;
    let largest = plan.largest() as usize;
    let ring =
        Receiver::open(at.device()?, frames::ETHERTYPE, largest, slots(job), frames::group(job));
    let ring = ring.map_err(|e| {
        at.fault("making a ring to receive into", &e)
            .remedy("run as root, or with CAP_NET_RAW; or choose fewer slots")
    })?;
    Ok(Box::new(Taker { ring, received: ReceivedFrames::of(job, at, 0) }))
}

struct Taker {
    ring: Receiver,
    received: ReceivedFrames,
}

const POLL: Call = Call(0, "poll");

/// Maximum number of frames received per turn.
const TURN: usize = 256;

impl Rx for Taker {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(TURN, recorder)? else { return Ok(false) };
        let mut count = 0;
        while count < most {
            let looked = self.ring.with_next_frame(|frame| self.received.enter(frame, recorder));
            let Some(entered) = looked else { break };
            entered?;
            count += 1;
        }
        if count > 0 {
            return Ok(true);
        }
        if self.received.spins {
            self.received.at.check()?;
            return Ok(self.received.woken(frames::spin(|| self.ring.is_there())));
        }
        self.received.wait(recorder, POLL, |time| self.ring.wait(time))
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let dropped =
            self.ring.dropped().map_err(|e| self.received.at.fault("PACKET_STATISTICS", &e))?;
        let source = "PACKET_RX_RING: copied by the kernel into the ring";
        Ok(self.received.account(dropped, Manner::Copied, source))
    }
}
