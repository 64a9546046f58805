//! One connection over a kernel socket, of either protocol.

use super::Connection;
use super::tls::{self, Keys};
use bytepath_record::{Fault, FaultKind, Protocol};
use bytepath_sys::tcp::{self, Ready, Shutdown};
use socket2::Socket;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How long a wait for an acknowledgement may take to notice a cut.
const CUT_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// One connection, and the state that its movers need.
#[derive(Debug)]
pub struct Flow {
    /// The connected socket, in blocking mode.
    pub socket: Arc<Socket>,
    /// Index of the flow in the trial, from 0.
    pub index: u32,
    pub protocol: Protocol,
    /// Whether this end has ended its sending direction.
    pub closed: Arc<AtomicBool>,
    /// Whether [`Connection::cut`] was called.
    pub cut: Arc<AtomicBool>,
    /// The keys, if the program encrypts the stream.
    pub keys: Option<Keys>,
}

impl Flow {
    /// A TCP connection.
    pub fn tcp(socket: impl Into<Socket>, index: u32) -> Flow {
        let (socket, protocol) = (Arc::new(socket.into()), Protocol::Tcp);
        let [closed, cut] = Default::default();
        Flow { socket, index, protocol, closed, cut, keys: None }
    }

    pub fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Called by a sender before its stream: from now until [`Connection::end_stream`], the death
    /// of this process resets the connection. Otherwise the kernel would end a killed sender's
    /// stream normally, and the receiver would take a partial stream for a complete one.
    pub fn reset_on_death(&self) -> Result<(), Fault> {
        if self.protocol == Protocol::Udp {
            return Ok(());
        }
        tcp::reset_on_close(self.fd(), true).map_err(|e| self.fault("SO_LINGER", &e))
    }

    pub fn local_address(&self) -> Result<IpAddr, Fault> {
        Ok(self.local()?.ip().to_canonical())
    }

    /// Returns the address and port of this end.
    pub fn local(&self) -> Result<SocketAddr, Fault> {
        let address = self.socket.local_addr();
        let address = address.map_err(|e| self.fault("reading its address", &e))?.as_socket();
        address.ok_or_else(|| self.cut_off())
    }

    pub fn peer(&self) -> Result<SocketAddr, Fault> {
        let address = self.socket.peer_addr();
        let address = address.map_err(|e| self.fault("reading its peer", &e))?.as_socket();
        address.ok_or_else(|| self.cut_off())
    }

    /// Errors if the connection was cut by the peer or from outside, during the sender's stream. A
    /// socket that is shut down fails even a send of nothing.
    pub fn check_open(&self) -> Result<(), Fault> {
        match tcp::send(self.fd(), &[], libc::MSG_DONTWAIT) {
            Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(self.cut_off()),
            Err(e) if e.kind() != ErrorKind::WouldBlock => Err(self.fault("send", &e)),
            _ => Ok(()),
        }
    }

    /// Called after a receive of 0 bytes; errors unless that really was the end of the sender's
    /// stream. It is not if this side was shut down, other than by [`Connection::close`].
    pub fn confirm_end(&self) -> Result<(), Fault> {
        if self.protocol == Protocol::Udp {
            return self.confirm_last_datagram();
        }
        match tcp::peer_finished(self.fd()) {
            Ok(true) => Ok(()),
            Ok(false) if self.closed.load(Ordering::Relaxed) && self.is_over()? => Ok(()),
            Ok(false) => Err(self.cut_off()),
            Err(e) => Err(self.fault("TCP_INFO", &e)),
        }
    }

    fn is_over(&self) -> Result<bool, Fault> {
        tcp::is_over(self.fd()).map_err(|e| self.fault("TCP_INFO", &e))
    }

    /// Called after an empty datagram. Errors if this side was shut down, in which case a receive
    /// also returns 0 bytes.
    fn confirm_last_datagram(&self) -> Result<(), Fault> {
        match tcp::wait(self.fd(), Ready::RDHUP, Some(Duration::ZERO)) {
            Ok(ready) if ready.is_empty() => Ok(()),
            Ok(_) => Err(self.cut_off()),
            Err(e) => Err(self.fault("poll", &e)),
        }
    }

