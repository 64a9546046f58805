//! TCP sockets: calls and options that `std` does not offer. tcp(7), socket(7).

use super::bytes::{u16_at, u32_at, u64_at};
use super::{check, ioctl};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendAncillaryBuffer, SendFlags, SocketFlags};
use rustix::time::Timespec;
use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::time::Duration;

/// Options set at both ends of every flow before the handshake.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FlowOptions {
    /// `SO_SNDBUF`, bytes (the kernel doubles it).
    pub send_buffer: Option<u64>,
    /// `SO_RCVBUF`, bytes (the kernel doubles it).
    pub receive_buffer: Option<u64>,
    /// `TCP_CONGESTION`.
    pub congestion: Option<String>,
    /// `TCP_NODELAY`: a small message does not wait for acknowledgements of earlier ones.
    pub no_delay: bool,
    /// `TCP_FASTOPEN_CONNECT`: connecting waits for the first send, whose bytes are sent with the
    /// SYN if the peer has given us a cookie (RFC 7413).
    pub fast_open: bool,
}

/// Listens on this port, even while connections of an earlier listener there still exist; port 0
/// lets the kernel choose. Accepted sockets inherit the options. EADDRINUSE: another socket listens
/// there.
pub fn listen_at(
    address: SocketAddr,
    backlog: u32,
    options: &FlowOptions,
) -> io::Result<TcpListener> {
    let socket = stream_socket(&address.ip(), SocketFlags::CLOEXEC)?;
    set_options(socket.as_fd(), options)?;
    // Not if the kernel chooses: it might choose a port that another socket with this option is
    // about to listen on.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, address.port() != 0)?;
    rustix::net::bind(&socket, &address)?;
    // Inherited by accepted sockets, so that they do not keep `listen_beside` from the port.
    rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
    rustix::net::listen(&socket, backlog as i32)?;
    Ok(TcpListener::from(socket))
}

/// Listens on a port that still has connections accepted by [`listen_at`], together with other
/// sockets of this user that do the same: the kernel spreads connections over them (`SO_REUSEPORT`,
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

/// Makes a listening socket accept data in a SYN, with up to `most` such connections handed out
/// before their handshake is complete (`TCP_FASTOPEN`, tcp(7)).
pub fn set_fast_open_backlog(listener: BorrowedFd, most: u32) -> io::Result<()> {
    let most = i32::try_from(most).unwrap_or(i32::MAX);
    set_int(listener, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, most)
}

/// Accepts the next connection of a listening socket (accept4(2)), which inherits its options.
#[inline]
pub fn accept(listener: BorrowedFd, nonblocking: bool) -> io::Result<OwnedFd> {
    Ok(rustix::net::accept_with(listener, socket_flags(nonblocking))?)
}

/// Makes a socket with these options that is not connected.
pub fn unconnected(
    family: IpAddr,
    nonblocking: bool,
    options: &FlowOptions,
) -> io::Result<OwnedFd> {
    let socket = stream_socket(&family, socket_flags(nonblocking))?;
    set_options(socket.as_fd(), options)?;
    Ok(socket)
}

/// Connects a socket (connect(2)). Returns whether it is connected yet; a non-blocking one will be
/// later. EADDRNOTAVAIL: every port that it could use is taken.
pub fn connect_socket(socket: BorrowedFd, peer: &SocketAddr) -> io::Result<bool> {
    loop {
        return match rustix::net::connect(socket, peer) {
            Ok(()) => Ok(true),
            // The connect continues in the kernel; the next call waits for it.
            Err(Errno::INTR) => continue,
            Err(Errno::INPROGRESS | Errno::ALREADY) => Ok(false),
            Err(e) => Err(e.into()),
        };
    }
}

/// Returns an address as the kernel reads it, padded to the size of the largest kind, and its
/// length.
pub(super) fn address_bytes(
    address: &SocketAddr,
) -> ([u8; size_of::<libc::sockaddr_storage>()], u32) {
    use rustix::net::addr::SocketAddrArg;
    let mut bytes = [0; size_of::<libc::sockaddr_storage>()];
    // SAFETY: the address has `len` bytes, and is read while it is live.
    let len = unsafe {
        address.with_sockaddr(|raw, len| {
            std::ptr::copy_nonoverlapping(raw.cast::<u8>(), bytes.as_mut_ptr(), len as usize);
            len
        })
    };
    (bytes, len)
}

/// Returns the congestion control of a socket on which none is set
/// (`net.ipv4.tcp_congestion_control`).
pub fn default_congestion(family: IpAddr) -> io::Result<String> {
    let socket = stream_socket(&family, SocketFlags::CLOEXEC)?;
    Ok(rustix::net::sockopt::tcp_congestion(&socket)?)
}

/// Limits how long calls on a socket, and on those it accepts, block (`SO_RCVTIMEO`, `SO_SNDTIMEO`,
/// socket(7)): they then return EAGAIN, or EINPROGRESS from connect(2).
pub fn limit_blocking(socket: BorrowedFd, time: Duration) -> io::Result<()> {
    use rustix::net::sockopt::{Timeout, set_socket_timeout};
    set_socket_timeout(socket, Timeout::Recv, Some(time))?;
    Ok(set_socket_timeout(socket, Timeout::Send, Some(time))?)
}

