//! Connectivity check between two hosts, before anything is measured: the route that each kernel
//! chooses, a connection that sends a token, and data in packets as large as the path MTU. No
//! packet may be fragmented (`IP_MTU_DISCOVER`, ip(7)), so one that is too large is lost, or a
//! router reports it.

use super::{hello, ports};
use bytepath_record::wire::Token;
use bytepath_record::{Contact, Fault, Passage, Ports, ProbeResult, Route};
use bytepath_sys::addressing::RouteTo;
use bytepath_sys::netlink::Netlink;
use bytepath_sys::tcp::{self, FlowOptions};
use bytepath_sys::{device, procfs};
use rustix::net::sockopt::{self, Ipv4PathMtuDiscovery, Ipv6PathMtuDiscovery};
use socket2::{Domain, Socket, Type};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// Timeout of connecting. The kernel sends three ARP or neighbour requests, one per second, for an
/// on-link address, and after that reports by itself that no host has it.
pub const CONNECTING: Duration = Duration::from_secs(4);

/// Timeout for data that is expected to arrive.
const ARRIVAL_TIMEOUT: Duration = Duration::from_secs(2);

/// Timeout while searching for the size from which on packets are lost.
const PROBE_TIMEOUT: Duration = Duration::from_millis(700);

/// Bytes of data sent: two packets of the largest possible MTU.
const AMOUNT: usize = 128 << 10;

/// Sent with the token: in which direction the connection's data goes.
#[derive(Clone, Copy)]
#[repr(u32)]
enum Direction {
    Forth,
    Back,
}

/// Returns the route that packets from here to an address would take.
pub fn route(to: IpAddr) -> Result<Route, Fault> {
    let mut netlink = Netlink::new();
    let found = netlink.route_to(to).map_err(|e| no_route(to, &e))?;
    let read = |e: io::Error| Fault::system(format!("cannot read the route to {to}"), &e);
    let device = device::name(found.device).map_err(read)?;
    let link = netlink.link(&device).map_err(read)?.unwrap_or_default();
    let RouteTo { source, gateway, own, .. } = found;
    Ok(Route { device, source, gateway, mtu: link.mtu, own })
}

fn no_route(to: IpAddr, error: &io::Error) -> Fault {
    let what = match error.kind() {
        ErrorKind::HostUnreachable => "a route of the kind unreachable",
        ErrorKind::PermissionDenied => "a route of the kind prohibit",
        ErrorKind::InvalidInput => "a route of the kind blackhole",
        _ => "no route",
    };
    Fault::unsupported(format!("this host has {what} to {to}: {error}")).remedy(format!(
        "give a device of this host an address in the network of {to}, or add a route: \
                 `ip route get {to}` asks the kernel again"
    ))
}

/// The receiver's end: a peer that connects and sends the token gets data, or an answer to its
/// data.
pub struct Meeting {
    address: SocketAddr,
    met: Arc<Mutex<ProbeResult>>,
    over: Arc<AtomicBool>,
}

impl Meeting {
    /// Listens at an address of this host.
    pub fn listen(address: IpAddr, ports: Option<Ports>, token: Token) -> Result<Self, Fault> {
        let failed = |e| ports::fault(format!("cannot listen at {address}"), &e);
        let open = |at| tcp::listen_at(at, 8, &FlowOptions::default());
        let listener = ports::at_free_port(address, ports, open).map_err(failed)?;
        forbid_fragmentation(listener.as_fd(), address).map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let (met, over) = (Arc::<Mutex<ProbeResult>>::default(), Arc::<AtomicBool>::default());
        let meeting = Meeting { address, met: met.clone(), over: over.clone() };
        let serve = move || {
            while !over.load(Ordering::Relaxed) {
                let came = tcp::wait_readable(listener.as_fd(), Duration::from_millis(20));
                if came.is_ok_and(|came| came)
                    && let Ok((socket, _)) = TcpListener::accept(&listener)
                {
                    let (met, token) = (met.clone(), token.clone());
                    // A stuck connection must not delay the next one. If a thread cannot be
                    // started, the peer reports that it got no answer.
                    let one = thread::Builder::new().name("reach-one".into());
                    let _ = one.spawn(move || answer(&socket, &token, &met));
                }
            }
        };
        let started = thread::Builder::new().name("reach".into()).spawn(serve);
        started.map_err(|e| Fault::not_started("a thread", &e))?;
        Ok(meeting)
    }

    /// The port it listens on.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns which connections arrived, and whether one is half open.
    pub fn met(&self) -> Result<ProbeResult, Fault> {
        let file = if self.address.is_ipv4() { "/proc/net/tcp" } else { "/proc/net/tcp6" };
        let text = std::fs::read_to_string(file)
            .map_err(|e| Fault::system(format!("cannot read {file}"), &e))?;
        let half_open = procfs::parse_half_open(&text, self.port())
            .map_err(|e| Fault::failed(e.to_string()))?;
        let met = self.met.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ProbeResult { half_open: half_open > 0, ..met.clone() })
    }
}