    /// Waits until something can be received, for at most `timeout`. False if nothing can.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Fault> {
        match tcp::wait(self.fd(), Ready::IN, Some(timeout)) {
            Ok(ready) => Ok(!ready.is_empty()),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(false),
            Err(e) => Err(self.fault("poll", &e)),
        }
    }

    /// Returns what a call has moved, or `None` if it was interrupted.
    #[inline]
    pub fn completed<T>(&self, call: &str, result: io::Result<T>) -> Result<Option<T>, Fault> {
        match result {
            Ok(moved) => Ok(Some(moved)),
            Err(e) if e.kind() == ErrorKind::Interrupted => Ok(None),
            Err(e) => Err(self.fault(call, &e)),
        }
    }

    /// The fault of a call that failed on this flow. Errors that mean that the other end does not
    /// respond become `PeerLost`.
    pub fn fault(&self, call: &str, error: &io::Error) -> Fault {
        let mut fault = Fault::system(format_args!("flow {}: {call}", self.index), error);
        let unreachable = [
            ErrorKind::TimedOut,
            ErrorKind::HostUnreachable,
            ErrorKind::NetworkUnreachable,
            ErrorKind::NetworkDown,
            ErrorKind::NotConnected,
            // For datagrams: the peer's socket is gone.
            ErrorKind::ConnectionRefused,
        ];
        if unreachable.contains(&error.kind()) {
            fault.kind = FaultKind::PeerLost;
        }
        // Over TCP, only kernel TLS returns this.
        match error.raw_os_error() {
            Some(libc::EBADMSG) => tls::undecryptable(fault),
            _ => fault,
        }
    }

    fn cut_off(&self) -> Fault {
        if self.protocol == Protocol::Udp {
            let message = format!("flow {}: a datagram did not arrive", self.index);
            return Fault::peer_lost(message).remedy(
                "UDP does not retransmit: choose fewer or smaller messages in flight, \
                 a larger receive-buffer, or TCP",
            );
        }
        Fault::peer_lost(format!("flow {}: the connection was cut in the middle", self.index))
    }
}

impl Connection for Flow {
    fn index(&self) -> u32 {
        self.index
    }

