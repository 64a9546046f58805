//! A TCP stack: smoltcp over a device. It knows no threads and no movers; its owner polls it, and it
//! never waits.
//!
//! smoltcp looks at every socket of a set for each frame and at each poll. Here each connection has a set
//! of its own: a frame is shown to the one that it belongs to, and only connections that something has
//! happened to, or whose time has come, are asked what they have to send. So what a frame costs
//! does not depend on how many connections there are.

use super::address::StackAddress;
use super::device::{Counts, Owner, StackDevice};
use super::loss::LossConfig;
use bytepath_record::{Fault, Stream};
use bytepath_sys::clock;
use bytepath_sys::packet_vnet::Port;
use smoltcp::iface::SocketSet;
use smoltcp::iface::{Config, Interface, PollResult, SocketHandle};
use smoltcp::socket::tcp::{CongestionControl, RecvError, Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// Frames that are received before their acknowledgement is sent.
const BURST: usize = 8;

/// How long an acknowledgement waits for an answer to go with.
const ANSWER: smoltcp::time::Duration = smoltcp::time::Duration::from_micros(500);

/// Where a stack is, and how it is configured.
#[derive(Clone, Debug)]
pub(super) struct StackConfig {
    pub place: StackAddress,
    pub connections: usize,
    /// Bytes of each that may wait to be sent or acknowledged, and to be received.
    pub send_buffer: usize,
    pub receive_buffer: usize,
    pub congestion: Congestion,
    /// Frames that are lost or reordered on purpose.
    pub loss: LossConfig,
}

/// Congestion controls that there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    Cubic,
    Reno,
}

impl Congestion {
    /// That of a contract. Usage: there is no such one.
    pub(super) fn of(contract: &Stream) -> Result<Congestion, Fault> {
        match contract.congestion.as_str() {
            "cubic" => Ok(Congestion::Cubic),
            "reno" => Ok(Congestion::Reno),
            other => {
                let text = format!("the user-space TCP has no congestion control '{other}'");
                Err(Fault::usage(text).remedy("choose congestion=cubic or reno"))
            }
        }
    }
}

/// A stack, whose connections are known by their places.
pub struct Stack {
    device: StackDevice,
    interface: Interface,
    lines: Box<[Line]>,
    /// Places that may have something to send.
    touched: Vec<u32>,
    /// Places that something has come for, or that are to be looked at for another reason.
    arrived: VecDeque<u32>,
    /// When the first of all is due, or earlier.
    due: Instant,
    polls: u64,
    empty_polls: u64,
}

/// A connection's part of a stack.
struct Line {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// When it may have something to send, if nothing happens to it.
    due: Instant,
    /// Whether it is in the list of that name.
    touched: bool,
    arrived: bool,
    /// Whether all that this end has sent was acknowledged, its end included.
    ended: bool,
}

/// A time that never comes.
const NEVER: Instant = Instant::from_micros_const(i64::MAX);

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It is being made.
    Opening,
    /// It is established, at least in one direction.
    Open,
    /// Our stream has ended and the peer has acknowledged all of it.
    Ended,
    /// The connection is gone: it was reset, or both streams have ended.
    Gone,
}

/// The outcome of requesting bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// This many bytes; 0 if there are none now.
    Bytes(usize),
    /// The peer has ended its stream, and all of it was received.
    End,
    /// The connection was cut.
    Cut,
}

