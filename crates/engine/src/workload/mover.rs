//! Movers: the halves of a path, once open. A mover takes one turn at a time and accounts for its
//! bytes. The loops around the turns are written once, here, and compiled for each mover.

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
    /// Sends the witness page of [`crate::connection::WITNESS_LEN`] bytes by the same mechanism as
    /// the stream, waits until the peer's kernel has acknowledged it, then overwrites it. Called at
    /// most once, before [`Tx::begin`]. Never called for frames, which have no stream to begin with
    /// a page.
    fn witness(&mut self) -> Result<(), Fault> {
        Err(Fault::failed("a witness page was requested of frames").remedy("report this as a bug"))
    }

    /// Called once on the mover's thread, before the first turn.
    fn begin(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    /// One turn: one call, or one submission of several. Sends the next part of the message, which
    /// repeats endlessly, and at most [`HalfConfig::batch`] messages. May return without having
    /// sent anything (interrupted call, completions to reap first). Each mover implements this or
    /// [`Tx::send_at_most`]; each defaults to the other.
    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        self.send_at_most(u64::MAX, recorder).map(drop)
    }

    /// Like [`Tx::send`], but sends at most `most` of the units that the recorder counts; a mover
    /// of bytes may send more. Returns how many it tried to send.
    #[inline]
    fn send_at_most(&mut self, most: u64, recorder: &mut Recorder) -> Result<u64, Fault> {
        let (_, before) = (most, recorder.total());
        self.send(recorder)?;
        Ok(recorder.total() - before)
    }

    /// Returns the account of the whole stream. Called after the peer's kernel has acknowledged
    /// everything; waits for outstanding completions.
    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault>;

    /// Sends until the gate is at [`Phase::Stop`].
    fn send_until_stop(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        while recorder.phase() != Phase::Stop {
            self.send(recorder)?;
        }
        Ok(())
    }

    /// Sends until this half's total is at least `total` bytes.
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

    /// One turn: waits for bytes, touches them as configured, and counts them. May return without
    /// bytes. Returns false after the end of the stream, once it is confirmed that the peer ended
    /// it. Frames have no end: false means that none arrived for [`super::FRAME_WAIT_LIMIT`].
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault>;

    /// Waits up to `timeout` until [`Rx::receive`] has something to do. True if it has; `None` if
    /// the mover can only wait within `receive`.
    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        let _ = timeout;
        None
    }

    /// Returns the account of the whole stream.
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

    /// Receives until this half's total is at least `total` bytes. False if the stream ended first.
    fn receive_up_to(&mut self, total: u64, recorder: &mut Recorder) -> Result<bool, Fault> {
        while recorder.total() < total {
            if !self.receive(recorder)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Configuration of one half of one flow.
#[derive(Clone, Debug, PartialEq)]
pub struct HalfConfig {
    pub role: Role,
    /// Flows of the cell.
    pub flows: u32,
    /// Adapters over which the flows are distributed round-robin.
    pub adapters: u32,
    /// Bytes of one message: the sender's memory, filled once and sent repeatedly.
    pub message_size: u64,
    /// Bytes that a receiver requests per read.
    pub read_size: u64,
    /// Bytes of memory that reads fill in turn; at least one read.
    pub read_memory: u64,
    /// What a receiver does with each byte.
    pub touch: Touch,
    /// Maximum number of messages that a sender may queue in one turn.
    pub batch: u32,
    /// Protocol of the connection.
    pub protocol: Protocol,
    pub tls: Tls,
    /// The frames, if the workload sends frames.
    pub frames: Option<FramePlan>,
    /// Connections that come and go, if the workload has any.
    pub passing: Option<Passing>,
    /// CPU of io_uring's own threads, if specified.
    pub io_wq: Option<u32>,
    /// The options of the half.
    pub options: Options,
}

impl HalfConfig {
    /// True if it moves a stream, whose peer waits for no answers.
    pub fn is_stream(&self) -> bool {
        self.batch > 1 && self.frames.is_none()
    }

    /// The configuration of a role in the stream workload, with that role's half of the path.
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

/// A mover's result at the end of its stream.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Copied or not, over the whole stream; `delivered` equals the bytes moved.
    pub ledger: Ledger,
    /// What happened to frames, as far as this end can determine.
    pub hops: Hops,
    /// Notes for the reader: "12 buffers ran out and were re-armed".
    pub notes: Vec<String>,
    /// The path's own counters over the whole stream, each with the path's name as prefix
    /// (`zcrx.returned`) and the flow as scope.
    pub readings: Vec<Reading>,
}

impl Account {
    /// The account of bytes that all went the same way, in this many events.
    pub fn of(manner: Manner, bytes: u64, events: u64, source: &str) -> Account {
        let mut account = Account::default();
        account.ledger.enter(manner, bytes, events, source);
        account
    }

    /// Adds counters of the path; `counts` are names without the path's prefix.
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

    /// Adds the account of the flow's other half or of another flow. Readings of the same metric
    /// and scope are summed.
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

/// What the movers of one session share: a receive queue, a bound dmabuf. The first flow creates
/// it; it is dropped with the last one.
#[derive(Debug, Default)]
pub struct Group(Mutex<Option<Arc<dyn Any + Send + Sync>>>);

impl Group {
    /// Returns the shared object; the first call creates it with `make`.
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
