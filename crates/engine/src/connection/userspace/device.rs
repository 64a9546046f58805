//! The device of a stack: a packet socket, whose frames represent up to 64 KiB of segments each,
//! adapted to what smoltcp expects of a device.
//!
//! smoltcp sees a device that takes packets of 64 KiB and needs no TCP checksums. That leaves the
//! following work:
//!
//! - The kernel gets the segment size by which to cut a frame: what the peer's SYN and the device's
//!   MTU allow. Our own SYN announces what the MTU allows.
//! - A checksum that the kernel does not vouch for is verified here.
//! - A "partial" acknowledgement, which advances during recovery but not past its end, is repeated
//!   to smoltcp three times. By RFC 6582 it causes the next segment to be retransmitted at once;
//!   smoltcp would wait for its timer, a second at least, but does retransmit after three
//!   duplicates.
//! - If nothing is acknowledged for long, the last acknowledgement is repeated in the same way
//!   ([`super::probe`]).
//! - A frame that the kernel has no room for waits, and nothing is sent before it.
//!
//! The state for this is kept for each connection ([`Trace`]). Each frame is taken before smoltcp
//! is called, because its connection decides which socket smoltcp looks at.

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

/// Largest packet, bytes: the most that the length field of IPv4 can express.
const PACKET: usize = 65535;

/// Room for a frame with its header; the length field of IPv6 does not count its own header.
const ROOM: usize = HEADER + ETHERNET + PACKET + 64;

/// Counters of a stack and its device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// TCP frames received.
    pub frames_in: u64,
    /// Their payload, bytes.
    pub bytes_in: u64,
    /// TCP frames sent.
    pub frames_out: u64,
    /// Their payload, bytes, including retransmissions.
    pub bytes_out: u64,
    /// Frames sent that contain retransmitted bytes.
    pub frames_again: u64,
    /// Received frames whose checksum was verified here.
    pub computed: u64,
    /// Those whose checksum was wrong.
    pub damaged: u64,
    /// Times that the kernel had no room for a frame.
    pub no_room: u64,
    /// Probes made because nothing was acknowledged for long.
    pub probes: u64,
    /// Received frames that the packet socket dropped for lack of room.
    pub dropped: u64,
    /// Frames that were lost or reordered on purpose.
    pub injected: u64,
    /// Times that the stack was polled.
    pub polls: u64,
    /// Polls that found nothing to do.
    pub empty_polls: u64,
}

pub(super) struct StackDevice {
    port: Port,
    input: Input,
    output: Output,
    /// The state of each connection, by its place.
    traces: Box<[Trace]>,
    /// Places by ports, ours first.
    places: HashMap<[u16; 2], usize>,
    failed: Option<io::Error>,
}

/// Which connection the current frame belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The connection at this place.
    Place(usize),
    /// A new connection, which has no place yet.
    Newcomer,
    /// None of ours.
    Nobody,
    /// None; smoltcp does not see the frame.
    Unwanted,
}

impl StackDevice {
    /// Creates a device on a packet socket. `mtu` is in bytes.
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

    /// Errors if the device has failed: it can no longer be used.
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

    /// Returns its memory, bytes.
    pub(super) fn memory(&self) -> usize {
        2 * ROOM + size_of_val(&self.traces[..])
    }

    /// Assigns frames between these ports, ours first, to a place from now on.
    pub(super) fn assign(&mut self, place: usize, ports: [u16; 2]) {
        let trace = &mut self.traces[place];
        if let Some(earlier) = trace.ports.filter(|ports| self.places.get(ports) == Some(&place)) {
            self.places.remove(&earlier);
        }
        *trace = Trace::new(ports);
        self.places.insert(ports, place);
    }

    /// Assigns the current frame, and those that follow it, to a place.
    pub(super) fn adopt(&mut self, place: usize, now: Instant) {
        let Some(tcp) = Tcp::of(self.input.frame()) else { return };
        let [theirs, ours] = tcp.ports;
        self.assign(place, [ours, theirs]);
        self.traces[place].came(&tcp, self.input.frame(), now);
    }

    /// Sets the place that smoltcp sends for until the next call.
    pub(super) fn attend(&mut self, place: Option<usize>) {
        self.output.place = place;
    }

    /// Fetches the next frame for smoltcp and returns its owner. `None` if there is none.
    pub(super) fn fetch(&mut self, now: Instant) -> Option<Owner> {
        if self.failed.is_some() {
            return None;
        }
        let flushed = self.output.hand_over(&self.port);
        let flushed = flushed.and_then(|()| self.output.send_overtaken(true, &self.port));
        // Each received frame may need a reply, so there must be room for one.
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
            // smoltcp would reply to each by ICMP, which costs more than sending a datagram: under
            // a flood, TCP frames would find no room in the socket.
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

    /// Makes a duplicate of the last acknowledgement the current frame, if a probe is due for this
    /// place. True if so.
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

    /// When the next probe of a place is due.
    #[inline]
    pub(super) fn probe_at(&self, place: usize) -> Option<Instant> {
        self.traces[place].probe_at()
    }
}

impl AsFd for StackDevice {
    /// Readable when a frame has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.port.as_fd()
    }
}

struct Input {
    /// The current frame, after its header.
    memory: Box<[u8]>,
    length: usize,
    owner: Owner,
    /// Whether smoltcp has yet to see it.
    is_unseen: bool,
    /// How often to repeat it after that.
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

    /// Returns the current frame.
    fn frame(&self) -> &[u8] {
        &self.memory[HEADER..self.length.max(HEADER)]
    }

    /// Makes an overtaken frame the current one, if there is one. True if so.
    fn next_overtaken(&mut self, at_last: bool) -> bool {
        let Some(frame) = self.injector.as_mut().and_then(|injector| injector.next(at_last)) else {
            return false;
        };
        self.length = frame.len();
        self.memory[..frame.len()].copy_from_slice(&frame);
        true
    }

    /// Returns the TCP fields of the current frame, or `Some(None)` if it is not TCP. `None` if its
    /// checksum is wrong.
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
    /// The current frame, after its header.
    frame: Box<[u8]>,
    /// Its bytes, header included, if it waits for room in the kernel; otherwise 0.
    pending: usize,
    /// Largest payload of a segment that the device can send, bytes, over IPv4 and over IPv6.
    own: [u16; 2],
    /// The place that smoltcp sends for.
    place: Option<usize>,
    /// Counts both directions.
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

    /// Fills in what smoltcp leaves to the device, for a frame of `length` bytes.
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

    /// Hands the pending frame to the kernel, if there is one and the kernel has room.
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

    /// Sends the overtaken frame, if there is one.
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

    /// Returns the current frame, unless smoltcp has already seen it.
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
        // With loss on purpose, each frame is one segment, as on a wire.
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
