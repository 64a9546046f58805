//! A guest that runs programs one after the other and returns what they print:
//! what a kernel lets a program do can be tried without being that kernel.
//!
//! A session like any other, whose two pipes are not those of two agents but a
//! program's output and its errors.

use super::boot::{Shape, prepare, twice_if_emulated};
use super::cards;
use super::frame::Layout;
use super::machine::{Machine, NotBooted};
use super::qemu::{self, Accelerator, Start};
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::netlink::Netlink;
use serde::{Deserialize, Serialize};
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// A program to be run in a guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Errand {
    /// Its path in the guest, and its arguments.
    pub words: Vec<String>,
    /// Variables of its environment, in addition to those of the first process.
    pub environment: Vec<(String, String)>,
}

/// A guest that is up. Dropping it switches it off.
pub struct Errands {
    machine: Arc<Machine>,
}

/// The outcome of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// What it wrote to its standard output.
    pub output: Vec<u8>,
    /// What it wrote to its standard error.
    pub errors: Vec<u8>,
    /// How it ended, in words: "exited with code 0".
    pub ended: String,
}

/// How long a program may take, where guests are emulated too.
const TIMEOUT: Duration = Duration::from_secs(300);

impl Errands {
    /// Boots a kernel, named as a study names it (`debian:newest`). `bytepath` is
    /// in the guest as `/bin/bytepath`; further programs of this machine are where
    /// the first of each pair says, with the libraries that they need; with `cards` it
    /// has two that are joined ([`super::CARDS`]).
    pub fn boot(
        kernel: &str,
        bytepath: &Path,
        programs: &[(&str, &Path)],
        cards: bool,
    ) -> Result<Errands, Fault> {
        let accelerator = qemu::accelerator("auto")?;
        let (image, archive) = prepare(kernel, bytepath, programs, cards)?;
        let fail = |e: io::Error| Fault::system("preparing a guest", &e);
        let emulated = accelerator != Accelerator::Kvm;
        let boot = || -> Result<Machine, NotBooted> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let start = Start {
                program: qemu::find()?,
                shape: Shape::DEFAULT,
                accelerator: &accelerator,
                name: image.path.display().to_string(),
                kernel: image.open(emulated)?,
                cmdline: "",
                initramfs: qemu::in_memory("initramfs", &archive).map_err(fail)?,
                port: theirs.into(),
                network: None,
            };
            Machine::boot(start, ours, &AtomicBool::new(false))
        };
        Ok(Errands { machine: Arc::new(twice_if_emulated(emulated, boot)?) })
    }

    /// `uname -r` of the guest.
    pub fn release(&self) -> &str {
        &self.machine.ready.release
    }

    /// The machine, in which there may be other sessions, too.
    pub fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Runs a program to its end. One that takes longer than five minutes is a
    /// fault that quotes the guest's console.
    pub fn run(&self, errand: Errand) -> Result<Outcome, Fault> {
        let name = errand.words.first().cloned().unwrap_or_default();
        let never = AtomicBool::new(false);
        let (session, printed) = self.machine.raise(Layout::Errand(errand), &never)?;
        let deadline = Instant::now() + TIMEOUT;
        let [mut output, mut errors] = [Vec::new(), Vec::new()];
        for (pipe, bytes) in printed.iter().zip([&mut output, &mut errors]) {
            loop {
                match pipe.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(more) => bytes.extend(more),
                    Err(RecvTimeoutError::Disconnected) => break,
                    Err(RecvTimeoutError::Timeout) => {
                        let text = format!(
                            "{name} did not end within {} s in the guest, whose console shows: {}",
                            TIMEOUT.as_secs(),
                            self.machine.console()
                        );
                        return Err(Fault::new(FaultKind::PeerLost, text));
                    }
                }
            }
        }
        Ok(Outcome { output, errors, ended: session.last_words(0) })
    }
}

/// In the guest: starts the program, with the guest's own loopback device up, and its
/// cards there, if it has some.
pub(super) fn start(errand: &Errand) -> Result<Child, Fault> {
    cards::present()?;
    let mut netlink = Netlink::new();
    let up = netlink.link("lo").and_then(|lo| {
        let lo = lo.ok_or(io::ErrorKind::NotFound)?;
        netlink.set_up(lo.index)
    });
    up.map_err(|e| Fault::system("bringing up the loopback device", &e))?;
    let (program, arguments) = errand
        .words
        .split_first()
        .ok_or_else(|| Fault::new(FaultKind::Usage, "no program is named"))?;
    let mut command = Command::new(program);
    command.args(arguments).envs(errand.environment.iter().map(|(name, value)| (name, value)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().map_err(|e| Fault::system(format!("starting {program}"), &e))
}
