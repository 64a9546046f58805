//! A loop of one passing connection at a time with blocking calls, like a program with a thread per
//! connection. Threads of a server share a listening socket.

use super::passing::{ACCEPT, CONNECT, close};
use super::sessions::{Sessions, end_of};
use super::sockets::{Origin, Sockets, listener};
use super::{Counts, Opened, Output, RECV, SEND, SEND_PIECES, send_witness};
use crate::connection::Connection;
use crate::connection::handshake::TlsConfig;
use crate::path::common;
use crate::workload::{Account, EventLoop, Group, HalfConfig, Recorder, Service, Toucher};
use bytepath_record::{Fault, Role};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How long a server's call may block before it checks whether the trial is over. Accepted sockets
/// inherit the timeout.
const LOOK: Duration = Duration::from_millis(10);

/// How long a client's call may block.
const ANSWER: Duration = Duration::from_secs(5);

pub(in crate::path) fn open(
    [send, receive]: [&HalfConfig; 2],
    connections: &[Arc<dyn Connection>],
    group: &Group,
) -> Opened<dyn EventLoop> {
    let lasting = super::sockets(connections)?;
    let (origin, end) = match send.role {
        Role::Sender => (Origin::of(send, &lasting, false)?, end_of(send, 1)?),
        Role::Receiver => {
            let listen = || -> Result<Shared, Fault> {
                let socket = listener(send, &lasting, false)?;
                let limited = tcp::limit_blocking(socket.as_fd(), LOOK);
                limited.map_err(|e| Fault::system("SO_RCVTIMEO", &e))?;
                Ok(Shared { listener: socket.into(), end: end_of(send, 0)? })
            };
            let Shared { listener, end } = &*group.share(listen)?;
            (Some(Origin::Accept(listener.clone())), end.clone())
        }
    };
    Ok(Box::new(Blocking {
        role: send.role,
        sessions: Sessions::new(end, lasting.len(), 1),
        sockets: Sockets::open(send, lasting, origin),
        ended: vec![false; connections.len()],
        output: Output::default(),
        message: common::message(send.message_size, false)?,
        buffer: common::buffer("the read buffer", receive.read_size, false)?,
        toucher: Toucher::new(receive.touch, receive.message_size),
        counts: Counts::default(),
    }))
}

/// Shared by the threads of a server.
struct Shared {
    listener: Arc<OwnedFd>,
    end: Option<TlsConfig>,
}

struct Blocking {
    role: Role,
    sockets: Sockets,
    sessions: Sessions,
    /// Which lasting connections have ended, so that each end is reported once.
    ended: Vec<bool>,
    /// Output of the passing connection.
    output: Output,
    message: Region,
    buffer: Region,
    toucher: Toucher,
    counts: Counts,
}

impl Blocking {
    fn fail(&mut self, call: &str, error: io::Error, recorder: &mut Recorder) -> Result<(), Fault> {
        let place = self.sockets.lasting.len();
        self.send_last(place, recorder);
        if let Some(socket) = self.sockets.fail(place, call, error)? {
            self.sessions.end(place);
            close(socket, recorder);
        }
        Ok(())
    }

    fn release(&mut self, place: usize, recorder: &mut Recorder) {
        if let Some(socket) = self.sockets.empty(place) {
            self.sessions.end(place);
            close(socket, recorder);
        }
    }

    /// Sends the last record of a session, if it has one.
    fn send_last(&mut self, place: usize, recorder: &mut Recorder) {
        if let (Some(socket), Some(session)) = (self.sockets.get(place), self.sessions.get(place))
            && session.close()
        {
            let _ = recorder.timed(SEND_PIECES, || session.send(socket, libc::MSG_DONTWAIT));
        }
    }

    /// Sends the next records of a connection with a session. False if there are none.
    fn send_records(&mut self, place: usize, recorder: &mut Recorder) -> Result<bool, Fault> {
        let (Some(socket), Some(session)) = (self.sockets.get(place), self.sessions.get(place))
        else {
            return Ok(false);
        };
        match session.seal(&mut self.output, &self.message) {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            Err(e) => return self.fail("TLS", e, recorder).map(|()| false),
        }
        match recorder.timed(SEND_PIECES, || session.send(socket, 0)) {
            Ok(_) => {
                let bytes = session.gone();
                recorder.moved(bytes);
                self.counts.sent.enter(bytes);
            }
            Err(e) => self.unsent(e, recorder)?,
        }
        Ok(true)
    }

    /// Handles a failed send or a timeout.
    #[cold]
    fn unsent(&mut self, e: io::Error, recorder: &mut Recorder) -> Result<(), Fault> {
        match e.kind() {
            ErrorKind::Interrupted => Ok(()),
            ErrorKind::WouldBlock => self.waited("send", None, recorder),
            _ => self.fail("send", e, recorder),
        }
    }

    /// Handles the timeout of a call.
    fn waited(
        &mut self,
        call: &str,
        service: Option<&mut dyn Service>,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        match self.role {
            Role::Sender => {
                self.fail(call, io::Error::from_raw_os_error(libc::ETIMEDOUT), recorder)
            }
            Role::Receiver => self.look(service),
        }
    }

