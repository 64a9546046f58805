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
//!
//! What these are done by is known of each connection apart ([`Trace`]), and a frame is taken into hand
//! before smoltcp is called: whose it is decides which socket smoltcp is to look at.

use super::frame::{self, ETHERNET, Tcp};
use super::loss::{LossConfig, LossInjector};
use super::trace::{DUPLICATES, Trace};
use bytepath_sys::packet_vnet::{HEADER, Offload, Port, Segments, Sent};
use smoltcp::phy::{
    Checksum, Device, DeviceCapabilities, Medium, RxToken, SegmentationCapabilities, TxToken,
};
use smoltcp::time::Instant;
use std::collections::HashMap;
use std::io;
use std::num::NonZeroUsize;
use std::os::fd::{AsFd, BorrowedFd};

/// Largest packet, bytes: what the length field of IPv4 leaves.
const PACKET: usize = 65535;

/// Room for a frame with its header; the length field of IPv6 leaves its own header out.
const ROOM: usize = HEADER + ETHERNET + PACKET + 64;

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
    /// What is known of each connection, by its place.
    traces: Box<[Trace]>,
    /// The places by ports, ours first.
    places: HashMap<[u16; 2], usize>,
    failed: Option<io::Error>,
}

/// Whose the frame in hand is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The connection of this place.
    Place(usize),
    /// It begins a connection that has no place yet.
    Newcomer,
    /// No connection of ours.
    Nobody,
    /// Nothing here takes it, and smoltcp does not see it.
    Unwanted,
}

