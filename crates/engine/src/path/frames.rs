//! What halves that move frames have in common: checks, counters, waiting, and XDP setup.

use crate::connection::{Attached, Connection};
use crate::workload::{
    Account, Call, FRAME_WAIT_LIMIT, FrameInspector, FramePlan, Group, HalfConfig, Phase, Recorder,
};
use bytepath_record::{
    Fault, FaultKind, Hops, Manner, OptionKind, OptionSpec, Reading, Role, Scope, Support, Touch,
    Unit,
};
use bytepath_sys::bpf::Refused;
use bytepath_sys::bpf::xdp::{Mode, Passer};
use bytepath_sys::device;
use bytepath_sys::netlink::Netlink;
use bytepath_sys::packet::Batch;
use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Returns the frames that a half is to move. Errors if the workload has none.
pub(super) fn plan(job: &HalfConfig) -> Result<&FramePlan, Fault> {
    job.frames.as_ref().ok_or_else(|| {
        Fault::usage("this path carries only frames").remedy("choose --workload packets")
    })
}

/// EtherType of the generators' frames: IPv4.
pub(super) const ETHERTYPE: u16 = 0x0800;

/// Returns the fanout group of the packet sockets that share what a device receives, or `None` if
/// there is only one socket. Group numbers are per network namespace.
pub(super) fn group(job: &HalfConfig) -> Option<u16> {
    (job.flows > 1).then_some(1)
}

/// Frames that a generator submitted by calls that return how many the kernel accepted.
#[derive(Debug, Default)]
pub(super) struct SubmittedFrames {
    hops: Hops,
    /// Bytes of the accepted frames.
    bytes: u64,
    calls: u64,
}

impl SubmittedFrames {
    /// Enters a call. Returns how many frames were offered to the kernel.
    #[inline]
    pub(super) fn enter(&mut self, batch: Batch, recorder: &mut Recorder) -> u64 {
        let Batch { sent, bytes, refused } = batch;
        let tried = sent as u64 + u64::from(refused);
        self.calls += 1;
        self.bytes += bytes;
        self.hops.offered += tried;
        self.hops.refused += u64::from(refused);
        recorder.moved(sent);
        tried
    }

    /// The account of all submitted frames; `manner` applies to all their bytes.
    pub(super) fn account(&self, manner: Manner, source: &str) -> Account {
        Account { hops: self.hops, ..Account::of(manner, self.bytes, self.calls, source) }
    }
}

/// The account of a generator whose frames the kernel makes.
pub(super) fn made_in_kernel(hops: Hops, bytes: u64, events: u64, source: &str) -> Account {
    let mut account = Account { hops, ..Account::of(Manner::Unknown, bytes, events, source) };
    account.ledger.mode = "made in the kernel".into();
    account
}

/// Frames that a sink received.
pub(super) struct ReceivedFrames {
    /// Where the sink is attached.
    pub at: Attached,
    inspector: FrameInspector,
    /// Frames still to be received before the sink stops; the rest stays in its queues.
    left: u64,
    hops: Hops,
    bytes: u64,
    /// Waits that ended because a frame had arrived.
    wakes: u64,
    /// Whether it never sleeps.
    pub spins: bool,
}

/// Option: number of frames after which a sink stops. [`ReceivedFrames::of`] reads it.
pub(super) const STOP_AFTER: OptionSpec =
    OptionSpec::new("stop-after", OptionKind::WordCount("none", 0, 1_000_000_000_000), "none")
        .help("frames after which it stops receiving, so that the rest stays in the queues");

pub(super) const BYPASS: OptionSpec = OptionSpec::new("bypass", OptionKind::Flag, "off")
    .help("PACKET_QDISC_BYPASS: straight to the driver, bypassing the queueing discipline");

/// Option: what a sink does while no frame is queued. [`ReceivedFrames::of`] reads it.
pub(super) const WAIT: OptionSpec =
    OptionSpec::new("wait", OptionKind::Choice(&["block", "spin"]), "block")
        .help("while there is nothing: sleep, or look again, so that no frame costs a wake-up");

