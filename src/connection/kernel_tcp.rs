//! The kernel's TCP: connected, blocking, with the contract's options set.

use super::{Connection, Listener, Transport};
use crate::record::wire::Token;
use crate::record::{Fault, FaultKind, Stream};
use crate::sys::tcp::{self, FlowOptions, Ready};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The transport.
pub static KERNEL_TCP: &dyn Transport = &KernelTcp;

struct KernelTcp;

/// How long the peer may take to connect and to show its token.
const HANDSHAKE: Duration = Duration::from_secs(5);

impl Transport for KernelTcp {
    fn name(&self) -> &'static str {
        "the kernel's TCP"
    }

    fn listen(&self, address: IpAddr, contract: &Stream) -> Result<Box<dyn Listener>, Fault> {
        let listener = tcp::listen(address, contract.flows, &flow_options(contract))
            .map_err(|e| socket_fault("listen", contract, &e))?;
        Ok(Box::new(listener))
    }

    fn connect(
        &self,
        peer: SocketAddr,
        contract: &Stream,
        token: &Token,
        index: u32,
    ) -> Result<Arc<dyn Connection>, Fault> {
        let mut socket = tcp::connect(peer, &flow_options(contract))
            .map_err(|e| socket_fault(&format!("connect to {peer}"), contract, &e))?;
        socket
            .write_all(&hello(token, index))
            .map_err(|e| Fault::system("cannot show the token to the receiver", &e))?;
        Ok(Arc::new(Flow { socket, index }))
    }
}

impl Listener for TcpListener {
    fn port(&self) -> Result<u16, Fault> {
        let address = self.local_addr();
        Ok(address.map_err(|e| Fault::system("cannot read the port", &e))?.port())
    }

    /// Any connection that does not show the token in time is closed and forgotten.
    fn accept(&self, token: &Token, flows: u32) -> Result<Vec<Arc<dyn Connection>>, Fault> {
        let mut taken: Vec<Option<Arc<dyn Connection>>> = (0..flows).map(|_| None).collect();
        let deadline = Instant::now() + HANDSHAKE;
        while taken.iter().any(Option::is_none) {
            let socket = accept_one(self, deadline)?;
            if let Some(index) = shown_index(&socket, token, deadline)
                && let Some(slot @ None) = taken.get_mut(index as usize)
            {
                *slot = Some(Arc::new(Flow { socket, index }));
            }
        }
        Ok(taken.into_iter().flatten().collect())
    }
}

impl Connection for Flow {
    fn index(&self) -> u32 {
        self.index
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        Some(self.fd())
    }

    fn kernel(&self) -> Result<Flow, Fault> {
        let socket = self.socket.try_clone();
        let socket = socket.map_err(|e| Fault::system("cannot duplicate the connection", &e))?;
        Ok(Flow { socket, index: self.index })
    }

    fn send_at_once(&self) -> Result<(), Fault> {
        self.socket.set_nodelay(true).map_err(|e| self.fault("TCP_NODELAY", &e))
    }

    fn end_stream(&self) -> Result<(), Fault> {
        Flow::end_stream(self)
    }

    fn wait_acknowledged(&self, timeout: Duration) -> Result<(), Fault> {
        tcp::wait_acknowledged(self.fd(), timeout)
            .map_err(|e| self.fault("waiting for an acknowledgement", &e))
    }

    fn read_exact(&self, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut got = 0;
        while got < buffer.len() {
            match tcp::recv(self.fd(), &mut buffer[got..], libc::MSG_WAITALL) {
                Ok(0) => return Err(self.cut_off()),
                Ok(n) => got += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.fault("recv", &e)),
            }
        }
        Ok(())
    }

    fn cut(&self) {
        // One that is gone already needs no cutting.
        let _ = tcp::shutdown(self.fd(), Shutdown::Both);
    }

    fn close(&self) {
        let _ = tcp::shutdown(self.fd(), Shutdown::Write);
    }
}

/// One connection, and what movers over it need.
#[derive(Debug)]
pub struct Flow {
    /// The connected socket, in blocking mode.
    pub socket: TcpStream,
    /// Which flow of the trial, counted from 0.
    pub index: u32,
}

