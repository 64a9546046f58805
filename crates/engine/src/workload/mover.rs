//! Movers: the two halves of a path, once they are open. A mover takes one turn
//! at a time and accounts for its bytes; the loops around the turns are here, once
//! for all movers and compiled for each.

use super::{FramePlan, Passing, Phase, Recorder};
use bytepath_record::{
    Aggregation, Cell, Fault, Hops, Ledger, Manner, Options, Protocol, Reading, Role, Scope, Tls,
    Touch, Unit,
};
use std::any::Any;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The sending half of one flow.
pub trait Tx: Send {
    /// Sends the witness page of [`crate::connection::WITNESS_LEN`] bytes the way that
    /// the stream will go, waits until the peer's kernel has it, then overwrites the
    /// page. Called at most once, before [`Tx::begin`], and never of frames, which have no stream
    /// that could begin with a page.
    fn witness(&mut self) -> Result<(), Fault> {
        Err(Fault::failed("a witness page was requested of frames").remedy("report this as a bug"))
    }

    /// Called once on the mover's thread, before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// One turn: a call, or one submission of several. Sends what comes next of the
    /// message, from its start again after its end, and never more than
    /// [`HalfConfig::batch`] messages. May return without having sent anything (an interrupted
    /// call, completions that had to be taken first).
    /// Each mover has this or [`Tx::send_at_most`], from which the other follows.
    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_at_most(u64::MAX, recorder).map(drop)
    }

    /// The same of at most this many units of what its recorder counts; a mover of bytes may
    /// send more. Returns how many it tried to send.
    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        let (_, before) = (most, recorder.total());
        self.send(recorder)?;
        Ok(recorder.total() - before)
    }

    /// The account of the whole stream. Called after the peer's kernel has
    /// acknowledged everything; waits for completions that are still to come.
    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault>;

    /// Sends until the gate is at stop.
    fn send_until_stop(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while recorder.phase() != Phase::Stop {
            self.send(recorder)?;
        }
        Ok(())
    }

    /// Sends until the total of this half is at least this many bytes.
    fn send_up_to(&mut self, total: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        while recorder.total() < total {
            self.send_at_most(total - recorder.total(), recorder)?;
        }
        Ok(())
    }
}

/// The receiving half of one flow.
pub trait Rx: Send {
    /// Called once on the mover's thread, before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// One turn: waits for bytes, touches them as the job requires, and counts
    /// them. May return without bytes. False after the end of the stream, once it is
    /// confirmed that the peer ended it; frames have no end, and false means that none came
    /// for [`super::QUIET`].
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault>;

    /// Waits until [`Rx::receive`] has something to do, at most this long. True when it
    /// has; `None` if the mover cannot wait apart from receiving.
    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        let _ = timeout;
        None
    }

    /// The account of the whole stream.
    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault>;

    /// Receives until the end of the stream.
    fn receive_to_end(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        loop {
            recorder.phase();
            if !self.receive(recorder)? {
                return Ok(());
            }
        }
    }

    /// Receives until the total of this half is at least this many bytes. False where
    /// the stream ended before.
    fn receive_up_to(&mut self, total: u64, recorder: &mut Recorder) -> Result<bool, Fault> {
        while recorder.total() < total {
            if !self.receive(recorder)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// What one half of one flow has to do.
#[derive(Clone, Debug, PartialEq)]
pub struct HalfConfig {
    pub role: Role,
    /// Flows of the session.
    pub flows: u32,
    /// Adapters that they cross in turn.
    pub adapters: u32,
    /// Bytes of one message: the sender's memory, filled once and sent repeatedly.
    pub message_size: u64,
    /// Bytes that a receiver requests at once.
    pub read_size: u64,
    /// Bytes of its memory that reads fill in turn; at least one read.
    pub read_memory: u64,
    /// What a receiver does with each byte.
    pub touch: Touch,
    /// Most messages that a sender may queue in one turn.
    pub batch: u32,
    /// What the connection speaks.
    pub protocol: Protocol,
    pub tls: Tls,
    /// The frames, where the workload is one of frames.
    pub frames: Option<FramePlan>,
    /// Connections that come and go, where the workload has such.
    pub passing: Option<Passing>,
    /// CPU of io_uring's own threads, if one was named.
    pub io_wq: Option<u32>,
    /// The options of the half.
    pub options: Options,
}

impl HalfConfig {
    /// Whether what it moves is a stream, whose peer waits for no answer.
    pub fn is_stream(&self) -> bool {
        self.batch > 1 && self.frames.is_none()
    }

    /// The job of a role in the stream workload, with that role's half of the path.
    pub fn stream(cell: &Cell, role: Role) -> HalfConfig {
        HalfConfig {
            role,
            flows: cell.stream.flows,
            adapters: cell.link.adapters,
            message_size: cell.stream.message_size,
            read_size: cell.stream.read_size,
            read_memory: cell.stream.read_memory(),
            touch: cell.stream.touch,
            batch: u32::MAX,
            protocol: cell.stream.protocol,
            tls: cell.stream.tls,
            frames: None,
            passing: None,
            io_wq: cell.placement.io_wq,
            options: cell.half(role).options.clone(),
        }
    }
}

/// What a mover knows at the end of its stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Copied or not, over the whole stream; `delivered` equals the bytes moved.
    pub ledger: Ledger,
    /// The outcome of frames, as far as it is known here.
    pub hops: Hops,
    /// What the reader should know: "12 buffers ran out and were re-armed".
    pub notes: Vec<String>,
    /// What the path itself counted, over the whole stream: named after the path,
    /// `zcrx.returned`, and of the flow.
    pub readings: Vec<Reading>,
}

impl Account {
    /// Of bytes that all went one way, by so many events.
    pub fn of(manner: Manner, bytes: u64, events: u64, source: &str) -> Account {
        let mut account = Account::default();
        account.ledger.enter(manner, bytes, events, source);
        account
    }

    /// Adds what the path counted of a flow, by names within the path.
    pub fn count(
        &mut self,
        path: &str,
        scope: &Scope,
        unit: Unit,
        counts: impl IntoIterator<Item = (&'static str, u64)>,
    ) {
        self.readings.extend(counts.into_iter().map(|(name, count)| {
            Reading::sum(format!("{path}.{name}"), unit, count as f64, scope.clone())
        }));
    }

    /// Adds the account of the other half of the same flow, or of another flow. What both counted
    /// of the same thing adds up.
    pub fn add(&mut self, other: Account) {
        self.ledger.add(&other.ledger);
        self.hops.add(&other.hops);
        self.notes.extend(other.notes);
        for reading in other.readings {
            let same =
                |one: &&mut Reading| one.metric == reading.metric && one.scope == reading.scope;
            match self.readings.iter_mut().find(same) {
                Some(sum) if reading.aggregation == Aggregation::Sum => sum.value += reading.value,
                _ => self.readings.push(reading),
            }
        }
    }
}

/// What the movers of one session share: a receive queue, a bound dmabuf. The first
/// flow puts it there, and it goes with the last one.
#[derive(Debug, Default)]
pub struct Group(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl Group {
    /// What is shared; made by `make` where it does not exist yet.
    pub fn share<T: Any + Send + Sync>(
        &self,
        make: impl FnOnce() -> Result<T, Fault>,
    ) -> Result<Arc<T>, Fault> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(shared) = slot.clone().and_then(|any| any.downcast().ok()) {
            return Ok(shared);
        }
        let made = Arc::new(make()?);
        *slot = Some(made.clone());
        Ok(made)
    }
}
