//! The sockets of a loop by place: first the lasting ones it was opened with, then those that come
//! and go, with their origin.

use super::Output;
use super::sessions::{Sessions, end_of};
use crate::connection::Flow;
use crate::workload::{Group, HalfConfig};
use bytepath_record::{Fault, Role};
use bytepath_sys::kept_socket::KeptSocket;
use bytepath_sys::tcp::{self, FlowOptions};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// Bytes that fit into one segment on every link (RFC 9293, 3.7.1): no part of a message up to this
/// size waits for the acknowledgement of another part.
const ONE_SEGMENT: u64 = 536;

/// How passing connections are made.
pub(in crate::path) enum Origin {
    Connect(SocketAddr, FlowOptions),
    Accept(Arc<OwnedFd>),
}

impl Origin {
    /// Returns the origin of the passing connections, or `None` if the job has none. They use the
    /// address of the first lasting connection. `nonblocking`: whether their sockets are.
    pub(in crate::path) fn of(
        job: &HalfConfig,
        lasting: &[Arc<Flow>],
        nonblocking: bool,
    ) -> Result<Option<Origin>, Fault> {
        let Some(passing) = &job.passing else { return Ok(None) };
        if job.role == Role::Receiver {
            let listener = listener(job, lasting, nonblocking)?;
            return Ok(Some(Origin::Accept(Arc::new(listener))));
        }
        let mut options = passing.options.clone();
        let peer = first(lasting)?.peer()?;
        let usual = tcp::default_congestion(peer.ip())
            .map_err(|e| Fault::system("cannot read the default congestion control", &e))?;
        // Setting the default again would cost one call per connection.
        options.congestion = options.congestion.filter(|name| *name != usual);
        options.no_delay = job.message_size > ONE_SEGMENT;
        options.fast_open = passing.fast_open;
        Ok(Some(Origin::Connect(peer, options)))
    }
}

/// Listens at the address where the lasting connections were accepted.
pub(in crate::path) fn listener(
    job: &HalfConfig,
    lasting: &[Arc<Flow>],
    nonblocking: bool,
) -> Result<OwnedFd, Fault> {
    let passing = job.passing.as_ref().ok_or_else(|| {
        Fault::failed("connections that come and go were not requested")
            .remedy("report this as a bug")
    })?;
    let options = FlowOptions { no_delay: true, ..passing.options.clone() };
    let at = first(lasting)?.local()?;
    let listen = || {
        let listener = tcp::listen_beside(at, passing.backlog(), nonblocking, &options)?;
        if passing.fast_open {
            tcp::set_fast_open_backlog(listener.as_fd(), passing.backlog())?;
        }
        Ok(listener)
    };
    listen().map_err(|e| {
        Fault::system(format!("cannot listen at {at} for connections that come and go"), &e)
    })
}

fn first(lasting: &[Arc<Flow>]) -> Result<&Flow, Fault> {
    let first = lasting.first().map(|flow| &**flow);
    first.ok_or_else(|| {
        Fault::failed("an event loop without a connection").remedy("report this as a bug")
    })
}

/// All sockets of a loop.
pub(in crate::path) struct Sockets {
    pub(in crate::path) lasting: Vec<Arc<Flow>>,
    /// Sockets of the lasting connections.
    kept: Box<[KeptSocket]>,
    pub(in crate::path) origin: Option<Origin>,
    passing: Box<[Option<OwnedFd>]>,
    /// Free places, if connections are accepted.
    free: Vec<u32>,
    /// Failed connections, by place, that are still to be reported to the service; their places are
    /// not free until then.
    failed: Vec<(u32, io::Error)>,
    open: usize,
    /// Maximum number open at a time.
    most: usize,
}

impl Sockets {
    pub(in crate::path) fn open(
        job: &HalfConfig,
        lasting: Vec<Arc<Flow>>,
        origin: Option<Origin>,
    ) -> Sockets {
        let first = lasting.first().map_or(0, |flow| flow.index);
        let places = job.passing.as_ref().map_or(0, |passing| passing.places(job.role, first));
        let place = |slot: usize| (lasting.len() + slot) as u32;
        Sockets {
            origin,
            passing: (0..places).map(|_| None).collect(),
            // Popped from the end, so the first place is used first.
            free: (0..places).rev().map(place).collect(),
            failed: Vec::with_capacity(places),
            open: 0,
            most: lasting.len(),
            kept: lasting.iter().map(|flow| KeptSocket::new(flow.socket.clone())).collect(),
            lasting,
        }
    }

    /// Opens with non-blocking sockets and, at a server, a listening socket.
    pub(in crate::path) fn nonblocking(
        job: &HalfConfig,
        lasting: Vec<Arc<Flow>>,
    ) -> Result<Sockets, Fault> {
        let origin = Origin::of(job, &lasting, true)?;
        Ok(Sockets::open(job, lasting, origin))
    }

