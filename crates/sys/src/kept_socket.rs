//! A socket with shared ownership that stores its descriptor next to the owner's pointer, so that
//! loops over thousands of sockets need not follow the pointer for each call.

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
        // SAFETY: the owner keeps it open, and cannot be replaced while it is shared.
        unsafe { BorrowedFd::borrow_raw(self.descriptor) }
    }
}