/// Polls shared memory for a frame, without system calls, for [`FRAME_WAIT_LIMIT`]. True if there
/// is one.
/// poll(2) would contend with the sender for the socket's lock each time.
pub(super) fn spin(is_there: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < FRAME_WAIT_LIMIT {
        if is_there() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

impl ReceivedFrames {
    /// No frames yet; `before` is the number of bytes that precede each frame.
    pub(super) fn of(job: &HalfConfig, at: Attached, before: usize) -> ReceivedFrames {
        ReceivedFrames {
            at,
            inspector: FrameInspector::new(job.touch, before),
            left: job.options.number(STOP_AFTER.name).unwrap_or(u64::MAX),
            hops: Hops::default(),
            bytes: 0,
            wakes: 0,
            spins: job.options.word(WAIT.name) == "spin",
        }
    }

    /// Returns how many frames to receive in a turn of at most `turn`; `None`, after a sleep, if
    /// the rest must stay in the queues. After the generator has ended, the rest is received to be
    /// counted.
    pub(super) fn receive_budget(
        &self,
        turn: usize,
        recorder: &mut Recorder,
    ) -> Result<Option<usize>, Fault> {
        if self.left > 0 {
            return Ok(Some(turn.min(self.left as usize)));
        }
        if recorder.phase() == Phase::Stop {
            return Ok(Some(turn));
        }
        self.at.check()?;
        std::thread::sleep(FRAME_WAIT_LIMIT);
        Ok(None)
    }

    /// Enters one read. Errors if a frame was changed on its way.
    #[inline]
    pub(super) fn enter(&mut self, read: &[u8], recorder: &mut Recorder) -> Result<(), Fault> {
        match self.inspector.inspect(read)? {
            None => self.hops.strays += 1,
            Some(count) if self.left == 0 => self.hops.ring_queued += count.frames,
            Some(count) => {
                self.left = self.left.saturating_sub(count.frames);
                self.hops.received += count.frames;
                self.bytes += count.bytes;
                recorder.moved(count.frames as usize);
                recorder.piece(count.bytes as usize);
            }
        }
        Ok(())
    }

    /// Enters a frame that is larger than any of the generator's.
    pub(super) fn stray(&mut self) {
        self.hops.strays += 1;
    }

    /// Waits for a frame by this call, for at most [`FRAME_WAIT_LIMIT`]. True if there is one.
    pub(super) fn wait(
        &mut self,
        recorder: &mut Recorder,
        call: Call,
        mut wait: impl FnMut(Duration) -> io::Result<bool>,
    ) -> Result<bool, Fault> {
        self.at.check()?;
        let begin = Instant::now();
        let time = if self.spins { Duration::ZERO } else { FRAME_WAIT_LIMIT };
        loop {
            let waited = recorder.timed_with(call, || wait(time), |_| 0);
            let there = waited.map_err(|e| self.at.fault(call.1, &e))?;
            if there || !self.spins || begin.elapsed() >= FRAME_WAIT_LIMIT {
                return Ok(self.woken(there));
            }
        }
    }

    /// Enters the end of a wait; `there`: a frame has arrived. Returns `there`.
    pub(super) fn woken(&mut self, there: bool) -> bool {
        self.wakes += u64::from(there);
        there
    }

    /// The account of all received frames. `dropped`: frames dropped by the sink's own queue.
    pub(super) fn account(&self, dropped: u64, manner: Manner, source: &str) -> Account {
        let hops = Hops { sink_dropped: dropped, ..self.hops };
        let scope = Scope::Flow(Role::Receiver, self.at.index());
        let wakes = Reading::sum("sink.wakes", Unit::Count, self.wakes as f64, scope);
        let account = Account::of(manner, self.bytes, self.hops.received, source);
        Account { hops, readings: vec![wakes], ..account }
    }
}

/// Check of a sink that reads from the file descriptors of a tap.
pub(super) fn require_tap(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.descriptors().is_none()),
        "the link is not a tap",
        "choose --link tap, or another sink",
    )
}

/// Check of a sink that cannot receive unsegmented messages.
pub(super) fn refuse_unsegmented(job: &HalfConfig, name: &str) -> Support {
    super::refuse_if(
        job.frames.as_ref().and_then(|frames| frames.tap).is_some_and(|tap| tap.uso),
        format!("{name} negotiates no offloads, and would receive unsegmented messages"),
        "choose uso=off, or the sink tap",
    )
}

/// Check of a sink that receives from a network device.
pub(super) fn require_device(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.descriptors().is_some()),
        "the sink's end of a tap is not a device",
        "choose a link with a device at each end, such as --link offload, or a sink of taps",
    )
}

/// Check of a generator whose frames are all of the same size.
pub(super) fn require_one_size(job: &HalfConfig, name: &str) -> Support {
    let sizes = job.frames.as_ref().map_or(&[][..], |frames| &frames.sizes);
    super::refuse_if(
        !sizes.windows(2).all(|pair| pair[0] == pair[1]),
        format!("{name} makes frames of one size"),
        "choose one, such as frame=60, or another generator",
    )
}

/// Check of a half whose frames cannot be verified; `why` is the reason.
pub(super) fn cannot_verify(job: &HalfConfig, why: &str) -> Support {
    match job.touch {
        Touch::Verify => Support::no(why, "choose touch=none, or another path"),
        _ => Support::Yes,
    }
}

