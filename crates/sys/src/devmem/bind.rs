//! Binds a dmabuf to a network device, by the `netdev` netlink family
//! (Documentation/netlink/specs/netdev.yaml).

use crate::device;
use crate::netlink::{Netlink, put};
use netlink_bindings::netdev::{QueueType, Request};
use netlink_socket2::{NetlinkSocket, ReplyError};
use std::fmt;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Mutex;

/// A dmabuf bound to a device; dropping this unbinds it.
pub struct Binding {
    /// The number by which control messages refer to the dmabuf.
    pub dmabuf: u32,
    // The kernel unbinds when this socket closes. Behind a lock only because several threads share
    // a binding; the lock is never taken.
    _socket: Mutex<NetlinkSocket>,
}

impl fmt::Debug for Binding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Binding").field("dmabuf", &self.dmabuf).finish_non_exhaustive()
    }
}

/// Why the kernel refused to bind.
#[derive(Debug)]
pub struct Refusal {
    pub error: io::Error,
    /// The kernel's explanation (its extended acknowledgement).
    pub words: Option<String>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.error)?;
        self.words.iter().try_for_each(|words| write!(f, ": {words}"))
    }
}

impl From<ReplyError> for Refusal {
    fn from(error: ReplyError) -> Self {
        let message = error.ext_ack().and_then(|answer| answer.get_msg().ok());
        let words = message.map(|message| message.to_string_lossy().into_owned());
        Refusal { words, error: error.into() }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Refusal { error, words: None }
    }
}

/// Binds memory to receive queues of a device, which from then on writes what these queues receive
/// into it. It restarts the queues for that, so packets in flight are lost: not for a queue that
/// others use.
///
/// `page_size` (Linux 7.3) requests buffers larger than a page: a power of two; contiguous pieces
/// of the memory must be at least as large.
///
/// EPERM: `CAP_NET_ADMIN` in the namespace of the device is missing; EOPNOTSUPP: the driver does
/// not support it; EINVAL with words: it does, but the queue is not set up for it; EINVAL without:
/// there is no such queue (`netdev_nl_read_rxq_bitmap`; ERANGE in older kernels), or the descriptor
/// is not a dmabuf; EEXIST, EBUSY: the queue is already bound.
pub fn bind_receive(
    device: &str,
    queues: &[u32],
    page_size: Option<u32>,
    memory: BorrowedFd,
) -> Result<Binding, Refusal> {
    let mut request = Request::new().op_bind_rx_do();
    let index = device::index(device)?;
    let mut encoder = request.encode().push_ifindex(index).push_fd(memory.as_raw_fd() as u32);
    for queue in queues {
        let nested = encoder.nested_queues().push_id(*queue).push_type(QueueType::Rx as u32);
        encoder = nested.end_nested();
    }
    drop(put(encoder, page_size, |encoder, bytes| encoder.push_rx_page_size(bytes)));
    let mut socket = NetlinkSocket::new();
    let answer = socket.request(&request)?.recv_one().map(|answer| answer.get_id())?;
    bound(socket, answer)
}

/// Binds memory to a device for sending (Linux 6.16). Errors as for [`bind_receive`], except EPERM:
/// no capability is needed.
pub fn bind_send(device: &str, memory: BorrowedFd) -> Result<Binding, Refusal> {
    let mut request = Request::new().op_bind_tx_do();
    let index = device::index(device)?;
    request.encode().push_ifindex(index).push_fd(memory.as_raw_fd() as u32);
    let mut socket = NetlinkSocket::new();
    let answer = socket.request(&request)?.recv_one().map(|answer| answer.get_id())?;
    bound(socket, answer)
}

fn bound<E>(socket: NetlinkSocket, dmabuf: Result<u32, E>) -> Result<Binding, Refusal> {
    match dmabuf {
        Ok(dmabuf) => Ok(Binding { dmabuf, _socket: Mutex::new(socket) }),
        Err(_) => Err(io::Error::other("the kernel bound the dmabuf but returned no id").into()),
    }
}

/// A memory file in place of a dmabuf. The kernel checks either the descriptor first
/// (`dma_buf_get`), or the device: EINVAL reveals nothing about the driver.
pub fn stand_in() -> io::Result<OwnedFd> {
    crate::dmabuf::sealed(1 << 20, false)
}

/// Checks that the kernel has the `netdev` netlink family, by listing the devices. ENOENT: it has
/// not (before Linux 6.3).
pub fn netdev_family() -> io::Result<()> {
    Netlink::new().dump(&Request::new().op_dev_get_dump(), |_| Ok(None::<()>)).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;
    use std::os::fd::AsFd;

    #[test]
    fn the_loopback_device_refuses_to_bind() {
        if let Err(e) = netdev_family() {
            skip!("{e}");
            return;
        }
        let memory = stand_in().unwrap();
        let bound =
            [bind_receive("lo", &[0], None, memory.as_fd()), bind_send("lo", memory.as_fd())];
        for refused in bound {
            let refusal = refused.unwrap_err();
            assert!(refusal.error.raw_os_error().is_some(), "{refusal}");
        }
    }
}
