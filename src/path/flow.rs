//! One TCP connection as a path gets it: connected, blocking, with the
//! contract's options set.

use crate::record::{Fault, FaultKind};
use crate::sys::tcp;
use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

/// One connection of a trial.
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
    /// until somebody shuts the socket down, which is a `PeerLost` fault.
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

    /// The fault of a call that failed on this flow. Errors that mean that
    /// nobody answers at the other end are `PeerLost`.
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
