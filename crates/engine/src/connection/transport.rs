//! What a transport and its connections are.

use super::flow::Flow;
use bytepath_record::wire::{Secret, Token};
use bytepath_record::{Cell, Fault, LinkSettings, Options, Ports, Protocol, Stream};
use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// A way for two ends to meet. Whatever connects has to show the session's token
/// first; who does not is not let in.
pub struct Transport {
    /// Name, for messages.
    pub name: &'static str,
    /// What it speaks: its peer may be another transport that does.
    pub protocol: Protocol,
    /// Refuses a cell whose contract or link it cannot keep. Pure.
    pub check: fn(&Cell) -> Result<(), Fault>,
    /// Gets ready to meet the peer's flows at an address of this host.
    pub listen: fn(IpAddr, &Terms) -> Result<Listener, Fault>,
    /// Connects so many flows, which take the peer's addresses in turn; each shows the token and its
    /// index: all, in their order.
    pub connect: fn(&[SocketAddr], &Terms, &Token, u32) -> AllConnected,
}

/// The peer's address that a flow connects to.
pub(super) fn peer_of_flow(peers: &[SocketAddr], index: u32) -> Result<SocketAddr, Fault> {
    let peer = peers.get(index as usize % peers.len().max(1)).copied();
    peer.ok_or_else(|| Fault::failed("no address to connect to").remedy("report this as a bug"))
}

/// A flow that is connected, or why not.
pub type Connected = Result<Arc<dyn Connection>, Fault>;

/// All flows, likewise.
pub type AllConnected = Result<Vec<Arc<dyn Connection>>, Fault>;

/// What both ends of a cell agree on, and where this end is.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// The contract of the connections.
    pub contract: &'a Stream,
    /// The link as the cell requests it.
    pub link: &'a LinkSettings,
    /// The network device of this end, where it is known.
    pub device: Option<&'a str>,
    /// Ports to listen on, or to connect the flows from, each from its own; none leaves it to the
    /// transport.
    pub ports: Option<Ports>,
    /// Queues of the tap of which this is the end with the descriptors.
    pub queues: &'a [Arc<OwnedFd>],
    /// What is set of the half of the path that this end's role is named after.
    pub options: &'a Options,
    /// What the connections are encrypted with, if the contract requires it.
    pub secret: Option<&'a Secret>,
}

/// An end that listens.
pub struct Listener {
    /// Where the peer has to connect to.
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

    /// Takes the connections of all flows, in their order; none where the flows of this
    /// transport end in a device.
    pub fn accept(&self, token: &Token, flows: u32) -> AllConnected {
        (self.accept)(token, flows)
    }
}

/// One connection. Movers of a transport of their own reach its type by way of `Any`:
/// `(connection as &dyn Any).downcast_ref::<TheirConnection>()`.
pub trait Connection: Any + Send + Sync {
    /// Its index among the flows of the session.
    fn index(&self) -> u32;

    /// The kernel's socket, where it is one: what meters read the state of.
    fn socket(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    /// The same connection for movers that work by system calls on a socket; a
    /// transport without one is refused by name.
    fn kernel(&self) -> Result<Flow, Fault>;

    /// From here on small messages leave at once and do not wait for what was sent before
    /// them. Nothing to do for a transport that never holds any back.
    fn send_at_once(&self) -> Result<(), Fault> {
        Ok(())
    }

    /// Ends what this end sends and waits until the peer has acknowledged all of it, where
    /// there are acknowledgements.
    fn end_stream(&self) -> Result<(), Fault>;

    /// Waits as [`Connection::end_stream`] does, after [`Connection::close`]: of many streams all are
    /// ended before the first is waited for, since an acknowledgement may be delayed.
    fn await_end(&self) -> Result<(), Fault> {
        self.end_stream()
    }

    /// Whether this process has to answer a peer that sends its end again, as the kernel does for its
    /// sockets: then the connection is to be there until the peer has ended.
    fn answers_late(&self) -> bool {
        false
    }

    /// Waits until the peer has acknowledged what was sent so far.
    fn wait_acknowledged(&self, timeout: Duration) -> Result<(), Fault>;

    /// Fills the buffer with what comes next, the plain way.
    fn read_exact(&self, buffer: &mut [u8]) -> Result<(), Fault>;

    /// Ends both directions at once: calls that wait for this connection return.
    fn cut(&self);

    /// Ends the sending direction without waiting.
    fn close(&self);
}
