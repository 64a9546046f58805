//! How a stream ends: what a sender waits for, and how a receiver tells the
//! peer's end of stream from one that was forced from this side.

use super::Flow;
use crate::record::{Fault, FaultKind};
use crate::sys::tcp;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::ErrorKind;
use std::net::Shutdown;

/// How often the count of unacknowledged bytes is looked at: the kernel tells
/// of errors by itself, but not of acknowledgements.
const GLANCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000 };

/// Sender: ends the stream, and waits until the peer's kernel has all of it
/// and the end, or until the connection is cut by the peer or from outside.
pub(super) fn finish(flow: &Flow) -> Result<(), Fault> {
    let gone = |e| Fault::system("cannot end the stream", &e);
    tcp::shutdown(flow.fd(), Shutdown::Write).map_err(|e| match e.kind() {
        ErrorKind::NotConnected => cut(),
        _ => gone(e),
    })?;
    loop {
        // Looked at in this order, a peer that closes after it has everything
        // is never taken for one that went away.
        let mut events = [PollFd::from_borrowed_fd(flow.fd(), PollFlags::empty())];
        match poll(&mut events, Some(&GLANCE)) {
            Err(rustix::io::Errno::INTR) => continue,
            Err(e) => return Err(gone(e.into())),
            Ok(_) => {}
        }
        if tcp::unacknowledged(flow.fd()).map_err(gone)? == 0 {
            return Ok(());
        }
        if events[0].revents().intersects(PollFlags::ERR | PollFlags::HUP) {
            return Err(cut());
        }
    }
}

fn cut() -> Fault {
    Fault::new(FaultKind::PeerLost, "the connection was cut before the peer had the whole stream")
}

/// A fault where the connection is broken, or was shut down on this side
/// (`Shutdown::Both`). To a receive call that looks the same as the peer's end
/// of stream; but a socket that was shut for sending refuses even to send
/// nothing.
pub(super) fn confirm(flow: &Flow) -> Result<(), Fault> {
    match tcp::send(flow.fd(), &[], libc::MSG_DONTWAIT) {
        Ok(_) => Ok(()),
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Err(Fault::new(
            FaultKind::PeerLost,
            "the connection was cut in the middle of the stream",
        )),
        Err(e) => Err(Fault::system("the connection failed", &e)),
    }
}
