//! Event loops: a thread that drives many connections. The loop tracks which sockets are ready and
//! moves the bytes; the workload ([`Service`]) decides what a request is and what follows it.

use super::mover::{Account, Group};
use super::recorder::Recorder;
use super::tally::FlowEnd;
use crate::connection::handshake::Handshake;
use crate::connection::{Connection, flow_options};
use bytepath_record::{Cell, Fault, Role};
use bytepath_sys::tcp::FlowOptions;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// A mover of many connections. A connection is identified by its place: its index among those the
/// loop was opened with; connections that come and go have the places after them ([`Passing`]).
/// Once open, it allocates nothing, unless passing connections make TLS handshakes. It stays on the
/// thread that opened it.
pub trait EventLoop {
    /// Like [`super::Tx::witness`], over the first connection.
    fn witness(&mut self) -> Result<(), Fault>;

    /// Called once on the mover's thread, before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Queues `bytes` more to be sent over a connection: whole messages, each from its start. What
    /// finds no room is sent in later turns.
    fn send(&mut self, connection: usize, bytes: u64, recorder: &mut Recorder)
    -> Result<(), Fault>;

    /// Keeps a connection full from the next turn on: sends messages endlessly, until
    /// [`EventLoop::stop`] or the end of the peer's stream.
    fn stream(&mut self, connection: usize) -> Result<(), Fault> {
        let _ = connection;
        Err(Fault::failed("this event loop has no streams").remedy("report this as a bug"))
    }

    /// Ends all endless streams. True once everything begun is sent, which may take further turns.
    fn stop(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Connects the passing connection of a free place, and sends `bytes` over it as soon as
    /// possible. A failure is reported by [`Service::failed`], in this turn or a later one.
    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        let _ = (place, bytes, recorder);
        Err(no_passing())
    }

    /// Closes a passing connection that has nothing more to send.
    fn close(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        let _ = (place, recorder);
        Err(no_passing())
    }

    /// Makes the calls that the loop has queued; a loop may delay calls until its next turn.
    fn submit(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// One turn: waits until there is something to do, for at most `limit` if there is one, does
    /// it, and passes what arrived to the service. May return without having moved anything.
    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault>;

    /// The account of all connections, both directions.
    fn account(&mut self) -> Result<Account, Fault>;
}

/// What a workload does with the events of an event loop's connections.
pub trait Service {
    /// `bytes` have arrived over a connection. Returns how many to send over it now.
    fn received(&mut self, connection: usize, bytes: u64) -> u64;

    /// `bytes` have been sent over a connection.
    fn sent(&mut self, connection: usize, bytes: u64) {
        let _ = (connection, bytes);
    }

    /// The peer has ended its stream, and everything queued for it is sent. A passing connection is
    /// closed already.
    fn ended(&mut self, connection: usize) -> Result<(), Fault>;

    /// A passing connection was accepted.
    fn accepted(&mut self, connection: usize) {
        let _ = connection;
    }

    /// A passing connection could not be made, or was lost; it is closed already.
    fn failed(&mut self, connection: usize, error: &io::Error) -> Result<(), Fault> {
        Err(Fault::system(format!("connection {connection}"), error))
    }
}

fn no_passing() -> Fault {
    Fault::failed("this event loop has no connections that come and go")
        .remedy("report this as a bug")
}

/// Number of bytes to send over a connection that is kept full: more than can ever be sent.
pub const ENDLESS: u64 = 1 << 62;

/// Workload option for TCP Fast Open on passing connections.
pub const FAST_OPEN: &str = "fastopen";

/// Workload option for TLS handshakes on passing connections.
pub(super) const HANDSHAKE: &str = "handshake";

/// Returns the handshake of a cell's passing connections, or `None` if they are unencrypted.
pub fn handshake(cell: &Cell) -> Option<Handshake> {
    match cell.workload.options.word(HANDSHAKE) {
        "full" => Some(Handshake::Full),
        "resumed" => Some(Handshake::Resumed),
        _ => None,
    }
}

/// Connections that come and go while a loop runs: the client connects them to the same port as the
/// lasting ones, and the server accepts them there.
#[derive(Clone, Debug, PartialEq)]
pub struct Passing {
    /// Connections at a time, over all threads.
    flows: u32,
    /// Client threads that share them.
    threads: u32,
    /// Whether each server thread serves one connection at a time.
    one_each: bool,
    /// Whether requests go out with the SYN.
    pub fast_open: bool,
    /// The handshake that they make, if they are encrypted.
    pub handshake: Option<Handshake>,
    /// Options of their sockets.
    pub options: FlowOptions,
}

impl Passing {
    /// The passing connections of a cell.
    pub fn of(cell: &Cell) -> Passing {
        Passing {
            flows: cell.stream.flows,
            threads: cell.threads(Role::Sender),
            one_each: !cell.rx.is_event_loop(),
            fast_open: cell.workload.options.flag(FAST_OPEN),
            handshake: handshake(cell),
            options: flow_options(&cell.stream),
        }
    }

