//! A guest that runs programs one after the other and returns what they print:
//! what a kernel lets a program do can be tried without being that kernel. One boot of each
//! kernel serves the tests of several files. Without qemu or a kernel they are skipped and
//! reported.

use crate::guests::able;
use crate::{lasting, observe, tls};
use bytepath::guest::qemu::{self, Accelerator, Start};
use bytepath::guest::{
    GuestCommand, Layout, Machine, Network, NicPair, NotBooted, Shape, prepare,
    retry_once_if_emulated,
};
use bytepath::record::{Fault, FaultKind};
use bytepath_testing::skip;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Where the double is in a guest.
pub(crate) const DOUBLE: &str = "/bin/double";

#[test]
fn programs_run_in_the_newest_kernel() {
    let Some(_machine) = able() else { return };
    let Some(guest) = booted("debian:newest") else { return };
    lasting::nothing_is_carried_from_trial_to_trial(&guest);
    observe::copies_are_counted(&guest);
    tls::nothing_is_on_the_wire_in_the_clear(&guest);
}

/// Since then the copy functions changed.
#[test]
fn programs_run_in_an_old_kernel() {
    let Some(_machine) = able() else { return };
    let Some(guest) = booted("debian:6.1") else { return };
    observe::copies_are_counted(&guest);
    tls::nothing_is_on_the_wire_in_the_clear(&guest);
}

/// A guest with the double in it; `None`, and a test skipped, if there is no such kernel.
pub(crate) fn booted(kernel: &str) -> Option<CommandRunner> {
    let (bytepath, double) =
        (Path::new(env!("CARGO_BIN_EXE_bytepath")), bytepath_testing::double());
    match CommandRunner::boot(kernel, bytepath, &[(DOUBLE, &double)], None) {
        Ok(guest) => Some(guest),
        Err(fault) if fault.message.contains("there is no kernel") => {
            skip!("{kernel}: {fault}");
            None
        }
        Err(fault) => panic!("{kernel}: {fault}"),
    }
}

/// A guest that is up. Dropping it switches it off.
pub(crate) struct CommandRunner {
    machine: Arc<Machine>,
}

/// The outcome of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// What it wrote to its standard output.
    pub(crate) output: Vec<u8>,
    /// What it wrote to its standard error.
    pub(crate) errors: Vec<u8>,
    /// How it ended, in words: "exited with code 0".
    pub(crate) ended: String,
}

/// How long a program may take, where guests are emulated too.
const TIMEOUT: Duration = Duration::from_secs(300);

impl CommandRunner {
    /// Boots a kernel, named as a study names it (`debian:newest`). `bytepath` is
    /// in the guest as `/bin/bytepath`; further programs of this machine are where
    /// the first of each pair says, with the libraries that they need; and it may have
    /// two NICs that are joined.
    pub(crate) fn boot(
        kernel: &str,
        bytepath: &Path,
        programs: &[(&str, &Path)],
        nics: Option<&NicPair>,
    ) -> Result<CommandRunner, Fault> {
        let accelerator = qemu::accelerator("auto")?;
        let never = AtomicBool::new(false);
        let (image, archive) = prepare(kernel, bytepath, programs, nics, &never)?;
        let fail = |e: io::Error| Fault::system("preparing a guest", &e);
        let emulated = accelerator != Accelerator::Kvm;
        let device = nics.and_then(NicPair::emulated_device);
        let cpus = if device.is_some() { 4 } else { Shape::DEFAULT.cpus };
        let memory = if device.is_some() { 2 << 30 } else { Shape::DEFAULT.memory };
        let shape = Shape { cpus, memory, ..Shape::DEFAULT };
        let boot = || -> Result<Machine, NotBooted> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let joined = device.map(|device| Network::joined(device, true));
            let start = Start {
                program: device.map_or_else(qemu::find, qemu::find_with)?,
                shape,
                accelerator: &accelerator,
                name: image.path.display().to_string(),
                kernel: image.open(emulated)?,
                cmdline: "",
                initramfs: qemu::in_memory("initramfs", &archive).map_err(fail)?,
                port: theirs.into(),
                networks: joined.transpose()?.map_or_else(Vec::new, Vec::from),
            };
            Machine::boot(start, ours, &never)
        };
        Ok(CommandRunner { machine: Arc::new(retry_once_if_emulated(emulated, boot)?) })
    }

    /// `uname -r` of the guest.
    pub(crate) fn release(&self) -> &str {
        &self.machine.ready.release
    }

    /// The machine, in which there may be other sessions, too.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// All that a command line prints, which has to succeed.
    pub(crate) fn output_of(&self, line: &str) -> String {
        let words = shlex::split(line).unwrap();
        let outcome = self.run(GuestCommand { words, environment: Vec::new() }).unwrap();
        let text = String::from_utf8_lossy(&outcome.output).into_owned()
            + &String::from_utf8_lossy(&outcome.errors);
        assert_eq!(outcome.ended, "exited with code 0", "{line}: {text}");
        text
    }

    /// Runs a program to its end. One that takes longer than five minutes is a
    /// fault that quotes the guest's console.
    pub(crate) fn run(&self, command: GuestCommand) -> Result<Outcome, Fault> {
        let name = command.words.first().cloned().unwrap_or_default();
        let never = AtomicBool::new(false);
        let (session, printed) = self.machine.raise(Layout::Command(command), &never)?;
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
        Ok(Outcome { output, errors, ended: session.exit_report(0) })
    }
}