/// Check of a sink whose frames no application sees.
pub(super) fn never_seen(job: &HalfConfig, name: &str) -> Support {
    match job.touch {
        Touch::None => Support::Yes,
        _ => Support::no(format!("no application sees what {name} receives"), "choose touch=none"),
    }
}

/// Check of a generator whose packets consist of several frames until they reach the device.
pub(super) fn counted_by_frame(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.queued),
        "a queueing discipline counts a message of several datagrams as one \
             packet, so its drops cannot be counted",
        "choose qdisc=none, or another generator",
    )
}

/// Returns the number of ring entries, `usual` if the option is not set.
pub(super) fn ring(job: &HalfConfig, usual: u64) -> Result<u32, Fault> {
    let entries = job.options.number("ring").unwrap_or(usual);
    if entries.is_power_of_two() && entries <= 1 << 15 {
        return Ok(entries as u32);
    }
    let text = format!("ring={entries} is not a power of two up to 32768");
    Err(Fault::usage(text).remedy("choose a power of two, such as 256"))
}

/// Returns where an XDP program is to run: in the driver, or in the generic hook.
pub(super) fn mode(job: &HalfConfig) -> Mode {
    match job.options.word("mode") {
        "generic" => Mode::Generic,
        _ => Mode::Native,
    }
}

/// Returns the MTU of a flow's device, or `None` if most drivers support XDP with it: a frame of up
/// to 1500 bytes and its headroom fit into one page.
pub(super) fn large_mtu(at: &Attached) -> Option<u32> {
    let name = device::name(at.device().ok()?).ok()?;
    let mtu = Netlink::new().link(&name).ok()??.mtu;
    (mtu > 1500).then_some(mtu)
}

/// Remedy for an MTU that is too large.
pub(super) const USUAL_MTU: &str = "choose mtu=1500 for the link";

/// The fault for a program that the flow's device rejected.
pub(super) fn unattached(at: &Attached, refused: Refused) -> Fault {
    let code = refused.error.raw_os_error();
    let is_refused = matches!(code, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE));
    let fault = unloaded("attaching a program to the device", refused);
    // A device without XDP has none at any MTU.
    let has_none = at.device().is_ok_and(|index| device::xdp_features(index).is_ok_and(|f| f == 0));
    match large_mtu(at).filter(|_| is_refused && !has_none) {
        Some(mtu) => {
            let text =
                format!("{}: its MTU is {mtu}, for which few drivers have XDP", fault.message);
            Fault::unsupported(text).remedy(USUAL_MTU)
        }
        None => fault,
    }
}

/// Enables XDP transmission on the generator's device, including zero-copy AF_XDP: many drivers
/// support these only while a program is attached to the device, and refuse or drop frames
/// otherwise.
pub(super) fn enable_xdp(at: &Attached, group: &Group) -> Result<Arc<Passer>, Fault> {
    group.share(|| Passer::attach(at.device()?).map_err(|refused| unattached(at, refused)))
}

/// Like [`enable_xdp`], if needed: software devices send without a program, and drivers report
/// since Linux 6.3 whether they do.
pub(super) fn enable_xdp_if_needed(
    at: &Attached,
    group: &Group,
) -> Result<Option<Arc<Passer>>, Fault> {
    let index = at.device()?;
    match device::xdp_features(index) {
        Ok(0) if is_hardware(index) => Err(Fault::unsupported("the device's driver has no XDP")
            .remedy("choose another generator, such as packet, or a NIC with XDP")),
        Ok(features) if is_hardware(index) && features & device::XDP_SENDS == 0 => {
            enable_xdp(at, group).map(Some)
        }
        _ => Ok(None),
    }
}

/// True if a device is on a bus, as physical and emulated NICs are.
pub(super) fn is_hardware(index: u32) -> bool {
    let driver = device::name(index).and_then(|name| device::driver(&name));
    driver.is_ok_and(|driver| driver.is_some())
}

/// The fault for a program that the kernel rejected.
pub(super) fn unloaded(what: &str, refused: Refused) -> Fault {
    let Refused { error, log } = refused;
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => "run as root: this requires CAP_BPF and CAP_NET_ADMIN",
        Some(libc::EBUSY | libc::EEXIST) => "the device has a program attached: detach it",
        Some(libc::EOPNOTSUPP | libc::EINVAL) => {
            "the driver does not support XDP: choose mode=generic"
        }
        Some(libc::ERANGE) => {
            "its MTU, or that of a veth's other end, is larger than XDP takes there: lower it"
        }
        _ => "this requires CONFIG_BPF_SYSCALL and Linux 5.9",
    };
    let fault = Fault::system(what, &error).remedy(remedy);
    if log.is_empty() { fault } else { Fault { kind: FaultKind::Unsupported, ..fault } }
}
