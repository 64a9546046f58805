//! The ledgers of an observed program: what its sockets sent and received, and how. Its calls are
//! the only evidence, so bytes of a method that may have avoided a copy are "unknown", whatever its
//! name.

use super::layout::{Way, call_name};
use super::observations::{Observations, Socket};
use bytepath_record::{self as record, Ledger, Manner, ObservedSocket, Traffic};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use strum::VariantArray;

/// Share of the bytes for which copied or not copied must be known, for a label without a
/// percentage.
const NEARLY_ALL: f64 = 0.95;

/// Calls that move bytes without passing through the counted calls: their arguments are in memory
/// that the kernel shares with the program.
const BEYOND: &[&str] = &["io_uring_setup", "io_uring_enter", "io_submit"];

/// Bit that is set in the number of a call of x32 code (arch/x86/include/uapi/asm/unistd.h).
const X32: u32 = 1 << 30;

/// Returns the ledgers of both directions: sent, received.
pub(crate) fn traffic(counts: &Observations) -> (Traffic, Traffic) {
    (moved(counts, Direction::Out), moved(counts, Direction::In))
}

fn moved(counts: &Observations, wanted: Direction) -> Traffic {
    let mut ledger = Ledger::default();
    for socket in &counts.sockets {
        for way in wanted.ways() {
            let (manner, source) = meaning(way, socket);
            ledger.enter(manner, socket.bytes[way as usize], socket.calls[way as usize], source);
        }
    }
    Traffic { label: label(&ledger), ledger, ways: ways(counts, wanted) }
}

/// Returns the bytes over TCP by the path that makes the same calls, largest first.
fn ways(counts: &Observations, wanted: Direction) -> Vec<record::Way> {
    let by = |name: &str| -> u64 {
        counts.rows.iter().filter(|row| is_call(row.number, name)).map(|row| row.bytes).sum()
    };
    let sendfile = by("sendfile").saturating_add(by("sendfile64"));
    let into = if sendfile >= by("splice") { "sendfile" } else { "splice" };
    let is_tcp = |socket: &&Socket| kind(socket.family, socket.protocol) == "tcp";
    let of_way = |way: Way| {
        let path = match way {
            Way::Sent | Way::Received => "socket",
            Way::ZeroCopy => "msg-zerocopy",
            Way::Into => into,
            Way::OutOf => "splice",
            Way::Mapped => "tcp-zerocopy-receive",
            Way::Discarded => "discard",
            Way::Peeked => return None,
        };
        let used = |socket: &&Socket| is_tcp(socket) && socket.bytes[way as usize] > 0;
        let (bytes, calls) =
            counts.sockets.iter().filter(used).fold((0u64, 0u64), |sum, socket| {
                let one = (socket.bytes[way as usize], socket.calls[way as usize]);
                (sum.0.saturating_add(one.0), sum.1.saturating_add(one.1))
            });
        (bytes > 0).then(|| record::Way { path: path.to_owned(), bytes, calls })
    };
    let mut ways: Vec<record::Way> = wanted.ways().filter_map(of_way).collect();
    ways.sort_by_key(|way| std::cmp::Reverse(way.bytes));
    ways
}

/// Returns the sockets, largest number of bytes first.
pub(crate) fn sockets(counts: &Observations) -> Vec<ObservedSocket> {
    let mut sockets: Vec<ObservedSocket> = counts.sockets.iter().map(observed).collect();
    sockets.sort_by_key(|s| (std::cmp::Reverse(s.bytes()), s.inode));
    sockets
}

/// Describes in sentences what the ledgers do not cover.
pub(crate) fn doubts(counts: &Observations) -> Vec<String> {
    let mut doubts = Vec::new();
    let uses = |call: &&&str| counts.rows.iter().any(|row| is_call(row.number, call));
    if let Some(beyond) = BEYOND.iter().find(uses) {
        doubts.push(format!(
            "the program uses {beyond}: bytes that it moves that way are in no ledger"
        ));
    }
    let x32: u64 =
        counts.rows.iter().filter(|row| row.number & X32 != 0).map(|row| row.calls).sum();
    if x32 > 0 {
        doubts.push(format!("{x32} calls of x32 code: bytes that they moved are in no ledger"));
    }
    let rings = |socket: &&Socket| {
        socket.mapped && matches!(i32::from(socket.family), libc::AF_PACKET | libc::AF_XDP)
    };
    let rings = counts.sockets.iter().filter(rings).count();
    if rings > 0 {
        doubts.push(format!(
            "the program maps rings of {rings} packet or XDP sockets, and what goes through them \
             is in no ledger"
        ));
    }
    let peeked = peeked(counts);
    if peeked > 0 {
        doubts.push(format!(
            "{peeked} bytes were read with MSG_PEEK: copied in addition, and not counted as received"
        ));
    }
    doubts
}