/// Connects to a peer from port `from`, or from one the kernel chooses. The options are set before
/// the handshake, which negotiates the window scale. EADDRINUSE: another socket uses the port.
pub fn connect(
    peer: SocketAddr,
    from: Option<u16>,
    options: &FlowOptions,
) -> io::Result<TcpStream> {
    let socket = stream_socket(&peer.ip(), SocketFlags::CLOEXEC)?;
    set_options(socket.as_fd(), options)?;
    if let Some(port) = from {
        // Even while a connection of an earlier session from this port is in TIME-WAIT.
        rustix::net::sockopt::set_socket_reuseaddr(&socket, true)?;
        rustix::net::bind(&socket, &SocketAddr::from((unspecified(peer.ip()), port)))?;
    }
    rustix::net::connect(&socket, &peer)?;
    Ok(TcpStream::from(socket))
}

/// Returns the unspecified address of the same family.
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
        // ENOENT: the kernel has no such congestion control; EPERM: it is not in
        // `tcp_allowed_congestion_control`.
        rustix::net::sockopt::set_tcp_congestion(socket, name)?;
    }
    if options.no_delay {
        rustix::net::sockopt::set_tcp_nodelay(socket, true)?;
    }
    if options.fast_open {
        set_int(socket, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 1)?;
    }
    Ok(())
}

/// Sets a socket option of type `int`.
pub fn set_int(socket: BorrowedFd, level: i32, option: i32, value: i32) -> io::Result<()> {
    set_option(socket, level, option, &value.to_ne_bytes())
}

/// Calls setsockopt(2) with these bytes, which contain no address.
pub(super) fn set_option(
    socket: BorrowedFd,
    level: i32,
    option: i32,
    value: &[u8],
) -> io::Result<()> {
    // SAFETY: the kernel only reads the bytes.
    unsafe { set_value(socket, level, option, value) }.map(drop)
}

/// Calls setsockopt(2) and returns its result, which is 0 for most options.
///
/// # Safety
///
/// The option takes a value of this type, and what its addresses point to.
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

/// Calls getsockopt(2) and returns how many bytes the kernel has written.
///
/// # Safety
///
/// Any bytes are a valid value of this type, and its addresses are valid for what the option does
/// with them.
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
    // With MSG_ZEROCOPY the kernel also refers to the pages afterwards; that is safe whatever
    // becomes of the slice, because the kernel holds references to them.
    let flags = SendFlags::from_bits_retain(flags as u32) | SendFlags::NOSIGNAL;
    Ok(rustix::net::send(socket, bytes, flags)?)
}

/// `sendmsg(2)` of consecutive pieces, with flags.
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

/// Returns the bytes that were written but not yet acknowledged by the peer's kernel (`SIOCOUTQ`,
/// tcp(7)).
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
        // An acknowledgement takes microseconds on a local link; polling is simpler than any
        // notification, nothing is being timed yet, and the peer may need this CPU.
        std::thread::sleep(Duration::from_micros(50));
    }
    Ok(())
}

/// Waits until a descriptor is readable; returns false if `timeout` has passed first.
pub fn wait_readable(fd: BorrowedFd, timeout: Duration) -> io::Result<bool> {
    Ok(!wait(fd, Ready::IN, Some(timeout))?.is_empty())
}

/// Which half of a connection to shut down.
pub use rustix::net::Shutdown;

/// Shuts down half or all of a connection: `shutdown(2)`.
pub fn shutdown(socket: BorrowedFd, how: Shutdown) -> io::Result<()> {
    Ok(rustix::net::shutdown(socket, how)?)
}

/// Events to wait for; errors and hang-ups are always included.
pub use rustix::event::PollFlags as Ready;

/// Waits until the socket is ready for one of these, fails, or the timeout has passed (an empty
/// answer). Without a timeout it waits forever. poll(2).
pub fn wait(socket: BorrowedFd, ready: Ready, timeout: Option<Duration>) -> io::Result<Ready> {
    wait_for_any(&mut [rustix::event::PollFd::from_borrowed_fd(socket, ready)], timeout)
}

/// Like [`wait`] for several sockets: returns what any of them is ready for.
pub fn wait_for_any(
    sockets: &mut [rustix::event::PollFd],
    timeout: Option<Duration>,
) -> io::Result<Ready> {
    let timeout = timeout.map(Timespec::try_from).transpose();
    let timeout = timeout.map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    rustix::event::poll(sockets, timeout.as_ref())?;
    Ok(sockets.iter().fold(Ready::empty(), |all, one| all | one.revents()))
}

/// Sets whether closing the socket, even by the death of its process, resets the connection instead
/// of closing it in order (`SO_LINGER` of 0 s, socket(7)).
pub fn reset_on_close(socket: BorrowedFd, reset: bool) -> io::Result<()> {
    Ok(rustix::net::sockopt::set_socket_linger(socket, reset.then_some(Duration::ZERO))?)
}