    /// Creates the TLS sessions of the passing connections; empty if they make no handshakes.
    pub(in crate::path) fn sessions(
        &self,
        job: &HalfConfig,
        group: &Group,
    ) -> Result<Sessions, Fault> {
        let end = match job.role {
            Role::Sender => end_of(job, self.passing.len())?,
            // A ticket that one thread has issued may be presented to another.
            Role::Receiver => Option::clone(&*group.share(|| end_of(job, 0))?),
        };
        Ok(Sessions::new(end, self.lasting.len(), self.passing.len()))
    }

    /// Number of places; the last is the listening socket's, if there is one.
    pub(in crate::path) fn places(&self) -> usize {
        self.lasting.len() + self.passing.len() + usize::from(self.listener().is_some())
    }

    pub(in crate::path) fn listener(&self) -> Option<(usize, BorrowedFd<'_>)> {
        match &self.origin {
            Some(Origin::Accept(listener)) => {
                Some((self.lasting.len() + self.passing.len(), listener.as_fd()))
            }
            _ => None,
        }
    }

    /// True if this end connects the passing connections.
    pub(in crate::path) fn connects(&self) -> bool {
        matches!(self.origin, Some(Origin::Connect(..)))
    }

    pub(in crate::path) fn is_lasting(&self, place: usize) -> bool {
        place < self.lasting.len()
    }

    /// Returns the socket of a place, or `None` if it is free.
    #[inline]
    pub(in crate::path) fn get(&self, place: usize) -> Option<BorrowedFd<'_>> {
        match self.kept.get(place) {
            Some(socket) => Some(socket.as_fd()),
            None => self.passing.get(place - self.kept.len())?.as_ref().map(OwnedFd::as_fd),
        }
    }

    /// Returns a free place for an accepted connection.
    pub(in crate::path) fn free_place(&self) -> Option<usize> {
        self.free.last().map(|place| *place as usize)
    }

    /// Puts a socket into a place.
    pub(in crate::path) fn fill(&mut self, place: usize, socket: OwnedFd) {
        if self.free.last() == Some(&(place as u32)) {
            self.free.pop();
        }
        self.passing[place - self.lasting.len()] = Some(socket);
        self.open += 1;
        self.most = self.most.max(self.lasting.len() + self.open);
    }

    /// Frees a place and returns its socket.
    pub(in crate::path) fn empty(&mut self, place: usize) -> Option<OwnedFd> {
        let socket = self.take(place)?;
        self.vacate(place);
        Some(socket)
    }

    fn take(&mut self, place: usize) -> Option<OwnedFd> {
        let socket = self.passing.get_mut(place.checked_sub(self.lasting.len())?)?.take()?;
        self.open -= 1;
        Some(socket)
    }

    fn vacate(&mut self, place: usize) {
        if matches!(self.origin, Some(Origin::Accept(_))) {
            self.free.push(place as u32);
        }
    }

    /// Handles a failed call. Errors for a lasting connection. A passing one will be reported to
    /// the service; returns its socket, if it has one, which the caller must close.
    pub(in crate::path) fn fail(
        &mut self,
        place: usize,
        call: &str,
        error: io::Error,
    ) -> Result<Option<OwnedFd>, Fault> {
        match self.lasting.get(place) {
            Some(flow) => Err(flow.fault(call, &error)),
            None => {
                self.failed.push((place as u32, error));
                Ok(self.take(place))
            }
        }
    }

    /// Returns the next failed connection and its error; each is returned once.
    pub(in crate::path) fn failure(&mut self) -> Option<(usize, io::Error)> {
        let (place, error) = self.failed.pop()?;
        self.vacate(place as usize);
        Some((place as usize, error))
    }

    pub(in crate::path) fn has_failures(&self) -> bool {
        !self.failed.is_empty()
    }

    /// Returns the maximum number of connections at a time.
    pub(in crate::path) fn most(&self) -> usize {
        self.most
    }

    /// Returns the maximum number of passing connections at a time.
    pub(in crate::path) fn most_passing(&self) -> usize {
        self.most - self.lasting.len()
    }

    /// Bytes that a loop keeps for its connections, as many as there were at a time: further places
    /// exist only so that no turn allocates.
    pub(in crate::path) fn memory(&self) -> usize {
        let lasting = size_of::<Arc<Flow>>() + size_of::<Flow>() + size_of::<KeptSocket>();
        let passing =
            size_of::<Option<OwnedFd>>() + size_of::<u32>() + size_of::<(u32, io::Error)>();
        self.most * size_of::<Output>()
            + self.lasting.len() * lasting
            + self.most_passing() * passing
    }
}