fn is_call(number: u32, name: &str) -> bool {
    call_name(number).0 == Some(name)
}

/// Returns the bytes that were read with `MSG_PEEK`: copied, and received later.
pub(crate) fn peeked(counts: &Observations) -> u64 {
    let of = |socket: &Socket| socket.bytes[Way::Peeked as usize];
    counts.sockets.iter().map(of).fold(0, u64::saturating_add)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    In,
    Out,
}

impl Direction {
    /// Returns the ways in this direction.
    fn ways(self) -> impl Iterator<Item = Way> {
        Way::VARIANTS.iter().copied().filter(move |way| direction(*way) == Some(self))
    }
}

fn direction(way: Way) -> Option<Direction> {
    match way {
        Way::Sent | Way::ZeroCopy | Way::Into => Some(Direction::Out),
        Way::Received | Way::Discarded | Way::Mapped | Way::OutOf => Some(Direction::In),
        Way::Peeked => None,
    }
}

/// Returns what a way proves, and its source in words.
fn meaning(way: Way, socket: &Socket) -> (Manner, &'static str) {
    match way {
        Way::Sent => {
            (Manner::Copied, "write and send calls: the kernel copies from the program's memory")
        }
        Way::Received => {
            (Manner::Copied, "read and receive calls: the kernel copies to the program's memory")
        }
        // On other sockets, MSG_TRUNC only requests the real length.
        Way::Discarded if i32::from(socket.protocol) == libc::IPPROTO_TCP => {
            (Manner::Discarded, "receive calls with MSG_TRUNC on TCP: discarded unread")
        }
        Way::Discarded => {
            (Manner::Copied, "receive calls with MSG_TRUNC: copied as far as there was room")
        }
        Way::Mapped => (Manner::NotCopied, "TCP_ZEROCOPY_RECEIVE: length mapped, by the kernel"),
        Way::ZeroCopy => (
            Manner::Unknown,
            "MSG_ZEROCOPY: whether the kernel copied anyway is reported to the program only",
        ),
        Way::Into => (
            Manner::Unknown,
            "sendfile and splice into a socket: by reference, unless the device needs a copy",
        ),
        Way::OutOf => (
            Manner::Unknown,
            "splice out of a socket: by reference, what happens next is not visible",
        ),
        Way::Peeked => (Manner::Copied, "receive calls with MSG_PEEK"),
    }
}

fn label(ledger: &Ledger) -> String {
    if ledger.delivered == 0 {
        "nothing".into()
    } else if ledger.copied_share() >= NEARLY_ALL {
        "copied".into()
    } else if ledger.not_copied_share() >= NEARLY_ALL {
        "not copied".into()
    } else if ledger.discards() {
        "discarded".into()
    } else if ledger.unknown > ledger.delivered / 2 {
        "unknown".into()
    } else {
        format!("{:.0} % copied", ledger.copied_share() * 100.0)
    }
}

fn observed(socket: &Socket) -> ObservedSocket {
    let sum = |of: &[u64], wanted: Direction| {
        wanted.ways().fold(0u64, |sum, way| sum.saturating_add(of[way as usize]))
    };
    ObservedSocket {
        inode: Some(socket.key),
        kind: kind(socket.family, socket.protocol),
        pid: socket.process,
        local: address(socket.family, socket.local),
        remote: address(socket.family, socket.remote),
        sent: sum(&socket.bytes, Direction::Out),
        received: sum(&socket.bytes, Direction::In),
        send_calls: sum(&socket.calls, Direction::Out),
        receive_calls: sum(&socket.calls, Direction::In),
    }
}

