//! All TCP sockets of a network namespace, as the kernel reports them: sock_diag(7).
//!
//! Uses two netlink sockets: one dumps the existing sockets (`TCPF` states below), the other
//! receives each socket as it is freed, with its last `TCP_INFO` (`SKNLGRP_INET_TCP_DESTROY`,
//! net/core/sock_diag.c). Both stay in the namespace of the thread that opened them, and neither
//! needs privilege. Their messages have the same format, and only those of one are answers, so
//! [`parse`] reads both.

use super::bytes::{text, u16_at, u32_at};
use super::netlink::framed;
use super::route_request::attributes;
use super::tcp::{TcpInfo, parse_info};
use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, socket_with,
    sockopt,
};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A source of the TCP sockets of one namespace.
#[derive(Debug)]
pub struct TcpSockets {
    asked: OwnedFd,
    freed: OwnedFd,
}

/// A snapshot of a TCP socket.
#[derive(Clone, Debug, PartialEq)]
pub struct TcpSocket {
    /// Local address; an IPv4-mapped IPv6 address is given as IPv4.
    pub local: SocketAddr,
    pub remote: SocketAddr,
    /// The kernel's number for it, which no other socket ever gets.
    pub cookie: u64,
    /// Inode number, as in `/proc/PID/fd`; 0 if no process has it open any more.
    pub inode: u64,
    pub info: TcpInfo,
    /// Congestion control; empty in the report of a freed socket.
    pub congestion: String,
}

/// Content of one datagram from the kernel.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Messages {
    /// Sockets, in the order of the datagram.
    pub sockets: Vec<TcpSocket>,
    /// Whether this is the end of the answer.
    pub done: bool,
    /// Error number (errno(3)) in place of an answer.
    pub error: Option<i32>,
}

