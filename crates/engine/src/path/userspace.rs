//! `userspace`: a TCP stack in this process, polled by the flow's own thread. Data to send is
//! copied into the stack's buffer and from there into a frame, which the kernel copies again;
//! received data takes the reverse path. With a copy engine as the writer: [`offload`].

mod offload;

pub use offload::offloaded;

use super::common::ReadBuffer;
use super::turns::{account, hold, idle, rotation, turn, witness};
use super::{DataPath, HalfPath, Opened};
use crate::connection::userspace::{Hold, OPTIONS, Received};
use crate::connection::{Connection, USERSPACE_TCP};
use crate::copy;
use crate::workload::{Account, Group, HalfConfig, Pattern, Recorder, Rx, Toucher, Tx};
use bytepath_record::{Facts, Fault, OptionKind, OptionSpec, Support};
use bytepath_sys::memory::Region;
use std::time::{Duration, Instant};

pub(super) static PATH: DataPath = DataPath {
    name: "userspace",
    summary: "a TCP stack in this process over a packet socket; its peer can be any TCP",
    attempt: offload::attempt,
    tx: Some(HalfPath::tx(check_tx, open_tx).with_options(&SENDING).over(&[USERSPACE_TCP])),
    rx: Some(
        HalfPath::rx(|job, _| has_one(job), open_rx).with_options(OPTIONS).over(&[USERSPACE_TCP]),
    ),
    ..DataPath::EMPTY
};

/// Refuses several connections, since each mover would poll the shared stack.
fn has_one(job: &HalfConfig) -> Support {
    let reason = format!("the path userspace has one connection, not {}", job.flows);
    super::refuse_if(job.flows > 1, &reason, "choose flows=1, or the path userspace-loop")
}

fn check_tx(job: &HalfConfig, facts: &Facts) -> Support {
    has_one(job).and(offload::check(job, facts))
}

/// Option of the sending half, in addition to those of the stack and of copies.
const ROTATE: OptionSpec = OptionSpec::new("rotate", OptionKind::AutoSize(1, 1 << 30), "auto").help("bytes of messages to send in rotation, so that they exceed the caches; auto is one message");

const SENDING: [OptionSpec; OPTIONS.len() + offload::OPTIONS.len() + 1] = {
    let mut all = [ROTATE; OPTIONS.len() + offload::OPTIONS.len() + 1];
    let (of_stack, rest) = all.split_at_mut(OPTIONS.len());
    of_stack.copy_from_slice(OPTIONS);
    rest.split_at_mut(offload::OPTIONS.len()).0.copy_from_slice(offload::OPTIONS);
    all
};

fn open_tx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    if offload::is_requested(job) {
        let (kind, options) = copy::engine(job.options.word("copy"))?;
        return offloaded(job, connection, (kind, &options));
    }
    let size = job.message_size;
    let mut messages = super::buffer("the message buffers", rotation(job), false)?;
    Pattern::new(size).fill(&mut messages, 0);
    Ok(Box::new(Sender {
        hold: hold(job, connection)?,
        messages,
        size: size as usize,
        place: 0,
        turns: 0,
    }))
}

fn open_rx(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    Ok(Box::new(Receiver {
        hold: hold(job, connection)?,
        buffer: ReadBuffer::of(job)?,
        toucher: Toucher::new(job.touch, job.message_size),
        turns: 0,
    }))
}

struct Sender {
    hold: Hold,
    /// Messages that are sent in rotation, and the size of one.
    messages: Region,
    size: usize,
    /// Position of the stream in the messages.
    place: usize,
    turns: u64,
}

impl Tx for Sender {
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
            let taken = stack.send(self.hold.place, rest).ok_or_else(|| self.hold.cut_off())?;
            turn(&self.hold, &mut stack, recorder)?;
            taken
        };
        if taken > 0 {
            recorder.moved(taken);
            self.turns += 1;
            self.place = (self.place + taken) % self.messages.len();
            return Ok(());
        }
        idle(&self.hold, recorder)
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "copied to the user-space TCP's buffer, and twice more on output";
        account(&self.hold, [recorder.total(), self.turns], source)
    }
}

struct Receiver {
    hold: Hold,
    buffer: ReadBuffer,
    toucher: Toucher,
    turns: u64,
}

impl Rx for Receiver {
    fn begin(&mut self) -> Result<(), Fault> {
        self.hold.attend();
        Ok(())
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let room = self.buffer.room();
        let received = {
            let mut stack = self.hold.stack();
            if !stack.can_receive(self.hold.place) {
                turn(&self.hold, &mut stack, recorder)?;
            }
            stack.receive(self.hold.place, room)
        };
        match received {
            Received::Bytes(0) => idle(&self.hold, recorder)?,
            Received::Bytes(bytes) => {
                self.toucher.deliver(&room[..bytes], bytes, recorder)?;
                self.turns += 1;
                self.buffer.advance();
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
        account(&self.hold, [recorder.total(), self.turns], source)
    }
}

impl Receiver {
    fn await_bytes(&self, timeout: Duration) -> Result<bool, Fault> {
        let begun = Instant::now();
        loop {
            {
                let mut stack = self.hold.stack();
                stack.poll().map_err(|e| self.hold.fault(&e))?;
                if stack.can_receive(self.hold.place) {
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
