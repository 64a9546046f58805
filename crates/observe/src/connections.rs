//! The figures that TCP keeps about the program's connections, and its counters in their
//! namespaces.
//!
//! All TCP sockets of each network namespace of the program are dumped from the kernel at a limited
//! rate, and the kernel reports each socket with its final figures when it frees it. So only
//! connections that are closed before the first dump of their namespace are missed.

use super::absent::missing;
use super::family;
use bytepath_meter::TcpCounters;
use bytepath_record::{Absent, Connection, Fault, FaultKind, ObservedSocket, ObservedTcp};
use bytepath_sys::lasting_namespace::inside;
use bytepath_sys::tcp::{TcpInfo, wait_readable};
use bytepath_sys::tcp_sockets::{TcpSocket, TcpSockets};
use bytepath_sys::{Roots, procfs};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// Shortest interval between dumps, and the reciprocal of the share of a CPU that they may take:
/// with many sockets they are less frequent.
const EVERY: Duration = Duration::from_millis(250);
const SHARE: u32 = 50;
/// Largest number of freed sockets kept per namespace: some may turn out to be the program's.
const MOST: usize = 32 << 10;
/// How long to wait for the last sockets of a program after its end: the kernel reports them from a
/// work queue.
const LAST_WAIT: Duration = Duration::from_millis(300);

/// Name of the absent figure if the kernel cannot be queried.
const WHAT: &str = "TCP connections";

/// Connections of a program while it is watched.
pub(crate) struct Connections {
    pid: u32,
    roots: Roots,
    spaces: BTreeMap<(u64, u64), Space>,
    /// Namespaces that cannot be entered.
    closed: BTreeSet<(u64, u64)>,
    /// Inode numbers of sockets that the program had open at any dump.
    held: HashSet<u64>,
    next: Instant,
    lost: u64,
    /// Inode numbers of sockets whose last figures are from a dump before they ended.
    stale: HashSet<u64>,
    absent: Option<Absent>,
}

struct Space {
    sockets: TcpSockets,
    counters: Option<TcpCounters>,
    /// Figures of the sockets that existed when watching began, by cookie.
    before: HashMap<u64, TcpInfo>,
    /// Last state of each socket, by cookie, and whether it was missing in the last dump. A freed
    /// socket no longer has an inode number or a congestion control, and the kernel has reset all
    /// figures of one that MPTCP accepted.
    known: HashMap<u64, (TcpSocket, bool)>,
    /// The sockets in the last dump.
    live: Vec<TcpSocket>,
    freed: Vec<TcpSocket>,
}

impl Connections {
    /// Starts watching the connections of a process and its descendants.
    pub(crate) fn watch(pid: u32, roots: &Roots) -> Connections {
        let mut connections = Connections {
            pid,
            roots: roots.clone(),
            spaces: BTreeMap::new(),
            closed: BTreeSet::new(),
            held: HashSet::new(),
            next: Instant::now(),
            lost: 0,
            stale: HashSet::new(),
            absent: None,
        };
        connections.look();
        for space in connections.spaces.values_mut() {
            space.before = space.live.iter().map(|s| (s.cookie, s.info)).collect();
        }
        if connections.spaces.is_empty() {
            let what = format!("the network namespace of process {pid} cannot be seen");
            let fault = Fault::new(FaultKind::Permission, what)
                .remedy("run as root, or as the user of the process");
            connections.absent.get_or_insert(missing(WHAT, fault));
        }
        connections
    }

    /// To be called often; usually it only reads the reports of freed sockets.
    pub(crate) fn tick(&mut self) {
        // A program that enters another network namespace usually does so first.
        self.enter(self.pid);
        if Instant::now() >= self.next {
            self.look();
        } else {
            self.take_freed();
        }
    }

