//! A socket that others own, too, whose descriptor stands beside the owner's pointer: loops over
//! thousands of sockets do not follow it for each call.

use socket2::Socket;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Arc;

#[derive(Clone, Debug)]
pub struct KeptSocket {
    descriptor: RawFd,
    _owner: Arc<Socket>,
}

impl KeptSocket {
    pub fn new(owner: Arc<Socket>) -> KeptSocket {
        KeptSocket { descriptor: owner.as_raw_fd(), _owner: owner }
    }
}

impl AsFd for KeptSocket {
    #[inline]
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the owner keeps it open, and cannot change while it is shared.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}
