//! What the halves that move frames require of their jobs.

use crate::connection::{Attached, Connection};
use crate::workload::{
    Account, Call, FrameInspector, FramePlan, Group, HalfConfig, Phase, QUIET, Recorder,
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

/// The frames that are requested of a half.
pub(super) fn plan(job: &HalfConfig) -> Result<&FramePlan, Fault> {
    job.frames.as_ref().ok_or_else(|| {
        Fault::usage("this path carries only frames").remedy("choose --workload packets")
    })
}

/// IPv4, which the frames of generators are.
pub(super) const ETHERTYPE: u16 = 0x0800;

/// The group of the packet sockets that share what a device receives, where there are several;
/// the number is this network namespace's.
pub(super) fn group(job: &HalfConfig) -> Option<u16> {
    (job.flows > 1).then_some(1)
}

/// Frames that a generator submitted by calls that return how many were taken.
#[derive(Debug, Default)]
pub(super) struct SubmittedFrames {
    hops: Hops,
    /// Bytes of the frames that the kernel took.
    bytes: u64,
    calls: u64,
}

impl SubmittedFrames {
    /// Enters a call. Returns how many frames the kernel was offered.
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

    /// All of them, with what is known of their bytes.
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
    /// Where the sink is.
    pub at: Attached,
    inspector: FrameInspector,
    /// Frames that are still to be taken in; the others are left where they are.
    left: u64,
    hops: Hops,
    bytes: u64,
    /// Waits that ended because there was a frame.
    wakes: u64,
    /// Whether it never sleeps.
    pub spins: bool,
}

/// After how many frames a sink stops: [`ReceivedFrames::of`] looks for it.
pub(super) const STOP_AFTER: OptionSpec =
    OptionSpec::new("stop-after", OptionKind::WordCount("none", 0, 1_000_000_000_000), "none")
        .help("frames after which it stops receiving, so that the rest stays in the queues");

pub(super) const BYPASS: OptionSpec = OptionSpec::new("bypass", OptionKind::Flag, "off")
    .help("PACKET_QDISC_BYPASS: straight to the driver, bypassing the queueing discipline");

/// What a sink does while there is nothing: [`ReceivedFrames::of`] looks for it.
pub(super) const WAIT: OptionSpec =
    OptionSpec::new("wait", OptionKind::Choice(&["block", "spin"]), "block")
        .help("while there is nothing: sleep, or look again, so that no frame costs a wake-up");

/// Polls for a frame that is seen without a call, for as long as a sink waits;
/// whether there is one. poll(2) would take a socket's lock from the sender each time.
pub(super) fn spin(is_there: impl Fn() -> bool) -> bool {
    let begin = Instant::now();
    while begin.elapsed() < QUIET {
        if is_there() {
            return true;
        }
        std::hint::spin_loop();
    }
    false
}

impl ReceivedFrames {
    /// Nothing yet; `before` are the bytes that precede each frame.
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

    /// Frames that may be taken in a turn of this many; `None` where they are to be left where
    /// they are, after a while in which they were. Once the generator has ended they are taken
    /// to be counted.
    pub(super) fn most(
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
        std::thread::sleep(QUIET);
        Ok(None)
    }

    /// Enters what was read at once. The error is that of a frame that was changed on its way.
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

    /// Waits for a frame by this call, for as long as a sink does; whether there is one.
    pub(super) fn wait(
        &mut self,
        recorder: &mut Recorder,
        call: Call,
        mut wait: impl FnMut(Duration) -> io::Result<bool>,
    ) -> Result<bool, Fault> {
        self.at.check()?;
        let begin = Instant::now();
        let time = if self.spins { Duration::ZERO } else { QUIET };
        loop {
            let waited = recorder.timed_with(call, || wait(time), |_| 0);
            let there = waited.map_err(|e| self.at.fault(call.1, &e))?;
            if there || !self.spins || begin.elapsed() >= QUIET {
                return Ok(self.woken(there));
            }
        }
    }

    /// Enters a wait that ended, and whether a frame was there.
    pub(super) fn woken(&mut self, there: bool) -> bool {
        self.wakes += u64::from(there);
        there
    }

    /// All of it, what the sink's own queue has dropped, and what is known of the bytes.
    pub(super) fn account(&self, dropped: u64, manner: Manner, source: &str) -> Account {
        let hops = Hops { sink_dropped: dropped, ..self.hops };
        let scope = Scope::Flow(Role::Receiver, self.at.index());
        let wakes = Reading::sum("sink.wakes", Unit::Count, self.wakes as f64, scope);
        let account = Account::of(manner, self.bytes, self.hops.received, source);
        Account { hops, readings: vec![wakes], ..account }
    }
}

/// For a sink that takes frames off the descriptors of a tap.
pub(super) fn on_a_tap(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.descriptors().is_none()),
        "the link is not a tap",
        "choose --link tap, or another sink",
    )
}