impl Stack {
    /// A stack at a config. System: the device is gone, or no packet socket may be
    /// opened.
    pub(super) fn open(config: &StackConfig) -> io::Result<Stack> {
        let StackAddress { device, mtu, address, prefix } = config.place;
        let hardware = hardware_address(address);
        // What the peer may send at once waits there in the kernel's own buffers, which are
        // up to twice as large as the bytes in them.
        let room = 4 * (config.connections * config.receive_buffer).max(1 << 20);
        let port = Port::open(device, hardware, room)?;
        let mut device = StackDevice::new(port, mtu, config.connections, config.loss);
        let mut identity = Config::new(HardwareAddress::Ethernet(EthernetAddress(hardware)));
        identity.random_seed = clock::monotonic();
        let mut interface = Interface::new(identity, &mut device, now());
        let own = IpCidr::new(address.into(), prefix);
        interface.update_ip_addrs(|all| {
            let _ = all.push(own);
        });
        let lines = config.connections;
        Ok(Stack {
            device,
            interface,
            lines: (0..lines).map(|_| Line::new(config)).collect(),
            touched: Vec::with_capacity(lines),
            arrived: VecDeque::with_capacity(lines),
            due: NEVER,
            polls: 0,
            empty_polls: 0,
        })
    }

    /// Has all wait for a connection at a port, which is not 0.
    pub fn listen(&mut self, port: u16) -> Result<(), Fault> {
        let listen = |line: &mut Line| line.socket().listen(port);
        self.lines.iter_mut().try_for_each(listen).map_err(|e| refused(&e))
    }

    /// Begins to connect from a port.
    pub fn connect(&mut self, place: usize, peer: SocketAddr, port: u16) -> Result<(), Fault> {
        self.device.assign(place, [port, peer.port()]);
        let socket = self.lines[place].socket();
        socket.connect(self.interface.context(), peer, port).map_err(|e| refused(&e))?;
        self.touch(place);
        Ok(())
    }

    /// Takes in what has come, and sends what may be sent. The error is the device's.
    #[inline]
    pub fn poll(&mut self) -> io::Result<()> {
        self.take_in()?;
        self.send_out()
    }

    /// Takes in what has come, up to a bound: how many connections wait to be looked at.
    #[inline]
    pub fn take_in(&mut self) -> io::Result<usize> {
        let now = now();
        self.polls += 1;
        let mut idle = true;
        for _ in 0..BURST {
            let Some(owner) = self.device.fetch(now) else { break };
            idle = false;
            self.show(owner, now);
        }
        if self.due <= now {
            self.look_at_times(now);
        }
        self.empty_polls += u64::from(idle && self.touched.is_empty());
        self.device.check()?;
        Ok(self.arrived.len())
    }

    /// Shows smoltcp the frame in hand.
    #[inline]
    fn show(&mut self, owner: Owner, now: Instant) {
        let place = match owner {
            Owner::Place(place) => Some(place),
            Owner::Newcomer => self.listening(),
            Owner::Nobody => None,
            Owner::Unwanted => return,
        };
        if owner == Owner::Newcomer
            && let Some(place) = place
        {
            self.device.adopt(place, now);
        }
        self.device.attend(place);
        let Stack { device, interface, lines, .. } = self;
        let mut nobody = SocketSet::new(Vec::new());
        let sockets = place.map_or(&mut nobody, |place| &mut lines[place].sockets);
        interface.poll_ingress_single(now, device, sockets);
        match place {
            Some(place) => {
                self.touch(place);
                self.look_at(place);
            }
            // It may be what others have waited for: the neighbour's address.
            None => (0..self.lines.len()).for_each(|place| self.touch(place)),
        }
    }

    /// A place that waits for a connection.
    fn listening(&mut self) -> Option<usize> {
        self.lines.iter_mut().position(|line| line.socket().is_listening())
    }

    /// Has those whose time has come send, and looks when the next is.
    #[cold]
    fn look_at_times(&mut self, now: Instant) {
        self.due = NEVER;
        for place in 0..self.lines.len() {
            if self.lines[place].due > now {
                self.due = self.due.min(self.lines[place].due);
                continue;
            }
            self.touch(place);
            if self.device.probe(place, now) {
                self.show(Owner::Place(place), now);
            }
        }
    }

