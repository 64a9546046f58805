//! A TCP stack: smoltcp over a device. It is independent of threads and movers; its owner polls it,
//! and it never waits.
//!
//! smoltcp looks at every socket of a set for each frame and at each poll. Here each connection has
//! a set of its own: a frame is shown only to the connection it belongs to, and only connections
//! with a new event or an expired timer are polled for something to send. So the cost of a frame
//! does not depend on the number of connections.

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

/// Most frames received before their acknowledgements are sent.
const BURST: usize = 8;

/// How long an acknowledgement waits for data to accompany.
const ANSWER: smoltcp::time::Duration = smoltcp::time::Duration::from_micros(500);

/// Address and configuration of a stack.
#[derive(Clone, Debug)]
pub(super) struct StackConfig {
    pub place: StackAddress,
    pub connections: usize,
    /// Bytes of each connection that may wait to be sent or acknowledged, and to be received.
    pub send_buffer: usize,
    pub receive_buffer: usize,
    pub congestion: Congestion,
    /// Frames to lose or reorder on purpose.
    pub loss: LossConfig,
}

/// The congestion controls of smoltcp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Congestion {
    Cubic,
    Reno,
}

impl Congestion {
    /// Returns the congestion control of a contract. Errors with a usage fault if it is unknown.
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

/// A stack, whose connections are identified by their places.
pub struct Stack {
    device: StackDevice,
    interface: Interface,
    lines: Box<[Line]>,
    /// Places that may have something to send.
    touched: Vec<u32>,
    /// Places with an event for their user, or that are to be looked at for another reason.
    arrived: VecDeque<u32>,
    /// When the first timer of all connections expires, or earlier.
    due: Instant,
    polls: u64,
    empty_polls: u64,
}

/// The state of one connection.
struct Line {
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    /// When it may have something to send if nothing else happens.
    due: Instant,
    /// Whether its place is in `Stack::touched`, and in `Stack::arrived`.
    touched: bool,
    arrived: bool,
    /// Whether the peer has acknowledged all that this end has sent, including the FIN.
    ended: bool,
}

/// A time that never comes.
const NEVER: Instant = Instant::from_micros_const(i64::MAX);

/// State of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Not yet established.
    Opening,
    /// Established, at least in one direction.
    Open,
    /// Our stream has ended and the peer has acknowledged all of it.
    Ended,
    /// Closed in another way: it was reset, or the peer ended its stream first.
    Gone,
}

