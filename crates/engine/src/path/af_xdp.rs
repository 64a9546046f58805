//! `af-xdp`: frames in memory of this process by AF_XDP sockets, bypassing the network stack
//! (Documentation/networking/af_xdp.rst). The kernel copies each frame, unless driver and device
//! support zero-copy: the bind mode is queried from the kernel, and reported.

use super::frames::ReceivedFrames;
use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{
    Account, Call, FRAME_WAIT_LIMIT, FramePlan, Group, HalfConfig, Recorder, Rx, Tx,
};
use bytepath_record::{Fault, Hops, Manner, OptionKind, OptionSpec, Reading, Role, Scope, Unit};
use bytepath_sys::bpf::xdp::{Mode, Passer, Redirector};
use bytepath_sys::device;
use bytepath_sys::xsk::{self, Binding, FRAME, Lost, Receiver, Sender};
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub(super) static PATH: DataPath = DataPath {
    name: "af-xdp",
    summary: "AF_XDP sockets at both ends: copied or zero-copy, depending on the bind mode",
    tx: Some(
        HalfPath::tx(|job, _| super::fits(ring(job)), open_tx)
            .with_options(TX_OPTIONS)
            .over(&[FRAMES]),
    ),
    rx: Some(
        HalfPath::rx(|job, _| frames::require_device(job).and(super::fits(ring(job))), open_rx)
            .with_options(RX_OPTIONS)
            .over(&[FRAMES]),
    ),
    ..DataPath::EMPTY
};

const RING: OptionSpec = OptionSpec::new("ring", OptionKind::Count(2, 32768), "2048")
    .help("frames of each ring, a power of two");

const BIND: OptionSpec =
    OptionSpec::new("bind", OptionKind::Choice(&["auto", "copy", "zero-copy"]), "auto")
        .help("how frames pass between device and memory; auto: zero-copy if the driver can");

const TX_OPTIONS: &[OptionSpec] = &[RING, BIND];

const RX_OPTIONS: &[OptionSpec] = &[
    RING,
    BIND,
    OptionSpec::new("mode", OptionKind::Choice(&["native", "generic"]), "native")
        .help("where the program that redirects runs: in the driver, or in the stack"),
    frames::WAIT,
    frames::STOP_AFTER,
];

/// Maximum number of frames received at once.
const TURN: usize = 64;

/// Returns the number of ring entries. Errors if the job's frames do not fit into its memory.
fn ring(job: &HalfConfig) -> Result<u32, Fault> {
    let entries = frames::ring(job, 2048)?;
    // The kernel reserves 256 bytes before each frame for programs.
    let (largest, most) = (job.message_size as usize, FRAME - 256);
    if largest > most {
        let text = format!("a frame of {largest} bytes does not fit into AF_XDP's memory");
        let remedy = format!("choose frames of at most {most} bytes");
        return Err(Fault::usage(text).remedy(remedy));
    }
    Ok(entries)
}

fn binding(job: &HalfConfig) -> Binding {
    match job.options.word("bind") {
        "copy" => Binding::Copy,
        "zero-copy" => Binding::ZeroCopy,
        _ => Binding::Auto,
    }
}

fn refused(at: &Attached, error: &io::Error) -> Fault {
    let fault = at.fault("binding an AF_XDP socket", error);
    match error.raw_os_error() {
        Some(libc::EOPNOTSUPP) => fault.remedy("the driver has no zero-copy: choose bind=copy"),
        Some(libc::EBUSY) => fault.remedy("another socket has that queue: end its program"),
        Some(libc::EINVAL) => fault.remedy(match frames::large_mtu(at) {
            Some(mtu) => format!(
                "with an MTU of {mtu} a frame may exceed AF_XDP's memory: {}",
                frames::USUAL_MTU
            ),
            None => "the device has fewer queues than there are flows".to_owned(),
        }),
        Some(libc::ENOBUFS) => fault.remedy("raise 'ulimit -l' (RLIMIT_MEMLOCK), or lower ring"),
        Some(libc::EAFNOSUPPORT) => fault.remedy("use a kernel with CONFIG_XDP_SOCKETS"),
        _ => fault.remedy("run as root, or with CAP_NET_RAW"),
    }
}

