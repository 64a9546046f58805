//! TCP sockets: the calls and options that `std` does not offer. tcp(7),
//! socket(7).

use super::bytes::{u16_at, u32_at, u64_at};
use super::{check, ioctl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use rustix::time::Timespec;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Options that both ends of every flow get before the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowOptions {
    /// `SO_SNDBUF`, bytes (the kernel doubles it).
    pub send_buffer: Option<u64>,
    /// `SO_RCVBUF`, bytes (the kernel doubles it).
    pub receive_buffer: Option<u64>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_NODELAY`: a small message does not wait for what was sent before it.
    pub at_once: bool,
    /// `TCP_FASTOPEN_CONNECT`: connecting waits for the first send, whose bytes go out with the SYN to
    /// a peer that has given out a cookie (RFC 7413).
    pub fast_open: bool,
}

/// Listens on this port, also while connections of an earlier listener there live on; 0
/// leaves it to the kernel. Accepted sockets inherit the options. EADDRINUSE: another socket
/// listens there.
pub fn listen_at(
    address: SocketAddr,
    backlog: u32,
    options: &FlowOptions,
) -> io::Result<TcpListener> {
    let socket = stream_socket(&address.ip(), SocketFlags::CLOEXEC)?;
    set_options(socket.as_fd(), options)?;
    // Not where the kernel chooses: it might choose one that another such socket is about
    // to listen on.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, address.port() != 0)?;
    rustix::net::bind(&socket, &address)?;
    // What is accepted here does not keep `listen_beside` from the port.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::listen(&socket, backlog as i32)?;
    Ok(TcpListener::from(socket))
}

/// Listens on a port on which connections live that [`listen_at`] has accepted, beside others of
/// this user that do the same: the kernel spreads connections over them (`SO_REUSEPORT`,
/// socket(7)). EADDRINUSE: another socket listens there.
pub fn listen_beside(
    address: SocketAddr,
    backlog: u32,
    nonblocking: bool,
    options: &FlowOptions,
) -> io::Result<OwnedFd> {
    let socket = stream_socket(&address.ip(), socket_flags(nonblocking))?;
    set_options(socket.as_fd(), options)?;
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &address)?;
    rustix::net::listen(&socket, backlog as i32)?;
    Ok(socket)
}

/// Has a listening socket take the bytes of a SYN, and hand out so many such connections before their
/// handshake is over (`TCP_FASTOPEN`, tcp(7)).
pub fn accept_early(listener: BorrowedFd, most: u32) -> io::Result<()> {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, most)
}

/// The next connection of a listening socket (accept4(2)), which has its options.
#[inline]
pub fn accept(listener: BorrowedFd, nonblocking: bool) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, socket_flags(nonblocking))?)
}

/// A socket that is not connected, with its options.
pub fn unconnected(
    family: IpAddr,
    nonblocking: bool,
    options: &FlowOptions,
) -> io::Result<OwnedFd> {
    let socket = stream_socket(&family, socket_flags(nonblocking))?;
    set_options(socket.as_fd(), options)?;
    Ok(socket)
}

/// Connects a socket (connect(2)): whether it is connected; one that does not block is so later.
/// EADDRNOTAVAIL: every port that it could have is in use.
pub fn connect_socket(socket: BorrowedFd, peer: &SocketAddr) -> io::Result<bool> {
    loop {
        return match rustix::net::connect(socket, peer) {
            Ok(()) => Ok(true),
            // Goes on by itself; the next call waits for it.
            Err(Errno::INTR) => continue,
            Err(Errno::INPROGRESS | Errno::ALREADY) => Ok(false),
            Err(e) => Err(e.into()),
        };
    }
}

/// An address as the kernel reads it, in memory of any address's size, and its length.
pub(super) fn address_bytes(
    address: &SocketAddr,
) -> ([u8; size_of::<libc::sockaddr_storage>()], u32) {
    use rustix::net::addr::SocketAddrArg;
    let mut bytes = [0; size_of::<libc::sockaddr_storage>()];
    // SAFETY: the address has so many bytes, and is read while it is there.
    let len = unsafe {
        address.with_sockaddr(|raw, len| {
            std::ptr::copy_nonoverlapping(raw.cast::<u8>(), bytes.as_mut_ptr(), len as usize);
            len
        })
    };
    (bytes, len)
}

/// The congestion control that a socket has where none is set (`net.ipv4.tcp_congestion_control`).
pub fn default_congestion(family: IpAddr) -> io::Result<String> {
    let socket = stream_socket(&family, SocketFlags::CLOEXEC)?;
    Ok(rustix::net::sockopt::tcp_congestion(&socket)?)
}

/// Bounds how long calls of a socket, and of those that it accepts, block (`SO_RCVTIMEO`,
/// `SO_SNDTIMEO`, socket(7)): EAGAIN then, or EINPROGRESS of connect(2).
pub fn limit_blocking(socket: BorrowedFd, time: Duration) -> io::Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(socket, Timeout::Recv, Some(time))?;
    Ok(set_socket_timeout(socket, Timeout::Send, Some(time))?)
}

/// Connects to a peer, with the options set before the handshake, because the
/// window scale is agreed on there; from this port, or from one of the kernel's choice.
/// EADDRINUSE: another socket has the port.
pub fn connect(
    peer: SocketAddr,
    from: Option<u16>,
    options: &FlowOptions,
) -> io::Result<TcpStream> {
    let socket = stream_socket(&peer.ip(), SocketFlags::CLOEXEC)?;
    set_options(socket.as_fd(), options)?;
    if let Some(port) = from {
        // Also while a connection of an earlier session from there is in TIME-WAIT.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::from((unspecified(peer.ip()), port)))?;
    }
    rustix::net::connect(&socket, &peer)?;
    Ok(TcpStream::from(socket))
}

/// The address of its family that stands for any.
pub fn unspecified(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
    }
}

fn stream_socket(address: &IpAddr, flags: SocketFlags) -> io::Result<OwnedFd> {
    use rustix::net::{AddressFamily, SocketType, socket_with};
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    Ok(socket_with(family, SocketType::STREAM, flags, None)?)
}

fn socket_flags(nonblocking: bool) -> SocketFlags {
    match nonblocking {
        true => SocketFlags::CLOEXEC | SocketFlags::NONBLOCK,
        false => SocketFlags::CLOEXEC,
    }
}

/// Sets those options of a socket that are given.
pub fn set_options(socket: BorrowedFd, options: &FlowOptions) -> io::Result<()> {
    if let Some(bytes) = options.send_buffer {
        rustix::net::sockopt::set_socket_send_buffer_size(socket, bytes as usize)?;
    }
    if let Some(bytes) = options.receive_buffer {
        rustix::net::sockopt::set_socket_recv_buffer_size(socket, bytes as usize)?;
    }
    if let Some(name) = &options.congestion {
        // ENOENT: the kernel has no such module; EPERM: it is not among
        // `tcp_allowed_congestion_control`.
        rustix::net::sockopt::set_tcp_congestion(socket, name)?;
    }
    if options.at_once {
        rustix::net::sockopt::set_tcp_nodelay(socket, true)?;
    }
    if options.fast_open {
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
    }
    Ok(())
}

/// A socket option of type `int`.
pub fn set_int(socket: BorrowedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, option, &value.to_ne_bytes())
}

/// setsockopt(2) with these bytes, in which there is no address.
pub(super) fn set_option(
    socket: BorrowedFd,
    level: i32,
    option: i32,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the kernel only reads the bytes.
    unsafe { set_value(socket, level, option, value) }.map(drop)
}

/// setsockopt(2): what it returns, which is 0 for most options.
///
/// # Safety
///
/// The option takes a value of this type, and what its addresses refer to.
pub(super) unsafe fn set_value<T: ?Sized>(
    socket: BorrowedFd,
    level: i32,
    option: i32,
    value: &T,
) -> io::Result<usize> {
    let (value, len) = ((&raw const *value).cast(), size_of_val(value) as libc::socklen_t);
    // SAFETY: the kernel reads the value, which is live; the rest by the caller's promise.
    check(unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, value, len) }.into())
}

/// getsockopt(2): how many bytes the kernel has written.
///
/// # Safety
///
/// Any bytes are a value of this type, and the kernel may do with its addresses what the option does.
pub(super) unsafe fn get_option<T: ?Sized>(
    socket: BorrowedFd,
    level: i32,
    option: i32,
    value: &mut T,
) -> io::Result<usize> {
    let mut len = size_of_val(value) as libc::socklen_t;
    let (fd, value) = (socket.as_raw_fd(), (&raw mut *value).cast());
    // SAFETY: the kernel writes at most `len` bytes to the value; the rest by the caller's promise.
    check(unsafe { libc::getsockopt(fd, level, option, value, &raw mut len) }.into())?;
    Ok(len as usize)
}

/// `send(2)` with flags.
#[inline]
pub fn send(socket: BorrowedFd, bytes: &[u8], flags: i32) -> io::Result<usize> {
    // With MSG_ZEROCOPY the kernel refers to the pages afterwards, too; that is safe
    // whatever becomes of the slice, because the kernel holds references to them.
    let flags = SendFlags::from_bits_retain(flags as u32) | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// `sendmsg(2)` of pieces that follow each other, with flags.
pub fn send_pieces(socket: BorrowedFd, pieces: &[IoSlice], flags: i32) -> io::Result<usize> {
    let flags = SendFlags::from_bits_retain(flags as u32) | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    Ok(rustix::net::sendmsg(socket, pieces, &mut control, flags)?)
}

/// `recv(2)` with flags.
#[inline]
pub fn recv(socket: BorrowedFd, bytes: &mut [u8], flags: i32) -> io::Result<usize> {
    let (_, received) =
        rustix::net::recv(socket, bytes, RecvFlags::from_bits_retain(flags as u32))?;
    Ok(received)
}

/// Bytes that were written and not yet acknowledged by the peer's kernel
/// (`SIOCOUTQ`, tcp(7)).
pub fn unacknowledged(socket: BorrowedFd) -> io::Result<u64> {
    let mut value: libc::c_int = 0;
    // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one int.
    unsafe { ioctl(socket, libc::TIOCOUTQ as u32, &raw mut value) }?;
    Ok(value.max(0) as u64)
}

/// Waits until everything written has reached the peer's kernel.
pub fn wait_acknowledged(socket: BorrowedFd, timeout: Duration) -> io::Result<()> {
    let start = std::time::Instant::now();
    while unacknowledged(socket)? > 0 {
        if start.elapsed() > timeout {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        // An acknowledgement takes microseconds on a local link; polling is simpler
        // than any notification, nothing is timed yet, and the peer may need this CPU.
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Waits until a descriptor can be read from, or a time has passed: false then.
pub fn wait_readable(fd: BorrowedFd, timeout: Duration) -> io::Result<bool> {
    Ok(!wait(fd, Ready::IN, Some(timeout))?.is_empty())
}

/// Which half of a connection is over.
pub use rustix::net::Shutdown;

/// Half or all of a connection is over: `shutdown(2)`.
pub fn shutdown(socket: BorrowedFd, how: Shutdown) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, how)?)
}

/// What a socket can be waited for; errors and hang-ups are always among it.
pub use rustix::event::PollFlags as Ready;

/// Waits until the socket is ready for one of these, fails, or the time is
/// over (an empty answer). Without a timeout it waits forever. poll(2).
pub fn wait(socket: BorrowedFd, ready: Ready, timeout: Option<Duration>) -> io::Result<Ready> {
    wait_for_any(&mut [rustix::event::PollFd::from_borrowed_fd(socket, ready)], timeout)
}

/// The same of several sockets: what any of them is ready for.
pub fn wait_for_any(
    sockets: &mut [rustix::event::PollFd],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let timeout = timeout.map(Timespec::try_from).transpose();
    let timeout = timeout.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    rustix::event::poll(sockets, timeout.as_ref())?;
    Ok(sockets.iter().fold(Ready::empty(), |all, one| all | one.revents()))
}

/// Whether closing the socket, also by the death of its process, resets the
/// connection instead of ending it in order (`SO_LINGER` of 0 s, socket(7)).
pub fn reset_on_close(socket: BorrowedFd, reset: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(socket, reset.then_some(Duration::ZERO))?)
}

/// Whether the peer has ended its stream with a FIN that has arrived. A receive
/// of 0 bytes alone does not say so: it also follows a shutdown of our own side.
pub fn peer_finished(socket: BorrowedFd) -> io::Result<bool> {
    // States of include/net/tcp_states.h that a FIN of the peer leads to.
    const CLOSE_WAIT: u8 = 8;
    const AFTER_FIN: [u8; 4] = [6, CLOSE_WAIT, 9, 11];
    Ok(AFTER_FIN.contains(&state(socket)?))
}

/// Whether nothing is left of the connection: where a receive of 0 bytes has found no error, its ends
/// have ended both streams in order. (The kernel keeps TIME-WAIT apart from the socket.)
pub fn is_over(socket: BorrowedFd) -> io::Result<bool> {
    const CLOSE: u8 = 7;
    Ok(state(socket)? == CLOSE)
}

/// The state of a connection, of include/net/tcp_states.h; 0 if it is not known.
fn state(socket: BorrowedFd) -> io::Result<u8> {
    let mut raw = [0u8; 256];
    Ok(raw_info(socket, &mut raw)?.first().copied().unwrap_or(0))
}

/// The NAPI instance, which is a device's queue, that the last packet for a socket came by
/// (`SO_INCOMING_NAPI_ID`, Linux 4.12); `None` if it came by none that can be polled.
pub fn incoming_napi(socket: BorrowedFd) -> io::Result<Option<u32>> {
    let mut id = 0u32;
    // SAFETY: the option writes one int.
    unsafe { get_option(socket, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID, &mut id) }?;
    Ok(Some(id).filter(|id| *id > 0))
}

/// Two connected sockets on the loopback device, for trying something out.
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0))
}

/// What the kernel knows of a connection (`TCP_INFO`, include/uapi/linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpInfo {
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Congestion window in segments.
    pub cwnd: u64,
    /// Maximum segment size for sending, bytes of payload.
    pub snd_mss: u64,
    /// Largest segment received, bytes of payload.
    pub rcv_mss: u64,
    /// Smoothed round-trip time in seconds.
    pub rtt: f64,
    /// Smallest round-trip time seen, seconds; none before the first.
    pub min_rtt: Option<f64>,
    /// Most recent delivery rate, bytes per second.
    pub delivery_rate: f64,
    /// Time spent limited by the peer's receive window, seconds.
    pub rwnd_limited: f64,
    /// Time spent limited by its own send buffer, seconds.
    pub sndbuf_limited: f64,
    /// Time spent with unsent or unacknowledged data, seconds.
    pub busy: f64,
    /// Bytes received in order, by the kernel's count.
    pub bytes_received: u64,
    /// Bytes acknowledged by the peer, by the kernel's count.
    pub bytes_acked: u64,
    /// Bytes of payload sent, those sent again included (Linux 4.19, like the next three).
    pub bytes_sent: u64,
    /// Bytes of payload sent again.
    pub bytes_retransmitted: u64,
    /// Segments that the peer reported as received twice (DSACK): sent again for nothing.
    pub duplicates: u64,
    /// Times at which segments turned out to have been reordered on their way.
    pub reorderings: u64,
    /// Segments with payload sent, those sent again included.
    pub data_segments_sent: u64,
    /// Segments by which an order of arrival still counts as no loss.
    pub reordering: u64,
    /// Segments received out of order (Linux 5.4).
    pub out_of_order: u64,
    /// Retransmission timeouts (Linux 6.7).
    pub timeouts: u64,
}

/// Reads `TCP_INFO`. Fields that an older kernel does not have are zero.
pub fn info(socket: BorrowedFd) -> io::Result<TcpInfo> {
    let mut raw = [0u8; 256];
    Ok(parse_info(raw_info(socket, &mut raw)?))
}

fn raw_info<'a>(socket: BorrowedFd, raw: &'a mut [u8; 256]) -> io::Result<&'a [u8]> {
    // SAFETY: the kernel only writes, and any bytes are bytes.
    let len = unsafe { get_option(socket, libc::IPPROTO_TCP, libc::TCP_INFO, raw) }?;
    Ok(&raw[..len.min(raw.len())])
}

/// Offsets of `struct tcp_info`, which only ever grows at its end.
pub(super) fn parse_info(raw: &[u8]) -> TcpInfo {
    let word = |at| u32_at(raw, at).unwrap_or(0);
    let long = |at| u64_at(raw, at).unwrap_or(0);
    const MICRO: f64 = 1e-6;
    let micro = |microseconds: u32| f64::from(microseconds) * MICRO;
    TcpInfo {
        snd_mss: word(16).into(),
        rcv_mss: word(20).into(),
        rtt: micro(word(68)),
        cwnd: word(80).into(),
        retransmits: word(100).into(),
        bytes_acked: long(120),
        bytes_received: long(128),
        // Nothing was measured yet (`tcp_init_sock`, net/ipv4/tcp.c), or the kernel is too old.
        min_rtt: Some(word(148)).filter(|n| !matches!(*n, 0 | u32::MAX)).map(micro),
        delivery_rate: long(160) as f64,
        busy: long(168) as f64 * MICRO,
        rwnd_limited: long(176) as f64 * MICRO,
        sndbuf_limited: long(184) as f64 * MICRO,
        reordering: word(88).into(),
        data_segments_sent: word(156).into(),
        bytes_sent: long(200),
        bytes_retransmitted: long(208),
        duplicates: word(216).into(),
        reorderings: word(220).into(),
        out_of_order: word(224).into(),
        timeouts: u16_at(raw, 240).unwrap_or(0).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::Ipv4Addr;

    #[test]
    fn tcp_info_counts_what_went_through() {
        let (mut tx, mut rx) = loopback_pair().unwrap();
        tx.write_all(&[7; 10_000]).unwrap();
        rx.read_exact(&mut [0; 10_000]).unwrap();
        wait_acknowledged(tx.as_fd(), Duration::from_secs(5)).unwrap();
        assert_eq!(info(rx.as_fd()).unwrap().bytes_received, 10_000);
        let sender = info(tx.as_fd()).unwrap();
        // The handshake's SYN counts as one.
        assert!((10_000..=10_001).contains(&sender.bytes_acked), "{sender:?}");
        assert!(sender.snd_mss > 500 && sender.rtt > 0.0 && sender.cwnd > 0, "{sender:?}");
    }

    #[test]
    fn an_unknown_congestion_control_is_an_error() {
        let options = FlowOptions { congestion: Some("nonsense".into()), ..Default::default() };
        let error = listen_at((Ipv4Addr::LOCALHOST, 0).into(), 1, &options).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn only_the_peers_own_end_is_an_end() {
        let (tx, rx) = loopback_pair().unwrap();
        shutdown(rx.as_fd(), Shutdown::Both).unwrap();
        assert_eq!(recv(rx.as_fd(), &mut [0; 8], 0).unwrap(), 0);
        assert!(!peer_finished(rx.as_fd()).unwrap());
        drop(tx);

        let (tx, rx) = loopback_pair().unwrap();
        drop(tx);
        assert_eq!(recv(rx.as_fd(), &mut [0; 8], 0).unwrap(), 0);
        assert!(peer_finished(rx.as_fd()).unwrap());

        let (tx, rx) = loopback_pair().unwrap();
        reset_on_close(tx.as_fd(), true).unwrap();
        drop(tx);
        assert!(recv(rx.as_fd(), &mut [0; 8], 0).is_err());
        assert!(!peer_finished(rx.as_fd()).unwrap());
    }

    /// As the server of connections that come and go does.
    #[test]
    fn listens_again_beside_connections_of_an_earlier_listener() {
        let options = FlowOptions { at_once: true, ..FlowOptions::default() };
        let earlier = listen_at((Ipv4Addr::LOCALHOST, 0).into(), 1, &options).unwrap();
        let at = earlier.local_addr().unwrap();
        let listening = listen_beside(at, 1, true, &options).unwrap_err();
        assert_eq!(listening.raw_os_error(), Some(libc::EADDRINUSE));
        let _client = connect(at, None, &options).unwrap();
        let _server = earlier.accept().unwrap();
        drop(earlier);
        let both = [(); 2].map(|()| listen_beside(at, 1, true, &options).unwrap());
        assert!(both.iter().all(|listener| accept(listener.as_fd(), true).is_err()));
        let socket = unconnected(at.ip(), true, &options).unwrap();
        if !connect_socket(socket.as_fd(), &at).unwrap() {
            wait(socket.as_fd(), Ready::OUT, Some(Duration::from_secs(5))).unwrap();
        }
        let accepted = both.iter().filter_map(|listener| accept(listener.as_fd(), true).ok());
        let accepted: Vec<OwnedFd> = accepted.collect();
        assert_eq!(accepted.len(), 1);
        assert!(rustix::net::sockopt::tcp_nodelay(&accepted[0]).unwrap(), "it is inherited");
        assert!(default_congestion(at.ip()).unwrap().len() > 1);
    }

    /// A signal ends the wait of a call that has a limit (signal(7)), as a stop of the process does.
    #[test]
    fn a_connect_that_is_interrupted_goes_on() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGURG, handler as libc::sighandler_t) };
        let options = FlowOptions::default();
        let listener = listen_at((Ipv4Addr::LOCALHOST, 0).into(), 1, &options).unwrap();
        let peer = listener.local_addr().unwrap();
        // Whoever comes next is not answered.
        let _waiting = [(); 2].map(|()| connect(peer, None, &options).unwrap());
        let socket = unconnected(peer.ip(), false, &options).unwrap();
        limit_blocking(socket.as_fd(), Duration::from_millis(200)).unwrap();
        let thread = crate::thread::id();
        let interrupts = std::thread::spawn(move || {
            for _ in 0..20 {
                // SAFETY: the call takes numbers alone.
                let sent = unsafe { libc::syscall(libc::SYS_tkill, thread, libc::SIGURG) };
                assert_eq!(sent, 0);
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        assert!(!connect_socket(socket.as_fd(), &peer).unwrap());
        interrupts.join().unwrap();
        drop(listener);
    }

    #[test]
    fn a_short_tcp_info_reads_as_zeros() {
        assert_eq!(parse_info(&[]), TcpInfo::default());
    }
}
