//! Event loops: a thread that drives many connections. The loop owns the readiness of the sockets and
//! moves the bytes; what a request is, and what follows it, is the workload's ([`Service`]).

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

/// A mover of many connections, which are named by their place among those it was opened with; where
/// connections come and go, those have the places after them ([`Passing`]). Once it is open it
/// allocates nothing, unless these make TLS handshakes. It stays on the thread that has opened it.
pub trait EventLoop {
    /// As [`super::Tx::witness`], over the first connection.
    fn witness(&mut self) -> Result<(), Fault>;

    /// Called once on the mover's thread, before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// Has this many more bytes go out over a connection: messages, each from its start. Those that
    /// find no room go out in later turns.
    fn send(&mut self, connection: usize, bytes: u64, recorder: &mut Recorder)
    -> Result<(), Fault>;

    /// Keeps a connection full from the next turn on: messages without end, until [`EventLoop::stop`]
    /// or the end of the peer's stream.
    fn stream(&mut self, connection: usize) -> Result<(), Fault> {
        let _ = connection;
        Err(Fault::failed("this event loop has no streams").remedy("report this as a bug"))
    }

    /// Begins nothing more of what has no end: true once all that was begun is gone, which may take
    /// further turns.
    fn stop(&mut self) -> Result<bool, Fault> {
        Ok(true)
    }

    /// Connects the passing connection of a place, which is free, and has so many bytes go out over it
    /// as soon as they can. A failure is reported by [`Service::failed`], in this turn or a later one.
    fn connect(&mut self, place: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        let _ = (place, bytes, recorder);
        Err(no_passing())
    }

    /// Closes a passing connection, over which nothing is to go out any more.
    fn close(&mut self, place: usize, recorder: &mut Recorder) -> Result<(), Fault> {
        let _ = (place, recorder);
        Err(no_passing())
    }

    /// Has done what was called for: a loop may queue calls until its next turn.
    fn submit(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// One turn: waits until there is something to do, at most this long if there is a limit, does it
    /// and hands what came in to the service. May return without having moved anything.
    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault>;

    /// The account of all connections, both directions.
    fn account(&mut self) -> Result<Account, Fault>;
}

/// What a workload does with the connections of an event loop.
pub trait Service {
    /// So many bytes have come in over a connection. Returns how many are to go out over it now.
    fn received(&mut self, connection: usize, bytes: u64) -> u64;

    /// So many bytes have gone out over a connection in a turn.
    fn sent(&mut self, connection: usize, bytes: u64) {
        let _ = (connection, bytes);
    }

    /// The peer has ended its stream, and what was to go out to it is gone. A passing connection is
    /// closed.
    fn ended(&mut self, connection: usize) -> Result<(), Fault>;

    /// A passing connection was accepted.
    fn accepted(&mut self, connection: usize) {
        let _ = connection;
    }

    /// A passing connection could not be made, or was lost, and is closed.
    fn failed(&mut self, connection: usize, error: &io::Error) -> Result<(), Fault> {
        Err(Fault::system(format!("connection {connection}"), error))
    }
}

fn no_passing() -> Fault {
    Fault::failed("this event loop has no connections that come and go")
        .remedy("report this as a bug")
}

/// What is to go out over a connection that is kept full: more than ever can.
pub const ENDLESS: u64 = 1 << 62;

/// The option of a workload by which passing connections are made with TCP Fast Open.
pub const FAST_OPEN: &str = "fastopen";

/// The option of a workload by which passing connections make TLS handshakes.
pub(super) const HANDSHAKE: &str = "handshake";

/// The handshake that a cell's passing connections make; `None` if they pass in the clear.
pub fn handshake(cell: &Cell) -> Option<Handshake> {
    match cell.workload.options.word(HANDSHAKE) {
        "full" => Some(Handshake::Full),
        "resumed" => Some(Handshake::Resumed),
        _ => None,
    }
}

/// Connections that come and go while a loop runs: the client connects them to the port that the
/// lasting ones are connected to, and the server accepts them there.
#[derive(Clone, Debug, PartialEq)]
pub struct Passing {
    /// How many there are at a time, over all threads.
    flows: u32,
    /// Threads of the client, which share them.
    threads: u32,
    /// Whether a thread of the server has one at a time.
    one_each: bool,
    /// Whether requests go out with the SYN.
    pub fast_open: bool,
    /// The handshake that they make, if they are encrypted.
    pub handshake: Option<Handshake>,
    /// What their sockets have.
    pub options: FlowOptions,
}

impl Passing {
    /// Those of a cell.
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

    /// Places at a thread of the client of which this is the first lasting connection: it has the
    /// number of the thread, and threads take turns.
    pub fn at_client(&self, first: u32) -> usize {
        (self.flows + self.threads).saturating_sub(first + 1) as usize / self.threads as usize
    }

    /// Places at a thread of the server. The kernel may give it all connections, and those that a
    /// client has closed are still there until it has looked.
    pub fn at_server(&self) -> usize {
        if self.one_each { 1 } else { 4 * self.flows as usize + 64 }
    }

    /// Places at a thread of a role; see above.
    pub fn places(&self, role: Role, first: u32) -> usize {
        match role {
            Role::Sender => self.at_client(first),
            Role::Receiver => self.at_server(),
        }
    }

    /// Places at all threads of a role, of which there are so many.
    pub fn all_places(&self, role: Role, threads: u32) -> usize {
        (0..threads).map(|thread| self.places(role, thread)).sum()
    }

    /// How many may wait to be accepted.
    pub fn backlog(&self) -> u32 {
        self.flows
    }
}

/// One end of the connections of one thread, open.
pub struct Crew {
    pub role: Role,
    pub cell: Arc<Cell>,
    pub connections: Vec<Arc<dyn Connection>>,
    pub event_loop: Box<dyn EventLoop>,
    /// What the threads of this end share beside their loops.
    pub group: Arc<Group>,
    /// How many connections all of them have.
    pub all: usize,
    pub recorder: Recorder,
}

/// Plays one end of the connections of one thread, as [`super::Workload::play`] does of one flow.
pub type PlayLoop = fn(Crew) -> Result<FlowEnd, Fault>;

/// How the work of a window was shared among connections.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Shares {
    pub connections: u64,
    /// The least and the most that a connection had.
    pub least: u64,
    pub most: u64,
    sum: f64,
    squares: f64,
}

impl Shares {
    /// Of connections with this much work each.
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

    /// Adds other connections.
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

    /// Jain's index: 1 where all had the same, 1 / n where one of n had everything (R. Jain et al.,
    /// DEC-TR-301, 1984). `None` where none had anything.
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