impl Flow {
    /// The socket's descriptor.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Sender, before its stream: from here to [`Flow::end_stream`] the death
    /// of this process resets the connection. Without this the kernel would
    /// end the stream of a killed sender in good order, and the receiver would
    /// take half a stream for a whole one.
    pub fn reset_on_death(&self) -> Result<(), Fault> {
        tcp::reset_on_close(self.fd(), true).map_err(|e| self.fault("SO_LINGER", &e))
    }

    /// Sender, after its stream: ends it and waits until the peer's kernel has
    /// acknowledged all of it. A receiver that no longer reads makes this wait
    /// until the socket is shut down, which is a `PeerLost` fault.
    pub fn end_stream(&self) -> Result<(), Fault> {
        let failed = |e: io::Error| self.fault("the end of the stream", &e);
        tcp::shutdown(self.fd(), Shutdown::Write).map_err(failed)?;
        // No event tells of an acknowledgement, so it has to be asked for; the
        // stream is over, and nothing is timed any more.
        let mut pause = Duration::from_micros(50);
        while tcp::unacknowledged(self.fd()).map_err(failed)? > 0 {
            match tcp::recv(self.fd(), &mut [0; 512], libc::MSG_DONTWAIT) {
                // A peer that has read everything has acknowledged it, too.
                Ok(0) if tcp::unacknowledged(self.fd()).map_err(failed)? == 0 => break,
                Ok(0) => return Err(self.cut_off()),
                Ok(_) => {}
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(1));
                }
                Err(e) => return Err(failed(e)),
            }
        }
        tcp::reset_on_close(self.fd(), false).map_err(failed)
    }

    /// Sender, within its stream: whether the connection was cut, by the peer or
    /// from outside. A socket that is shut refuses even to send nothing.
    pub fn check_open(&self) -> Result<(), Fault> {
        match tcp::send(self.fd(), &[], libc::MSG_DONTWAIT) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(self.cut_off()),
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(self.fault("send", &e)),
            _ => Ok(()),
        }
    }

    /// Receiver, after a receive of 0 bytes: whether that really was the end of
    /// the sender's stream. It is not when our own side was shut down.
    pub fn confirm_end(&self) -> Result<(), Fault> {
        match tcp::peer_finished(self.fd()) {
            Ok(true) => Ok(()),
            Ok(false) => Err(self.cut_off()),
            Err(e) => Err(self.fault("TCP_INFO", &e)),
        }
    }

    /// Waits until something can be received, at most this long.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Fault> {
        match tcp::wait(self.fd(), Ready::IN, Some(timeout)) {
            Ok(ready) => Ok(!ready.is_empty()),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(self.fault("poll", &e)),
        }
    }

    /// The fault of a call that failed on this flow. Errors that mean that
    /// the other end does not answer are `PeerLost`.
    pub fn fault(&self, call: &str, error: &io::Error) -> Fault {
        let mut fault = Fault::system(format_args!("flow {}: {call}", self.index), error);
        let unreachable = [
            ErrorKind::TimedOut,
            ErrorKind::HostUnreachable,
            ErrorKind::NetworkUnreachable,
            ErrorKind::NetworkDown,
            ErrorKind::NotConnected,
        ];
        if unreachable.contains(&error.kind()) {
            fault.kind = FaultKind::PeerLost;
        }
        fault
    }

    fn cut_off(&self) -> Fault {
        let message = format!("flow {}: the connection was cut in the middle", self.index);
        Fault::new(FaultKind::PeerLost, message)
    }
}

fn flow_options(contract: &Stream) -> FlowOptions {
    FlowOptions {
        send_buffer: contract.send_buffer,
        receive_buffer: contract.receive_buffer,
        congestion: Some(contract.congestion.clone()),
    }
}