fn open_tx(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let (plan, flow) = (frames::plan(job)?, connection.index());
    let all = plan.all(flow);
    let frames: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    let entries = ring(job)?.max(frames.len().next_power_of_two() as u32);
    let sender = Sender::bind(at.device()?, flow, entries, binding(job), &frames);
    let sender = sender.map_err(|e| refused(&at, &e))?;
    let enabled = match sender.binding() {
        Binding::ZeroCopy => Some(frames::enable_xdp(&at, group)?),
        _ => None,
    };
    let (burst, hops) = (plan.burst, Hops::default());
    Ok(Box::new(Generator { at, _enabled: enabled, sender, flow, burst, hops, bytes: 0 }))
}

struct Generator {
    at: Attached,
    /// The program that some drivers require on a device for zero-copy sends.
    _enabled: Option<Arc<Passer>>,
    sender: Sender,
    flow: u32,
    burst: u32,
    hops: Hops,
    bytes: u64,
}

/// System calls of both halves.
const SENDTO: Call = Call(0, "sendto");
const POLL: Call = Call(1, "poll");

/// How long to wait at the end for frames in flight.
const TIMEOUT: Duration = Duration::from_secs(1);

impl Tx for Generator {
    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        self.turn(most.min(self.burst.into()) as u32, recorder)
    }

    fn send_up_to(&mut self, total: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        while recorder.total() < total {
            // Frames in flight will be sent, and must not make the total exceed `total`.
            let left = total - recorder.total();
            let left = left.saturating_sub(self.sender.under_way().into());
            self.send_at_most(left, recorder)?;
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let begin = Instant::now();
        while self.sender.under_way() > 0 {
            self.turn(0, recorder)?;
            if begin.elapsed() > TIMEOUT {
                let text = format!("{} frames were not sent", self.sender.under_way());
                return Err(
                    Fault::peer_lost(text).remedy("see whether the device's queue is stopped")
                );
            }
        }
        let lost = self.sender.lost().map_err(|e| self.at.fault("XDP_STATISTICS", &e))?;
        if lost.invalid > 0 {
            let text = format!("the kernel did not send {} descriptors", lost.invalid);
            return Err(Fault::failed(text).remedy("report this as a bug"));
        }
        let (manner, source) = as_bound(self.sender.binding());
        let calls = self.sender.wakes();
        let readings = vec![wakes(Role::Sender, self.flow, calls)];
        let account = Account::of(manner, self.bytes, calls, source);
        Ok(Account { hops: self.hops, readings, ..account })
    }
}

impl Generator {
    /// Offers up to `wanted` frames to the kernel, enters completed ones, and returns how many were
    /// offered.
    #[inline]
    fn turn(&mut self, wanted: u32, recorder: &mut Recorder) -> Result<u64, Fault> {
        let send = || self.sender.send(wanted);
        let sent = recorder.timed_with(SENDTO, send, |sent| sent.completed as usize);
        let sent = sent.map_err(|e| self.at.fault("sendto on AF_XDP", &e))?;
        self.bytes += sent.bytes;
        self.hops.offered += u64::from(sent.completed);
        self.hops.refused += u64::from(sent.dropped);
        recorder.moved(sent.completed.saturating_sub(sent.dropped.into()) as usize);
        if sent.no_room {
            // A stopped queue, or completions are still outstanding.
            self.at.check()?;
            let waited = recorder.timed_with(POLL, || self.sender.wait(FRAME_WAIT_LIMIT), |()| 0);
            waited.map_err(|e| self.at.fault("poll", &e))?;
        }
        Ok(sent.shown.into())
    }
}

