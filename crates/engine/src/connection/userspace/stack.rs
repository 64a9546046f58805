//! A TCP stack with one connection: smoltcp over a device. It knows no threads and no movers;
//! its owner polls it, and it never waits.

use super::address::StackAddress;
use super::device::{Counts, StackDevice};
use super::loss::LossConfig;
use bytepath_record::{Fault, Stream};
use bytepath_sys::clock;
use bytepath_sys::packet_vnet::Port;
use smoltcp::iface::SocketSet;
use smoltcp::iface::{Config, Interface, PollIngressSingleResult, PollResult, SocketHandle};
use smoltcp::socket::tcp::{CongestionControl, RecvError, Socket, SocketBuffer, State};
use smoltcp::time::Instant;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
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
    /// Bytes that may wait to be sent or acknowledged, and to be received.
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

pub struct Stack {
    device: StackDevice,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
    polls: u64,
    empty_polls: u64,
}

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
        let room = 4 * config.receive_buffer.max(1 << 20);
        let port = Port::open(device, hardware, room)?;
        let mut device = StackDevice::new(port, mtu, config.loss);
        let mut identity = Config::new(HardwareAddress::Ethernet(EthernetAddress(hardware)));
        identity.random_seed = clock::monotonic();
        let mut interface = Interface::new(identity, &mut device, now());
        let own = IpCidr::new(address.into(), prefix);
        interface.update_ip_addrs(|all| {
            let _ = all.push(own);
        });
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
        Ok(Stack { device, interface, sockets, handle, polls: 0, empty_polls: 0 })
    }

    /// Waits for a connection at a port, which is not 0.
    pub fn listen(&mut self, port: u16) -> Result<(), Fault> {
        self.socket().listen(port).map_err(|e| refused(&e))
    }

    /// Begins to connect from a port.
    pub fn connect(&mut self, peer: SocketAddr, port: u16) -> Result<(), Fault> {
        let Stack { interface, sockets, handle, .. } = self;
        let socket = sockets.get_mut::<Socket>(*handle);
        socket.connect(interface.context(), peer, port).map_err(|e| refused(&e))
    }

    /// Takes in what has come, and sends what may be sent. The error is the device's.
    #[inline]
    pub fn poll(&mut self) -> io::Result<()> {
        let now = now();
        self.polls += 1;
        let mut idle = true;
        for _ in 0..BURST {
            let Stack { device, interface, sockets, .. } = self;
            match interface.poll_ingress_single(now, device, sockets) {
                PollIngressSingleResult::None => break,
                _ => idle = false,
            }
        }
        self.send_out(now, idle)
    }

    fn send_out(&mut self, now: Instant, mut idle: bool) -> io::Result<()> {
        let Stack { device, interface, sockets, .. } = self;
        while interface.poll_egress(now, device, sockets) == PollResult::SocketStateChanged {
            idle = false;
        }
        self.empty_polls += u64::from(idle);
        device.check()
    }

    /// Copies bytes to the send buffer, as far as there is space: how many.
    /// None: the connection takes no more, since it is cut or our stream has ended.
    #[inline]
    pub fn send(&mut self, bytes: &[u8]) -> Option<usize> {
        self.socket().send_slice(bytes).ok()
    }

    /// Has bytes written to the next piece of the send buffer; `write` gets
    /// the piece and returns how many it has written. `None` as for [`Stack::send`].
    pub fn send_with(&mut self, write: impl FnOnce(&mut [u8]) -> usize) -> Option<usize> {
        let filled = |piece: &mut [u8]| {
            let written = write(piece);
            (written, written)
        };
        self.socket().send(filled).ok()
    }

    /// Copies what was received.
    #[inline]
    pub fn receive(&mut self, room: &mut [u8]) -> Received {
        match self.socket().recv_slice(room) {
            Ok(bytes) => Received::Bytes(bytes),
            Err(RecvError::Finished) => Received::End,
            Err(RecvError::InvalidState) => Received::Cut,
        }
    }

    /// Whether [`Stack::receive`] has something to return: bytes, the end, or a cut.
    #[inline]
    pub fn can_receive(&mut self) -> bool {
        let socket = self.socket();
        socket.can_recv() || !socket.may_recv()
    }

    /// Bytes that the peer has not acknowledged yet, those that wait to be sent included.
    pub fn unacknowledged(&mut self) -> usize {
        self.socket().send_queue()
    }

    /// Small pieces are sent at once from here on, and do not wait for what was sent before
    /// them; acknowledgements wait for an answer that takes them along.
    pub fn send_at_once(&mut self) {
        self.socket().set_nagle_enabled(false);
        self.socket().set_ack_delay(Some(ANSWER));
    }

    pub fn end(&mut self) {
        self.socket().close();
    }

    /// Cuts the connection: the peer gets a reset at the next poll.
    pub fn abort(&mut self) {
        self.socket().abort();
    }

    /// How far the connection is.
    pub fn stage(&mut self) -> Stage {
        match self.socket().state() {
            State::Listen | State::SynSent | State::SynReceived => Stage::Opening,
            State::FinWait2 | State::TimeWait => Stage::Ended,
            State::Closed => Stage::Gone,
            _ => Stage::Open,
        }
    }

    /// How long nothing will happen, if nothing comes.
    pub fn quiet_for(&mut self) -> Option<Duration> {
        let delay = self.interface.poll_delay(now(), &self.sockets);
        delay.map(|delay| Duration::from_micros(delay.total_micros()))
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

    #[inline]
    fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
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