    /// Dumps the sockets of all namespaces now.
    pub(crate) fn look(&mut self) {
        let begun = Instant::now();
        let processes: BTreeSet<u32> = family::processes(&self.roots.proc, self.pid);
        for process in processes {
            self.enter(process);
            self.held.extend(procfs::sockets(&self.roots.proc.join(process.to_string())));
        }
        let mut failed = None;
        for space in self.spaces.values_mut() {
            match space.sockets.read() {
                Ok(live) => {
                    let known = live.iter().filter(|socket| socket.inode != 0);
                    let known = known.map(|s| (s.cookie, (s.clone(), false)));
                    space.known.extend(known);
                    space.live = live;
                }
                Err(e) => failed = Some(Fault::system("cannot read TCP sockets", &e)),
            }
        }
        self.take_freed();
        // A socket that is no longer live has been freed. If the kernel has not reported it by the
        // next dump, the report was lost.
        for space in self.spaces.values_mut() {
            let live: HashSet<u64> = space.live.iter().map(|socket| socket.cookie).collect();
            let known = &mut space.known;
            known.retain(|id, (_, missed)| live.contains(id) || !std::mem::replace(missed, true));
        }
        self.absent = self.absent.take().or(failed.map(|fault| missing(WHAT, fault)));
        self.next = Instant::now() + EVERY.max(begun.elapsed() * SHARE);
    }

    /// Returns the program's own connections, matched by inode number or, if that is unknown, by
    /// the addresses of `sockets`; and why they are incomplete.
    pub(crate) fn finish(
        mut self,
        sockets: &[ObservedSocket],
    ) -> (Option<ObservedTcp>, Option<Absent>, Vec<String>) {
        let has_tcp = |socket: &&ObservedSocket| matches!(socket.kind.as_str(), "tcp" | "mptcp");
        let sockets: Vec<&ObservedSocket> = sockets.iter().filter(has_tcp).collect();
        let is_matched = |socket: &ObservedSocket, matched: &[Connection]| {
            matched.iter().any(|connection| connection.inode == socket.inode)
        };
        let begun = Instant::now();
        let connections = loop {
            self.take_freed();
            let matched = self.own(&sockets);
            let complete = sockets.iter().all(|socket| is_matched(socket, &matched));
            if complete || begun.elapsed() > LAST_WAIT {
                break matched;
            }
            // Waits for the next freed socket. Without this wait, the loop would soon use up its
            // time.
            let Some(space) = self.spaces.values().next() else { break matched };
            let _ = wait_readable(space.sockets.freed_ready(), Duration::from_millis(20));
        };
        let mut warnings = Vec::new();
        if self.lost > 0 {
            warnings.push(format!(
                "{} closed TCP sockets were not kept: too many were closed at once",
                self.lost
            ));
        }
        let is_stale = |connection: &&Connection| {
            connection.inode.is_some_and(|inode| self.stale.contains(&inode))
        };
        let stale = connections.iter().filter(is_stale).count();
        if stale > 0 {
            warnings.push(format!(
                "the TCP figures of {stale} connections are from shortly before their end: the \
                 kernel had reset them by then (of what MPTCP accepts)"
            ));
        }
        let is_missing = |socket: &&&ObservedSocket| {
            let moved = socket.sent + socket.received > 0;
            socket.inode.is_some() && moved && !is_matched(socket, &connections)
        };
        let missing = sockets.iter().filter(is_missing).count();
        if missing > 0 && self.absent.is_none() && self.lost == 0 {
            warnings.push(format!(
                "{missing} TCP connections have no figures of TCP: they were closed before the \
                 kernel was first asked about their namespace, or about what MPTCP has accepted, as \
                 on a busy machine"
            ));
        }
        if self.spaces.is_empty() {
            return (None, self.absent, warnings);
        }
        let counters = if connections.is_empty() { BTreeMap::new() } else { self.counted() };
        (Some(ObservedTcp { connections, counters }), self.absent, warnings)
    }

    /// Opens the network namespace of a process, unless that was done.
    fn enter(&mut self, process: u32) {
        let folder = self.roots.proc.join(process.to_string());
        let file = folder.join("ns/net");
        // A process that has ended or belongs to another user has no visible namespace.
        let Some(id) = identity(&file) else { return };
        if self.spaces.contains_key(&id) || self.closed.contains(&id) {
            return;
        }
        let is_ours = identity(&self.roots.proc.join("thread-self/ns/net")) == Some(id);
        let opened = if is_ours { Ok(TcpSockets::open()) } else { inside(&file, TcpSockets::open) };
        match opened.and_then(|opened| opened) {
            Ok(sockets) => {
                let counters = TcpCounters::open(&folder.join("net")).ok();
                let (before, known) = (HashMap::new(), HashMap::new());
                let (live, freed) = (Vec::new(), Vec::new());
                let space = Space { sockets, counters, before, known, live, freed };
                self.spaces.insert(id, space);
            }
            Err(e) => {
                self.closed.insert(id);
                let what = format!("cannot look into the network namespace of process {process}");
                let fault = Fault::system(what, &e)
                    .remedy("run as root, on a kernel with CONFIG_INET_DIAG (module tcp_diag)");
                self.absent.get_or_insert(missing(WHAT, fault));
            }
        }
    }