    fn socket(&self) -> Option<BorrowedFd<'_>> {
        (self.protocol == Protocol::Tcp).then(|| self.fd())
    }

    fn kernel(&self) -> Result<Flow, Fault> {
        let socket = self.socket.try_clone();
        let socket = socket.map_err(|e| Fault::system("cannot duplicate the connection", &e))?;
        let (closed, cut) = (self.closed.clone(), self.cut.clone());
        Ok(Flow { socket: Arc::new(socket), closed, cut, ..*self })
    }

    fn send_at_once(&self) -> Result<(), Fault> {
        if self.protocol == Protocol::Udp {
            return Ok(());
        }
        self.socket.set_tcp_nodelay(true).map_err(|e| self.fault("TCP_NODELAY", &e))
    }

    /// Called by a sender after its stream: ends it and waits until the peer's kernel has
    /// acknowledged all of it; a stream of datagrams ends with an empty one. If the receiver no
    /// longer reads, waits until the socket is shut down, which is a `PeerLost` fault.
    fn end_stream(&self) -> Result<(), Fault> {
        let failed = |e: io::Error| self.fault("the end of the stream", &e);
        if self.protocol == Protocol::Udp {
            return tcp::send(self.fd(), &[], 0).map(drop).map_err(failed);
        }
        tcp::shutdown(self.fd(), Shutdown::Write).map_err(failed)?;
        self.await_end()
    }

    fn await_end(&self) -> Result<(), Fault> {
        let failed = |e: io::Error| self.fault("the end of the stream", &e);
        // No event reports an acknowledgement, so it has to be polled; the
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

    fn wait_acknowledged(&self, timeout: Duration) -> Result<(), Fault> {
        if self.protocol == Protocol::Udp {
            return Ok(());
        }
        let begun = Instant::now();
        loop {
            let left = timeout.saturating_sub(begun.elapsed());
            match tcp::wait_acknowledged(self.fd(), left.min(CUT_CHECK_INTERVAL)) {
                // The FIN is already sent and still waits for a peer that may be gone. Shutting the
                // socket down again changes nothing that the kernel reports, so only the flag shows
                // the cut.
                Err(_) if self.cut.load(Ordering::Relaxed) => return Err(self.cut_off()),
                Err(e) if e.kind() == ErrorKind::TimedOut && left > CUT_CHECK_INTERVAL => {}
                waited => {
                    let what = "waiting for an acknowledgement";
                    return waited.map_err(|e| self.fault(what, &e));
                }
            }
        }
    }

    fn read_exact(&self, buffer: &mut [u8]) -> Result<(), Fault> {
        let mut got = 0;
        while got < buffer.len() {
            let received = tcp::recv(self.fd(), &mut buffer[got..], libc::MSG_WAITALL);
            match self.completed("recv", received)? {
                Some(0) => return Err(self.cut_off()),
                more => got += more.unwrap_or(0),
            }
        }
        Ok(())
    }

    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        // Shutting down fails if the connection is gone already.
        let _ = tcp::shutdown(self.fd(), Shutdown::Both);
    }

    fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        let _ = tcp::shutdown(self.fd(), Shutdown::Write);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Shutdown;

    fn flows() -> (Flow, Flow) {
        let (tx, rx) = tcp::loopback_pair().unwrap();
        (Flow::tcp(tx, 0), Flow::tcp(rx, 1))
    }

    #[test]
    fn detects_cut_connection() {
        let (tx, _rx) = flows();
        tx.check_open().unwrap();
        tx.socket.shutdown(Shutdown::Both).unwrap();
        assert_eq!(tx.check_open().unwrap_err().kind, FaultKind::PeerLost);
    }

    #[test]
    fn stream_ends_in_order() {
        let (tx, rx) = flows();
        tx.reset_on_death().unwrap();
        (&*tx.socket).write_all(&[1; 5000]).unwrap();
        tx.end_stream().unwrap();
        drop(tx);
        let mut all = Vec::new();
        (&*rx.socket).read_to_end(&mut all).unwrap();
        assert_eq!(all.len(), 5000);
        rx.confirm_end().unwrap();
    }

    #[test]
    fn dead_sender_is_peer_lost() {
        let (tx, rx) = flows();
        tx.reset_on_death().unwrap();
        (&*tx.socket).write_all(&[1; 5000]).unwrap();
        drop(tx);
        let error = (&*rx.socket).read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(rx.fault("recv", &error).kind, FaultKind::PeerLost);
    }

    #[test]
    fn shutdown_ends_wait_for_stuck_receiver() {
        let (tx, _rx) = flows();
        let socket = tx.socket.try_clone().unwrap();
        socket.set_nonblocking(true).unwrap();
        // Fills the receiver's window and the send buffer.
        while (&socket).write(&[0; 65536]).is_ok() {}
        let outside = socket;
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            outside.shutdown(Shutdown::Both).unwrap();
        });
        assert_eq!(tx.end_stream().unwrap_err().kind, FaultKind::PeerLost);
        stopper.join().unwrap();
    }

    #[test]
    fn cut_ends_wait_for_an_acknowledgement() {
        let (tx, _rx) = flows();
        let outside = tx.kernel().unwrap();
        outside.socket.set_nonblocking(true).unwrap();
        while (&*outside.socket).write(&[0; 65536]).is_ok() {}
        tx.close();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            outside.cut();
        });
        let fault = tx.wait_acknowledged(Duration::from_secs(10)).unwrap_err();
        assert_eq!(fault.message, "flow 0: the connection was cut in the middle");
        stopper.join().unwrap();
    }

    #[test]
    fn own_end_before_that_of_the_peer_is_no_cut() {
        let (tx, rx) = flows();
        tx.close();
        (&*rx.socket).write_all(&[1; 10]).unwrap();
        rx.close();
        assert_eq!((&*tx.socket).read_to_end(&mut Vec::new()).unwrap(), 10);
        tx.confirm_end().unwrap();
        let (tx, _rx) = flows();
        tx.close();
        tx.cut();
        assert_eq!((&*tx.socket).read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(tx.confirm_end().unwrap_err().kind, FaultKind::PeerLost);
    }

    #[test]
    fn own_shutdown_is_not_end_of_stream() {
        let (_tx, rx) = flows();
        rx.socket.shutdown(Shutdown::Both).unwrap();
        assert_eq!((&*rx.socket).read(&mut [0; 8]).unwrap(), 0);
        assert_eq!(rx.confirm_end().unwrap_err().kind, FaultKind::PeerLost);
    }
}