    /// Sends what may be sent, of each connection a frame in turn.
    #[inline]
    pub fn send_out(&mut self) -> io::Result<()> {
        let now = now();
        while !self.touched.is_empty() {
            let Stack { device, interface, lines, touched, due, .. } = self;
            touched.retain(|place| {
                let (place, line) = (*place as usize, &mut lines[*place as usize]);
                device.attend(Some(place));
                let sent = interface.poll_egress(now, device, &mut line.sockets);
                if sent == PollResult::SocketStateChanged {
                    return true;
                }
                line.settle(interface, device.probe_at(place), now);
                *due = line.due.min(*due);
                false
            });
        }
        self.device.check()
    }

    /// A connection may have something to send.
    #[inline]
    fn touch(&mut self, place: usize) {
        if !std::mem::replace(&mut self.lines[place].touched, true) {
            self.touched.push(place as u32);
        }
    }

    /// Has a connection be among those that [`Stack::next_arrived`] gives.
    #[inline]
    pub fn look_at(&mut self, place: usize) {
        if !std::mem::replace(&mut self.lines[place].arrived, true) {
            self.arrived.push_back(place as u32);
        }
    }

    /// A connection to be looked at, once for each time.
    #[inline]
    pub fn next_arrived(&mut self) -> Option<usize> {
        let place = self.arrived.pop_front()? as usize;
        self.lines[place].arrived = false;
        Some(place)
    }

    /// Copies bytes to the send buffer, as far as there is space: how many.
    /// None: the connection takes no more, since it is cut or our stream has ended.
    #[inline]
    pub fn send(&mut self, place: usize, bytes: &[u8]) -> Option<usize> {
        self.socket(place).send_slice(bytes).ok()
    }

    /// Has bytes written to the next piece of the send buffer; `write` gets
    /// the piece and returns how many it has written. `None` as for [`Stack::send`].
    pub fn send_with(
        &mut self,
        place: usize,
        write: impl FnOnce(&mut [u8]) -> usize,
    ) -> Option<usize> {
        let filled = |piece: &mut [u8]| {
            let written = write(piece);
            (written, written)
        };
        self.socket(place).send(filled).ok()
    }

    /// Copies what was received.
    #[inline]
    pub fn receive(&mut self, place: usize, room: &mut [u8]) -> Received {
        match self.socket(place).recv_slice(room) {
            Ok(bytes) => Received::Bytes(bytes),
            Err(RecvError::Finished) => Received::End,
            Err(RecvError::InvalidState) => Received::Cut,
        }
    }

    /// Bytes that were received and not taken yet.
    pub fn received(&mut self, place: usize) -> usize {
        self.lines[place].socket().recv_queue()
    }

    /// Whether [`Stack::receive`] has something to return: bytes, the end, or a cut.
    #[inline]
    pub fn can_receive(&mut self, place: usize) -> bool {
        let socket = self.lines[place].socket();
        socket.can_recv() || !socket.may_recv()
    }

    /// Bytes that the peer has not acknowledged yet, those that wait to be sent included.
    pub fn unacknowledged(&mut self, place: usize) -> usize {
        self.lines[place].socket().send_queue()
    }

    /// Small pieces are sent at once from here on, and do not wait for what was sent before
    /// them; acknowledgements wait for an answer that takes them along.
    pub fn send_at_once(&mut self, place: usize) {
        let socket = self.socket(place);
        socket.set_nagle_enabled(false);
        socket.set_ack_delay(Some(ANSWER));
    }

    pub fn end(&mut self, place: usize) {
        self.socket(place).close();
    }

    /// Cuts the connection: the peer gets a reset at the next poll.
    pub fn abort(&mut self, place: usize) {
        self.socket(place).abort();
        self.look_at(place);
    }

    /// How far the connection is.
    pub fn stage(&mut self, place: usize) -> Stage {
        let line = &mut self.lines[place];
        match line.socket().state() {
            State::Listen | State::SynSent | State::SynReceived => Stage::Opening,
            State::FinWait2 | State::TimeWait => Stage::Ended,
            State::Closed if line.ended => Stage::Ended,
            State::Closed => Stage::Gone,
            _ => Stage::Open,
        }
    }

