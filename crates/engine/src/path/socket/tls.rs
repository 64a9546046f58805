//! `socket` with encryption by the program (`tls=user`). The sender seals records of a message into
//! a buffer that stays in the cache, and sends them with one call. The receiver reads records into
//! the memory that reads fill in turn, and decrypts them in place. Copies are those of send(2) and
//! recv(2), and one of each record's plaintext to where it is encrypted.

use crate::connection::Flow;
use crate::connection::records::{LARGEST, OVERHEAD, Opener, Sealer};
use crate::connection::tls::Keys;
use crate::workload::{Account, Call, HalfConfig, Recorder, Rx, Toucher, Tx};
use bytepath_record::{Fault, FaultKind, Manner};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use std::time::Duration;

/// Number of records that are sealed before they are sent: as many as stay in a core's own cache.
const BATCH: usize = 16;

/// Bytes of a full record.
const RECORD: usize = LARGEST + OVERHEAD;

const SEND: Call = Call(0, "send");
const RECV: Call = Call(0, "recv");

pub(super) struct Sender {
    flow: Flow,
    message: Region,
    /// Position of the stream in the message.
    at: usize,
    sealer: Sealer,
    records: Region,
    calls: u64,
}

impl Sender {
    pub(super) fn open(job: &HalfConfig, flow: Flow, keys: &Keys) -> Result<Sender, Fault> {
        let message = crate::path::message(job.message_size, false)?;
        let most = message.len().div_ceil(LARGEST).min(BATCH);
        let records = crate::path::buffer("memory for records", (most * RECORD) as u64, false)?;
        Ok(Sender { flow, message, at: 0, sealer: Sealer::new(&keys.send), records, calls: 0 })
    }
}

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        let text = "a page that the program encrypts cannot show whether the kernel copied it";
        Err(Fault::failed(text).remedy("report this as a bug"))
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let rest = &self.message[self.at..];
        let plain = &rest[..rest.len().min(BATCH * LARGEST)];
        let mut end = 0;
        for bytes in plain.chunks(LARGEST) {
            end += self.sealer.seal(bytes, &mut self.records[end..]);
        }
        let mut sent = 0;
        while sent < end {
            let records = &self.records[sent..end];
            let result = recorder.timed(SEND, || tcp::send(self.flow.fd(), records, 0));
            if let Some(n) = self.flow.completed("send", result)? {
                (sent, self.calls) = (sent + n, self.calls + 1);
            }
        }
        recorder.moved(plain.len());
        self.at = if plain.len() == rest.len() { 0 } else { self.at + plain.len() };
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "encrypted by the program into a buffer, which send(2) copied";
        Ok(Account::of(Manner::Copied, recorder.total(), self.calls, source))
    }
}

pub(super) struct Receiver {
    flow: Flow,
    memory: Region,
    /// Bytes from the start of one read's memory to the next.
    stride: usize,
    read_size: usize,
    /// Start of the current read's memory, and how many bytes of it are filled but not decrypted
    /// yet.
    base: usize,
    filled: usize,
    opener: Opener,
    toucher: Toucher,
    calls: u64,
}

impl Receiver {
    /// Each read's memory has room for a partial record left over from the previous one.
    pub(super) fn open(job: &HalfConfig, flow: Flow, keys: &Keys) -> Result<Receiver, Fault> {
        let read_size = job.read_size as usize;
        let stride = read_size + RECORD;
        let reads = (job.read_memory / job.read_size).max(1);
        Ok(Receiver {
            flow,
            memory: crate::path::buffer("the read buffer", reads * stride as u64, false)?,
            stride,
            read_size,
            base: 0,
            filled: 0,
            opener: Opener::new(&keys.receive),
            toucher: Toucher::new(job.touch, job.message_size),
            calls: 0,
        })
    }

    /// Moves an incomplete record to the start of the next read's memory.
    fn turn(&mut self, taken: usize) {
        let next = self.base + self.stride;
        let next = if next + self.stride > self.memory.len() { 0 } else { next };
        self.memory.copy_within(self.base + taken..self.base + self.filled, next);
        (self.base, self.filled) = (next, self.filled - taken);
    }
}

impl Rx for Receiver {
    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let fd = self.flow.fd();
        let memory = &mut self.memory[self.base..self.base + self.stride];
        let room = &mut memory[self.filled..self.filled + self.read_size];
        let received = recorder.timed(RECV, || tcp::recv(fd, room, 0));
        match self.flow.completed("recv", received)? {
            Some(0) if self.filled > 0 => {
                let text = format!("flow {}: the stream ended within a record", self.flow.index);
                return Err(Fault::new(FaultKind::Corrupt, text));
            }
            Some(0) => return self.flow.confirm_end().map(|()| false),
            Some(n) => (self.filled, self.calls) = (self.filled + n, self.calls + 1),
            None => return Ok(true),
        }
        let mut taken = 0;
        while let Some((plain, len)) = self.opener.open(&mut memory[taken..self.filled])? {
            self.toucher.deliver(plain, LARGEST, recorder)?;
            taken += len;
        }
        if taken > 0 {
            self.turn(taken);
        }
        Ok(true)
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        Some(self.flow.wait(timeout))
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "recv(2): copied to user memory, and decrypted there by the program";
        Ok(Account::of(Manner::Copied, recorder.total(), self.calls, source))
    }
}
