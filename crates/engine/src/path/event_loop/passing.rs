//! Connections that come and go in a [`ReadyLoop`]: accept4(2), connect(2), close(2).

use super::sockets::Origin;
use super::{Output, Readiness, ReadyLoop, SEND_PIECES, Watched};
use crate::workload::{Call, Recorder, Service};
use bytepath_record::Fault;
use bytepath_sys::tcp;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};

pub(in crate::path) const ACCEPT: Call = Call(3, "accept");
pub(in crate::path) const CONNECT: Call = Call(4, "connect");
pub(in crate::path) const CLOSE: Call = Call(5, "close");

impl<R: Readiness> ReadyLoop<R> {
    /// Accepts all waiting connections for which there is a free place.
    pub(super) fn accept(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let failed = |e| Err(Fault::system("accept", &e));
        while let Some((at, listener)) = self.sockets.listener() {
            let Some(place) = self.sockets.free_place() else {
                self.unaccepted = true;
                return Ok(());
            };
            match recorder.timed_with(ACCEPT, || tcp::accept(listener, true), |_| 0) {
                Ok(socket) => {
                    self.take_in(place, socket, false)?;
                    service.accepted(place);
                }
                // The client has given up.
                Err(e)
                    if matches!(
                        e.kind(),
                        ErrorKind::Interrupted | ErrorKind::ConnectionAborted
                    ) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => {
                    self.unaccepted = false;
                    let on = Watched { socket: listener, place: at, input: true };
                    return self.readiness.rearm(&on, false).or_else(failed);
                }
                Err(e) => return failed(e),
            }
        }
        Ok(())
    }

    /// Accepts connections for which there was no free place before.
    pub(super) fn accept_left(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        if self.unaccepted { self.accept(service, recorder) } else { Ok(()) }
    }

    /// Starts connecting, and sends once there is room.
    pub(super) fn begin_connection(
        &mut self,
        place: usize,
        bytes: u64,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let Some(Origin::Connect(peer, options)) = &self.sockets.origin else {
            return Err(Fault::failed("a server was to connect").remedy("report this as a bug"));
        };
        let connect = || -> io::Result<OwnedFd> {
            let socket = tcp::unconnected(peer.ip(), true, options)?;
            tcp::connect_socket(socket.as_fd(), peer)?;
            Ok(socket)
        };
        match recorder.timed_with(CONNECT, connect, |_| 0) {
            Ok(socket) => {
                self.take_in(place, socket, true)?;
                self.outputs[place] = Output { left: bytes, busy: true, ..Output::default() };
                Ok(())
            }
            Err(e) => self.sockets.fail(place, "connect", e).map(drop),
        }
    }

    /// Adds a new socket at a place.
    fn take_in(&mut self, place: usize, socket: OwnedFd, room: bool) -> Result<(), Fault> {
        self.outputs[place] = Output::default();
        let on = Watched { socket: socket.as_fd(), place, input: true };
        self.readiness.watch(&on, room).map_err(|e| {
            Fault::system("watching a new connection", &e)
                .remedy("raise sysctl fs.epoll.max_user_watches, or choose fewer flows")
        })?;
        self.sockets.fill(place, socket);
        self.sessions.begin(place)
    }

    /// Sends the last record of a session, if there is room.
    pub(super) fn send_last(&mut self, place: usize, recorder: &mut Recorder) {
        if let (Some(socket), Some(session)) = (self.sockets.get(place), self.sessions.get(place))
            && session.close()
        {
            // A peer that does not get it still sees that the connection is closed.
            let _ = recorder.timed(SEND_PIECES, || session.send(socket, libc::MSG_DONTWAIT));
        }
    }

    /// Handles a failed call of a connection; a passing connection is closed.
    #[cold]
    pub(super) fn fail(
        &mut self,
        place: usize,
        call: &str,
        error: io::Error,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        self.send_last(place, recorder);
        if let Some(socket) = self.sockets.fail(place, call, error)? {
            self.shut(place, socket, recorder);
        }
        Ok(())
    }

    /// Closes a passing connection. True if there was one.
    pub(super) fn release(&mut self, place: usize, recorder: &mut Recorder) -> bool {
        let socket = self.sockets.empty(place);
        socket.map(|socket| self.shut(place, socket, recorder)).is_some()
    }

    fn shut(&mut self, place: usize, socket: OwnedFd, recorder: &mut Recorder) {
        self.readiness.release(place);
        self.sessions.end(place);
        self.outputs[place] = Output::default();
        close(socket, recorder);
    }
}

pub(super) fn close(socket: OwnedFd, recorder: &mut Recorder) {
    let _ = recorder.timed(CLOSE, || {
        drop(socket);
        Ok(0)
    });
}