    /// Places of the client thread whose first lasting connection has index `first`. That index is
    /// also the thread's number; connections are dealt to the threads round-robin.
    pub fn at_client(&self, first: u32) -> usize {
        (self.flows + self.threads).saturating_sub(first + 1) as usize / self.threads as usize
    }

    /// Places of a server thread. The kernel may give it all connections, and connections that a
    /// client has closed occupy a place until the thread has noticed.
    pub fn at_server(&self) -> usize {
        if self.one_each { 1 } else { 4 * self.flows as usize + 64 }
    }

    /// Places of one thread of a role; see [`Passing::at_client`] and [`Passing::at_server`].
    pub fn places(&self, role: Role, first: u32) -> usize {
        match role {
            Role::Sender => self.at_client(first),
            Role::Receiver => self.at_server(),
        }
    }

    /// Places of all `threads` threads of a role together.
    pub fn all_places(&self, role: Role, threads: u32) -> usize {
        (0..threads).map(|thread| self.places(role, thread)).sum()
    }

    /// Maximum number of connections waiting to be accepted.
    pub fn backlog(&self) -> u32 {
        self.flows
    }
}

/// One end of the connections of one thread, opened.
pub struct LoopActor {
    pub role: Role,
    pub cell: Arc<Cell>,
    pub connections: Vec<Arc<dyn Connection>>,
    pub event_loop: Box<dyn EventLoop>,
    /// What the threads of this end share besides their loops.
    pub group: Arc<Group>,
    /// Number of connections of all threads.
    pub all: usize,
    pub recorder: Recorder,
}

/// Plays one end of the connections of one thread, like [`super::Workload::play`] for one flow.
pub type PlayLoop = fn(LoopActor) -> Result<FlowEnd, Fault>;

/// How the work of a window was distributed over connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub connections: u64,
    /// Least and most work of a connection.
    pub least: u64,
    pub most: u64,
    sum: f64,
    squares: f64,
}

impl Shares {
    /// The shares of connections that did this much work each.
    pub fn of(work: impl IntoIterator<Item = u64>) -> Shares {
        work.into_iter().fold(Shares::default(), |mut all, one| {
            let share = one as f64;
            all.add(Shares {
                connections: 1,
                least: one,
                most: one,
                sum: share,
                squares: share * share,
            });
            all
        })
    }

    /// Adds the shares of other connections.
    pub fn add(&mut self, other: Shares) {
        if other.connections == 0 {
            return;
        }
        self.least = if self.connections == 0 { other.least } else { self.least.min(other.least) };
        self.most = self.most.max(other.most);
        self.connections += other.connections;
        self.sum += other.sum;
        self.squares += other.squares;
    }

    /// Jain's index: 1 if all had the same share, 1 / n if one of n had everything (R. Jain et al.,
    /// DEC-TR-301, 1984). `None` if none did any work.
    pub fn fairness(&self) -> Option<f64> {
        (self.squares > 0.0).then(|| self.sum * self.sum / (self.connections as f64 * self.squares))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fairness_of_equal_and_of_unequal_shares() {
        assert_eq!(Shares::of([7; 100]).fairness(), Some(1.0));
        assert_eq!(Shares::of([8, 0, 0, 0]).fairness(), Some(0.25));
        assert_eq!(Shares::of([0, 0]).fairness(), None);
        assert_eq!(Shares::of([]).fairness(), None);
        let (mut two, all) = (Shares::of([1, 5]), Shares::of([1, 5, 3]));
        two.add(Shares::of([3]));
        two.add(Shares::of([]));
        assert_eq!(two, all);
        assert_eq!((all.connections, all.least, all.most), (3, 1, 5));
    }
}