    fn take_freed(&mut self) {
        for space in self.spaces.values_mut() {
            let Ok((freed, complete)) = space.sockets.freed() else { continue };
            self.lost += u64::from(!complete);
            for mut socket in freed {
                if let Some((known, _)) = space.known.remove(&socket.cookie) {
                    let (now, last) = (&socket.info, &known.info);
                    let is_reset = now.bytes_sent < last.bytes_sent;
                    if is_reset || now.bytes_received < last.bytes_received {
                        self.stale.insert(known.inode);
                        socket = known;
                    } else {
                        (socket.inode, socket.congestion) = (known.inode, known.congestion);
                    }
                }
                if space.freed.len() < MOST {
                    space.freed.push(socket);
                } else {
                    self.lost += 1;
                }
            }
        }
    }

    fn own(&self, sockets: &[&ObservedSocket]) -> Vec<Connection> {
        let counted: HashSet<u64> = sockets.iter().filter_map(|socket| socket.inode).collect();
        let ends = sockets.iter().filter_map(|socket| {
            Some(((socket.local.clone()?, socket.remote.clone()?), socket.inode))
        });
        let ends: HashMap<(String, String), Option<u64>> = ends.collect();
        let mut own = Vec::new();
        for space in self.spaces.values() {
            let gone: HashSet<u64> = space.freed.iter().map(|socket| socket.cookie).collect();
            let live = space.live.iter().filter(|socket| !gone.contains(&socket.cookie));
            let freed = space.freed.iter().map(|socket| (socket, true));
            for (socket, closed) in freed.chain(live.map(|socket| (socket, false))) {
                let known = match socket.inode {
                    0 => space.known.get(&socket.cookie).map(|(known, _)| known.inode),
                    inode => Some(inode),
                };
                let inode = match known {
                    Some(inode) => Some(inode)
                        .filter(|inode| counted.contains(inode) || self.held.contains(inode)),
                    None => {
                        let between = (socket.local.to_string(), socket.remote.to_string());
                        ends.get(&between).copied().flatten()
                    }
                };
                let before = space.before.get(&socket.cookie).copied().unwrap_or_default();
                let connection = inode.map(|inode| connection(socket, &before, inode, closed));
                own.extend(connection.filter(|c| c.bytes() > 0 || c.bytes_sent > 0));
            }
        }
        own.sort_by_key(|connection| (Reverse(connection.bytes()), connection.inode));
        own
    }

    fn counted(&mut self) -> BTreeMap<String, u64> {
        let mut counted = BTreeMap::new();
        let counters = self.spaces.values_mut().filter_map(|space| space.counters.as_mut());
        for (name, gained, _) in counters.flat_map(|counters| counters.gained().unwrap_or_default())
        {
            let sum: &mut u64 = counted.entry(name.to_owned()).or_default();
            *sum = sum.saturating_add(gained);
        }
        counted
    }
}

/// Returns what identifies a namespace.
fn identity(file: &Path) -> Option<(u64, u64)> {
    fs::metadata(file).ok().map(|file| (file.dev(), file.ino()))
}

