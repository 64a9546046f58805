//! The first process of a guest: mounts file systems, loads modules, then serves sessions.
//!
//! It need not reap orphans: the only processes are agents, which their handles wait for, and
//! agents start no other programs.

use super::frame::{Frame, Message, Ready};
use super::session::{Output, Session};
use super::{initramfs, nics, qemu};
use crate::link::wait_for;
use bytepath_record::Fault;
use bytepath_sys::{attribute, boot};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::collections::HashMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// How long to wait for the port to appear, and for the host to open its side.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Whether this process is the first of a guest: process id 1, started as `/init`.
pub fn is_first() -> bool {
    std::process::id() == 1
        && std::env::args_os().next().is_some_and(|name| name == initramfs::INIT)
}

/// Runs a guest and powers it off at the end. Returns only if powering off fails.
pub fn run(build: &str) -> io::Error {
    if let Err(fault) = serve(build) {
        print(format_args!("the guest ends: {fault}"));
    }
    boot::power_off()
}

/// Prints a line on the console, if there is one.
fn print(what: fmt::Arguments) {
    let _ = writeln!(io::stderr(), "bytepath: {what}");
}

fn serve(build: &str) -> Result<(), Fault> {
    for (kind, folder) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        boot::mount_virtual(kind, folder)
            .map_err(|e| Fault::system(format!("mounting {kind} at {folder}"), &e))?;
    }
    let mut notes = load_modules();
    // Without tracefs there are fewer meters; their probes report that.
    if let Err(e) = boot::mount_virtual("tracefs", "/sys/kernel/tracing") {
        notes.push(format!("no tracefs: {e}"));
    }
    let port = open_port()?;
    let fail = |e: io::Error| Fault::system("connecting to the host", &e);
    let mut input = port.try_clone().map_err(fail)?;
    let output = Output::new(port);
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let ready = Ready {
        build: build.to_owned(),
        release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        uptime: read("/proc/uptime").split(' ').next().unwrap_or("").parse().unwrap_or(0.0),
        notes,
    };
    output.send(0, Message::Ready(ready)).map_err(fail)?;
    let mut sessions: HashMap<u32, Session> = HashMap::new();
    loop {
        let frame = match Frame::read(&mut input) {
            Ok(frame) => frame,
            // The host has closed its side.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(fail(e)),
        };
        let number = frame.session;
        match frame.message {
            Message::Raise(layout) => {
                let program = Path::new(initramfs::PROGRAM);
                let answer = match Session::raise(number, layout, program, &output) {
                    Ok((session, pids)) => {
                        sessions.insert(number, session);
                        Message::Raised(pids)
                    }
                    Err(fault) => Message::Refused(fault),
                };
                output.send(number, answer).map_err(fail)?;
            }
            Message::Bytes(agent, bytes) => {
                if let Some(session) = sessions.get(&number) {
                    session.pass(agent, bytes);
                }
            }
            Message::Lower => {
                drop(sessions.remove(&number));
                output.send(number, Message::Lowered).map_err(fail)?;
            }
            _ => {}
        }
    }
}

/// Loads the modules that the host packed, in that order. Returns those that cannot be loaded; if
/// one was needed, a trial soon shows it.
fn load_modules() -> Vec<String> {
    let folder = Path::new(boot::MODULES);
    let mut notes = Vec::new();
    for name in attribute::names(folder) {
        let file = folder.join(&name);
        // Skips two. NICs are made by the sessions that use them. pktgen starts a thread for each
        // CPU in each network namespace, and each wakes ten times a second.
        if [nics::MODULE, "pktgen"].iter().any(|kept| boot::is_module(&file, kept)) {
            continue;
        }
        let loaded = fs::read(&file).and_then(|module| boot::load_module(&module, ""));
        match loaded {
            // ENODEV: the processor lacks the instructions that the module uses.
            Err(e) if !matches!(e.raw_os_error(), Some(libc::EEXIST | libc::ENODEV)) => {
                print(format_args!("module {name}: {e}"));
                notes.push(format!("module {name} cannot be loaded: {e}"));
            }
            _ => {}
        }
        // The kernel has a copy now; the file would only take memory.
        let _ = fs::remove_file(&file);
    }
    notes
}

/// Opens our serial port, once its driver has found it and the host has opened its side
/// (drivers/char/virtio_console.c: until then, poll(2) reports POLLHUP).
fn open_port() -> Result<File, Fault> {
    let absent = |what: &str| {
        Fault::unsupported(format!("{what} within {} s", TIMEOUT.as_secs()))
            .remedy("use a kernel with CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE")
    };
    let open = |path| File::options().read(true).write(true).open(path).ok();
    let failed = |e: io::Error| Fault::system("opening the port", &e);
    let port = wait_for(TIMEOUT, || Ok(find_port().and_then(open))).map_err(failed)?;
    let port = port.ok_or_else(|| absent("no serial port of the host"))?;
    let is_open = || {
        let mut fds = [PollFd::new(&port, PollFlags::OUT)];
        let polled = poll(&mut fds, Some(&Timespec::default()));
        Ok((polled.is_ok() && !fds[0].revents().contains(PollFlags::HUP)).then_some(()))
    };
    let opened = wait_for(TIMEOUT, is_open).map_err(failed)?;
    opened.ok_or_else(|| absent("the host did not open its side of the port"))?;
    Ok(port)
}

fn find_port() -> Option<PathBuf> {
    let folder = Path::new("/sys/class/virtio-ports");
    let is_ours = |port: &String| {
        attribute::text(&folder.join(port).join("name")).is_some_and(|name| name == qemu::PORT)
    };
    let port = attribute::names(folder).into_iter().find(is_ours)?;
    Some(Path::new("/dev").join(port))
}
