//! The device of a stack: frames of a packet socket, each representing up to 64 KiB of segments,
//! and the adaptation between smoltcp's idea of a device and the kernel's.
//!
//! smoltcp is given a device that takes packets of 64 KiB and needs no checksums of TCP. What
//! that leaves to do:
//!
//! - The kernel is given the segment size by which to cut a frame: what the peer's SYN and the
//!   device's MTU allow. Our own SYN announces what the MTU allows.
//! - A checksum that the kernel does not vouch for is computed.
//! - An acknowledgement that moves on while a loss is recovered from, and not past it, is shown
//!   to smoltcp three times more. RFC 6582 has the next segment sent again at once after such a
//!   "partial" one; smoltcp would wait for its timer, a second at least, and does send again
//!   after three duplicates.
//! - If nothing is acknowledged for long, the same is done ([`super::probe`]).
//! - A frame that the kernel has no room for waits, and nothing is sent before it.

use super::frame::{ETHERNET, Tcp};
use super::loss::{LossConfig, LossInjector};
use super::probe::Probe;
use bytepath_sys::packet_vnet::{HEADER, Offload, Port, Segments, Sent};
use smoltcp::phy::{
    Checksum, Device, DeviceCapabilities, Medium, RxToken, SegmentationCapabilities, TxToken,
};
use smoltcp::time::Instant;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};

/// Largest packet, bytes: what the length field of IPv4 leaves.
const PACKET: usize = 65535;

/// Room for a frame with its header; the length field of IPv6 leaves its own header out.
const ROOM: usize = HEADER + ETHERNET + PACKET + 64;

/// Copies of an acknowledgement that have a segment sent again (RFC 5681).
const DUPLICATES: u32 = 3;

/// What a stack has done so far, and what went through its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames of TCP that were received.
    pub frames_in: u64,
    /// Their payload, bytes.
    pub bytes_in: u64,
    /// Those that were sent.
    pub frames_out: u64,
    /// Their payload, bytes, with what was sent again.
    pub bytes_out: u64,
    /// Frames that were sent with bytes that had been sent before.
    pub frames_again: u64,
    /// Frames of which the checksum was computed here.
    pub computed: u64,
    /// Those of them of which it was wrong.
    pub damaged: u64,
    /// Times that the kernel had no room for a frame.
    pub no_room: u64,
    /// Times that something was taken for lost because nothing came for long.
    pub probes: u64,
    /// Frames for which the socket had no room.
    pub dropped: u64,
    /// Frames that were lost or reordered on purpose.
    pub injected: u64,
    /// Times that the stack was polled.
    pub polls: u64,
    /// Those at which there was nothing to do.
    pub empty_polls: u64,
}

pub(super) struct StackDevice {
    port: Port,
    input: Input,
    output: Output,
    failed: Option<io::Error>,
}

impl StackDevice {
    /// Over a socket at a device with an MTU in bytes.
    pub(super) fn new(port: Port, mtu: u32, loss: LossConfig) -> StackDevice {
        let payload = |headers: u32| mtu.min(PACKET as u32).saturating_sub(headers) as u16;
        let own = [payload(40), payload(60)];
        StackDevice { port, input: Input::new(loss), output: Output::new(own, loss), failed: None }
    }

    pub(super) fn counts(&mut self) -> io::Result<Counts> {
        let injectors = [&self.input.injector, &self.output.injector];
        let injected = injectors.into_iter().flatten().map(|injector| injector.count).sum();
        Ok(Counts { dropped: self.port.dropped()?, injected, ..self.output.counts })
    }

