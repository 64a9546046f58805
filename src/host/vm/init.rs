//! The first process of a guest: mounts, modules, then sessions. Each session is
//! the very testbed of the host, two namespaces and a veth pair, raised inside; or
//! one agent, where another guest plays the other role; or a program of a test.
//!
//! There is nothing to reap but the agents, which their own handles wait for:
//! no program but this one exists in a guest, and agents start no other.

use super::super::netns::Netns;
use super::super::{Raised as Testbed, Site, Testbed as _};
use super::alone::Alone;
use super::errand::Running;
use super::frame::{Frame, LARGEST, Layout, Raised, Ready, Says};
use super::{initramfs, qemu};
use crate::record::{Fault, FaultKind, LinkSettings, Role};
use crate::sys::boot;
use rustix::event::{PollFd, PollFlags, poll};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long the port may take to appear, and the host to open its side.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs a guest and switches it off at the end. Returns only if that fails.
pub fn run(build: &str) -> io::Error {
    if let Err(fault) = serve(build) {
        eprintln!("bytepath: the guest ends: {fault}");
    }
    boot::power_off()
}

fn serve(build: &str) -> Result<(), Fault> {
    for (kind, folder) in [("proc", "/proc"), ("sysfs", "/sys"), ("devtmpfs", "/dev")] {
        boot::mount_virtual(kind, folder)
            .map_err(|e| Fault::system(format!("mounting {kind} at {folder}"), &e))?;
    }
    let mut notes = load_modules();
    // Without it there are fewer meters, and they say so themselves.
    if let Err(e) = boot::mount_virtual("tracefs", "/sys/kernel/tracing") {
        notes.push(format!("no tracefs: {e}"));
    }
    let port = open_port()?;
    let fail = |e: io::Error| Fault::system("speaking to the host", &e);
    let mut input = port.try_clone().map_err(fail)?;
    let output = Output(Arc::new(Mutex::new(port)));
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let ready = Ready {
        build: build.to_owned(),
        release: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        uptime: read("/proc/uptime").split(' ').next().unwrap_or("").parse().unwrap_or(0.0),
        notes,
    };
    output.say(0, Says::Ready(ready)).map_err(fail)?;
    let mut sessions: HashMap<u32, Session> = HashMap::new();
    loop {
        let frame = match Frame::read(&mut input) {
            Ok(frame) => frame,
            // The host has closed its side.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            Err(e) => return Err(fail(e)),
        };
        let number = frame.session;
        match frame.says {
            Says::Raise(layout) => match Session::raise(number, layout, &output) {
                Ok((session, raised)) => {
                    sessions.insert(number, session);
                    output.say(number, Says::Raised(raised)).map_err(fail)?;
                }
                Err(fault) => output.say(number, Says::Refused(fault)).map_err(fail)?,
            },
            Says::Bytes(role, bytes) => {
                if let Some(session) = sessions.get(&number) {
                    session.pass(role, bytes);
                }
            }
            Says::Lower => {
                drop(sessions.remove(&number));
                output.say(number, Says::Lowered).map_err(fail)?;
            }
            Says::Ping => output.say(number, Says::Pong).map_err(fail)?,
            _ => {}
        }
    }
}

/// Loads what the host packed, in its order. What will not load is told: whether
/// it was needed shows soon enough.
fn load_modules() -> Vec<String> {
    let folder = Path::new(initramfs::MODULES);
    let mut files: Vec<PathBuf> =
        fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut notes = Vec::new();
    for file in files {
        let loaded = fs::read(&file).and_then(|module| boot::load_module(&module));
        match loaded {
            Err(e) if e.raw_os_error() != Some(libc::EEXIST) => {
                let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
                eprintln!("bytepath: module {name}: {e}");
                notes.push(format!("module {name} cannot be loaded: {e}"));
            }
            _ => {}
        }
        // It is in the kernel now, and its file would only take memory.
        let _ = fs::remove_file(&file);
    }
    notes
}

