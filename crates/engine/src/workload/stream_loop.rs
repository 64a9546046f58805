//! `stream` over the connections of an event loop: each sender thread keeps all its connections
//! full, each receiver thread reads whatever arrives over any of its connections.
//!
//! With `direction=both` the receiver also keeps each connection full, from the first byte that
//! arrives over it. It ends its streams once the sender has ended; the sender then reads to the
//! end.

use super::event_loop::{ENDLESS, LoopActor, Service, Shares};
use super::rr::NAP;
use super::rr_loop::{Thread, end_streams};
use super::stream::DIRECTION_METRICS;
use super::{Account, FlowEnd, Phase, Recorder};
use crate::connection::Connection;
use bytepath_record::{Fault, Reading, Role, Scope, Unit};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn play(actor: LoopActor) -> Result<FlowEnd, Fault> {
    let LoopActor { role, cell, connections, event_loop, recorder, .. } = actor;
    let mut thread = Thread { event_loop, moved: recorder.companion() };
    thread.event_loop.begin()?;
    let ends = Endpoints::new(role, cell.goes_both_ways(), connections, recorder);
    let ends = match role {
        Role::Sender => send(&mut thread, ends)?,
        Role::Receiver => receive(&mut thread, ends)?,
    };
    end_streams(role, &ends.connections, LAST_BYTES)?;
    let mut account = thread.event_loop.account()?;
    account.add(ends.memory());
    let shares = Shares::of(ends.all.iter().map(|end| end.bytes));
    let arrived: u64 = ends.all.iter().map(|end| end.bytes).sum();
    let bytes = thread.moved.total();
    let mut end = FlowEnd { account, bytes, shares, ..ends.bytes.finish() };
    if ends.both {
        end.account.readings.push(arrival(role, arrived as f64 / end.window.seconds()));
    }
    end.join(thread.moved.finish());
    Ok(end)
}

/// Reading of the bytes that arrived at a role's end, per second.
fn arrival(role: Role, rate: f64) -> Reading {
    let name = DIRECTION_METRICS[role.peer() as usize];
    let rate = if rate.is_finite() { rate } else { 0.0 };
    Reading::sum(name, Unit::BytesPerSecond, rate, Scope::Role(role))
}

/// How long the contents of a connection's full buffers may take to arrive.
const LAST_BYTES: Duration = Duration::from_secs(60);

/// How long a receiver waits for bytes while another cell has its slice: many such receivers share
/// a CPU with that cell.
const HELD: Duration = Duration::from_millis(100);

/// Keeps all connections full until the gate is at stop.
fn send(thread: &mut Thread, mut ends: Endpoints) -> Result<Endpoints, Fault> {
    for connection in 0..ends.all.len() {
        // While the gate is held, the sender blocks here until released.
        thread.phase(&mut ends.bytes);
        thread.event_loop.stream(connection)?;
    }
    while thread.phase(&mut ends.bytes) != Phase::Stop {
        thread.turn(&mut ends, Some(NAP))?;
    }
    while !thread.event_loop.stop()? {
        thread.turn(&mut ends, Some(NAP))?;
    }
    if ends.both {
        ends.stopped = true;
        ends.connections.iter().for_each(|connection| connection.close());
        return receive(thread, ends);
    }
    Ok(ends)
}

/// Reads until all peers have ended their streams.
fn receive(thread: &mut Thread, mut ends: Endpoints) -> Result<Endpoints, Fault> {
    while ends.left > 0 {
        // During slices of other cells, only bytes should end the wait.
        let limit = if thread.phase(&mut ends.bytes) == Phase::Hold { HELD } else { NAP };
        thread.turn(&mut ends, Some(limit))?;
    }
    Ok(ends)
}

/// This end of all connections of a thread.
struct Endpoints {
    role: Role,
    connections: Vec<Arc<dyn Connection>>,
    all: Box<[EndpointState]>,
    /// Whether both ends send.
    both: bool,
    /// Whether this end has stopped sending.
    stopped: bool,
    bytes: Recorder,
    /// Connections whose peer has not ended.
    left: usize,
}

/// This end of one connection.
#[derive(Clone, Copy, Default)]
struct EndpointState {
    /// Bytes of the window: those of the one direction, or those received if both ends send.
    bytes: u64,
    /// Whether anything has been received.
    begun: bool,
}

impl Endpoints {
    fn new(
        role: Role,
        both: bool,
        connections: Vec<Arc<dyn Connection>>,
        bytes: Recorder,
    ) -> Endpoints {
        let left = connections.len();
        let all = vec![EndpointState::default(); left].into();
        Endpoints { role, connections, all, both, stopped: false, bytes, left }
    }

    /// The memory of the workload's own state per connection; the loop accounts for its own.
    fn memory(&self) -> Account {
        let mut account = Account::default();
        let bytes = size_of_val(&self.all[..]) as u64;
        account.count("loop", &Scope::Role(self.role), Unit::Bytes, [("memory", bytes)]);
        account
    }

    /// Enters bytes sent or received; `shared`: they count in the connection's share. A turn may
    /// take long, so each call checks for a new phase.
    #[inline]
    fn moved(&mut self, connection: usize, bytes: u64, shared: bool) {
        self.bytes.phase();
        self.bytes.moved(bytes as usize);
        if shared && self.bytes.counting() {
            self.all[connection].bytes += bytes;
        }
    }
}

impl Service for Endpoints {
    #[inline]
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        self.moved(connection, bytes, true);
        let begins = !std::mem::replace(&mut self.all[connection].begun, true);
        if begins && self.both && self.role == Role::Receiver { ENDLESS } else { 0 }
    }

    #[inline]
    fn sent(&mut self, connection: usize, bytes: u64) {
        self.moved(connection, bytes, !self.both);
    }

    fn ended(&mut self, connection: usize) -> Result<(), Fault> {
        if self.role == Role::Sender && !self.stopped {
            let text =
                format!("the receiver closed connection {connection} before the stream ended");
            return Err(Fault::peer_lost(text));
        }
        // Everything this end has sent is out.
        self.connections[connection].close();
        self.left -= 1;
        Ok(())
    }
}