    /// The error that the device has met: it can no longer be used.
    pub(super) fn check(&self) -> io::Result<()> {
        match &self.failed {
            Some(error) => {
                Err(io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
            }
            None => Ok(()),
        }
    }

    /// Whether a frame waits for room in the kernel.
    pub(super) fn is_full(&self) -> bool {
        self.output.pending > 0
    }

    /// Gets the next frame that smoltcp is to see into hand, if there is one.
    fn fetch(&mut self, now: Instant) -> io::Result<bool> {
        let StackDevice { port, input, output, .. } = self;
        if input.repeats > 0 {
            input.repeats -= 1;
            return Ok(true);
        }
        loop {
            if input.next_overtaken(false) {
            } else if let Some(length) = port.receive(&mut input.frame)? {
                input.length = length;
                if let Some(injector) = &mut input.injector
                    && !injector.passes(&input.frame[..length])
                {
                    continue;
                }
            } else if !input.next_overtaken(true) {
                let made = output.probe.make(output.next, &mut input.frame[HEADER..], now);
                let Some(length) = made else { return Ok(false) };
                (input.length, input.repeats) = (HEADER + length, DUPLICATES);
                output.counts.probes += 1;
                return Ok(true);
            }
            if input.is_good(output, now) {
                return Ok(true);
            }
        }
    }
}

impl AsFd for StackDevice {
    /// Readable when a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

#[derive(Default)]
struct Input {
    /// The frame in hand, after its header.
    frame: Box<[u8]>,
    length: usize,
    /// How often it is still to be shown.
    repeats: u32,
    /// What the last frame acknowledged, and how often it was acknowledged with a gap after it.
    acknowledged: u32,
    duplicates: u32,
    /// What had been sent when a loss was noticed: until that is acknowledged, it is being
    /// recovered from.
    recovers_up_to: Option<u32>,
    injector: Option<LossInjector>,
}

impl Input {
    fn new(loss: LossConfig) -> Input {
        Input {
            frame: vec![0; ROOM].into(),
            injector: LossInjector::new(loss, 1),
            ..Input::default()
        }
    }

    /// Takes a frame into hand that was overtaken, if there is one.
    fn next_overtaken(&mut self, at_last: bool) -> bool {
        let Some(frame) = self.injector.as_mut().and_then(|injector| injector.next(at_last)) else {
            return false;
        };
        self.length = frame.len();
        self.frame[..frame.len()].copy_from_slice(&frame);
        true
    }

    /// Whether smoltcp is to see the frame in hand; records what it acknowledges.
    #[inline]
    fn is_good(&mut self, output: &mut Output, now: Instant) -> bool {
        let Some((header, frame)) = self.frame[..self.length].split_first_chunk() else {
            return false;
        };
        let Some(tcp) = Tcp::of(frame) else { return true };
        if !Offload::read(header).vouched {
            output.counts.computed += 1;
            if !tcp.is_intact(frame) {
                output.counts.damaged += 1;
                return false;
            }
        }
        output.counts.frames_in += 1;
        output.counts.bytes_in += tcp.length() as u64;
        if let (true, Some(size)) = (tcp.opens(), tcp.segment_size(frame)) {
            let family = usize::from(tcp.v6);
            output.segment[family] = output.own[family].min(size);
        }
        let [theirs, ours] = tcp.ports;
        if output.ports != Some([ours, theirs]) {
            // A late segment of a connection that is over has other numbers.
            return true;
        }
        output.probe.came(&tcp, frame, now);
        if tcp.only_acknowledges() {
            let gap = tcp.shows_a_gap(frame);
            return self.acknowledge(tcp.acknowledged, gap, [output.next, output.ended]);
        }
        true
    }

    /// Notes an acknowledgement, and has it repeated where it is a partial one (RFC 6582).
    /// Whether smoltcp is to see it. With the third duplicate for a FIN alone smoltcp (0.14) stops
    /// its timer, and has no data to send again: the FIN would be lost for good.
    fn acknowledge(
        &mut self,
        acknowledged: u32,
        gap: bool,
        [sent, ended]: [Option<u32>; 2],
    ) -> bool {
        if acknowledged == self.acknowledged {
            if ended == Some(acknowledged) {
                return false;
            }
            self.duplicates += u32::from(gap);
            if self.duplicates == DUPLICATES && self.recovers_up_to.is_none() {
                self.recovers_up_to = sent;
            }
            return true;
        }
        (self.acknowledged, self.duplicates) = (acknowledged, 0);
        self.recovers_up_to = self.recovers_up_to.filter(|sent| is_before(acknowledged, *sent));
        if self.recovers_up_to.is_some() {
            self.repeats = DUPLICATES;
        }
        true
    }
}

struct Output {
    /// The frame in hand, after its header.
    frame: Box<[u8]>,
    /// Its bytes, header included, if the kernel has not taken it yet.
    pending: usize,
    /// Largest payload of a segment, bytes, with IPv4 and IPv6: what the device takes, and what
    /// the peer takes, too.
    own: [u16; 2],
    segment: [u16; 2],
    /// The sequence number after the last byte that was ever sent.
    next: Option<u32>,
    /// Ports of the connection, ours first, once it was begun.
    ports: Option<[u16; 2]>,
    /// The sequence number of the FIN, once it was sent.
    ended: Option<u32>,
    probe: Probe,
    /// What went through the device, either way.
    counts: Counts,
    injector: Option<LossInjector>,
}

impl Output {
    fn new(own: [u16; 2], loss: LossConfig) -> Output {
        Output {
            frame: vec![0; ROOM].into(),
            pending: 0,
            own,
            segment: own,
            next: None,
            ports: None,
            ended: None,
            probe: Probe::new(),
            counts: Counts::default(),
            injector: LossInjector::new(loss, 2),
        }
    }

