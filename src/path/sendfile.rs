//! `sendfile`: the message lies in a file in memory, and sendfile(2) puts
//! references to its pages into the socket.
//!
//! The kernel copies even so where the device cannot gather (no scatter-gather
//! in `ethtool -k`; `tcp_sendmsg_locked`, net/ipv4/tcp.c), and nothing in the
//! call tells. The witness page does: it goes the same way.

use super::{Account, DataPath, Endpoint, Flow, Recorder, WITNESS_LEN, WitnessPage};
use crate::record::{Attempt, Cell, Facts, Fault, FaultKind, Manner, OptionSpec, Role, Support};
use crate::sys::memory::MemoryFile;
use crate::sys::tcp;
use crate::workload::{PATTERN_PERIOD, Pattern, Phase};
use std::io::{self, ErrorKind};

/// The `sendfile` path.
pub struct Sendfile;

/// What is tried on a host.
const ATTEMPT: &str = "memfd";

impl DataPath for Sendfile {
    fn name(&self) -> &'static str {
        "sendfile"
    }

    fn summary(&self) -> &'static str {
        "sendfile from a file in memory: its pages are sent by reference"
    }

    fn roles(&self) -> &'static [Role] {
        &[Role::Sender]
    }

    fn options(&self, _: Role) -> &'static [OptionSpec] {
        &[]
    }

    fn attempt(&self, _: Option<&str>) -> Vec<Attempt> {
        vec![super::tried(ATTEMPT, attempt())]
    }

    fn probe(&self, role: Role, facts: &Facts) -> Support {
        match role {
            Role::Sender => {
                facts.require(ATTEMPT, "allow memfd_create and sendfile (a seccomp filter may not)")
            }
            Role::Receiver => super::unsupported(super::lacks(self.name(), role)),
        }
    }

    fn open(&self, role: Role, cell: &Cell, flow: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        if role != Role::Sender {
            return Err(super::lacks(self.name(), role));
        }
        flow.reset_on_death()?;
        let size = cell.stream.message_size;
        let file = file(size).map_err(|e| {
            Fault::system(format_args!("a memory file of {size} bytes"), &e)
                .remedy("choose a smaller message size, or fewer flows")
        })?;
        Ok(Box::new(Sender { flow, file, size }))
    }
}

struct Sender {
    flow: Flow,
    /// The message, once.
    file: MemoryFile,
    size: u64,
}

/// Slot of the only call.
const SENDFILE: usize = 0;

impl Endpoint for Sender {
    fn calls(&self) -> &'static [&'static str] {
        &["sendfile"]
    }

    fn witness(&mut self) -> Result<(), Fault> {
        let failed = |e: io::Error| self.flow.fault("sendfile of the witness page", &e);
        let mut page = [0; WITNESS_LEN];
        WitnessPage::before(&mut page);
        let file = MemoryFile::new("bytepath-witness").map_err(failed)?;
        file.write_at(&page, 0).map_err(failed)?;
        let mut sent = 0;
        while sent < WITNESS_LEN {
            match file.send(self.flow.fd(), sent as u64, WITNESS_LEN - sent) {
                Ok(n) => sent += n,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(failed(e)),
            }
        }
        let mut overwritten = Ok(());
        WitnessPage::settle(&self.flow, |after| overwritten = file.write_at(after, 0))?;
        overwritten.map_err(failed)
    }

    fn run(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let (mut at, mut calls) = (0, 0);
        while recorder.phase() != Phase::Stop {
            let rest = (self.size - at) as usize;
            match recorder.timed(SENDFILE, || self.file.send(self.flow.fd(), at, rest)) {
                Ok(0) => {
                    return Err(Fault::new(FaultKind::System, "sendfile: the file has shrunk"));
                }
                Ok(n) => {
                    recorder.moved(n);
                    calls += 1;
                    at = if n == rest { 0 } else { at + n as u64 };
                }
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(self.flow.fault("sendfile", &e)),
            }
        }
        self.flow.end_stream()?;
        let mut account = Account::default();
        account.ledger.enter(
            Manner::NotCopied,
            recorder.total(),
            calls,
            "sendfile(2): references to page-cache pages of a memfd",
        );
        Ok(account)
    }
}

/// A file that holds one message.
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

/// Sends a page over the loopback device, if that is up.
fn attempt() -> io::Result<String> {
    let file = MemoryFile::new("bytepath-attempt")?;
    file.write_at(&[1; WITNESS_LEN], 0)?;
    use std::os::fd::AsFd;
    match tcp::loopback_pair() {
        Ok((tx, _rx)) => file.send(tx.as_fd(), 0, WITNESS_LEN).map(|n| format!("{n} bytes sent")),
        Err(e) => Ok(format!("the file; not sent, for want of a loopback connection: {e}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Outcome;

    #[test]
    fn the_probe_wants_the_attempt() {
        let mut facts = Facts::default();
        assert!(!Sendfile.probe(Role::Sender, &facts).is_yes());
        for (outcome, yes) in [
            (Outcome::Works(String::new()), true),
            (Outcome::Errno(libc::ENOSYS), false),
            (Outcome::Missing("x".into()), false),
        ] {
            facts.attempts = vec![Attempt { name: ATTEMPT.into(), outcome }];
            assert_eq!(Sendfile.probe(Role::Sender, &facts).is_yes(), yes);
            assert!(!Sendfile.probe(Role::Receiver, &facts).is_yes());
        }
    }

    #[test]
    fn this_host_passes_its_own_attempt() {
        let facts = Facts { attempts: Sendfile.attempt(None), ..Facts::default() };
        assert!(Sendfile.probe(Role::Sender, &facts).is_yes(), "{:?}", facts.attempts);
    }
}