impl StackDevice {
    /// Over a socket at a device with an MTU in bytes, for so many connections.
    pub(super) fn new(port: Port, mtu: u32, connections: usize, loss: LossConfig) -> StackDevice {
        let payload = |headers: u32| mtu.min(PACKET as u32).saturating_sub(headers) as u16;
        let own = [payload(40), payload(60)];
        StackDevice {
            port,
            input: Input::new(loss),
            output: Output::new(own, loss),
            traces: (0..connections).map(|_| Trace::default()).collect(),
            places: HashMap::with_capacity(connections),
            failed: None,
        }
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

    /// Bytes of its memory.
    pub(super) fn memory(&self) -> usize {
        2 * ROOM + size_of_val(&self.traces[..])
    }

    /// From here on frames between these ports, ours first, are those of a place.
    pub(super) fn assign(&mut self, place: usize, ports: [u16; 2]) {
        let trace = &mut self.traces[place];
        if let Some(earlier) = trace.ports.filter(|ports| self.places.get(ports) == Some(&place)) {
            self.places.remove(&earlier);
        }
        *trace = Trace::new(ports);
        self.places.insert(ports, place);
    }

    /// The frame in hand, and those that follow it, are those of a place.
    pub(super) fn adopt(&mut self, place: usize, now: Instant) {
        let Some(tcp) = Tcp::of(self.input.frame()) else { return };
        let [theirs, ours] = tcp.ports;
        self.assign(place, [ours, theirs]);
        self.traces[place].came(&tcp, self.input.frame(), now);
    }

    /// What smoltcp sends until the next call is the business of a place.
    pub(super) fn attend(&mut self, place: Option<usize>) {
        self.output.place = place;
    }

    /// Takes the next frame that smoltcp is to see into hand: whose it is. `None` if there is none.
    pub(super) fn fetch(&mut self, now: Instant) -> Option<Owner> {
        if self.failed.is_some() {
            return None;
        }
        let flushed = self.output.hand_over(&self.port);
        let flushed = flushed.and_then(|()| self.output.send_overtaken(true, &self.port));
        // Whatever is received may have to be answered, so there has to be room for it.
        match flushed.and_then(|()| if self.is_full() { Ok(None) } else { self.next(now) }) {
            Ok(owner) => {
                self.input.is_unseen = owner.is_some_and(|owner| owner != Owner::Unwanted);
                owner
            }
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }

    fn next(&mut self, now: Instant) -> io::Result<Option<Owner>> {
        let StackDevice { port, input, output, traces, places, .. } = self;
        if input.repeats > 0 {
            input.repeats -= 1;
            return Ok(Some(input.owner));
        }
        loop {
            if input.next_overtaken(false) {
            } else if let Some(length) = port.receive(&mut input.memory)? {
                input.length = length;
                if let Some(injector) = &mut input.injector
                    && !injector.passes(&input.memory[..length])
                {
                    continue;
                }
            } else if !input.next_overtaken(true) {
                return Ok(None);
            }
            let Some(tcp) = input.intact(&mut output.counts) else { continue };
            // smoltcp would answer each by ICMP, which costs more than sending a datagram: under a
            // flood, frames of connections would find no room in the socket.
            if tcp.is_none() && frame::is_datagram(input.frame()) {
                return Ok(Some(Owner::Unwanted));
            }
            input.owner = tcp.map_or(Owner::Nobody, |tcp| {
                let [theirs, ours] = tcp.ports;
                match places.get(&[ours, theirs]) {
                    Some(place) => Owner::Place(*place),
                    None if tcp.begins() => Owner::Newcomer,
                    None => Owner::Nobody,
                }
            });
            if let (Owner::Place(place), Some(tcp)) = (input.owner, tcp) {
                let trace = &mut traces[place];
                let is_shown = trace.came(&tcp, input.frame(), now);
                input.repeats = std::mem::take(&mut trace.repeats);
                if !is_shown {
                    continue;
                }
            }
            return Ok(Some(input.owner));
        }
    }

    /// Takes a duplicate of the last acknowledgement into hand, if it is time for one: something of
    /// this place is taken for lost.
    pub(super) fn probe(&mut self, place: usize, now: Instant) -> bool {
        let StackDevice { input, output, traces, .. } = self;
        if output.pending > 0 || input.repeats > 0 {
            return false;
        }
        let made = traces[place].probe(&mut input.memory[HEADER..], now);
        let Some(length) = made else { return false };
        (input.length, input.repeats) = (HEADER + length, DUPLICATES);
        (input.owner, input.is_unseen) = (Owner::Place(place), true);
        output.counts.probes += 1;
        true
    }

    /// When it will be time for that.
    #[inline]
    pub(super) fn probe_at(&self, place: usize) -> Option<Instant> {
        self.traces[place].probe_at()
    }
}

impl AsFd for StackDevice {
    /// Readable when a frame has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

struct Input {
    /// The frame in hand, after its header.
    memory: Box<[u8]>,
    length: usize,
    owner: Owner,
    /// Whether smoltcp is still to see it.
    is_unseen: bool,
    /// How often it is to be shown after that.
    repeats: u32,
    injector: Option<LossInjector>,
}

impl Input {
    fn new(loss: LossConfig) -> Input {
        Input {
            memory: vec![0; ROOM].into(),
            length: HEADER,
            owner: Owner::Nobody,
            is_unseen: false,
            repeats: 0,
            injector: LossInjector::new(loss, 1),
        }
    }

    /// The frame in hand.
    fn frame(&self) -> &[u8] {
        &self.memory[HEADER..self.length.max(HEADER)]
    }

    /// Takes a frame into hand that was overtaken, if there is one.
    fn next_overtaken(&mut self, at_last: bool) -> bool {
        let Some(frame) = self.injector.as_mut().and_then(|injector| injector.next(at_last)) else {
            return false;
        };
        self.length = frame.len();
        self.memory[..frame.len()].copy_from_slice(&frame);
        true
    }

    /// The TCP of the frame in hand, if it is that; `None` if it is damaged.
    #[inline]
    fn intact(&self, counts: &mut Counts) -> Option<Option<Tcp>> {
        let (header, frame) = self.memory[..self.length].split_first_chunk()?;
        let Some(tcp) = Tcp::of(frame) else { return Some(None) };
        if !Offload::read(header).checksum_trusted {
            counts.computed += 1;
            if !tcp.is_intact(frame) {
                counts.damaged += 1;
                return None;
            }
        }
        counts.frames_in += 1;
        counts.bytes_in += tcp.length() as u64;
        Some(Some(tcp))
    }
}

struct Output {
    /// The frame in hand, after its header.
    frame: Box<[u8]>,
    /// Its bytes, header included, if the kernel has not taken it yet.
    pending: usize,
    /// Largest payload of a segment that the device takes, bytes, with IPv4 and IPv6.
    own: [u16; 2],
    /// Whose business smoltcp is at.
    place: Option<usize>,
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
            place: None,
            counts: Counts::default(),
            injector: LossInjector::new(loss, 2),
        }
    }

    /// Fills in what smoltcp leaves to the device, for a frame of this many bytes.
    #[inline]
    fn complete(&mut self, length: usize, trace: Option<&mut Trace>, now: Instant) {
        let Some((header, frame)) = self.frame.split_first_chunk_mut::<HEADER>() else { return };
        let frame = &mut frame[..length];
        let mut offload = Offload::default();
        if let Some(tcp) = Tcp::of(frame) {
            let (own, payload) = (self.own[usize::from(tcp.v6)], tcp.length());
            if tcp.opens() {
                tcp.set_segment_size(frame, own);
            }
            offload.checksum = Some(tcp.begin_checksum(frame));
            let size = trace.as_ref().map_or(own, |trace| own.min(trace.segment));
            offload.segments = (payload > usize::from(size)).then_some(Segments {
                size,
                headers: tcp.payload as u16,
                v6: tcp.v6,
            });
            self.counts.frames_out += 1;
            self.counts.bytes_out += payload as u64;
            let again = trace.is_some_and(|trace| trace.sent(&tcp, now));
            self.counts.frames_again += u64::from(again);
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

impl Device for StackDevice {
    type RxToken<'a> = Received<'a>;
    type TxToken<'a> = ToSend<'a>;

    /// The frame in hand, once.
    fn receive(&mut self, now: Instant) -> Option<(Received<'_>, ToSend<'_>)> {
        if !std::mem::take(&mut self.input.is_unseen) {
            return None;
        }
        let StackDevice { port, input, output, traces, failed, .. } = self;
        Some((Received(input.frame()), ToSend { port, output, traces, failed, now }))
    }

    fn transmit(&mut self, now: Instant) -> Option<ToSend<'_>> {
        let StackDevice { port, output, traces, failed, .. } = self;
        (output.pending == 0 && failed.is_none()).then_some(ToSend {
            port,
            output,
            traces,
            failed,
            now,
        })
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
    traces: &'a mut [Trace],
    failed: &'a mut Option<io::Error>,
    now: Instant,
}

impl TxToken for ToSend<'_> {
    #[inline]
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, length: usize, f: F) -> R {
        let ToSend { port, output, traces, failed, now } = self;
        let result = f(&mut output.frame[HEADER..HEADER + length]);
        let trace = output.place.and_then(|place| traces.get_mut(place));
        output.complete(length, trace, now);
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
