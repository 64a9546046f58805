//! Types of a transport and its connections.

use super::flow::Flow;
use bytepath_record::wire::{Secret, Token};
use bytepath_record::{Cell, Fault, LinkSettings, Options, Ports, Protocol, Stream};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A way for two ends to connect. A connecting peer must present the session's token first; without
/// it, it is not accepted.
pub struct Transport {
    /// Name, for messages.
    pub name: &'static str,
    /// Its protocol; the peer may use another transport with the same protocol.
    pub protocol: Protocol,
    /// Refuses a cell whose contract or link it cannot support. Pure.
    pub check: fn(&Cell) -> Result<(), Fault>,
    /// Starts listening for the peer's flows at an address of this host.
    pub listen: fn(IpAddr, &Terms) -> Result<Listener, Fault>,
    /// Connects this many flows to the peer's addresses round-robin; each flow presents the token
    /// and its index. Returns all of them, in order.
    pub connect: fn(&[SocketAddr], &Terms, &Token, u32) -> AllConnected,
}

/// Returns the peer's address that a flow connects to.
pub(super) fn peer_of_flow(peers: &[SocketAddr], index: u32) -> Result<SocketAddr, Fault> {
    let peer = peers.get(index as usize % peers.len().max(1)).copied();
    peer.ok_or_else(|| Fault::failed("no address to connect to").remedy("report this as a bug"))
}

/// A connected flow, or the reason why it could not be connected.
pub type Connected = Result<Arc<dyn Connection>, Fault>;

/// All connected flows, or the reason why one could not be connected.
pub type AllConnected = Result<Vec<Arc<dyn Connection>>, Fault>;

/// What both ends of a cell agree on, and this end's device and resources.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The contract of the connections.
    pub contract: &'a Stream,
    /// The link as the cell requests it.
    pub link: &'a LinkSettings,
    /// The network device of this end, if known.
    pub device: Option<&'a str>,
    /// Ports to listen on, or to connect from, one per flow; `None` leaves the choice to the
    /// transport.
    pub ports: Option<Ports>,
    /// Queues of the tap, if this is the end that has its file descriptors.
    pub queues: &'a [Arc<OwnedFd>],
    /// Options of the path half named after this end's role.
    pub options: &'a Options,
    /// Key material of the connections, if the contract requires encryption.
    pub secret: Option<&'a Secret>,
}

/// A listening end.
pub struct Listener {
    /// Address that the peer must connect to.
    pub address: SocketAddr,
    accept: Box<Accept>,
}

type Accept = dyn Fn(&Token, u32) -> AllConnected + Send;

impl Listener {
    pub(super) fn new(
        address: SocketAddr,
        accept: impl Fn(&Token, u32) -> AllConnected + Send + 'static,
    ) -> Listener {
        Listener { address, accept: Box::new(accept) }
    }

    /// Accepts the connections of all flows, in order; empty if the flows of this transport end in
    /// a device.
    pub fn accept(&self, token: &Token, flows: u32) -> AllConnected {
        (self.accept)(token, flows)
    }
}

/// One connection. Movers of other transports than the kernel's reach their type via `Any`:
/// `(connection as &dyn Any).downcast_ref::<TheirConnection>()`.
pub trait Connection: Any + Send + Sync {
    /// Index among the flows of the session.
    fn index(&self) -> u32;

    /// The kernel's socket, if it has one, whose state meters read.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The same connection for movers that make system calls on a socket. Errors, naming the
    /// transport, if it has no socket.
    fn kernel(&self) -> Result<Flow, Fault>;

    /// From now on, small messages are sent at once, without waiting for acknowledgement of earlier
    /// ones. Does nothing for a transport that never holds messages back.
    fn send_at_once(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Ends the sending direction and waits until the peer has acknowledged everything, if the
    /// protocol has acknowledgements.
    fn end_stream(&self) -> Result<(), Fault>;

    /// Waits like [`Connection::end_stream`], after [`Connection::close`]. Of many streams, all are
    /// closed before waiting for the first, since acknowledgements may be delayed.
    fn await_end(&self) -> Result<(), Fault> {
        self.end_stream()
    }

    /// True if this process must answer a peer that retransmits its FIN, as the kernel does for its
    /// sockets. The connection must then exist until the peer has ended.
    fn answers_late(&self) -> bool {
        false
    }

    /// Waits until the peer has acknowledged everything sent so far.
    fn wait_acknowledged(&self, timeout: Duration) -> Result<(), Fault>;

    /// Fills the buffer with the next bytes, by plain reads.
    fn read_exact(&self, buffer: &mut [u8]) -> Result<(), Fault>;

    /// Ends both directions at once; calls that wait on this connection return.
    fn cut(&self);

    /// Ends the sending direction without waiting.
    fn close(&self);
}