impl TcpSockets {
    /// Opens both for the calling thread's namespace; frees are recorded from now on.
    /// EPROTONOSUPPORT or ENOENT: the kernel has no `CONFIG_INET_DIAG`.
    pub fn open() -> io::Result<TcpSockets> {
        let open = |flags| {
            let kind = (AddressFamily::NETLINK, SocketType::RAW);
            socket_with(kind.0, kind.1, flags, Some(netlink::SOCK_DIAG))
        };
        let asked = open(SocketFlags::CLOEXEC)?;
        let freed = open(SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?;
        // Many sockets may close at once; the kernel limits the buffer to rmem_max.
        sockopt::set_socket_recv_buffer_size(&freed, ROOM)?;
        let groups = (1 << (INET_TCP_DESTROY - 1)) | (1 << (INET6_TCP_DESTROY - 1));
        bind(&freed, &SocketAddrNetlink::new(0, groups))?;
        Ok(TcpSockets { asked, freed })
    }

    /// Returns the existing sockets that are or were connected.
    pub fn read(&mut self) -> io::Result<Vec<TcpSocket>> {
        let mut found = Vec::new();
        for family in [libc::AF_INET, libc::AF_INET6] {
            send(&self.asked, &request(family as u8), SendFlags::empty())?;
            loop {
                let mut buffer = vec![0; DATAGRAM];
                let (_, length) = recv(&self.asked, &mut buffer[..], RecvFlags::empty())?;
                let messages = parse(buffer.get(..length).unwrap_or_default());
                found.extend(messages.sockets);
                match messages.error {
                    // The kernel has no IPv6.
                    Some(libc::ENOENT) if family == libc::AF_INET6 => break,
                    Some(number) => return Err(io::Error::from_raw_os_error(number)),
                    None if messages.done => break,
                    None => {}
                }
            }
        }
        Ok(found)
    }

    /// Returns the sockets freed since the last call, and whether these are all: false if some were
    /// not reported for lack of buffer space.
    pub fn freed(&mut self) -> io::Result<(Vec<TcpSocket>, bool)> {
        let (mut found, mut complete) = (Vec::new(), true);
        let mut buffer = vec![0; DATAGRAM];
        loop {
            match recv(&self.freed, &mut buffer[..], RecvFlags::empty()) {
                Ok((_, length)) => {
                    found.extend(parse(buffer.get(..length).unwrap_or_default()).sockets);
                }
                Err(rustix::io::Errno::AGAIN) => return Ok((found, complete)),
                Err(rustix::io::Errno::NOBUFS) => complete = false,
                Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// A descriptor that is readable when a socket was freed.
    pub fn freed_ready(&self) -> BorrowedFd<'_> {
        self.freed.as_fd()
    }
}

/// Groups of `enum sknetlink_groups` and numbers of include/uapi/linux/{sock,inet}_diag.h.
const INET_TCP_DESTROY: u32 = 1;
const INET6_TCP_DESTROY: u32 = 3;
const BY_FAMILY: u16 = 20;
const INFO: u16 = 2;
const CONGESTION: u16 = 4;
/// Sizes of `struct nlmsghdr`, `inet_diag_req_v2` and `inet_diag_msg`.
const HEADER: usize = 16;
const REQUEST: usize = 56;
const MESSAGE: usize = 72;
/// States without a connection, as numbers of include/net/tcp_states.h: SYN_RECV and
/// NEW_SYN_RECV, TIME_WAIT, which has no `TCP_INFO`, and LISTEN.
const UNCONNECTED: u32 = 1 << 3 | 1 << 12 | 1 << 6 | 1 << 10;
const ROOM: usize = 1 << 20;
/// More than the kernel puts into one datagram of an answer.
const DATAGRAM: usize = 64 << 10;

fn request(family: u8) -> Vec<u8> {
    let wanted = 1 << (INFO - 1) | 1 << (CONGESTION - 1);
    let mut bytes = vec![family, libc::IPPROTO_TCP as u8, wanted, 0];
    bytes.extend((!UNCONNECTED & 0x1fff).to_ne_bytes());
    bytes.resize(REQUEST, 0);
    framed(BY_FAMILY, libc::NLM_F_DUMP as u16, &bytes)
}

/// Parses one datagram. Truncated messages and those of other kinds are skipped.
pub fn parse(datagram: &[u8]) -> Messages {
    let mut messages = Messages::default();
    let mut rest = datagram;
    while let (Some(length), Some(kind)) = (u32_at(rest, 0), u16_at(rest, 4)) {
        let Some(body) = rest.get(HEADER..length as usize) else { break };
        match i32::from(kind) {
            libc::NLMSG_DONE => messages.done = true,
            libc::NLMSG_ERROR => {
                // Zero would be an acknowledgement, which was not requested.
                let number = u32_at(body, 0).map_or(libc::EPROTO, |n| (n as i32).saturating_neg());
                messages.error = Some(number).filter(|number| *number != 0);
            }
            _ if kind == BY_FAMILY => messages.sockets.extend(socket(body)),
            _ => {}
        }
        rest = rest.get((length as usize).next_multiple_of(4)..).unwrap_or_default();
    }
    messages
}

/// Parses `struct inet_diag_msg` and its attributes. `None` without a `TCP_INFO`.
fn socket(body: &[u8]) -> Option<TcpSocket> {
    let address = body.get(4..)?;
    let family = i32::from(*body.first()?);
    let end = |port: usize, at: usize| {
        let port = u16::from_be_bytes(address.get(port..port + 2)?.try_into().ok()?);
        let ip = match family {
            libc::AF_INET => IpAddr::from(*address.get(at..)?.first_chunk::<4>()?),
            libc::AF_INET6 => IpAddr::from(*address.get(at..)?.first_chunk::<16>()?),
            _ => return None,
        };
        Some(SocketAddr::new(ip.to_canonical(), port))
    };
    let cookie = u64::from(u32_at(address, 40)?) | u64::from(u32_at(address, 44)?) << 32;
    let (mut info, mut congestion) = (None, String::new());
    for (kind, value) in attributes(body.get(MESSAGE..)?) {
        match kind {
            INFO => info = Some(parse_info(value)),
            CONGESTION => congestion = text(value),
            _ => {}
        }
    }
    let (local, remote) = (end(0, 4)?, end(2, 20)?);
    let inode = u32_at(body, MESSAGE - 4)?.into();
    Some(TcpSocket { local, remote, cookie, inode, info: info?, congestion })
}

#[cfg(test)]
mod tests {
    use super::super::tcp::{loopback_pair, wait_acknowledged, wait_readable};
    use super::*;
    use bytepath_testing::skip;
    use proptest::prelude::*;
    use rustix::fs::fstat;
    use std::io::{Read, Write};
    use std::time::{Duration, Instant};

    /// The answer of Linux 6.18 about a connection that had sent 100000 bytes, and its message when
    /// that was freed (`tests/data/meters` has other recordings).
    const ANSWER: &[u8] = include_bytes!("../../../fuzz/seeds/tcp_sockets/answer");
    const FREED: &[u8] = include_bytes!("../../../fuzz/seeds/tcp_sockets/freed");

    #[test]
    fn recordings_are_read() {
        let answer = parse(ANSWER);
        assert!(answer.error.is_none());
        let found = answer.sockets.iter().find(|socket| socket.info.bytes_sent == 100_000);
        let found = found.unwrap_or_else(|| panic!("{answer:#?}"));
        assert!(found.local.ip().is_loopback() && found.remote.ip().is_loopback(), "{found:?}");
        assert!(found.inode != 0 && !found.congestion.is_empty(), "{found:?}");
        let freed = parse(FREED).sockets;
        let [last] = freed.as_slice() else { panic!("{freed:#?}") };
        assert_eq!(
            (last.cookie, last.local, last.remote),
            (found.cookie, found.local, found.remote)
        );
        assert_eq!((last.inode, last.info.bytes_sent), (0, 100_000));
        assert!(last.info.bytes_acked >= 100_000 && last.info.retransmits == 0, "{last:?}");
    }

    #[test]
    fn errors_and_ends_are_told_apart() {
        let message = |kind: i32, body: &[u8]| {
            let mut bytes = ((HEADER + body.len()) as u32).to_ne_bytes().to_vec();
            bytes.extend((kind as u16).to_ne_bytes());
            bytes.extend([0; 10]);
            bytes.extend(body);
            bytes
        };
        let refused = message(libc::NLMSG_ERROR, &(-libc::EPERM).to_ne_bytes());
        assert_eq!(parse(&refused).error, Some(libc::EPERM));
        assert_eq!(parse(&message(libc::NLMSG_ERROR, &[0; 4])).error, None);
        assert!(parse(&message(libc::NLMSG_DONE, &[0; 4])).done);
        assert_eq!(parse(&message(i32::from(BY_FAMILY), &[0; 71])), Messages::default());
    }

    #[test]
    fn a_connection_is_there_until_it_is_freed_and_then_its_last_figures_are() {
        let mut sockets = match TcpSockets::open() {
            Ok(sockets) => sockets,
            Err(e) => return skip!("{e}"),
        };
        let (mut tx, mut rx) = loopback_pair().unwrap();
        tx.write_all(&[7; 50_000]).unwrap();
        rx.read_exact(&mut [0; 50_000]).unwrap();
        wait_acknowledged(tx.as_fd(), Duration::from_secs(5)).unwrap();
        let inode = fstat(&tx).unwrap().st_ino;
        let found = sockets.read().unwrap().into_iter().find(|socket| socket.inode == inode);
        let found = found.expect("the connection is among them");
        assert_eq!(
            (found.local, found.remote),
            (tx.local_addr().unwrap(), tx.peer_addr().unwrap())
        );
        assert_eq!(found.info.bytes_sent, 50_000);
        drop((tx, rx));
        let begun = Instant::now();
        let last = loop {
            let (freed, _) = sockets.freed().unwrap();
            if let Some(last) = freed.into_iter().find(|socket| socket.cookie == found.cookie) {
                break last;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it was never reported");
            wait_readable(sockets.freed_ready(), Duration::from_secs(1)).unwrap();
        };
        assert_eq!((last.info.bytes_sent, last.local), (50_000, found.local));
    }

    proptest! {
        #[test]
        fn no_datagram_panics(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
            parse(&bytes);
        }
    }
}
