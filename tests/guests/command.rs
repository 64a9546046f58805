//! A guest that runs programs one after the other and returns their output, to try what a kernel
//! permits without running that kernel here. One boot of each kernel serves the tests of several
//! files. Without qemu or a kernel they are skipped and reported.

use crate::guests::able;
use crate::{lasting, links, observe, tls};
use bytepath::guest::qemu::{self, Accelerator, Start};
use bytepath::guest::{
    GuestCommand, Layout, Machine, Network, NicPair, NotBooted, Shape, prepare,
    retry_once_if_emulated,
};
use bytepath::record::{Fault, FaultKind};
use bytepath_testing::skip;
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::RecvTimeoutError;
use std::time::{Duration, Instant};

/// Path of the double in a guest.
pub(crate) const DOUBLE: &str = "/bin/double";

/// Path of ip(8).
pub(crate) const IP: &str = "/bin/ip";

/// Programs of this machine that are copied into a guest: ip(8), and those that start an agent
/// behind a command.
const PROGRAMS: [&str; 3] = [IP, "/bin/sh", "/bin/uname"];

#[test]
fn programs_run_in_the_newest_kernel() {
    let Some(_machine) = able() else { return };
    let Some(guest) = booted("debian:newest") else { return };
    lasting::nothing_is_carried_from_trial_to_trial(&guest);
    observe::copies_are_counted(&guest);
    observe::memmove_has_its_name(&guest);
    tls::nothing_is_on_the_wire_in_the_clear(&guest);
}

/// A kernel from before the copy functions changed.
#[test]
fn programs_run_in_an_old_kernel() {
    let Some(_machine) = able() else { return };
    let Some(guest) = booted("debian:6.1") else { return };
    observe::copies_are_counted(&guest);
    tls::nothing_is_on_the_wire_in_the_clear(&guest);
}

/// Boots a guest with the double in it. Returns `None`, and skips the test, if there is no such
/// kernel.
pub(crate) fn booted(kernel: &str) -> Option<CommandRunner> {
    let modules = if kernel == "debian:newest" { links::MODULES } else { &[] };
    match CommandRunner::boot(kernel, modules, None) {
        Ok(guest) => Some(guest),
        Err(fault) if fault.message.contains("there is no kernel") => {
            skip!("{kernel}: {fault}");
            None
        }
        Err(fault) => panic!("{kernel}: {fault}"),
    }
}

/// A running guest, powered off on drop.
pub(crate) struct CommandRunner {
    machine: Arc<Machine>,
    monitor: UnixStream,
}

/// The result of a program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// Its standard output.
    pub(crate) output: Vec<u8>,
    /// Its standard error.
    pub(crate) errors: Vec<u8>,
    /// How it ended, in words: "exited with code 0".
    pub(crate) ended: String,
}

/// How long a program may take, also in an emulated guest.
const TIMEOUT: Duration = Duration::from_secs(300);

impl CommandRunner {
    /// Boots a kernel, with the name that a study uses (`debian:newest`), with these modules in
    /// addition to those of every guest. It contains `bytepath` as `/bin/bytepath`, the double, and
    /// those of [`PROGRAMS`] that this machine has; and it may have two connected NICs.
    pub(crate) fn boot(
        kernel: &str,
        modules: &[&str],
        nics: Option<&NicPair>,
    ) -> Result<CommandRunner, Fault> {
        let accelerator = qemu::accelerator("auto")?;
        let never = AtomicBool::new(false);
        let (bytepath, double) = (env!("CARGO_BIN_EXE_bytepath"), bytepath_testing::double());
        let others = PROGRAMS.iter().map(|program| (*program, Path::new(*program)));
        let others = others.filter(|(_, path)| path.exists());
        let programs: Vec<_> = others.chain([(DOUBLE, double.as_path())]).collect();
        let (image, archive) =
            prepare(kernel, Path::new(bytepath), &programs, modules, nics, &never)?;
        let fail = |e: io::Error| Fault::system("preparing a guest", &e);
        let emulated = accelerator != Accelerator::Kvm;
        let device = nics.and_then(NicPair::emulated_device);
        let cpus = if device.is_some() { 4 } else { Shape::DEFAULT.cpus };
        let memory = if device.is_some() { 2 << 30 } else { Shape::DEFAULT.memory };
        let shape = Shape { cpus, memory, ..Shape::DEFAULT };
        let boot = || -> Result<(Machine, UnixStream), NotBooted> {
            let (ours, theirs) = UnixStream::pair().map_err(fail)?;
            let (monitor, monitored) = UnixStream::pair().map_err(fail)?;
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
                monitor: Some(monitored.into()),
                networks: joined.transpose()?.map_or_else(Vec::new, Vec::from),
            };
            Ok((Machine::boot(start, ours, &never)?, monitor))
        };
        let (machine, monitor) = retry_once_if_emulated(emulated, boot)?;
        Ok(CommandRunner { machine: Arc::new(machine), monitor })
    }

    /// `uname -r` of the guest.
    pub(crate) fn release(&self) -> &str {
        &self.machine.ready.release
    }

    /// The machine, which may have other sessions, too.
    pub(crate) fn machine(&self) -> &Arc<Machine> {
        &self.machine
    }

    /// Plugs the cable into the second NIC, or pulls it (`set_link` of qemu's monitor,
    /// docs/interop/qmp-spec of qemu).
    pub(crate) fn plug(&self, up: bool) {
        let set = serde_json::json!({"name": "wire1", "up": up});
        let set = serde_json::json!({"execute": "set_link", "arguments": set, "id": "set"});
        writeln!(&self.monitor, r#"{{"execute": "qmp_capabilities"}} {set}"#).unwrap();
        // Between replies come events, and each time but the first an error about the capabilities.
        let mut lines = BufReader::new(&self.monitor).lines().map(Result::unwrap);
        let answer = lines.find(|line| line.contains(r#""id""#)).unwrap();
        assert!(answer.contains(r#""return""#), "{answer}");
    }

    /// Returns the exit code of a program, and all of its output.
    pub(crate) fn outcome_of(&self, line: &str) -> (i32, String) {
        let words = shlex::split(line).unwrap();
        let outcome = self.run(GuestCommand { words, environment: Vec::new() }).unwrap();
        let text = [outcome.output, outcome.errors].concat();
        let code = outcome.ended.rsplit(' ').next().and_then(|word| word.parse().ok());
        (code.unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
    }

    /// Returns all output of a command line, which must succeed.
    pub(crate) fn output_of(&self, line: &str) -> String {
        let (code, text) = self.outcome_of(line);
        assert_eq!(code, 0, "{line}: {text}");
        text
    }

    /// Runs a program to its end. Errors, with the last lines of the guest's console, if it takes
    /// longer than five minutes.
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