/// For a sink that takes no messages of several frames.
pub(super) fn cut(job: &HalfConfig, name: &str) -> Support {
    super::refuse_if(
        job.frames.as_ref().and_then(|frames| frames.tap).is_some_and(|tap| tap.uso),
        format!("{name} negotiates no offloads, and would receive unsegmented messages"),
        "choose uso=off, or the sink tap",
    )
}

/// For a sink that takes frames off a device of its own.
pub(super) fn on_a_device(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.descriptors().is_some()),
        "the sink's end of a tap is not a device",
        "choose a link with a device at each end, such as --link offload, or a sink of taps",
    )
}

/// For a generator that makes all frames alike.
pub(super) fn of_one_size(job: &HalfConfig, name: &str) -> Support {
    let sizes = job.frames.as_ref().map_or(&[][..], |frames| &frames.sizes);
    super::refuse_if(
        !sizes.windows(2).all(|pair| pair[0] == pair[1]),
        format!("{name} makes frames of one size"),
        "choose one, such as frame=60, or another generator",
    )
}

/// For a sink, or with a generator, whose frames cannot be verified: `why` not.
pub(super) fn cannot_verify(job: &HalfConfig, why: &str) -> Support {
    match job.touch {
        Touch::Verify => Support::no(why, "choose touch=none, or another path"),
        _ => Support::Yes,
    }
}

/// For a sink whose frames no application sees.
pub(super) fn never_seen(job: &HalfConfig, name: &str) -> Support {
    match job.touch {
        Touch::None => Support::Yes,
        _ => Support::no(format!("no application sees what {name} receives"), "choose touch=none"),
    }
}

/// For a generator whose packets are several frames until the device gets them.
pub(super) fn counted_by_frame(job: &HalfConfig) -> Support {
    super::refuse_if(
        job.frames.as_ref().is_some_and(|frames| frames.queued),
        "a queueing discipline counts a message of several datagrams as one \
             packet, so its drops cannot be counted",
        "choose qdisc=none, or another generator",
    )
}

/// Entries of the ring that a job requests.
pub(super) fn ring(job: &HalfConfig, usual: u64) -> Result<u32, Fault> {
    let entries = job.options.number("ring").unwrap_or(usual);
    if entries.is_power_of_two() && entries <= 1 << 15 {
        return Ok(entries as u32);
    }
    let text = format!("ring={entries} is not a power of two up to 32768");
    Err(Fault::usage(text).remedy("choose a power of two, such as 256"))
}

/// Where a program is to run.
pub(super) fn mode(job: &HalfConfig) -> Mode {
    match job.options.word("mode") {
        "generic" => Mode::Generic,
        _ => Mode::Native,
    }
}

/// The MTU of a flow's device, if it is more than drivers take with XDP: one page holds a frame
/// of the usual size and what surrounds it.
pub(super) fn large_mtu(at: &Attached) -> Option<u32> {
    let name = device::name(at.device().ok()?).ok()?;
    let mtu = Netlink::new().link(&name).ok()??.mtu;
    (mtu > 1500).then_some(mtu)
}

/// The remedy for an MTU that is too large.
pub(super) const USUAL_MTU: &str = "choose mtu=1500 for the link";

/// A program that the device of a flow did not take.
pub(super) fn unattached(at: &Attached, refused: Refused) -> Fault {
    let code = refused.error.raw_os_error();
    let is_refused = matches!(code, Some(libc::EOPNOTSUPP | libc::EINVAL | libc::ERANGE));
    let fault = unloaded("attaching a program to the device", refused);
    // What has no XDP has none with any MTU.
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

/// Makes the device of a generator send frames of XDP, and those of AF_XDP as zero-copy: many
/// drivers do only while the device has a program of its own, and refuse or drop them otherwise.
pub(super) fn enable_xdp(at: &Attached, group: &Group) -> Result<Arc<Passer>, Fault> {
    group.share(|| Passer::attach(at.device()?).map_err(|refused| unattached(at, refused)))
}

/// The same where it is needed: software devices send without, and drivers report whether they
/// do (Linux 6.3).
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

/// Whether a device is on a bus, as a NIC is, also an emulated one.
pub(super) fn is_hardware(index: u32) -> bool {
    let driver = device::name(index).and_then(|name| device::driver(&name));
    driver.is_ok_and(|driver| driver.is_some())
}

/// A program that the kernel did not take.
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