/// Result of [`Stack::receive`].
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
    /// Opens a stack. Errors if the device is gone, or if no packet socket may be opened.
    pub(super) fn open(config: &StackConfig) -> io::Result<Stack> {
        let StackAddress { device, mtu, address, prefix } = config.place;
        let hardware = hardware_address(address);
        // What the peer may send at once waits in the kernel's buffers, which take up to twice as
        // much memory as they hold bytes.
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

    /// Makes all places listen at a port, which must not be 0.
    pub fn listen(&mut self, port: u16) -> Result<(), Fault> {
        let listen = |line: &mut Line| line.socket().listen(port);
        self.lines.iter_mut().try_for_each(listen).map_err(|e| refused(&e))
    }

    /// Begins to connect from a local port.
    pub fn connect(&mut self, place: usize, peer: SocketAddr, port: u16) -> Result<(), Fault> {
        self.device.assign(place, [port, peer.port()]);
        let socket = self.lines[place].socket();
        socket.connect(self.interface.context(), peer, port).map_err(|e| refused(&e))?;
        self.touch(place);
        Ok(())
    }

    /// Processes what has arrived, and sends what may be sent. Errors if the device has failed.
    #[inline]
    pub fn poll(&mut self) -> io::Result<()> {
        self.take_in()?;
        self.send_out()
    }

    /// Processes what has arrived, up to a limit. Returns the number of connections that wait to be
    /// looked at.
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

    /// Shows smoltcp the current frame.
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
            // It may be what all of them wait for: the neighbour's address.
            None => (0..self.lines.len()).for_each(|place| self.touch(place)),
        }
    }

    /// Returns a place that listens.
    fn listening(&mut self) -> Option<usize> {
        self.lines.iter_mut().position(|line| line.socket().is_listening())
    }

    /// Polls the connections whose timers have expired, and computes when the next one does.
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

    /// Sends what may be sent, one frame of each connection in turn.
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

    /// Notes that a connection may have something to send.
    #[inline]
    fn touch(&mut self, place: usize) {
        if !std::mem::replace(&mut self.lines[place].touched, true) {
            self.touched.push(place as u32);
        }
    }

    /// Adds a connection to those that [`Stack::next_arrived`] returns.
    #[inline]
    pub fn look_at(&mut self, place: usize) {
        if !std::mem::replace(&mut self.lines[place].arrived, true) {
            self.arrived.push_back(place as u32);
        }
    }

    /// Returns the next connection to look at, and removes it from the queue.
    #[inline]
    pub fn next_arrived(&mut self) -> Option<usize> {
        let place = self.arrived.pop_front()? as usize;
        self.lines[place].arrived = false;
        Some(place)
    }

    /// Copies bytes to the send buffer and returns how many had room. `None` if the connection
    /// takes no more, because it was cut or our stream has ended.
    #[inline]
    pub fn send(&mut self, place: usize, bytes: &[u8]) -> Option<usize> {
        self.socket(place).send_slice(bytes).ok()
    }

    /// Calls `write` with the next free piece of the send buffer; it returns how many bytes it has
    /// written. `None` as for [`Stack::send`].
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

    /// Copies received bytes to `room`.
    #[inline]
    pub fn receive(&mut self, place: usize, room: &mut [u8]) -> Received {
        match self.socket(place).recv_slice(room) {
            Ok(bytes) => Received::Bytes(bytes),
            Err(RecvError::Finished) => Received::End,
            Err(RecvError::InvalidState) => Received::Cut,
        }
    }

    /// Returns how many bytes were received and wait to be taken.
    pub fn received(&mut self, place: usize) -> usize {
        self.lines[place].socket().recv_queue()
    }

    /// Whether [`Stack::receive`] has something to return: bytes, the end, or a cut.
    #[inline]
    pub fn can_receive(&mut self, place: usize) -> bool {
        let socket = self.lines[place].socket();
        socket.can_recv() || !socket.may_recv()
    }

    /// Returns how many bytes the peer has not acknowledged yet, including those not sent yet.
    pub fn unacknowledged(&mut self, place: usize) -> usize {
        self.lines[place].socket().send_queue()
    }

    /// From now on, sends small pieces at once instead of waiting for earlier ones to be
    /// acknowledged, and delays acknowledgements so that a response can carry them.
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

    /// Returns the state of a connection.
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

    /// Resets a connection; its place then listens at a port.
    pub fn relisten(&mut self, place: usize, port: u16) -> Result<(), Fault> {
        self.abort(place);
        // A device that is gone cannot send the reset.
        let _ = self.send_out();
        self.socket(place).listen(port).map_err(|e| refused(&e))
    }

    /// Whether the end of our stream is not acknowledged yet on some connection, or the peer's
    /// stream has yet to end.
    pub fn is_closing(&mut self) -> bool {
        use State::{Closing, FinWait1, FinWait2, LastAck};
        self.lines
            .iter_mut()
            .any(|line| matches!(line.socket().state(), FinWait1 | FinWait2 | Closing | LastAck))
    }

    /// Returns how long nothing will happen if no frame arrives and the kernel has room.
    pub fn quiet_for(&self) -> Duration {
        let now = now();
        match self.touched.is_empty() && self.due > now {
            true => Duration::from_micros((self.due - now).total_micros()),
            false => Duration::ZERO,
        }
    }

    /// Returns its memory, bytes.
    pub fn memory(&self) -> usize {
        let lines: usize = self.lines.iter().map(Line::memory).sum();
        self.device.memory() + lines
    }

    /// Whether frames wait for room in the kernel.
    pub fn is_full(&self) -> bool {
        self.device.is_full()
    }

    /// Returns its counters.
    pub fn counts(&mut self) -> io::Result<Counts> {
        let counts = self.device.counts()?;
        Ok(Counts { polls: self.polls, empty_polls: self.empty_polls, ..counts })
    }

    /// Returns the socket of a place, and notes that it may have something to send afterwards.
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
        // Each poll that received something acknowledges all of it.
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

    /// Notes that a connection has nothing to send at present, and when its next timer or probe is
    /// due.
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
    /// Readable when a frame has arrived.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.device.as_fd()
    }
}

/// Derives a hardware address from an IP address: locally administered and unicast.
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

/// Allocates memory whose pages are resident.
fn touched(bytes: usize) -> Vec<u8> {
    let mut memory = vec![0; bytes];
    // Zero pages are not resident until they are written.
    memory.iter_mut().step_by(4096).for_each(|byte| *byte = std::hint::black_box(0));
    memory
}

fn refused(error: &dyn std::fmt::Display) -> Fault {
    Fault::failed(format!("the user-space TCP refuses: {error}")).remedy("report this as a bug")
}
