//! Programs that wait for many connections by epoll: the study that compares event loops for as
//! many, with messages as large.

use crate::wording::figures::bytes;
use bytepath_record::{Observation, ObservedSocket};

/// Fewest connections on which requests and responses went that are many.
const MANY: usize = 8;

/// Which command compares event loops for what the program does; `None` if it has no loop by epoll
/// or few connections.
pub(super) fn hint(observed: &Observation) -> Option<String> {
    let waits = |name: &str| ["epoll_wait", "epoll_pwait", "epoll_pwait2"].contains(&name);
    if !observed.calls.iter().any(|call| waits(&call.row.name)) {
        return None;
    }
    let exchanges = |socket: &&ObservedSocket| {
        socket.kind == "tcp" && socket.send_calls > 0 && socket.receive_calls > 0
    };
    let sockets: Vec<&ObservedSocket> = observed.sockets.iter().filter(exchanges).collect();
    if sockets.len() < MANY {
        return None;
    }
    let each = |all: fn(&ObservedSocket) -> u64, calls: fn(&ObservedSocket) -> u64| {
        let sum = |of: fn(&ObservedSocket) -> u64| -> f64 {
            sockets.iter().map(|socket| of(socket) as f64).sum()
        };
        (sum(all) / sum(calls)).round().max(1.0)
    };
    let received = each(|socket| socket.received, |socket| socket.receive_calls);
    let sent = each(|socket| socket.sent, |socket| socket.send_calls);
    let flows = sockets.len();
    Some(format!(
        "It waits by epoll and exchanged messages over {flows} connections, {} a receive and {} a send \
         on average. `bytepath run --workload rr:request={received},response={sent} --stream \
         flows={flows} --path epoll+epoll --path epoll+uring-loop` compares event loops that serve \
         as many with messages as large.",
        bytes(received),
        bytes(sent)
    ))
}