/// Returns what happened since `before`; levels are those at the end.
fn connection(socket: &TcpSocket, before: &TcpInfo, inode: u64, closed: bool) -> Connection {
    let info = &socket.info;
    let gained = |of: fn(&TcpInfo) -> u64| of(info).saturating_sub(of(before));
    let passed = |of: fn(&TcpInfo) -> f64| (of(info) - of(before)).max(0.0);
    Connection {
        inode: Some(inode),
        local: socket.local.to_string(),
        remote: socket.remote.to_string(),
        closed,
        congestion: socket.congestion.clone(),
        // Begin and end of the stream count as one byte each.
        bytes_acked: gained(|info| info.bytes_acked).min(gained(|info| info.bytes_sent)),
        bytes_received: gained(|info| info.bytes_received),
        bytes_sent: gained(|info| info.bytes_sent),
        bytes_retransmitted: gained(|info| info.bytes_retransmitted),
        segments_sent: gained(|info| info.data_segments_sent),
        retransmits: gained(|info| info.retransmits),
        duplicates: gained(|info| info.duplicates),
        timeouts: gained(|info| info.timeouts),
        reorderings: gained(|info| info.reorderings),
        out_of_order: gained(|info| info.out_of_order),
        busy: passed(|info| info.busy),
        window_limited: passed(|info| info.rwnd_limited),
        buffer_limited: passed(|info| info.sndbuf_limited),
        rtt: info.rtt,
        min_rtt: info.min_rtt,
        delivery_rate: info.delivery_rate,
        cwnd: info.cwnd,
        mss: info.snd_mss,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_sys::tcp::loopback_pair;
    use bytepath_testing::skip;
    use std::io::{Read, Write};

    #[test]
    fn connections_without_figures_are_reported() {
        let watched = Connections::watch(std::process::id(), &Roots::real());
        let gone = |kind: &str, inode| ObservedSocket {
            inode: Some(inode),
            kind: kind.into(),
            local: Some("192.0.2.1:1".into()),
            remote: Some("192.0.2.2:2".into()),
            sent: 1,
            ..ObservedSocket::default()
        };
        let all = [gone("tcp", u64::MAX), gone("mptcp", u64::MAX - 1)];
        let (_, absent, warnings) = watched.finish(&all);
        let told =
            warnings.iter().any(|text| text.starts_with("2 TCP connections have no figures"));
        // Without the privilege to read sockets, that is reported instead.
        assert!(told || absent.is_some(), "{warnings:?}");
    }

    #[test]
    fn figures_are_of_own_sockets_since_the_start() {
        let roots = Roots::real();
        let (mut old, mut peer) = loopback_pair().unwrap();
        old.write_all(&[1; 3000]).unwrap();
        peer.read_exact(&mut [0; 3000]).unwrap();
        let mut watched = Connections::watch(std::process::id(), &roots);
        if let Some(absent) = &watched.absent {
            return skip!("{absent:?}");
        }
        old.write_all(&[1; 500]).unwrap();
        peer.read_exact(&mut [0; 500]).unwrap();
        let (mut new, mut other) = loopback_pair().unwrap();
        new.write_all(&[1; 7000]).unwrap();
        other.read_exact(&mut [0; 7000]).unwrap();
        watched.look();
        let ends = [&old, &new].map(|socket| socket.local_addr().unwrap().to_string());
        let inode = |socket: &std::net::TcpStream| rustix::fs::fstat(socket).unwrap().st_ino;
        let inodes = [&old, &new].map(inode);
        drop((new, other));
        let tcp = watched.finish(&[]).0.unwrap();
        let of = |end: &String| tcp.connections.iter().find(|c| c.local == *end).unwrap();
        let (old, new) = (of(&ends[0]), of(&ends[1]));
        assert_eq!((old.bytes_sent, old.closed, old.inode), (500, false, Some(inodes[0])));
        assert!(new.bytes_sent == 7000 && new.inode == Some(inodes[1]), "{new:?}");
        assert!(!old.congestion.is_empty() && !new.congestion.is_empty(), "{tcp:#?}");
        assert!(tcp.counters["OutSegs"] > 0, "{tcp:#?}");
    }

    #[test]
    fn unreadable_namespaces_are_absent_with_a_reason() {
        // No process has this id, so there is no namespace either.
        let watched = Connections::watch(u32::MAX, &Roots::real());
        let (tcp, absent, warnings) = watched.finish(&[]);
        assert_eq!((tcp, warnings), (None, Vec::new()));
        let absent = absent.unwrap();
        assert!(absent.reason.contains("cannot be seen") && absent.remedy.is_some(), "{absent:?}");
    }
}