fn socket_fault(what: &str, contract: &Stream, error: &std::io::Error) -> Fault {
    let fault = Fault::system(format!("cannot {what}"), error);
    match error.raw_os_error() {
        Some(libc::ENOENT) => Fault::new(
            FaultKind::Unsupported,
            format!("this kernel has no congestion control '{}'", contract.congestion),
        )
        .remedy("sysctl net.ipv4.tcp_available_congestion_control lists what it has"),
        Some(libc::EPERM) => {
            fault.remedy("is the congestion control in net.ipv4.tcp_allowed_congestion_control?")
        }
        _ => fault,
    }
}

/// What a connection shows first: the token's digits and its flow's index.
fn hello(token: &Token, index: u32) -> Vec<u8> {
    let mut bytes = token.0.clone().into_bytes();
    bytes.extend(index.to_le_bytes());
    bytes
}

fn accept_one(listener: &TcpListener, deadline: Instant) -> Result<TcpStream, Fault> {
    let left = deadline.saturating_duration_since(Instant::now());
    match tcp::wait_readable(listener.as_fd(), left) {
        Ok(true) => {}
        Ok(false) => {
            return Err(Fault::new(FaultKind::PeerLost, "the peer did not connect in time"));
        }
        Err(e) => return Err(Fault::system("cannot wait for the peer", &e)),
    }
    let accepted =
        TcpListener::accept(listener).map_err(|e| Fault::system("cannot accept the peer", &e))?;
    Ok(accepted.0)
}

fn shown_index(mut socket: &TcpStream, token: &Token, deadline: Instant) -> Option<u32> {
    let left = deadline.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
    socket.set_read_timeout(Some(left)).ok()?;
    let mut shown = vec![0; token.0.len() + 4];
    socket.read_exact(&mut shown).ok()?;
    socket.set_read_timeout(None).ok()?;
    let (secret, index) = shown.split_at(token.0.len());
    (secret == token.0.as_bytes())
        .then(|| u32::from_le_bytes(index.try_into().expect("four bytes")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};

    fn flows() -> (Flow, Flow) {
        let (tx, rx) = tcp::loopback_pair().unwrap();
        (Flow { socket: tx, index: 0 }, Flow { socket: rx, index: 1 })
    }

    #[test]
    fn a_cut_connection_is_seen_without_sending_anything() {
        let (tx, _rx) = flows();
        tx.check_open().unwrap();
        tx.socket.shutdown(Shutdown::Both).unwrap();
        assert_eq!(tx.check_open().unwrap_err().kind, FaultKind::PeerLost);
    }

    #[test]
    fn a_stream_ends_in_order_although_a_death_would_reset_it() {
        let (mut tx, mut rx) = flows();
        tx.reset_on_death().unwrap();
        tx.socket.write_all(&[1; 5000]).unwrap();
        tx.end_stream().unwrap();
        drop(tx);
        let mut all = Vec::new();
        rx.socket.read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 5000);
        rx.confirm_end().unwrap();
    }

    #[test]
    fn a_dead_sender_is_not_the_end_of_its_stream() {
        let (mut tx, mut rx) = flows();
        tx.reset_on_death().unwrap();
        tx.socket.write_all(&[1; 5000]).unwrap();
        drop(tx);
        let error = rx.socket.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(rx.fault("recv", &error).kind, FaultKind::PeerLost);
    }

    #[test]
    fn waiting_for_a_stuck_receiver_ends_with_a_shutdown() {
        let (mut tx, _rx) = flows();
        tx.socket.set_nonblocking(true).unwrap();
        // Until neither the receiver's window nor the send buffer takes more.
        while tx.socket.write(&[0; 65536]).is_ok() {}
        let outside = tx.socket.try_clone().unwrap();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            outside.shutdown(Shutdown::Both).unwrap();
        });
        assert_eq!(tx.end_stream().unwrap_err().kind, FaultKind::PeerLost);
        stopper.join().unwrap();
    }

    #[test]
    fn our_own_shutdown_is_not_the_end_of_the_stream() {
        let (_tx, mut rx) = flows();
        rx.socket.shutdown(Shutdown::Both).unwrap();
        assert_eq!(rx.socket.read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(rx.confirm_end().unwrap_err().kind, FaultKind::PeerLost);
    }
}