    /// Checks the lasting connections.
    fn look(&mut self, mut service: Option<&mut dyn Service>) -> Result<(), Fault> {
        for (place, flow) in self.sockets.lasting.iter().enumerate() {
            match (tcp::recv(flow.fd(), &mut [0; 1], libc::MSG_DONTWAIT), &mut service) {
                (Ok(0), Some(service)) if !self.ended[place] => {
                    flow.confirm_end()?;
                    self.ended[place] = true;
                    service.ended(place)?;
                }
                (Err(e), _) if e.kind() != ErrorKind::WouldBlock => {
                    return Err(flow.fault("recv", &e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn accept(&mut self, service: &mut dyn Service, recorder: &mut Recorder) -> Result<(), Fault> {
        let Some((_, listener)) = self.sockets.listener() else { return Ok(()) };
        match recorder.timed_with(ACCEPT, || tcp::accept(listener, false), |_| 0) {
            Ok(socket) => {
                let place = self.sockets.lasting.len();
                self.output = Output::default();
                self.sockets.fill(place, socket);
                self.sessions.begin(place)?;
                service.accepted(place);
                Ok(())
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => self.look(Some(service)),
            Err(e) if matches!(e.kind(), ErrorKind::Interrupted | ErrorKind::ConnectionAborted) => {
                Ok(())
            }
            Err(e) => Err(Fault::system("accept", &e)),
        }
    }

    fn receive(&mut self, service: &mut dyn Service, recorder: &mut Recorder) -> Result<(), Fault> {
        let place = self.sockets.lasting.len();
        let Some(socket) = self.sockets.get(place) else { return Ok(()) };
        let buffer = &mut self.buffer;
        match recorder.timed(RECV, || tcp::recv(socket, buffer, 0)) {
            Ok(0) => match self.sessions.ended(place) {
                Ok(()) => {
                    self.release(place, recorder);
                    service.ended(place)
                }
                Err(e) => self.fail("TLS", e, recorder),
            },
            Ok(bytes) => {
                let came = &self.buffer[..bytes];
                let toucher = &mut self.toucher;
                let plain = match self.sessions.deliver(place, came, toucher, recorder)? {
                    Ok((plain, _)) => plain,
                    Err(e) => return self.fail("TLS", e, recorder),
                };
                self.counts.received.enter(plain as usize);
                let answer = service.received(place, plain);
                self.send(place, answer, recorder)
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                self.waited("recv", Some(service), recorder)
            }
            Err(e) => self.fail("recv", e, recorder),
        }
    }
}

impl EventLoop for Blocking {
    fn witness(&mut self) -> Result<(), Fault> {
        send_witness(&self.sockets.lasting)
    }

    fn send(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        self.output.left += bytes;
        if self.sessions.get(place).is_some() {
            while self.send_records(place, recorder)? {}
            return Ok(());
        }
        while self.output.left > 0 {
            let Some(socket) = self.sockets.get(place) else { break };
            let part = &self.message[self.output.part(self.message.len())];
            match recorder.timed(SEND, || tcp::send(socket, part, 0)) {
                Ok(bytes) => {
                    recorder.moved(bytes);
                    self.counts.sent.enter(bytes);
                    self.output.sent(bytes, self.message.len());
                }
                Err(e) => self.unsent(e, recorder)?,
            }
        }
        Ok(())
    }

    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        let Some(Origin::Connect(peer, options)) = &self.sockets.origin else {
            return Err(Fault::failed("a server was to connect").remedy("report this as a bug"));
        };
        let connect = || -> io::Result<OwnedFd> {
            let socket = tcp::unconnected(peer.ip(), false, options)?;
            tcp::limit_blocking(socket.as_fd(), ANSWER)?;
            match tcp::connect_socket(socket.as_fd(), peer)? {
                true => Ok(socket),
                false => Err(io::Error::from_raw_os_error(libc::ETIMEDOUT)),
            }
        };
        match recorder.timed_with(CONNECT, connect, |_| 0) {
            Ok(socket) => {
                self.output = Output::default();
                self.sockets.fill(place, socket);
                self.sessions.begin(place)?;
                self.send(place, bytes, recorder)
            }
            Err(e) => self.fail("connect", e, recorder),
        }
    }

    fn close(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_last(place, recorder);
        self.release(place, recorder);
        Ok(())
    }

    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        let open = self.sockets.get(self.sockets.lasting.len()).is_some();
        match (open, self.role) {
            _ if self.sockets.has_failures() => {}
            (true, _) => self.receive(service, recorder)?,
            (false, Role::Receiver) => self.accept(service, recorder)?,
            (false, Role::Sender) => std::thread::sleep(limit.unwrap_or(LOOK).min(LOOK)),
        }
        while let Some((place, error)) = self.sockets.failure() {
            service.failed(place, &error)?;
        }
        Ok(())
    }

    fn account(&mut self) -> Result<Account, Fault> {
        let memory = self.message.len() + self.buffer.len() + self.sockets.memory();
        let memory = memory + self.sessions.memory(self.sockets.most_passing());
        let sources = ["send(2): copied from user memory", "recv(2): copied to user memory"];
        let sources = self.sessions.sources(sources);
        let mut account = self.counts.account(self.role, sources, [self.sockets.most(), memory]);
        self.sessions.account(self.role, &mut account);
        Ok(account)
    }
}