impl Drop for Meeting {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Serves one connection. Errors here show up at the sender, which reports them.
fn answer(mut socket: &TcpStream, token: &Token, met: &Mutex<ProbeResult>) -> io::Result<()> {
    let with_met = |change: &dyn Fn(&mut ProbeResult)| {
        change(&mut met.lock().unwrap_or_else(PoisonError::into_inner));
    };
    with_met(&|met| met.accepted += 1);
    limit(socket, ARRIVAL_TIMEOUT)?;
    let mut shown = hello::of(token, 0);
    socket.read_exact(&mut shown)?;
    let Some(direction) = hello::read(&shown, token) else { return Ok(()) };
    socket.write_all(&shown)?;
    if direction == Direction::Back as u32 {
        socket.write_all(&vec![0; AMOUNT])?;
        socket.read_exact(&mut [0])?;
        let mtu = path_mtu(socket.as_fd(), socket.local_addr()?.ip())?;
        with_met(&|met| met.mtu = Some(mtu));
    } else {
        socket.read_exact(&mut vec![0; AMOUNT])?;
    }
    socket.write_all(&[0])?;
    // The sender closes first; otherwise the answer could be discarded with the socket.
    socket.read(&mut [0]).map(drop)
}

/// The sender's end: connects, sends the token, and transfers data in both directions. `mtu` is
/// that of the ends' devices, the sender's first.
pub fn connect(peer: SocketAddr, token: &Token, mtu: [u32; 2]) -> Contact {
    let mut path = mtu[0];
    let mut passage =
        |direction: Direction| match attempt(peer, token, direction, None, ARRIVAL_TIMEOUT) {
            ProbeOutcome::Nowhere(error) => Err(failed_contact(&error)),
            ProbeOutcome::Unanswered => Err(Contact::Mute),
            ProbeOutcome::Through(own) => {
                path = path.min(own);
                Ok(Passage::Whole)
            }
            ProbeOutcome::Stuck => {
                let mtu = mtu[direction as usize];
                Ok(Passage::UpTo(largest(peer, token, direction, mtu)))
            }
        };
    let both = passage(Direction::Forth).and_then(|forth| Ok((forth, passage(Direction::Back)?)));
    match both {
        Ok((forth, back)) => Contact::Made { forth, back, mtu: path },
        Err(contact) => contact,
    }
}

fn failed_contact(error: &io::Error) -> Contact {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Contact::Silent,
        ErrorKind::ConnectionRefused => Contact::Refused,
        _ => Contact::Failed { error: error.to_string() },
    }
}

/// How far a probe connection got.
enum ProbeOutcome {
    Nowhere(io::Error),
    /// It is established, but the token was not answered.
    Unanswered,
    /// The token was answered, but data does not arrive.
    Stuck,
    /// Data arrives; the path MTU as known to this end's kernel, in bytes.
    Through(u32),
}

/// Makes one probe connection, with packets of at most `packet` bytes if given.
fn attempt(
    peer: SocketAddr,
    token: &Token,
    direction: Direction,
    packet: Option<u32>,
    timeout: Duration,
) -> ProbeOutcome {
    let mut socket = match open(peer, packet) {
        Ok(socket) => socket,
        Err(error) => return ProbeOutcome::Nowhere(error),
    };
    let shown = hello::of(token, direction as u32);
    let mut answer = vec![0; shown.len()];
    let mut show = || -> io::Result<()> {
        limit(&socket, timeout)?;
        socket.write_all(&shown)?;
        socket.read_exact(&mut answer)
    };
    if show().is_err() || answer != shown {
        return ProbeOutcome::Unanswered;
    }
    let mut exchange = || -> io::Result<u32> {
        match direction {
            Direction::Forth => socket.write_all(&vec![0; AMOUNT])?,
            Direction::Back => {
                socket.read_exact(&mut vec![0; AMOUNT])?;
                socket.write_all(&[0])?;
            }
        }
        socket.read_exact(&mut [0])?;
        path_mtu(socket.as_fd(), peer.ip())
    };
    exchange().map_or(ProbeOutcome::Stuck, ProbeOutcome::Through)
}

fn open(peer: SocketAddr, packet: Option<u32>) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::for_address(peer), Type::STREAM, None)?;
    forbid_fragmentation(socket.as_fd(), peer.ip())?;
    if let Some(packet) = packet {
        // The MSS is announced to the peer, so this limits its packets, too.
        let segment = (packet - headers(peer.ip())) as i32;
        tcp::set_int(socket.as_fd(), libc::IPPROTO_TCP, libc::TCP_MAXSEG, segment)?;
    }
    socket.connect_timeout(&peer.into(), CONNECTING)?;
    Ok(socket.into())
}

