//! Packet sockets: whole frames to and from a device, packet(7).

use super::check;
use super::tcp::{self, Ready, get_option};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
use std::io::{self, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Opens a socket that sends whole frames through the device with this interface index, and
/// receives none. EPERM: no CAP_NET_RAW over the network namespace; ENODEV: no such device;
/// ENETDOWN, when sending: the device is down, or was removed.
pub fn sender(index: u32) -> io::Result<OwnedFd> {
    let socket = open(SocketFlags::empty())?;
    bind(&socket, index, 0)?;
    Ok(socket)
}

/// Opens a packet socket that receives nothing yet: its protocol is 0 until it is bound.
pub(super) fn open(flags: SocketFlags) -> io::Result<OwnedFd> {
    let flags = flags | SocketFlags::CLOEXEC;
    Ok(socket_with(AddressFamily::PACKET, SocketType::RAW, flags, None)?)
}

/// Binds a packet socket to a device; it receives frames with this EtherType.
pub(super) fn bind(socket: &OwnedFd, index: u32, ethertype: u16) -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sockaddr_ll`: it is plain data.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_ifindex = index as i32;
    address.sll_protocol = ethertype.to_be();
    let len = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length describe one live `sockaddr_ll`.
    let bound = unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), len) };
    check(bound.into()).map(drop)
}

/// Makes a device accept frames whatever their destination, as long as the descriptor is open
/// (`PACKET_MR_PROMISC`). EPERM: no CAP_NET_RAW over the network namespace.
pub fn promiscuous(index: u32) -> io::Result<OwnedFd> {
    let socket = open(SocketFlags::empty())?;
    join(&socket, index, libc::PACKET_MR_PROMISC as u16, &[])?;
    Ok(socket)
}

/// Makes a device accept more than frames for its own address, as long as the socket is open.
pub(super) fn join(socket: &OwnedFd, index: u32, kind: u16, hardware: &[u8]) -> io::Result<()> {
    // struct packet_mreq.
    let mut request = [0; 16];
    request[..4].copy_from_slice(&index.to_ne_bytes());
    request[4..6].copy_from_slice(&kind.to_ne_bytes());
    request[6..8].copy_from_slice(&(hardware.len() as u16).to_ne_bytes());
    request[8..8 + hardware.len()].copy_from_slice(hardware);
    tcp::set_option(socket.as_fd(), libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, &request)
}

/// Makes the sockets of one group share what a device receives, by a hash of its headers.
pub(super) fn share(socket: BorrowedFd, group: u16) -> io::Result<()> {
    let value = i32::from(group) | (libc::PACKET_FANOUT_HASH as i32) << 16;
    tcp::set_int(socket, libc::SOL_PACKET, libc::PACKET_FANOUT, value)
}

/// Returns the number of frames for which a socket had no room since the last call.
pub(super) fn dropped(socket: BorrowedFd) -> io::Result<u64> {
    // struct tpacket_stats; reading it resets it.
    let mut counts = [0u32; 2];
    // SAFETY: the kernel writes two numbers.
    unsafe { get_option(socket, libc::SOL_PACKET, libc::PACKET_STATISTICS, &mut counts) }?;
    Ok(counts[1].into())
}

/// Makes sends bypass the qdisc and go to the driver (`PACKET_QDISC_BYPASS`): a frame for which its
/// queue has no room is refused with ENOBUFS.
pub fn bypass_qdisc(socket: BorrowedFd) -> io::Result<()> {
    tcp::set_int(socket, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)
}

/// Waits at most `timeout` until at least half of the socket's send buffer is free; returns false
/// if it is not. ENETDOWN, ENXIO: the device is down, or was removed.
pub fn wait_writable(socket: BorrowedFd, timeout: Duration) -> io::Result<bool> {
    ready(socket, Ready::OUT, timeout)
}

/// Waits at most `timeout` until there is something to read.
pub fn wait_readable(socket: BorrowedFd, timeout: Duration) -> io::Result<bool> {
    ready(socket, Ready::IN, timeout)
}

fn ready(fd: BorrowedFd, wanted: Ready, timeout: Duration) -> io::Result<bool> {
    match tcp::wait(fd, wanted, Some(timeout)) {
        // For a descriptor that is not a socket, EIO.
        Ok(now) if now.contains(Ready::ERR) => match rustix::net::sockopt::socket_error(fd) {
            Ok(Err(errno)) => Err(errno.into()),
            _ => Err(io::Error::from_raw_os_error(libc::EIO)),
        },
        Ok(now) => Ok(now.contains(wanted)),
        Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(false),
        Err(e) => Err(e),
    }
}

/// Frames in their own memory that are sent in batches (sendmmsg(2)), in a fixed order and over
/// again. Allocates nothing after it is made.
pub struct Frames {
    /// Memory that the vectors point to; never changed.
    _memory: Box<[u8]>,
    /// Vectors that the headers point to; never changed.
    _vectors: Box<[libc::iovec]>,
    headers: Box<[libc::mmsghdr]>,
    next: usize,
}

// SAFETY: the pointers are into memory that it owns and that is not written.
unsafe impl Send for Frames {}

/// The outcome of a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// Number of frames that the kernel took.
    pub sent: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Whether the kernel refused the next frame with ENOBUFS: dropped, or no room.
    pub refused: bool,
}

impl Frames {
    /// Repeats these frames, in this order, until `batch` of them can be sent at once.
    pub fn new(frames: &[&[u8]], batch: usize) -> Frames {
        let memory: Box<[u8]> = frames.concat().into();
        let times = batch.div_ceil(frames.len().max(1)).max(1);
        let mut at = 0;
        let place = |frame: &&[u8]| {
            let begin = at;
            at += frame.len();
            (begin, frame.len())
        };
        let places: Vec<(usize, usize)> = frames.iter().map(place).collect();
        let mut vectors: Box<[libc::iovec]> = std::iter::repeat_n(&places, times)
            .flatten()
            .map(|(begin, length)| libc::iovec {
                // The kernel only reads it.
                iov_base: memory[*begin..].as_ptr().cast_mut().cast(),
                iov_len: *length,
            })
            .collect();
        let header = |vector: &mut libc::iovec| {
            // SAFETY: all-zero bytes are a valid `mmsghdr`: no name, no data, no control.
            let mut header: libc::mmsghdr = unsafe { std::mem::zeroed() };
            header.msg_hdr.msg_iov = vector;
            header.msg_hdr.msg_iovlen = 1;
            header
        };
        let headers = vectors.iter_mut().map(header).collect();
        Frames { _memory: memory, _vectors: vectors, headers, next: 0 }
    }

    /// Sends the next frames, at most `most`; fewer at the end of the order. A frame that was
    /// refused is skipped. Waits for room in the socket's buffer.
    ///
    /// sendmmsg returns an error only if it concerns the first frame; if it took some frames, it
    /// does not report what stopped it. For a socket that waits for room that can only be a
    /// refusal, or an error that the next batch meets again.
    pub fn send(&mut self, socket: BorrowedFd, most: usize) -> io::Result<Batch> {
        let rest = &mut self.headers[self.next..];
        let wanted = most.min(rest.len());
        // SAFETY: the headers are live and exclusively ours, each points to one live vector, and
        // that to memory that is never written; the kernel writes only the lengths in the headers.
        let sent = unsafe {
            libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), wanted as libc::c_uint, 0)
        };
        let sent = match check(sent.into()) {
            Ok(sent) => sent,
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => 0,
            Err(e) => return Err(e),
        };
        let bytes = rest[..sent].iter().map(|header| u64::from(header.msg_len)).sum();
        let refused = sent < wanted;
        self.next += sent + usize::from(refused);
        if self.next == self.headers.len() {
            self.next = 0;
        }
        Ok(Batch { sent, bytes, refused })
    }
}

/// Reads one frame from a non-blocking descriptor, with its first `head` bytes in a separate vector
/// (readv(2)); `None` if there is none.
#[inline]
pub fn read_in_two(queue: BorrowedFd, room: &mut [u8], head: usize) -> io::Result<Option<usize>> {
    let (head, rest) = room.split_at_mut(head);
    let result = rustix::io::readv(queue, &mut [IoSliceMut::new(head), IoSliceMut::new(rest)]);
    there(result)
}

/// Reads one frame from a non-blocking descriptor; `None` if there is none.
#[inline]
pub fn read(queue: BorrowedFd, room: &mut [u8]) -> io::Result<Option<usize>> {
    there(rustix::io::read(queue, room))
}

pub(super) fn there(result: rustix::io::Result<usize>) -> io::Result<Option<usize>> {
    match result {
        Ok(length) => Ok(Some(length)),
        Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_sent_in_their_order_and_again() {
        // A pair of sockets accepts them like a device.
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let mut frames = Frames::new(&[b"one", b"three", b"fifteen"], 4);
        assert_eq!(frames.headers.len(), 6, "the whole order, as often as it takes");
        let mut got = Vec::new();
        for most in [4, 4, 1] {
            let batch = frames.send(ours.as_fd(), most).unwrap();
            for _ in 0..batch.sent {
                let mut room = [0; 16];
                let length = theirs.recv(&mut room).unwrap();
                got.push(String::from_utf8_lossy(&room[..length]).into_owned());
            }
            assert!(!batch.refused, "{batch:?}");
        }
        assert_eq!(got, ["one", "three", "fifteen", "one", "three", "fifteen", "one"]);
    }

    #[test]
    fn nothing_to_read_is_not_an_error() {
        let (ours, theirs) = std::os::unix::net::UnixDatagram::pair().unwrap();
        ours.set_nonblocking(true).unwrap();
        assert_eq!(read(ours.as_fd(), &mut [0; 8]).unwrap(), None);
        assert!(!wait_readable(ours.as_fd(), Duration::ZERO).unwrap());
        theirs.send(b"frame").unwrap();
        assert!(wait_readable(ours.as_fd(), Duration::from_secs(5)).unwrap());
        assert_eq!(read(ours.as_fd(), &mut [0; 8]).unwrap(), Some(5));
        theirs.send(b"another").unwrap();
        let mut room = [0; 8];
        assert_eq!(read_in_two(ours.as_fd(), &mut room, 3).unwrap(), Some(7));
        assert_eq!(&room[..7], b"another", "both pieces are next to each other");
        assert_eq!(read_in_two(ours.as_fd(), &mut room, 3).unwrap(), None);
    }
}