fn open_rx(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Rx> {
    let (at, flow) = (Attached::of(connection)?, connection.index());
    let entries = ring(job)?;
    let bind = |queue| {
        Receiver::bind(at.device()?, queue, entries, binding(job)).map_err(|e| refused(&at, &e))
    };
    let own = queues_of(&at, flow, job.flows)?;
    let receivers = own.iter().map(|queue| bind(*queue)).collect::<Result<Vec<_>, Fault>>()?;
    let mode = frames::mode(job);
    let redirector = group.share(|| {
        let queues = all_queues(&at)?.max(job.flows);
        Redirector::attach(at.device()?, FramePlan::MARK, queues, mode)
            .map_err(|refused| frames::unattached(&at, refused))
    })?;
    for (queue, receiver) in own.iter().zip(&receivers) {
        let served = redirector.serve(*queue, receiver.as_fd());
        served.map_err(|e| at.fault("giving a queue to an AF_XDP socket", &e))?;
    }
    let received = ReceivedFrames::of(job, at, 0);
    Ok(Box::new(Queues { receivers, next: 0, mode, _redirector: redirector, flow, received }))
}

/// Returns the number of receive queues of the flow's device; 1 if they are not reported: before
/// Linux 6.8, and by a device that is down.
fn all_queues(at: &Attached) -> Result<u32, Fault> {
    let name = device::name(at.device()?).map_err(|e| at.fault("looking for its name", &e))?;
    Ok(device::receive_queues(&name).unwrap_or(1))
}

/// Returns the queues of a flow. If there are more queues than flows, the flows share all of them,
/// since a device distributes frames over its queues as it likes.
fn queues_of(at: &Attached, flow: u32, flows: u32) -> Result<Vec<u32>, Fault> {
    let more = (flow..all_queues(at)?).step_by(flows.max(1) as usize).skip(1);
    Ok(std::iter::once(flow).chain(more).collect())
}

/// The queues of one flow.
struct Queues {
    // Detached before the sockets are closed.
    _redirector: Arc<Redirector>,
    receivers: Vec<Receiver>,
    /// Index of the receiver to try first.
    next: usize,
    mode: Mode,
    flow: u32,
    received: ReceivedFrames,
}

impl Rx for Queues {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let Some(most) = self.received.receive_budget(TURN, recorder)? else { return Ok(false) };
        let mut entered = Ok(());
        let visit = |frame: &[u8]| {
            if entered.is_ok() {
                entered = self.received.enter(frame, recorder);
            }
        };
        let count = self.receivers.len();
        let turns = (0..count).map(|turn| (self.next + turn) % count);
        let found = turns.clone().find(|at| self.receivers[*at].has_received());
        let frames = match found {
            Some(at) => self.receivers[at].take(most, visit),
            None => Ok(0),
        };
        let frames = frames.map_err(|e| self.received.at.fault("receiving by AF_XDP", &e))?;
        entered?;
        if let Some(at) = found {
            self.next = (at + 1) % count;
        }
        if frames > 0 {
            return Ok(true);
        }
        let receivers = &self.receivers;
        self.received.wait(recorder, POLL, |time| xsk::wait_for_any(receivers, time))
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let mut dropped = 0;
        for receiver in &self.receivers {
            let lost = receiver.lost().map_err(|e| self.received.at.fault("XDP_STATISTICS", &e))?;
            let Lost { dropped: refused, ring_full, .. } = lost;
            dropped += refused + ring_full;
        }
        let copies = self.receivers.iter().any(|one| one.binding() != Binding::ZeroCopy);
        let (manner, source) = match self.mode {
            Mode::Generic => IN_THE_STACK,
            Mode::Native if copies => as_bound(Binding::Copy),
            Mode::Native => as_bound(Binding::ZeroCopy),
        };
        let mut account = self.received.account(dropped, manner, source);
        let calls = self.receivers.iter().map(Receiver::wakes).sum();
        account.readings.push(wakes(Role::Receiver, self.flow, calls));
        Ok(account)
    }
}

/// Ledger entry of a program in the stack, however the socket is bound (net/xdp/xsk.c,
/// `xsk_generic_rcv`).
const IN_THE_STACK: (Manner, &str) = (
    Manner::Copied,
    "AF_XDP by a program in the stack (mode=generic): the kernel copies each frame",
);

/// Returns the ledger entry of a binding, and its source.
fn as_bound(binding: Binding) -> (Manner, &'static str) {
    match binding {
        Binding::ZeroCopy => (Manner::NotCopied, "AF_XDP bound as zero-copy (XDP_OPTIONS)"),
        _ => (Manner::Copied, "AF_XDP bound as copy (XDP_OPTIONS): the kernel copies each frame"),
    }
}

fn wakes(role: Role, flow: u32, count: u64) -> Reading {
    Reading::sum("af-xdp.wakes", Unit::Count, count as f64, Scope::Flow(role, flow))
}
