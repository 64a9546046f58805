//! One TCP connection as a path gets it: connected, blocking, with the
//! contract's options set.

use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

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
}