/// Whether a FIN of the peer has arrived. A receive of 0 bytes alone does not show that: it also
/// follows a shutdown on our own side.
pub fn peer_finished(socket: BorrowedFd) -> io::Result<bool> {
    // States of include/net/tcp_states.h that follow a FIN from the peer.
    const CLOSE_WAIT: u8 = 8;
    const AFTER_FIN: [u8; 4] = [6, CLOSE_WAIT, 9, 11];
    Ok(AFTER_FIN.contains(&state(socket)?))
}

/// Whether the connection is closed: if a receive returned 0 bytes without an error, both ends have
/// ended their streams in order. (The kernel keeps TIME-WAIT separately from the socket.)
pub fn is_over(socket: BorrowedFd) -> io::Result<bool> {
    const CLOSE: u8 = 7;
    Ok(state(socket)? == CLOSE)
}

/// Returns the state of a connection (include/net/tcp_states.h), or 0 if it is not known.
fn state(socket: BorrowedFd) -> io::Result<u8> {
    let mut raw = [0u8; 256];
    Ok(raw_info(socket, &mut raw)?.first().copied().unwrap_or(0))
}

/// Returns the NAPI instance (a queue of a device) through which the last packet for a socket came
/// (`SO_INCOMING_NAPI_ID`, Linux 4.12), or `None` if it came through no instance that can be
/// polled.
pub fn incoming_napi(socket: BorrowedFd) -> io::Result<Option<u32>> {
    let mut id = 0u32;
    // SAFETY: the option writes one int.
    unsafe { get_option(socket, libc::SOL_SOCKET, libc::SO_INCOMING_NAPI_ID, &mut id) }?;
    Ok(Some(id).filter(|id| *id > 0))
}

/// Makes two connected sockets on the loopback device, for probes.
pub fn loopback_pair() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((TcpStream::connect(listener.local_addr()?)?, listener.accept()?.0))
}

/// The kernel's data about a connection (`TCP_INFO`, include/uapi/linux/tcp.h).
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TcpInfo {
    /// Segments retransmitted since the connection began.
    pub retransmits: u64,
    /// Congestion window in segments.
    pub cwnd: u64,
    /// Maximum segment size for sending, in bytes of payload.
    pub snd_mss: u64,
    /// Largest segment received, in bytes of payload.
    pub rcv_mss: u64,
    /// Smoothed round-trip time in seconds.
    pub rtt: f64,
    /// Smallest round-trip time measured, in seconds; `None` before the first.
    pub min_rtt: Option<f64>,
    /// Most recent delivery rate, bytes per second.
    pub delivery_rate: f64,
    /// Time limited by the peer's receive window, in seconds.
    pub rwnd_limited: f64,
    /// Time limited by its own send buffer, in seconds.
    pub sndbuf_limited: f64,
    /// Time with unsent or unacknowledged data, in seconds.
    pub busy: f64,
    /// Bytes received in order, by the kernel's count.
    pub bytes_received: u64,
    /// Bytes acknowledged by the peer, by the kernel's count.
    pub bytes_acked: u64,
    /// Bytes of payload sent, including retransmitted ones (Linux 4.19, like the next three).
    pub bytes_sent: u64,
    /// Bytes of payload retransmitted.
    pub bytes_retransmitted: u64,
    /// Segments that the peer reported as received twice (DSACK): retransmitted needlessly.
    pub duplicates: u64,
    /// Times that segments turned out to have been reordered in the network.
    pub reorderings: u64,
    /// Segments with payload sent, including retransmitted ones.
    pub data_segments_sent: u64,
    /// Reordering distance in segments that is not yet taken for loss.
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

/// Parses `struct tcp_info`, which only ever grows at its end.
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
        // Nothing has been measured yet (`tcp_init_sock`, net/ipv4/tcp.c), or the kernel is too
        // old.
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

    /// As the server of short-lived connections does.
    #[test]
    fn listens_again_beside_connections_of_an_earlier_listener() {
        let options = FlowOptions { no_delay: true, ..FlowOptions::default() };
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

    /// A signal interrupts the wait of a call with a time limit (signal(7)), as stopping the
    /// process does.
    #[test]
    fn a_connect_that_is_interrupted_goes_on() {
        extern "C" fn nothing(_: libc::c_int) {}
        let handler: extern "C" fn(libc::c_int) = nothing;
        // SAFETY: the handler does nothing.
        unsafe { libc::signal(libc::SIGURG, handler as libc::sighandler_t) };
        let options = FlowOptions::default();
        let listener = listen_at((Ipv4Addr::LOCALHOST, 0).into(), 1, &options).unwrap();
        let peer = listener.local_addr().unwrap();
        // The backlog is full: further connections are not answered.
        let _waiting = [(); 2].map(|()| connect(peer, None, &options).unwrap());
        let socket = unconnected(peer.ip(), false, &options).unwrap();
        limit_blocking(socket.as_fd(), Duration::from_millis(200)).unwrap();
        let thread = crate::thread::id();
        let interrupts = std::thread::spawn(move || {
            for _ in 0..20 {
                // SAFETY: the call takes only numbers.
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