    /// Drops a connection, and has its place wait for another at a port.
    pub fn relisten(&mut self, place: usize, port: u16) -> Result<(), Fault> {
        self.abort(place);
        // A device that is gone carries no reset.
        let _ = self.send_out();
        self.socket(place).listen(port).map_err(|e| refused(&e))
    }

    /// Whether a stream that this end has ended is still under way, or the peer's is still to end.
    pub fn is_closing(&mut self) -> bool {
        use State::{Closing, FinWait1, FinWait2, LastAck};
        self.lines
            .iter_mut()
            .any(|line| matches!(line.socket().state(), FinWait1 | FinWait2 | Closing | LastAck))
    }

    /// How long nothing will happen, if nothing comes and there is room.
    pub fn quiet_for(&self) -> Duration {
        let now = now();
        match self.touched.is_empty() && self.due > now {
            true => Duration::from_micros((self.due - now).total_micros()),
            false => Duration::ZERO,
        }
    }

    /// Bytes of its memory.
    pub fn memory(&self) -> usize {
        let lines: usize = self.lines.iter().map(Line::memory).sum();
        self.device.memory() + lines
    }

    /// Whether frames wait for room in the kernel.
    pub fn is_full(&self) -> bool {
        self.device.is_full()
    }

    /// What it has done so far.
    pub fn counts(&mut self) -> io::Result<Counts> {
        let counts = self.device.counts()?;
        Ok(Counts { polls: self.polls, empty_polls: self.empty_polls, ..counts })
    }

    /// The socket of a place, to which something is done that it may have to send something for.
    #[inline]
    fn socket(&mut self, place: usize) -> &mut Socket<'static> {
        self.touch(place);
        self.lines[place].socket()
    }
}

impl Line {
    fn new(config: &StackConfig) -> Line {
        let buffer = |bytes: usize| SocketBuffer::new(touched(bytes));
        let mut socket = Socket::new(buffer(config.receive_buffer), buffer(config.send_buffer));
        // Each poll that has received something acknowledges all of it.
        socket.set_ack_delay(None);
        socket.set_congestion_control(match config.congestion {
            Congestion::Cubic => CongestionControl::Cubic,
            Congestion::Reno => CongestionControl::Reno,
        });
        let mut sockets = SocketSet::new(Vec::with_capacity(1));
        let handle = sockets.add(socket);
        Line { sockets, handle, due: NEVER, touched: false, arrived: false, ended: false }
    }

    #[inline]
    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    /// It has sent all that it may for now: when it may have more, by itself or by a probe.
    #[inline]
    fn settle(&mut self, interface: &mut Interface, probe: Option<Instant>, now: Instant) {
        self.touched = false;
        let own = interface.poll_at(now, &self.sockets);
        self.due = own.unwrap_or(NEVER).min(probe.unwrap_or(NEVER));
        self.ended |= matches!(self.socket().state(), State::FinWait2 | State::TimeWait);
    }

    fn memory(&self) -> usize {
        let socket = self.sockets.get::<Socket>(self.handle);
        size_of::<Line>() + size_of::<Socket>() + socket.send_capacity() + socket.recv_capacity()
    }
}

impl AsFd for Stack {
    /// Readable when something has come.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// A hardware address derived from an IP address: local, of one device.
fn hardware_address(address: IpAddr) -> [u8; 6] {
    let tail = match address {
        IpAddr::V4(v4) => v4.octets(),
        IpAddr::V6(v6) => [12, 13, 14, 15].map(|at| v6.octets()[at]),
    };
    [0x02, if address.is_ipv4() { 4 } else { 6 }, tail[0], tail[1], tail[2], tail[3]]
}

fn now() -> Instant {
    Instant::from_micros((clock::monotonic() / 1000) as i64)
}

/// Memory that is there.
fn touched(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    // Pages of zeros are not there until they are written.
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(0));
    memory
}

fn refused(error: &dyn std::fmt::Display) -> Fault {
    Fault::failed(format!("the user-space TCP refuses: {error}")).remedy("report this as a bug")
}
