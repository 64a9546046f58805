//! `sendfile`: the message is in a memory file (memfd), and sendfile(2) puts references to its
//! pages into the socket.
//!
//! The kernel still copies if the device does not support scatter-gather (`ethtool -k`;
//! `tcp_sendmsg_locked`, net/ipv4/tcp.c). The call does not show it; the witness page does, since
//! it is sent the same way.

use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, Flow, WITNESS_LEN, WitnessPage};
use crate::workload::{Account, Call, Group, HalfConfig, PATTERN_PERIOD, Pattern, Recorder, Tx};
use bytepath_record::{Fault, Manner};
use bytepath_sys::memory::MemoryFile;
use bytepath_sys::tcp;
use std::io;

pub(super) static PATH: DataPath = DataPath {
    name: "sendfile",
    summary: "sendfile from a file in memory: its pages are sent by reference",
    attempt: |_| vec![super::tried(ATTEMPT, attempt())],
    tx: Some(HalfPath::tx(
        |_, facts| {
            facts.require(ATTEMPT, "allow memfd_create and sendfile (a seccomp filter may not)")
        },
        open,
    )),
    ..DataPath::EMPTY
};

/// Name of the attempt.
const ATTEMPT: &str = "memfd";

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Tx> {
    let (flow, size) = (connection.kernel()?, job.message_size);
    flow.reset_on_death()?;
    let file = file(size).map_err(|e| {
        Fault::system(format_args!("a memory file of {size} bytes"), &e)
            .remedy("choose a smaller message size, or fewer flows")
    })?;
    Ok(Box::new(Sender { flow, file, size, at: 0, calls: 0 }))
}

struct Sender {
    flow: Flow,
    /// One copy of the message.
    file: MemoryFile,
    size: u64,
    /// Position of the stream in the message.
    at: u64,
    calls: u64,
}

const SENDFILE: Call = Call(0, "sendfile");

impl Tx for Sender {
    fn witness(&mut self) -> Result<(), Fault> {
        const CALL: &str = "sendfile of the witness page";
        let failed = |e: io::Error| self.flow.fault(CALL, &e);
        let mut page = [0; WITNESS_LEN];
        WitnessPage::before(&mut page);
        let file = MemoryFile::new("bytepath-witness").map_err(failed)?;
        file.write_at(&page, 0).map_err(failed)?;
        let send = |at: usize| file.send(self.flow.fd(), at as u64, WITNESS_LEN - at);
        super::send_page(&self.flow, CALL, send)?;
        let mut overwritten = Ok(());
        WitnessPage::settle(&self.flow, |after| overwritten = file.write_at(after, 0))?;
        overwritten.map_err(failed)
    }

    #[inline]
    fn send(&mut self, recorder: &mut Recorder) -> Result<(), Fault> {
        let rest = (self.size - self.at) as usize;
        let sent = recorder.timed(SENDFILE, || self.file.send(self.flow.fd(), self.at, rest));
        match self.flow.completed("sendfile", sent)? {
            Some(0) => return Err(Fault::failed("sendfile: the file has shrunk")),
            Some(n) => {
                recorder.moved(n);
                self.calls += 1;
                self.at = if n == rest { 0 } else { self.at + n as u64 };
            }
            None => {}
        }
        Ok(())
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "sendfile(2): references to page-cache pages of a memfd";
        Ok(Account::of(Manner::NotCopied, recorder.total(), self.calls, source))
    }
}

/// Creates a file that contains one message.
fn file(message_size: u64) -> io::Result<MemoryFile> {
    let file = MemoryFile::new("bytepath-message")?;
    let pattern = Pattern::new(message_size);
    let mut piece = vec![0; PATTERN_PERIOD];
    for offset in (0..message_size).step_by(PATTERN_PERIOD) {
        let len = (message_size - offset).min(PATTERN_PERIOD as u64) as usize;
        pattern.fill(&mut piece[..len], offset);
        file.write_at(&piece[..len], offset)?;
    }
    Ok(file)
}

/// Sends a page over loopback, if that is up.
fn attempt() -> io::Result<String> {
    let file = MemoryFile::new("bytepath-attempt")?;
    file.write_at(&[1; WITNESS_LEN], 0)?;
    use std::os::fd::AsFd;
    match tcp::loopback_pair() {
        Ok((tx, _rx)) => file.send(tx.as_fd(), 0, WITNESS_LEN).map(|n| format!("{n} bytes sent")),
        Err(e) => Ok(format!("the file; not sent, because there is no loopback connection: {e}")),
    }
}
