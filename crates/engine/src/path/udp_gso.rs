//! `udp-gso`: datagrams that the kernel segments from large messages (`UDP_SEGMENT`, udp(7)), many
//! messages in each sendmmsg(2). These frames pass through the network stack, most of it only once
//! per message.

use super::{DataPath, HalfPath, Opened, frames};
use crate::connection::{Attached, Connection, FRAMES};
use crate::workload::{Account, Call, FramePlan, Group, HalfConfig, Recorder, Tx};
use bytepath_record::{Facts, Fault, Hops, Manner, OptionKind, OptionSpec, Support};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::packet::{self, Frames};
use bytepath_sys::tcp;
use std::io;
use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "udp-gso",
    summary: "datagrams segmented by the kernel from large messages (UDP_SEGMENT): copied",
    tx: Some(HalfPath::tx(check, open).with_options(OPTIONS).over(&[FRAMES])),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[OptionSpec::new("segments", OptionKind::Count(1, 64), "32")
    .help("datagrams per message; a burst is as many messages as that makes")];

/// Maximum size of a message in bytes: the limit of UDP over IPv4's length field.
const LARGEST: u64 = 65_507;

/// Maximum time of one wait for room in the socket's buffer.
const TIMEOUT: Duration = Duration::from_millis(10);

fn check(job: &HalfConfig, _: &Facts) -> Support {
    frames::require_one_size(job, PATH.name)
        .and(frames::counted_by_frame(job))
        .and(super::fits(segments(job)))
        .and(whole_messages(job))
}

/// If messages are not segmented, drops are reported per message, so all must consist of the same
/// number of datagrams.
fn whole_messages(job: &HalfConfig) -> Support {
    let count = job.frames.as_ref().filter(|_| uncut(job)).and_then(|frames| frames.count);
    let all = u64::from(job.flows) * segments(job).unwrap_or(1);
    match count {
        Some(count) if count % all != 0 => Support::no(
            format!("a count of {count} frames is not a whole number of messages per flow"),
            format!("choose a multiple of {all}, flows times segments, or uso=off"),
        ),
        _ => Support::Yes,
    }
}

/// True if the link passes messages on unsegmented.
fn uncut(job: &HalfConfig) -> bool {
    job.frames.as_ref().and_then(|frames| frames.tap).is_some_and(|tap| tap.uso)
}

/// Returns the number of datagrams per message.
fn segments(job: &HalfConfig) -> Result<u64, Fault> {
    let segments = job.options.number("segments").unwrap_or(1);
    let size = job.message_size.saturating_sub(FramePlan::HEADERS as u64);
    if size * segments <= LARGEST {
        return Ok(segments);
    }
    let text = format!("{segments} datagrams of {size} bytes do not fit into one message");
    Err(Fault::usage(text).remedy(format!("choose segments={} or less", LARGEST / size)))
}

