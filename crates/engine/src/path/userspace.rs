//! `userspace`: a TCP stack in this process, polled by the flow's own thread. What is sent is
//! copied to the stack's buffer and from there into a frame, which the kernel copies again;
//! what is received takes the reverse path. Where a copy engine writes: [`offload`].

mod offload;

pub use offload::offloaded;

use super::{DataPath, HalfPath};
use crate::connection::userspace::{Hold, OPTIONS, Received, Stack, Statistics};
use crate::connection::{Connection, USERSPACE_TCP, WITNESS_LEN, WitnessPage};
use crate::copy;
use crate::workload::{Account, Group, Job, Pattern, Recorder, Rx, Toucher, Tx};
use bytepath_record::{
    Facts, Fault, Manner, OptionKind, OptionSpec, Reading, Role, Scope, Support, Unit,
};
use bytepath_sys::memory::Region;
use std::time::{Duration, Instant};

pub(super) static PATH: DataPath = DataPath {
    name: "userspace",
    summary: "a TCP stack in this process over a packet socket; its peer can be any TCP",
    attempt: offload::attempt,
    uses_io_uring: false,
    tx: Some(HalfPath {
        options: &SENDING,
        transports: &[USERSPACE_TCP],
        ..HalfPath::new(check_tx, open_tx)
    }),
    rx: Some(HalfPath {
        options: OPTIONS,
        transports: &[USERSPACE_TCP],
        ..HalfPath::new(check_rx, open_rx)
    }),
};

/// What the sending half has in addition to the options of the stack and of copies.
const ROTATE: OptionSpec = OptionSpec {
    name: "rotate",
    kind: OptionKind::AutoSize(1, 1 << 30),
    default: "auto",
    help: "bytes of messages to send in rotation, so that they exceed the caches; auto is one message",
};

const SENDING: [OptionSpec; OPTIONS.len() + offload::OPTIONS.len() + 1] = {
    let mut all = [ROTATE; OPTIONS.len() + offload::OPTIONS.len() + 1];
    let (of_stack, rest) = all.split_at_mut(OPTIONS.len());
    of_stack.copy_from_slice(OPTIONS);
    rest.split_at_mut(offload::OPTIONS.len()).0.copy_from_slice(offload::OPTIONS);
    all
};

fn check_tx(job: &Job, facts: &Facts) -> Support {
    offload::check(job, facts)
}

fn check_rx(_: &Job, _: &Facts) -> Support {
    Support::Yes
}

fn open_tx(job: &Job, connection: &dyn Connection, _: &Group) -> Result<Box<dyn Tx>, Fault> {
    if offload::is_requested(job) {
        let (kind, options) = copy::engine(job.options.word("copy"))?;
        return offloaded(job, connection, (kind, &options));
    }
    let size = job.message_size;
    let mut messages = super::buffer("the message buffers", rotation(job), false)?;
    Pattern::new(size).fill(&mut messages, 0);
    Ok(Box::new(Sender {
        hold: Hold::of(connection)?,
        spins: spins(job),
        messages,
        size: size as usize,
        place: 0,
        turns: 0,
        at: (job.role, connection.index()),
    }))
}

fn open_rx(job: &Job, connection: &dyn Connection, _: &Group) -> Result<Box<dyn Rx>, Fault> {
    let (hold, spins) = (Hold::of(connection)?, spins(job));
    Ok(Box::new(Receiver {
        hold,
        spins,
        buffer: super::buffer("the read buffer", job.read_memory, false)?,
        read_size: job.read_size as usize,
        place: 0,
        toucher: Toucher::new(job.touch, job.message_size),
        turns: 0,
        at: (job.role, connection.index()),
    }))
}

/// Bytes of the messages that are sent in turn.
fn rotation(job: &Job) -> u64 {
    (job.options.number("rotate").unwrap_or(0) / job.message_size).max(1) * job.message_size
}

fn spins(job: &Job) -> bool {
    job.options.word("wait") == "spin"
}

/// Slots of both halves' calls: a poll of the stack, which makes many, and sleeping.
const STACK: usize = 0;
const POLL: usize = 1;
const CALLS: &[&str] = &["stack", "poll"];

/// The witness page, which takes the way that the stream will take.
fn witness(hold: &Hold) -> Result<(), Fault> {
    let mut page = super::buffer("the witness page", WITNESS_LEN as u64, false)?;
    WitnessPage::before(&mut page);
    hold.connection().write_all(&page)?;
    WitnessPage::settle(hold.connection(), |after| page.copy_from_slice(after))
}

/// One poll of the stack.
#[inline]
fn turn(hold: &Hold, stack: &mut Stack, recorder: &mut Recorder) -> Result<(), Fault> {
    recorder.timed(STACK, || stack.poll().map(|()| 0)).map(drop).map_err(|e| hold.fault(&e))
}