    /// Fills in what smoltcp leaves to the device, for a frame of this many bytes.
    #[inline]
    fn complete(&mut self, length: usize, now: Instant) {
        let Some((header, frame)) = self.frame.split_first_chunk_mut::<HEADER>() else { return };
        let frame = &mut frame[..length];
        let mut offload = Offload::default();
        if let Some(tcp) = Tcp::of(frame) {
            let (family, payload) = (usize::from(tcp.v6), tcp.length());
            if tcp.opens() {
                tcp.set_segment_size(frame, self.own[family]);
            }
            offload.checksum = Some(tcp.begin_checksum(frame));
            let size = self.segment[family];
            offload.segments = (payload > usize::from(size)).then_some(Segments {
                size,
                headers: tcp.payload as u16,
                v6: tcp.v6,
            });
            self.counts.frames_out += 1;
            self.counts.bytes_out += payload as u64;
            if tcp.opens() {
                (self.ports, self.next, self.ended) = (Some(tcp.ports), None, None);
            }
            // The answer to a late segment of another connection has that one's numbers.
            if self.ports == Some(tcp.ports) && !tcp.resets() {
                let end = tcp.sequence.wrapping_add(payload as u32);
                let known = self.next.unwrap_or(tcp.sequence);
                let again = is_before(tcp.sequence, known);
                if payload > 0 {
                    self.counts.frames_again += u64::from(again);
                    self.probe.sent(end, again, now);
                }
                self.next = Some(if is_before(known, end) { end } else { known });
                self.ended = self.ended.or(tcp.ends().then_some(end));
            }
        }
        offload.write(header);
        self.pending = HEADER + length;
    }

    /// Hands the frame over that is pending, and one that it overtakes.
    #[inline]
    fn hand_over(&mut self, port: &Port) -> io::Result<()> {
        if self.pending == 0 {
            return Ok(());
        }
        match port.send(&self.frame[..self.pending])? {
            Sent::Whole => self.pending = 0,
            Sent::NoRoom => self.counts.no_room += 1,
        }
        Ok(())
    }

    /// Sends a frame that was overtaken, if there is one.
    fn send_overtaken(&mut self, at_last: bool, port: &Port) -> io::Result<()> {
        match self.injector.as_mut().and_then(|injector| injector.next(at_last)) {
            Some(frame) => port.send(&frame).map(drop),
            None => Ok(()),
        }
    }
}

/// Whether a sequence number comes before another.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

impl Device for StackDevice {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = ToSend<'a>;

