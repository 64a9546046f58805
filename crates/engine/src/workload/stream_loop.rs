//! `stream` over the connections of an event loop: a thread of the sender keeps all of its connections
//! full, one of the receiver reads what comes over any.

use super::event_loop::{Crew, Service, Shares};
use super::rr_loop::{Thread, end_streams};
use super::{Account, FlowEnd, Phase, Recorder};
use bytepath_record::{Fault, Role, Scope, Unit};

pub(super) fn play(crew: Crew) -> Result<FlowEnd, Fault> {
    let Crew { role, connections, event_loop, recorder, .. } = crew;
    let mut thread = Thread { event_loop, moved: recorder.companion() };
    thread.event_loop.begin()?;
    let ends = Ends::new(role, connections.len(), recorder);
    let ends = match role {
        Role::Sender => send(&mut thread, ends)?,
        Role::Receiver => receive(&mut thread, ends)?,
    };
    end_streams(role, &connections)?;
    let mut account = thread.event_loop.account()?;
    account.add(ends.memory());
    let shares = Shares::of(ends.all.iter().copied());
    let bytes = thread.moved.total();
    let mut end = FlowEnd { account, bytes, shares, ..ends.bytes.finish() };
    end.join(thread.moved.finish());
    Ok(end)
}

/// Keeps all connections full until the gate is at stop.
fn send(thread: &mut Thread, mut ends: Ends) -> Result<Ends, Fault> {
    for connection in 0..ends.all.len() {
        // A gate that is held lets go of the sender here.
        thread.phase(&mut ends.bytes);
        thread.event_loop.stream(connection)?;
    }
    while thread.phase(&mut ends.bytes) != Phase::Stop {
        thread.turn(&mut ends, None)?;
    }
    while !thread.event_loop.stop()? {
        thread.turn(&mut ends, None)?;
    }
    Ok(ends)
}

/// Reads until all senders have ended their streams.
fn receive(thread: &mut Thread, mut ends: Ends) -> Result<Ends, Fault> {
    while ends.left > 0 {
        thread.phase(&mut ends.bytes);
        thread.turn(&mut ends, None)?;
    }
    Ok(ends)
}

/// This end of all connections of a thread.
struct Ends {
    role: Role,
    /// Bytes of the window by connection.
    all: Box<[u64]>,
    bytes: Recorder,
    /// Connections whose peer goes on.
    left: usize,
}

impl Ends {
    fn new(role: Role, connections: usize, bytes: Recorder) -> Ends {
        Ends { role, all: vec![0; connections].into(), bytes, left: connections }
    }

    /// What the workload's part of the connections takes, beside the loop's.
    fn memory(&self) -> Account {
        let mut account = Account::default();
        let bytes = size_of_val(&self.all[..]) as u64;
        account.count("loop", &Scope::Role(self.role), Unit::Bytes, [("memory", bytes)]);
        account
    }

    /// Enters bytes that have gone out or come in. A turn may take long, so each piece looks for a new
    /// phase.
    #[inline]
    fn moved(&mut self, connection: usize, bytes: u64) {
        self.bytes.phase();
        self.bytes.moved(bytes as usize);
        if self.bytes.counting() {
            self.all[connection] += bytes;
        }
    }
}

impl Service for Ends {
    #[inline]
    fn received(&mut self, connection: usize, bytes: u64) -> u64 {
        self.moved(connection, bytes);
        0
    }

    #[inline]
    fn sent(&mut self, connection: usize, bytes: u64) {
        self.moved(connection, bytes);
    }

    fn ended(&mut self, connection: usize) -> Result<(), Fault> {
        if self.role == Role::Sender {
            let text =
                format!("the receiver closed connection {connection} before the stream ended");
            return Err(Fault::peer_lost(text));
        }
        self.left -= 1;
        Ok(())
    }
}