/// Finds the largest packet, in bytes, with which data arrives, given that packets of `mtu` bytes
/// are lost; 0 if not even the minimum that every path must support arrives.
fn largest(peer: SocketAddr, token: &Token, direction: Direction, mtu: u32) -> u32 {
    // RFC 791 and RFC 8200.
    let least = if peer.is_ipv4() { 576 } else { 1280 };
    // The kernel accepts no TCP_MAXSEG above 32767 (net/ipv4/tcp.c).
    let most = mtu.min(32767 + headers(peer.ip()));
    let arrives = |packet| {
        let came = attempt(peer, token, direction, Some(packet), PROBE_TIMEOUT);
        matches!(came, ProbeOutcome::Through(_))
    };
    if least >= most || !arrives(least) {
        return 0;
    }
    let (mut arrived, mut lost) = (least, most);
    while lost - arrived > 1 {
        let packet = arrived.midpoint(lost);
        let bound = if arrives(packet) { &mut arrived } else { &mut lost };
        *bound = packet;
    }
    arrived
}

/// Bytes of the IP and TCP headers, without options.
fn headers(address: IpAddr) -> u32 {
    if address.is_ipv4() { 40 } else { 60 }
}

/// Forbids fragmentation.
fn forbid_fragmentation(socket: BorrowedFd, address: IpAddr) -> io::Result<()> {
    match address {
        IpAddr::V4(_) => sockopt::set_ip_mtu_discover(socket, Ipv4PathMtuDiscovery::DO)?,
        IpAddr::V6(_) => sockopt::set_ipv6_mtu_discover(socket, Ipv6PathMtuDiscovery::DO)?,
    }
    Ok(())
}

/// Returns the path MTU in bytes, as this end's kernel currently knows it.
fn path_mtu(socket: BorrowedFd, address: IpAddr) -> io::Result<u32> {
    Ok(match address {
        IpAddr::V4(_) => sockopt::ip_mtu(socket)?,
        IpAddr::V6(_) => sockopt::ipv6_mtu(socket)?,
    })
}

/// Sets a timeout on each call, and makes closing reset the connection, so that the kernel does not
/// keep retransmitting undelivered data.
fn limit(socket: &TcpStream, timeout: Duration) -> io::Result<()> {
    socket.set_read_timeout(Some(timeout))?;
    socket.set_write_timeout(Some(timeout))?;
    tcp::reset_on_close(socket.as_fd(), true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{Ipv4Addr, Ipv6Addr};

    fn token() -> Token {
        Token("5".repeat(32))
    }

    fn meet(here: IpAddr) {
        let meeting = Meeting::listen(here, None, token()).unwrap();
        let peer = (here, meeting.port()).into();
        let mtu = route(here).unwrap().mtu;
        let contact = connect(peer, &token(), [mtu; 2]);
        // No IPv4 packet is as large as the loopback device's MTU of 65536 bytes.
        let path = if here.is_ipv4() { mtu.min(65535) } else { mtu };
        let whole = Passage::Whole;
        assert_eq!(contact, Contact::Made { forth: whole, back: whole, mtu: path });
        let met = meeting.met().unwrap();
        assert_eq!(met, ProbeResult { half_open: false, accepted: 2, mtu: Some(path) });
    }

    #[test]
    fn reaches_open_port() {
        meet(Ipv4Addr::LOCALHOST.into());
        match std::fs::exists("/proc/net/if_inet6") {
            Ok(true) if TcpListener::bind((Ipv6Addr::LOCALHOST, 0)).is_ok() => {
                meet(Ipv6Addr::LOCALHOST.into());
            }
            _ => bytepath_testing::skip!("no IPv6"),
        }
    }

    #[test]
    fn wrong_token_is_not_answered() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        let meeting = Meeting::listen(here, None, Token("6".repeat(32))).unwrap();
        let contact = connect((here, meeting.port()).into(), &token(), [1500; 2]);
        assert_eq!(contact, Contact::Mute);
        assert_eq!(meeting.met().unwrap().accepted, 1);
    }

    #[test]
    fn refused_where_nothing_listens() {
        let here = IpAddr::from(Ipv4Addr::LOCALHOST);
        // Bound but not listening, so that no one else gets the port meanwhile.
        let closed = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        closed.bind(&SocketAddr::new(here, 0).into()).unwrap();
        let peer = closed.local_addr().unwrap().as_socket().unwrap();
        assert_eq!(connect(peer, &token(), [1500; 2]), Contact::Refused);
    }
}
