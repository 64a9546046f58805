//! `packet`: frames by a packet socket, so many in each sendmmsg(2). The kernel copies each
//! into a buffer of its own.

use super::{DataPath, HalfPath, TxPath, frames};
use crate::connection::{Attached, Connection, FRAMES, Transport};
use crate::record::{Facts, Fault, Hops, Manner, OptionKind, OptionSpec, Support};
use crate::sys::packet::{self, Frames};
use crate::workload::{Account, Group, Job, Recorder, Tx};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

/// The `packet` path.
pub static PATH: DataPath = DataPath {
    name: "packet",
    summary: "frames by a packet socket and sendmmsg: copied from user memory",
    attempt: super::nothing_to_try,
    uses_io_uring: false,
    tx: Some(&Generate),
    rx: None,
};

struct Generate;

const OPTIONS: &[OptionSpec] = &[OptionSpec {
    name: "bypass",
    kind: OptionKind::Flag,
    default: "off",
    help: "PACKET_QDISC_BYPASS: to the driver past the queueing discipline",
}];

impl HalfPath for Generate {
    fn options(&self) -> &'static [OptionSpec] {
        OPTIONS
    }

    fn check(&self, _: &Job, _: &Facts) -> Support {
        Support::Yes
    }

    fn transports(&self) -> &'static [&'static dyn Transport] {
        &[FRAMES]
    }
}

impl TxPath for Generate {
    fn open(
        &self,
        job: &Job,
        connection: &dyn Connection,
        _: &Group,
    ) -> Result<Box<dyn Tx>, Fault> {
        let at = Attached::of(connection)?;
        let plan = frames::plan(job)?;
        let socket = packet::sender(at.device()?).map_err(|e| {
            at.fault("opening a packet socket", &e).remedy("run as root, or with CAP_NET_RAW")
        })?;
        if job.options.flag("bypass") {
            packet::bypass_qdisc(socket.as_fd())
                .map_err(|e| at.fault("PACKET_QDISC_BYPASS", &e))?;
        }
        let frames = plan.frames(connection.index());
        Ok(Box::new(Generator {
            at,
            socket,
            frames,
            burst: plan.burst,
            hops: Hops::default(),
            bytes: 0,
            calls: 0,
        }))
    }
}

struct Generator {
    at: Attached,
    socket: OwnedFd,
    frames: Frames,
    burst: u32,
    hops: Hops,
    /// Bytes of the frames that the kernel took.
    bytes: u64,
    calls: u64,
}

/// Slot of the generator's only call.
const SENDMMSG: usize = 0;

/// How long it waits at once for room in its socket's buffer.
const PATIENCE: Duration = Duration::from_millis(10);

impl Tx for Generator {
    fn calls(&self) -> &'static [&'static str] {
        &["sendmmsg"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        Err(frames::no_witness())
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_at_most(self.burst.into(), recorder).map(drop)
    }

    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        // Frames that a stopped queue holds fill the buffer. A call that waited for room
        // itself would not notice that the trial is over.
        let writable = packet::wait_writable(self.socket.as_fd(), PATIENCE);
        if !writable.map_err(|e| self.at.fault("poll", &e))? {
            return self.at.check().map(|()| 0);
        }
        let most = most.min(self.burst.into()) as usize;
        let (mut refused, mut bytes) = (false, 0);
        let sent = recorder.timed(SENDMMSG, || {
            let batch = self.frames.send(self.socket.as_fd(), most)?;
            (refused, bytes) = (batch.refused, batch.bytes);
            Ok(batch.sent)
        });
        let sent = sent.map_err(|e| self.at.fault("sendmmsg", &e))?;
        self.calls += 1;
        self.bytes += bytes;
        let tried = sent as u64 + u64::from(refused);
        self.hops.offered += tried;
        self.hops.refused += u64::from(refused);
        recorder.moved(sent);
        Ok(tried)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let mut account = Account { hops: self.hops, ..Account::default() };
        let source = "sendmmsg(2) on a packet socket: copied from user memory";
        account.ledger.enter(Manner::Copied, self.bytes, self.calls, source);
        Ok(account)
    }
}
