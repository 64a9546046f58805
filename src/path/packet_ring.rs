//! `packet-ring`: frames in memory that the kernel shares, by the rings of packet sockets. One
//! send(2) hands over many; what is received lies in the ring already.

use super::{DataPath, HalfPath, RxPath, TxPath, frames};
use crate::connection::{Attached, Connection, FRAMES, Transport};
use crate::record::{Facts, Fault, Hops, Manner, OptionKind, OptionSpec, Support};
use crate::sys::packet;
use crate::sys::packet_ring::{Receiver, Sender};
use crate::workload::{Account, Group, Job, QUIET, Recorder, Rx, Taken, Tx};

/// The `packet-ring` path.
pub static PATH: DataPath = DataPath {
    name: "packet-ring",
    summary: "frames in rings of packet sockets (PACKET_TX_RING, PACKET_RX_RING), by one call many",
    attempt: super::nothing_to_try,
    uses_io_uring: false,
    tx: Some(&Generate),
    rx: Some(&Take),
};

struct Generate;
struct Take;

const SLOTS: OptionSpec = OptionSpec {
    name: "slots",
    kind: OptionKind::Count(64, 65536),
    default: "4096",
    help: "frames that the ring has room for, at least",
};

const GENERATE_OPTIONS: &[OptionSpec] = &[
    SLOTS,
    OptionSpec {
        name: "bypass",
        kind: OptionKind::Flag,
        default: "off",
        help: "PACKET_QDISC_BYPASS: to the driver past the queueing discipline",
    },
];

const TAKE_OPTIONS: &[OptionSpec] = &[SLOTS];

/// IPv4, which the frames of generators are.
const ETHERTYPE: u16 = 0x0800;

/// The group of the sockets that share what a device receives; the number is this network
/// namespace's.
const GROUP: u16 = 1;

impl HalfPath for Generate {
    fn options(&self) -> &'static [OptionSpec] {
        GENERATE_OPTIONS
    }

    fn check(&self, _: &Job, _: &Facts) -> Support {
        Support::Yes
    }

    fn transports(&self) -> &'static [&'static dyn Transport] {
        &[FRAMES]
    }
}

impl HalfPath for Take {
    fn options(&self) -> &'static [OptionSpec] {
        TAKE_OPTIONS
    }

    fn check(&self, job: &Job, _: &Facts) -> Support {
        frames::on_a_device(job)
    }

    fn transports(&self) -> &'static [&'static dyn Transport] {
        &[FRAMES]
    }
}

fn slots(job: &Job) -> usize {
    job.options.number("slots").unwrap_or(0) as usize
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
        let ring = Sender::open(at.device()?, &plan.all(connection.index()), slots(job));
        let ring = ring.map_err(|e| {
            at.fault("making a ring to send from", &e)
                .remedy("run as root, or with CAP_NET_RAW; or choose fewer slots")
        })?;
        if job.options.flag("bypass") {
            packet::bypass_qdisc(ring.socket()).map_err(|e| at.fault("PACKET_QDISC_BYPASS", &e))?;
        }
        let burst = plan.burst.into();
        Ok(Box::new(Generator { at, ring, burst, hops: Hops::default(), bytes: 0, calls: 0 }))
    }
}

struct Generator {
    at: Attached,
    ring: Sender,
    burst: u64,
    hops: Hops,
    /// Bytes of the frames that the kernel took.
    bytes: u64,
    calls: u64,
}

/// Slot of the generator's only call.
const SEND: usize = 0;

impl Tx for Generator {
    fn calls(&self) -> &'static [&'static str] {
        &["send"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        Err(frames::no_witness())
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_at_most(self.burst, recorder).map(drop)
    }

    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        let most = most.min(self.burst) as usize;
        let (mut refused, mut bytes) = (false, 0);
        let sent = recorder.timed(SEND, || {
            let turn = self.ring.send(most)?;
            (refused, bytes) = (turn.refused, turn.bytes);
            Ok(turn.sent)
        });
        let sent = sent.map_err(|e| self.at.fault("send from the ring", &e))?;
        self.calls += 1;
        self.bytes += bytes;
        let tried = sent as u64 + u64::from(refused);
        self.hops.offered += tried;
        self.hops.refused += u64::from(refused);
        recorder.moved(sent);
        if tried == 0 {
            self.at.check()?;
        }
        Ok(tried)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let mut account = Account { hops: self.hops, ..Account::default() };
        let source =
            "PACKET_TX_RING: the kernel refers to the ring, what the device did is not told";
        account.ledger.enter(Manner::Unknown, self.bytes, self.calls, source);
        Ok(account)
    }
}

impl RxPath for Take {
    fn open(
        &self,
        job: &Job,
        connection: &dyn Connection,
        _: &Group,
    ) -> Result<Box<dyn Rx>, Fault> {
        let at = Attached::of(connection)?;
        let plan = frames::plan(job)?;
        let group = (job.flows > 1).then_some(GROUP);
        let largest = plan.largest() as usize;
        let ring = Receiver::open(at.device()?, ETHERTYPE, largest, slots(job), group);
        let ring = ring.map_err(|e| {
            at.fault("making a ring to receive into", &e)
                .remedy("run as root, or with CAP_NET_RAW; or choose fewer slots")
        })?;
        let taken = Taken::new(job.touch, 0);
        Ok(Box::new(Taker { at, ring, taken, hops: Hops::default(), bytes: 0 }))
    }
}

struct Taker {
    at: Attached,
    ring: Receiver,
    taken: Taken,
    hops: Hops,
    bytes: u64,
}

/// Slot of the sink's only call.
const POLL: usize = 0;

/// Frames that are taken in a turn.
const TURN: usize = 256;

impl Rx for Taker {
    fn calls(&self) -> &'static [&'static str] {
        &["poll"]
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let mut count = 0;
        while count < TURN {
            let Some(found) = self.ring.look(|frame| self.taken.look(frame)) else { break };
            count += 1;
            match found? {
                Some(size) => {
                    self.hops.received += 1;
                    self.bytes += size as u64;
                    recorder.moved(1);
                    recorder.piece(size);
                }
                None => self.hops.strays += 1,
            }
        }
        if count > 0 {
            return Ok(true);
        }
        self.at.check()?;
        let mut there = false;
        let waited = recorder.timed(POLL, || {
            there = self.ring.wait(QUIET)?;
            Ok(0)
        });
        waited.map_err(|e| self.at.fault("poll", &e))?;
        Ok(there)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        self.hops.sink_dropped =
            self.ring.dropped().map_err(|e| self.at.fault("PACKET_STATISTICS", &e))?;
        let mut account = Account { hops: self.hops, ..Account::default() };
        let source = "PACKET_RX_RING: copied by the kernel into the ring";
        account.ledger.enter(Manner::Copied, self.bytes, self.hops.received, source);
        Ok(account)
    }
}