/// Returns the kind of a socket: its family, or its protocol for Internet sockets.
fn kind(family: u16, protocol: u16) -> String {
    const FAMILIES: &[(i32, &str)] = &[
        (libc::AF_UNIX, "unix"),
        (libc::AF_NETLINK, "netlink"),
        (libc::AF_PACKET, "packet"),
        (libc::AF_VSOCK, "vsock"),
        (libc::AF_XDP, "xdp"),
        (libc::AF_ALG, "alg"),
        (libc::AF_KEY, "key"),
        (libc::AF_CAN, "can"),
        (libc::AF_BLUETOOTH, "bluetooth"),
        (libc::AF_TIPC, "tipc"),
        (libc::AF_RDS, "rds"),
        (43, "smc"),
        (libc::AF_PPPOX, "pppox"),
    ];
    const PROTOCOLS: &[(i32, &str)] = &[
        (libc::IPPROTO_TCP, "tcp"),
        (libc::IPPROTO_UDP, "udp"),
        (libc::IPPROTO_MPTCP, "mptcp"),
        (libc::IPPROTO_SCTP, "sctp"),
        (libc::IPPROTO_DCCP, "dccp"),
        (libc::IPPROTO_UDPLITE, "udplite"),
        (libc::IPPROTO_ICMP, "icmp"),
        (libc::IPPROTO_ICMPV6, "icmp"),
    ];
    let (family, protocol) = (i32::from(family), i32::from(protocol));
    let (names, number, other) = match family {
        libc::AF_INET | libc::AF_INET6 => (PROTOCOLS, protocol, "ip protocol"),
        _ => (FAMILIES, family, "family"),
    };
    let name = names.iter().find(|(known, _)| *known == number);
    name.map_or_else(|| format!("{other} {number}"), |(_, name)| (*name).to_owned())
}

fn address(family: u16, (bytes, port): ([u8; 16], u16)) -> Option<String> {
    let ip: IpAddr = match i32::from(family) {
        libc::AF_INET => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
        libc::AF_INET6 => IpAddr::from(Ipv6Addr::from(bytes)).to_canonical(),
        _ => return None,
    };
    (port != 0).then(|| SocketAddr::new(ip, port).to_string())
}

#[cfg(test)]
mod tests {
    use super::super::layout::WAYS;
    use super::*;

    fn tcp(bytes: [u64; WAYS]) -> Socket {
        let mut local = [0; 16];
        local[..4].copy_from_slice(&[10, 0, 0, 1]);
        Socket {
            key: 77,
            family: libc::AF_INET as u16,
            protocol: libc::IPPROTO_TCP as u16,
            local: (local, 80),
            remote: ([0; 16], 0),
            process: 5,
            bytes,
            calls: bytes.map(|bytes| bytes.div_ceil(10)),
            slot: 0,
            mapped: false,
        }
    }

    #[test]
    fn every_way_has_its_place() {
        let counts = Observations {
            sockets: vec![tcp([1, 2, 4, 8, 16, 32, 64, 128])],
            ..Observations::default()
        };
        let (sent, received) = traffic(&counts);
        let split = |l: &Ledger| (l.delivered, l.copied, l.not_copied, l.discarded, l.unknown);
        assert_eq!(split(&sent.ledger), (2 + 32 + 64, 2, 0, 0, 32 + 64));
        assert_eq!(split(&received.ledger), (1 + 4 + 16 + 128, 1, 16, 4, 128));
        assert_eq!((sent.label.as_str(), received.label.as_str()), ("unknown", "unknown"));
        let by_path = |traffic: &Traffic| -> Vec<(String, u64)> {
            traffic.ways.iter().map(|way| (way.path.clone(), way.bytes)).collect()
        };
        let expected = [("sendfile", 64), ("msg-zerocopy", 32), ("socket", 2)];
        assert_eq!(by_path(&sent), expected.map(|(path, bytes)| (path.to_owned(), bytes)));
        let socket = &sockets(&counts)[0];
        assert_eq!((socket.sent, socket.received), (98, 149), "peeked bytes are not received");
        assert_eq!((socket.kind.as_str(), socket.local.as_deref()), ("tcp", Some("10.0.0.1:80")));
        assert_eq!(socket.remote, None);
    }

    #[test]
    fn truncation_throws_away_on_tcp_only() {
        let counts = Observations {
            sockets: vec![tcp([0, 0, 9, 0, 0, 0, 0, 0])],
            ..Observations::default()
        };
        assert_eq!(traffic(&counts).1.label, "discarded");
        let mut udp = tcp([0, 0, 9, 0, 0, 0, 0, 0]);
        udp.protocol = libc::IPPROTO_UDP as u16;
        let (_, received) =
            traffic(&Observations { sockets: vec![udp], ..Observations::default() });
        assert_eq!((received.ledger.copied, received.label.as_str()), (9, "copied"));
    }

    #[test]
    fn zero_copy_calls_prove_nothing() {
        let counts = Observations {
            sockets: vec![tcp([0, 0, 0, 0, 0, 7, 7, 0])],
            ..Observations::default()
        };
        let (sent, received) = traffic(&counts);
        assert_eq!((sent.label.as_str(), received.label.as_str()), ("unknown", "nothing"));
        assert_eq!(sent.ledger.not_copied, 0);
    }
}