    fn receive(&mut self, now: Instant) -> Option<(Received<'_>, ToSend<'_>)> {
        if self.failed.is_some() {
            return None;
        }
        let flushed = self.output.hand_over(&self.port);
        let flushed = flushed.and_then(|()| self.output.send_overtaken(true, &self.port));
        // Whatever is received may have to be answered, so there has to be room for it.
        match flushed.and_then(|()| Ok(self.output.pending == 0 && self.fetch(now)?)) {
            Ok(true) => {}
            Ok(false) => return None,
            Err(error) => {
                self.failed = Some(error);
                return None;
            }
        }
        let StackDevice { port, input, output, failed } = self;
        let frame = &input.frame[HEADER..input.length];
        Some((Received(frame), ToSend { port, output, failed, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<ToSend<'_>> {
        let StackDevice { port, output, failed, .. } = self;
        (output.pending == 0 && failed.is_none()).then_some(ToSend { port, output, failed, now })
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut all = DeviceCapabilities::default();
        all.medium = Medium::Ethernet;
        all.max_transmission_unit = ETHERNET + PACKET;
        all.checksum.tcp = Checksum::None;
        // Where frames get lost on purpose they are segments, as on a wire.
        if self.output.injector.is_none() {
            let mut cut = SegmentationCapabilities::default();
            cut.tcpv4 = NonZeroUsize::new(ETHERNET + PACKET);
            cut.tcpv6 = cut.tcpv4;
            all.segmentation = cut;
        }
        all
    }
}

pub(super) struct Received<'a>(&'a [u8]);

impl RxToken for Received<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, f: F) -> R {
        f(self.0)
    }
}

pub(super) struct ToSend<'a> {
    port: &'a Port,
    output: &'a mut Output,
    failed: &'a mut Option<io::Error>,
    now: Instant,
}

impl TxToken for ToSend<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let ToSend { port, output, failed, now } = self;
        let result = f(&mut output.frame[HEADER..HEADER + length]);
        output.complete(length, now);
        let passes = match &mut output.injector {
            Some(injector) => injector.passes(&output.frame[..output.pending]),
            None => true,
        };
        if !passes {
            output.pending = 0;
            return result;
        }
        let sent = output.hand_over(port);
        if let Err(error) = sent.and_then(|()| output.send_overtaken(false, port)) {
            *failed = Some(error);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::userspace::frame::tests::frame;
    use smoltcp::wire::TcpControl;

    #[test]
    fn repeats_only_partial_acknowledgements() {
        let mut input = Input::new(LossConfig::default());
        let mut repeats = |acknowledged, gap| {
            assert!(input.acknowledge(acknowledged, gap, [Some(10_000), None]));
            std::mem::take(&mut input.repeats)
        };
        // Window updates, and a gap that is filled before it counts as a loss.
        for (acknowledged, gap) in [(1000, false); 5].into_iter().chain([(2000, true); 3]) {
            assert_eq!(repeats(acknowledged, gap), 0);
        }
        assert_eq!(repeats(3000, false), 0);
        // A loss, of which what was sent by then is recovered from.
        for _ in 0..4 {
            assert_eq!(repeats(3000, true), 0);
        }
        assert_eq!([repeats(5000, true), repeats(5000, true), repeats(7000, false)], [3, 0, 3]);
        assert_eq!([repeats(10_000, true), repeats(11_000, true)], [0, 0]);
    }

    #[test]
    fn hides_duplicates_for_fin() {
        let mut input = Input::new(LossConfig::default());
        let mut passes = |acknowledged, ended| {
            input.acknowledge(acknowledged, true, [Some(10_000), Some(ended)])
        };
        assert_eq!([9000, 9000, 9000].map(|number| passes(number, 10_000)), [true; 3]);
        assert_eq!([10_000, 10_000].map(|number| passes(number, 10_000)), [true, false]);
        assert_eq!([10_001, 10_001].map(|number| passes(number, 10_000)), [true; 2]);
    }

    /// What is sent in answer to a late segment of an earlier connection has numbers of that one.
    #[test]
    fn ignores_other_connections() {
        let mut output = Output::new([1460, 1440], LossConfig::default());
        let mut send = |control, port: u16, sequence: u32, payload: &[u8]| {
            let mut frame = frame("IPv4", control, false, payload);
            let at = Tcp::of(&frame).unwrap().header;
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            frame[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            output.frame[HEADER..HEADER + frame.len()].copy_from_slice(&frame);
            output.complete(frame.len(), Instant::ZERO);
            (output.next, output.ended)
        };
        send(TcpControl::Syn, 5000, 99, b"");
        assert_eq!(send(TcpControl::Psh, 5000, 100, b"seven b"), (Some(107), None));
        assert_eq!(send(TcpControl::Rst, 5000, 1 << 30, b""), (Some(107), None));
        assert_eq!(send(TcpControl::None, 5001, 1 << 30, b""), (Some(107), None));
        assert_eq!(send(TcpControl::Fin, 5000, 107, b""), (Some(107), Some(107)));
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_before(u32::MAX - 10, 10) && !is_before(10, u32::MAX - 10));
        assert!(!is_before(7, 7));
    }
}