/// Opens the serial port of our name, as soon as its driver has found it and the
/// host has opened its side (drivers/char/virtio_console.c: until then poll(2)
/// says POLLHUP).
fn open_port() -> Result<File, Fault> {
    let deadline = Instant::now() + PATIENCE;
    let pause = || std::thread::sleep(Duration::from_millis(1));
    let absent = |what: &str| {
        let text = format!("{what} within {} s", PATIENCE.as_secs());
        Fault::new(FaultKind::Unsupported, text)
            .remedy("use a kernel with CONFIG_VIRTIO_PCI and CONFIG_VIRTIO_CONSOLE")
    };
    let port = loop {
        match find_port().and_then(|path| File::options().read(true).write(true).open(path).ok()) {
            Some(port) => break port,
            None if Instant::now() > deadline => return Err(absent("no serial port of the host")),
            None => pause(),
        }
    };
    loop {
        let mut fds = [PollFd::new(&port, PollFlags::OUT)];
        let polled = poll(&mut fds, Some(&rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 }));
        if polled.is_ok() && !fds[0].revents().contains(PollFlags::HUP) {
            return Ok(port);
        }
        if Instant::now() > deadline {
            return Err(absent("the host did not open its side of the port"));
        }
        pause();
    }
}

fn find_port() -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let ours = |entry: &fs::DirEntry| {
        fs::read_to_string(entry.path().join("name")).is_ok_and(|name| name.trim() == qemu::PORT)
    };
    let entry = entries.flatten().find(ours)?;
    Some(Path::new("/dev").join(entry.file_name()))
}

/// The port, for several threads.
#[derive(Clone)]
struct Output(Arc<Mutex<File>>);

impl Output {
    fn say(&self, session: u32, says: Says) -> io::Result<()> {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Frame { session, says }.write(&mut *port)
    }
}

/// A testbed in this guest. Dropping it takes it down.
struct Session {
    to_agents: [Sender<Vec<u8>>; 2],
    _testbed: Arc<Mutex<Box<dyn Testbed>>>,
}

impl Session {
    fn raise(number: u32, layout: Layout, output: &Output) -> Result<(Session, Raised), Fault> {
        let site = Site::of(Path::new(initramfs::PROGRAM));
        let mut raised: Box<dyn Testbed> = match layout {
            Layout::Pair => Netns.raise(&site)?,
            Layout::One(role) => Box::new(Alone::raise(role, &site)?),
            Layout::Errand(errand) => Box::new(Running::raise(&errand)?),
        };
        let end = raised.link_end(Role::Sender, &LinkSettings::default(), None);
        let receiver = end.and_then(|end| end.peer).map_or(0, |(_, pid)| pid);
        let pipes = Role::ALL.map(|role| (role, raised.take_pipe(role)));
        let testbed = Arc::new(Mutex::new(raised));
        let mut to_agents = Vec::new();
        for (role, pipe) in pipes {
            let (sender, bytes) = channel::<Vec<u8>>();
            let mut to_agent = pipe.to_agent;
            spawn(move || {
                // An agent that ended is told of by its other pipe.
                let write =
                    |bytes: Vec<u8>| to_agent.write_all(&bytes).and_then(|()| to_agent.flush());
                bytes.into_iter().map(write).find(Result::is_err);
            })?;
            to_agents.push(sender);
            let (from_agent, output, words) = (pipe.from_agent, output.clone(), testbed.clone());
            spawn(move || tell(number, role, from_agent, &output, &words))?;
        }
        let to_agents: [Sender<Vec<u8>>; 2] = to_agents
            .try_into()
            .map_err(|_| Fault::new(FaultKind::System, "a session has not two agents"))?;
        Ok((Session { to_agents, _testbed: testbed }, Raised { receiver }))
    }

    fn pass(&self, role: Role, bytes: Vec<u8>) {
        let _ = self.to_agents[role as usize].send(bytes);
    }
}

/// Carries what an agent says to the host, then how it ended.
fn tell(
    session: u32,
    role: Role,
    mut from_agent: Box<dyn Read + Send>,
    output: &Output,
    testbed: &Mutex<Box<dyn Testbed>>,
) {
    let mut buffer = vec![0; LARGEST];
    while let Ok(n @ 1..) = from_agent.read(&mut buffer) {
        let bytes = buffer.get(..n).unwrap_or_default().to_vec();
        if output.say(session, Says::Bytes(role, bytes)).is_err() {
            return;
        }
    }
    let words = testbed.lock().unwrap_or_else(PoisonError::into_inner).last_words(role);
    let _ = output.say(session, Says::Ended(role, words));
}

fn spawn(work: impl FnOnce() + Send + 'static) -> Result<(), Fault> {
    let started = std::thread::Builder::new().spawn(work);
    started.map(drop).map_err(|e| Fault::system("cannot start a thread", &e))
}
