//! `packet`: frames by packet sockets, many in each sendmmsg(2) or recvmmsg(2). The kernel
//! copies each into a buffer of its own, and from there to the sink.

use super::frames::ReceivedFrames;
use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, Call, Group, HalfConfig, Recorder, Rx, Tx};
use bytepath_record::{Fault, Manner, OptionKind, OptionSpec, Support};
use bytepath_sys::packet::{self, Frames};
use bytepath_sys::packet_batch::Receiver;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "packet",
    summary: "frames by packet sockets, sendmmsg and recvmmsg: copied at both ends",
    tx: Some(
        HalfPath::tx(|_, _| Support::Yes, open_tx).with_options(&[frames::BYPASS]).over(&[FRAMES]),
    ),
    rx: Some(
        HalfPath::rx(|job, _| frames::require_device(job), open_rx)
            .with_options(TAKE_OPTIONS)
            .over(&[FRAMES]),
    ),
    ..DataPath::EMPTY
};

fn open_tx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let plan = frames::plan(job)?;
    let socket = packet::sender(at.device()?).map_err(|e| {
        at.fault("opening a packet socket", &e).remedy("run as root, or with CAP_NET_RAW")
    })?;
    if job.options.flag("bypass") {
        packet::bypass_qdisc(socket.as_fd()).map_err(|e| at.fault("PACKET_QDISC_BYPASS", &e))?;
    }
    let frames = plan.frames(connection.index());
    Ok(Box::new(Generator {
        at,
        socket,
        frames,
        burst: plan.burst,
        submitted: frames::SubmittedFrames::default(),
    }))
}

struct Generator {
    at: Attached,
    socket: OwnedFd,
    frames: Frames,
    burst: u32,
    submitted: frames::SubmittedFrames,
}

const SENDMMSG: Call = Call(0, "sendmmsg");

/// Maximum time of one wait for room in the socket's buffer.
const TIMEOUT: Duration = Duration::from_millis(10);

impl Tx for Generator {
    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        // Frames held by a stopped queue fill the buffer. A send that blocked for room would not
        // notice the end of the trial.
        let writable = packet::wait_writable(self.socket.as_fd(), TIMEOUT);
        if !writable.map_err(|e| self.at.fault("poll", &e))? {
            return self.at.check().map(|()| 0);
        }
        let most = most.min(self.burst.into()) as usize;
        let send = || self.frames.send(self.socket.as_fd(), most);
        let batch = recorder.timed_with(SENDMMSG, send, |batch| batch.sent);
        let batch = batch.map_err(|e| self.at.fault("sendmmsg", &e))?;
        Ok(self.submitted.enter(batch, recorder))
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let source = "sendmmsg(2) on a packet socket: copied from user memory";
        Ok(self.submitted.account(Manner::Copied, source))
    }
}

const TAKE_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("buffer", OptionKind::AutoSize(4096, 1 << 30), "auto")
        .help("receive buffer in bytes, including overhead (SO_RCVBUFFORCE); auto: the default"),
    frames::WAIT,
    frames::STOP_AFTER,
];

/// Maximum number of frames per recvmmsg(2).
const BATCH: usize = 64;

/// Room for a foreign frame that is larger than any of the generator's.
const ROOM: usize = 2048;

fn open_rx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let at = Attached::of(connection)?;
    let room = ROOM.max(frames::plan(job)?.largest() as usize);
    let (group, buffer) = (frames::group(job), job.options.number("buffer"));
    let opened = Receiver::open(at.device()?, frames::ETHERTYPE, [BATCH, room], group, buffer);
    let receiver = opened.map_err(|e| {
        at.fault("opening a packet socket", &e)
            .remedy("run as root, or with CAP_NET_RAW and, for a buffer, CAP_NET_ADMIN")
    })?;
    Ok(Box::new(Taker { receiver, received: ReceivedFrames::of(job, at, 0) }))
}

struct Taker {
    receiver: Receiver,
    received: ReceivedFrames,
}

const RECVMMSG: Call = Call(0, "recvmmsg");
const POLL: Call = Call(1, "poll");

impl Rx for Taker {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(BATCH, recorder)? else { return Ok(false) };
        let received = recorder.timed(RECVMMSG, || self.receiver.receive(most));
        let received = received.map_err(|e| self.received.at.fault("recvmmsg", &e))?;
        for frame in self.receiver.frames(received) {
            self.received.enter(frame, recorder)?;
        }
        if received > 0 {
            return Ok(true);
        }
        self.received.wait(recorder, POLL, |time| self.receiver.wait(time))
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let dropped = self.receiver.dropped();
        let dropped = dropped.map_err(|e| self.received.at.fault("PACKET_STATISTICS", &e))?;
        let source = "recvmmsg(2) on a packet socket: copied to user memory";
        Ok(self.received.account(dropped, Manner::Copied, source))
    }
}