/// Nothing could be moved.
#[inline]
fn idle(hold: &Hold, spins: bool, recorder: &mut Recorder) -> Result<(), Fault> {
    if spins {
        std::hint::spin_loop();
        return Ok(());
    }
    let mut result = Ok(true);
    let _ = recorder.timed(POLL, || {
        result = hold.wait(Duration::MAX);
        Ok(0)
    });
    result.map(drop)
}

/// The account of a half, with what the stack has counted if the other half has not reported it.
fn account(
    hold: &Hold,
    (role, flow): (Role, u32),
    [bytes, turns]: [u64; 2],
    source: &str,
) -> Result<Account, Fault> {
    let mut account = Account::default();
    account.ledger.enter(Manner::Copied, bytes, turns, source);
    let Some(Statistics { counts, polls, empty_polls, dropped, spoilt }) = hold.statistics()?
    else {
        return Ok(account);
    };
    let mut read = |name: &str, unit, value: f64| {
        let name = format!("userspace.{name}");
        account.readings.push(Reading::sum(name, unit, value, Scope::Flow(role, flow)));
    };
    for (name, count) in [
        ("frames-in", counts.frames_in),
        ("frames-out", counts.frames_out),
        ("frames-again", counts.frames_again),
        ("checksums", counts.computed),
        ("polls", polls),
        ("empty-polls", empty_polls),
        ("probes", counts.probes),
        ("no-room", counts.no_room),
        ("dropped", dropped),
    ] {
        read(name, Unit::Count, count as f64);
    }
    for (name, bytes) in [("bytes-in", counts.bytes_in), ("bytes-out", counts.bytes_out)] {
        read(name, Unit::Bytes, bytes as f64);
    }
    for (count, what) in [
        (spoilt, "were dropped or reordered on purpose"),
        (counts.damaged, "had a wrong checksum"),
        (dropped, "did not fit into the packet socket"),
    ] {
        if count > 0 {
            account.notes.push(format!("{count} frames of the user-space TCP {what}"));
        }
    }
    Ok(account)
}

struct Sender {
    hold: Hold,
    spins: bool,
    /// Those that are sent in turn, and the size of one.
    messages: Region,
    size: usize,
    /// Position of the stream in them.
    place: usize,
    turns: u64,
    at: (Role, u32),
}

impl Tx for Sender {
    fn calls(&self) -> &'static [&'static str] {
        CALLS
    }

    fn witness(&mut self) -> Result<(), Fault> {
        witness(&self.hold)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.hold.attend();
        Ok(())
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let rest = &self.messages[self.place..][..self.size - self.place % self.size];
        let taken = {
            let mut stack = self.hold.stack();
            let taken = stack.send(rest).ok_or_else(|| self.hold.cut_off())?;
            turn(&self.hold, &mut stack, recorder)?;
            taken
        };
        if taken > 0 {
            recorder.moved(taken);
            self.turns += 1;
            self.place = (self.place + taken) % self.messages.len();
            return Ok(());
        }
        idle(&self.hold, self.spins, recorder)
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "copied to the user-space TCP's buffer, and twice more on output";
        account(&self.hold, self.at, [recorder.total(), self.turns], source)
    }
}

struct Receiver {
    hold: Hold,
    spins: bool,
    buffer: Region,
    read_size: usize,
    /// Where in the buffer the next read goes.
    place: usize,
    toucher: Toucher,
    turns: u64,
    at: (Role, u32),
}

impl Rx for Receiver {
    fn calls(&self) -> &'static [&'static str] {
        CALLS
    }

    fn begin(&mut self) -> Result<(), Fault> {
        self.hold.attend();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let buffer = &mut self.buffer[self.place..self.place + self.read_size];
        let received = {
            let mut stack = self.hold.stack();
            if !stack.can_receive() {
                turn(&self.hold, &mut stack, recorder)?;
            }
            stack.receive(buffer)
        };
        match received {
            Received::Bytes(0) => idle(&self.hold, self.spins, recorder)?,
            Received::Bytes(bytes) => {
                self.toucher.take(&buffer[..bytes])?;
                recorder.moved(bytes);
                recorder.piece(bytes);
                self.turns += 1;
                self.place += self.read_size;
                if self.place + self.read_size > self.buffer.len() {
                    self.place = 0;
                }
            }
            Received::End => return Ok(false),
            Received::Cut => return Err(self.hold.cut_off()),
        }
        Ok(true)
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        Some(self.await_bytes(timeout))
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "copied from the user-space TCP's buffer, and twice before on input";
        account(&self.hold, self.at, [recorder.total(), self.turns], source)
    }
}

impl Receiver {
    fn await_bytes(&self, timeout: Duration) -> Result<bool, Fault> {
        let begun = Instant::now();
        loop {
            {
                let mut stack = self.hold.stack();
                stack.poll().map_err(|e| self.hold.fault(&e))?;
                if stack.can_receive() {
                    return Ok(true);
                }
            }
            let left = timeout.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            self.hold.wait(left)?;
        }
    }
}
