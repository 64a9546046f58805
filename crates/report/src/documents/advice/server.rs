//! Programs that exchange messages over many connections: how they wait, how large the messages
//! are, and the command that compares event loops for the same load.

use crate::wording::figures::{bytes, plural};
use bytepath_record::{MOST_FLOWS, Observation, ObservedSocket, joined};
use std::collections::BTreeMap;

/// Fewest connections with requests and responses that count as many.
const MANY: usize = 8;
/// Most connections with a thread each in a study.
const MOST_THREADS: usize = 256;

/// A server with many connections, as observed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Server {
    /// The path of bytepath that waits the same way.
    pub path: &'static str,
    /// Connections with messages in both directions.
    pub flows: usize,
    /// Average bytes per receive, and per send.
    pub sizes: [f64; 2],
    /// Requests that were answered, each with one receive and one send.
    pub exchanges: u64,
}

impl Server {
    /// Recognises a server; `None` if the program has few connections, is no server, or uses a loop
    /// that bytepath lacks.
    pub(super) fn of(observed: &Observation) -> Option<Server> {
        let exchanges = |socket: &&ObservedSocket| {
            socket.kind == "tcp" && socket.send_calls > 0 && socket.receive_calls > 0
        };
        let sockets: Vec<&ObservedSocket> = observed.sockets.iter().filter(exchanges).collect();
        if sockets.len() < MANY {
            return None;
        }
        let sum = |of: fn(&ObservedSocket) -> u64| {
            sockets.iter().map(|socket| of(socket)).fold(0, u64::saturating_add)
        };
        let calls = [sum(|socket| socket.receive_calls), sum(|socket| socket.send_calls)];
        let moved = [sum(|socket| socket.received), sum(|socket| socket.sent)];
        // A server has about as many receives as sends, and its connections share one local
        // address, where those of a client have a port each.
        if calls[0].max(calls[1]) / 2 > calls[0].min(calls[1]) || !listens(&sockets) {
            return None;
        }
        let each = |at: usize| (moved[at] as f64 / calls[at] as f64).round().max(1.0);
        Some(Server {
            path: waits_by(observed, sockets.len())?,
            flows: sockets.len(),
            sizes: [each(0), each(1)],
            exchanges: calls[0].min(calls[1]),
        })
    }

    /// Returns the arguments of the `bytepath run` that compares event loops for it.
    pub(super) fn measurement(&self) -> Vec<String> {
        let [request, response] = self.sizes;
        let workload = format!("rr:request={request},response={response}");
        let flows = format!("flows={}", (self.flows as u64).min(MOST_FLOWS));
        let own = (self.path == "socket").then_some("epoll+socket");
        let paths = own.into_iter().chain(["epoll+epoll", "epoll+uring-loop"]);
        let words = ["run", "--workload", &workload, "--stream", &flows];
        words.into_iter().chain(paths.flat_map(|path| ["--path", path])).map(Into::into).collect()
    }

    /// Returns a note that describes the server, with that command.
    pub(super) fn note(&self) -> String {
        let waits = match self.path {
            "epoll" => "waits by epoll",
            "socket" => "has a thread for each connection",
            _ => "waits by io_uring",
        };
        format!(
            "It {waits} and exchanged messages over {}, {} a receive and {} a send on average. \
             `bytepath {}` compares event loops that serve as many with messages as large.",
            plural(self.flows as u64, "connection"),
            bytes(self.sizes[0]),
            bytes(self.sizes[1]),
            joined(self.measurement(), " ")
        )
    }
}

/// Returns whether most connections have the same local address.
fn listens(sockets: &[&ObservedSocket]) -> bool {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for local in sockets.iter().filter_map(|socket| socket.local.as_deref()) {
        *counts.entry(local).or_default() += 1;
    }
    counts.into_values().any(|count| 2 * count > sockets.len())
}

/// Returns the path that waits as the program does.
fn waits_by(observed: &Observation, flows: usize) -> Option<&'static str> {
    let waits = |name: &str| ["epoll_wait", "epoll_pwait", "epoll_pwait2"].contains(&name);
    if observed.calls.iter().any(|call| waits(&call.row.name)) {
        return Some("epoll");
    }
    let by_ring = |way: &bytepath_record::Way| way.path.starts_with("uring");
    if observed.received.ways.iter().max_by_key(|way| way.bytes).is_some_and(by_ring) {
        return Some("uring-loop");
    }
    let threads: u64 = observed.threads.iter().map(|thread| 1 + thread.joined).sum();
    (threads >= flows as u64 && flows <= MOST_THREADS).then_some("socket")
}