fn open(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Tx> {
    let at = Attached::of(connection)?;
    let (plan, segments) = (frames::plan(job)?, segments(job)?);
    let size = plan.largest();
    let frame = plan.all(connection.index()).swap_remove(0);
    let payload = &frame[FramePlan::HEADERS..];
    let fault = |what| move |e: io::Error| Fault::system(what, &e);
    let [from, to] = FramePlan::ADDRESSES;
    let uncut = uncut(job);
    let cut = group.share(|| SegmentationSetting::set(at.device()?, !uncut))?;
    // Nothing would answer ARP requests for the sink's address.
    let mut netlink = Netlink::new();
    netlink
        .set_neighbour(at.device()?, to.into(), FramePlan::HARDWARE[1])
        .map_err(fault("naming the sink's hardware address"))?;
    let socket = UdpSocket::bind((from, FramePlan::port(connection.index())));
    let socket = socket.map_err(fault("opening a UDP socket at the sender's address"))?;
    socket.connect((to, FramePlan::PORT)).map_err(fault("connecting it to the sink's"))?;
    let each = payload.len() as i32;
    tcp::set_int(socket.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, each).map_err(|e| {
        fault("UDP_SEGMENT")(e).remedy("this requires Linux 4.18, and frames within the MTU")
    })?;
    let burst = u64::from(plan.burst).div_ceil(segments);
    let message = payload.repeat(segments as usize);
    Ok(Box::new(Generator {
        at,
        _cut: cut,
        socket,
        messages: Frames::new(&[&message], burst as usize),
        single: Frames::new(&[payload], segments as usize),
        segments,
        burst,
        size: size.into(),
        uncut,
        hops: Hops { merged: if uncut { segments } else { 0 }, ..Hops::default() },
        calls: 0,
    }))
}

/// Device setting of what segments messages. By default a veth passes them on unsegmented, so that
/// 32 frames would be one; that is turned off unless the link requires it. Dropping this restores
/// the device's setting.
#[derive(Debug)]
struct SegmentationSetting {
    device: u32,
    was_on: bool,
    on: bool,
}

/// Offload feature by which a device accepts unsegmented messages (ethtool(8), -k).
const SEGMENTATION_FEATURE: &str = "tx-udp-segmentation";

impl SegmentationSetting {
    /// Has messages segmented by the kernel or, if not `by_kernel`, by the peer of the device.
    fn set(device: u32, by_kernel: bool) -> Result<SegmentationSetting, Fault> {
        let mut netlink = Netlink::new();
        let failed = |e: io::Error| Fault::system(format!("setting {SEGMENTATION_FEATURE}"), &e);
        let mut is_on = || -> io::Result<bool> {
            Ok(netlink.features(device)?.active.iter().any(|name| name == SEGMENTATION_FEATURE))
        };
        let (was_on, on) = (is_on().map_err(failed)?, !by_kernel);
        let cut = SegmentationSetting { device, was_on, on };
        if was_on != on {
            cut.switch(on).map_err(failed)?;
        }
        if is_on().map_err(failed)? == on {
            return Ok(cut);
        }
        let state = if on { "off" } else { "on" };
        Err(Fault::unsupported(format!("the device keeps {SEGMENTATION_FEATURE} {state}"))
            .remedy("choose another generator, or a link with uso=off"))
    }

    fn switch(&self, on: bool) -> io::Result<()> {
        Netlink::new().set_features(self.device, &[(SEGMENTATION_FEATURE, on)])
    }
}

impl Drop for SegmentationSetting {
    fn drop(&mut self) {
        if self.was_on != self.on {
            // Fails harmlessly if the device is gone.
            let _ = self.switch(self.was_on);
        }
    }
}

struct Generator {
    at: Attached,
    /// Held for as long as any flow sends.
    _cut: Arc<SegmentationSetting>,
    socket: UdpSocket,
    messages: Frames,
    /// Single datagrams, for what is less than a message.
    single: Frames,
    segments: u64,
    /// Messages per call.
    burst: u64,
    size: u64,
    /// Whether messages cross the link unsegmented; then only whole ones are sent.
    uncut: bool,
    hops: Hops,
    calls: u64,
}

const SENDMMSG: Call = Call(0, "sendmmsg");

impl Tx for Generator {
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        let writable = packet::wait_writable(self.socket.as_fd(), TIMEOUT);
        if !writable.map_err(|e| self.at.fault("poll", &e))? {
            return self.at.check().map(|()| 0);
        }
        let (segments, socket) = (self.segments, self.socket.as_fd());
        let (each, frames, wanted) = match most / segments {
            0 if self.uncut => (segments, &mut self.messages, 1),
            0 => (1, &mut self.single, most),
            whole => (segments, &mut self.messages, whole.min(self.burst)),
        };
        let send = || frames.send(socket, wanted as usize);
        let batch = recorder.timed_with(SENDMMSG, send, |batch| batch.sent);
        let batch = batch.map_err(|e| self.at.fault("sendmmsg", &e))?;
        let (sent, refused) = (batch.sent as u64 * each, u64::from(batch.refused) * each);
        self.calls += 1;
        self.hops.offered += sent + refused;
        self.hops.refused += refused;
        recorder.moved(sent as usize);
        Ok(sent + refused)
    }

    fn account(&mut self, _: &mut Recorder) -> Result<Account, Fault> {
        let bytes = self.hops.sent() * self.size;
        let source = "sendmmsg(2) with UDP_SEGMENT: copied from user memory";
        let account = Account::of(Manner::Copied, bytes, self.calls, source);
        Ok(Account { hops: self.hops, ..account })
    }
}
