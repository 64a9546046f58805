//! A running guest as the host sees it: its qemu, the port to its agents, its console, and how it
//! ended.

use super::frame::{Frame, Layout, Message, Ready};
use super::qemu::{self, Limits, Network, Start};
use crate::{Patience, Tail, ending, spawn_thread};
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::{process, thread, vhost};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How much is kept of the console and of qemu's messages, bytes.
const CONSOLE: usize = 1 << 16;
const WORDS: usize = 4096;

/// How long to wait for the last messages of an agent or of qemu.
const EXIT: Duration = Duration::from_secs(4);

/// How often a wait checks whether the user wants to stop.
const LOOK: Duration = Duration::from_millis(50);

/// A running guest. Dropping it ends its qemu.
pub struct Machine {
    port: Mutex<UnixStream>,
    shared: Arc<Shared>,
    console: Arc<Tail>,
    words: Arc<Tail>,
    process: OwnedFd,
    /// Process id of qemu, on this host.
    pub(super) pid: u32,
    keeper: Option<JoinHandle<()>>,
    /// How long to wait for it.
    pub limits: Limits,
    kernel: String,
    /// Time from the start of qemu until the guest's program was ready.
    pub booted: Duration,
    /// The guest's report about itself.
    pub ready: Ready,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// True once the port is at its end: the guest sends nothing more.
    gone: bool,
    ready: Option<Ready>,
    exit: Option<ExitStatus>,
    sessions: HashMap<u32, SessionState>,
    last: u32,
}

/// A session. Dropping it takes the session down in any state, also if it was refused or nothing
/// waited for it.
pub struct Session {
    pub machine: Arc<Machine>,
    number: u32,
    /// Process ids, in the guest, of its agents.
    pub pids: Vec<u32>,
}

/// Output of an agent.
pub(super) type Written = Receiver<Vec<u8>>;

/// A running qemu.
struct Process {
    process: OwnedFd,
    pid: u32,
    console: Arc<Tail>,
    /// Its standard error.
    words: Arc<Tail>,
}

/// Why a guest did not boot.
pub struct NotBooted {
    pub fault: Fault,
    /// Whether its kernel panicked.
    pub panicked: bool,
}

impl From<Fault> for NotBooted {
    fn from(fault: Fault) -> Self {
        NotBooted { fault, panicked: false }
    }
}

impl From<NotBooted> for Fault {
    fn from(not: NotBooted) -> Self {
        not.fault
    }
}

/// Boots, and boots once more if an emulated kernel panics. On a busy host the virtual CPUs of an
/// emulated guest drift far apart, and once in many boots that kills a sound kernel. A broken one
/// panics twice.
pub fn retry_once_if_emulated<T>(
    emulated: bool,
    boot: impl Fn() -> Result<T, NotBooted>,
) -> Result<T, NotBooted> {
    match boot() {
        Err(not) if emulated && not.panicked => boot(),
        booted => booted,
    }
}

/// State of a session.
#[derive(Default)]
struct SessionState {
    pipes: [Option<Sender<Vec<u8>>>; 2],
    raised: Option<Result<Vec<u32>, Fault>>,
    ended: [Option<String>; 2],
    lowered: bool,
}

impl Machine {
    /// Starts a guest and waits until its program answers.
    pub fn boot(start: Start, ours: UnixStream, stop: &AtomicBool) -> Result<Machine, NotBooted> {
        let began = Instant::now();
        let limits = start.shape.limits;
        let kernel = start.name.clone();
        let shared = Arc::<Shared>::default();
        // A stalled guest does not read from its port.
        let timed = ours.set_write_timeout(Some(limits.silence));
        let reader = timed.and_then(|()| ours.try_clone());
        let reader = reader.map_err(|e| Fault::system("starting a guest", &e))?;
        let (keeper, Process { process, pid, console, words }) = keep(start, shared.clone())?;
        let state = shared.clone();
        let mut machine = Machine {
            port: Mutex::new(ours),
            shared,
            console,
            words,
            process,
            pid,
            keeper: Some(keeper),
            limits,
            kernel,
            booted: Duration::ZERO,
            ready: Ready::default(),
        };
        // From here on, dropping it ends qemu.
        spawn_thread("guest-port", move || state.read_frames(reader))?;
        machine.ready = machine.await_ready(stop).map_err(|fault| {
            let panicked = panic(&machine.console.text()).is_some();
            NotBooted { fault, panicked }
        })?;
        machine.booted = began.elapsed();
        Ok(machine)
    }

    /// True until the guest's port ends.
    pub fn is_alive(&self) -> bool {
        !self.shared.lock().gone
    }

    /// Pins the vhost threads of its network device to `cpu`, or, if `None`, lets them run on any.
    pub fn place_vhost(&self, cpu: Option<u32>) -> Result<(), Fault> {
        let workers = vhost::workers_of(self.pid);
        if workers.is_empty() && cpu.is_some() {
            let text = "the vhost threads of the guest are not visible";
            let remedy = "leave vhost out of the placement, or run where /proc shows the kernel's \
                          threads";
            return Err(Fault::unsupported(text).remedy(remedy));
        }
        workers.into_iter().try_for_each(|worker| {
            let placed = match cpu {
                Some(cpu) => thread::pin_other(worker, cpu),
                None => thread::free_other(worker),
            };
            placed.map_err(|e| {
                Fault::system("choosing the CPU of the guest's vhost thread", &e)
                    .remedy("run as root with CAP_SYS_NICE, or leave vhost out of the placement")
            })
        })
    }

    /// Raises a session; returns it and the output of its agents.
    pub fn raise(
        self: &Arc<Machine>,
        layout: Layout,
        stop: &AtomicBool,
    ) -> Result<(Session, [Written; 2]), Fault> {
        let ((to_one, one), (to_other, other)) = (channel(), channel());
        let number = {
            let mut state = self.shared.lock();
            state.last += 1;
            let number = state.last;
            let session =
                SessionState { pipes: [Some(to_one), Some(to_other)], ..SessionState::default() };
            state.sessions.insert(number, session);
            number
        };
        let (mut session, since) =
            (Session { machine: self.clone(), number, pids: Vec::new() }, Instant::now());
        let sent = self.send(Frame { session: number, message: Message::Raise(layout) });
        sent.map_err(|_| self.lost("cannot be asked for agents", since))?;
        let raised = self.wait(self.limits.silence, Some(stop), |state| {
            state.sessions.get_mut(&number).and_then(|session| session.raised.take())
        })?;
        match raised {
            Some(Ok(pids)) => {
                session.pids = pids;
                Ok((session, [one, other]))
            }
            Some(Err(fault)) => Err(fault.context("in the guest")),
            None => Err(self.lost("raised no agents", since)),
        }
    }

    /// Takes a session down. Kills a guest that does not do so in time, because nothing it sends
    /// can be relied on any more.
    fn lower(&self, session: u32) {
        let lowered = self.send(Frame { session, message: Message::Lower }).is_ok()
            && self
                .wait(self.limits.silence, None, |state| {
                    state.sessions.get(&session).is_none_or(|session| session.lowered).then_some(())
                })
                .is_ok_and(|lowered| lowered.is_some());
        self.shared.lock().sessions.remove(&session);
        if !lowered {
            self.kill();
        }
    }

    /// Returns the last lines of the console, joined into one.
    pub fn console(&self) -> String {
        quoted(&self.console.text())
    }

    /// Kills a guest that has been silent since `since`; returns what is known about it.
    pub fn kill_and_report(&self, since: Instant) -> String {
        self.lost("hangs", since).message
    }

    /// Returns how the guest ended, in words.
    fn exit_report(&self) -> String {
        let is_running = |state: &mut State| state.exit.is_none();
        let waited = self.shared.changed.wait_timeout_while(self.shared.lock(), EXIT, is_running);
        let exit = waited.unwrap_or_else(PoisonError::into_inner).0.exit;
        self.console.await_end(Duration::from_millis(500));
        let words = self.words.last_line(Duration::from_millis(200));
        describe(&self.console.text(), exit, words.as_deref())
    }

    fn await_ready(&self, stop: &AtomicBool) -> Result<Ready, Fault> {
        let since = Instant::now();
        let ready = self.wait(self.limits.boot, Some(stop), |state| state.ready.take())?;
        ready.ok_or_else(|| self.lost("did not come up", since))
    }

    /// Returns a fault that says how the guest ended, or, if it is still running, for how long it
    /// has been silent and what its console shows. Kills a running guest, because nothing it sends
    /// can be relied on any more.
    fn lost(&self, what: &str, since: Instant) -> Fault {
        let how = if self.is_alive() {
            let silent = since.elapsed().as_secs();
            self.kill();
            let shows = shows(&self.console.text(), "ends with");
            format!("it was silent for {silent} s, and {shows}")
        } else {
            self.exit_report()
        };
        Fault::peer_lost(format!("the guest with kernel {} {what}: {how}", self.kernel))
    }

    fn send(&self, frame: Frame) -> io::Result<()> {
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        frame.write(&mut *port)
    }

    /// Waits until `look` returns something. Returns `None` at the deadline or once the guest has
    /// ended. A wait without `stop`, such as that for a session to be taken down after Ctrl-C, is
    /// not extended if the guest gets no CPU.
    fn wait<T>(
        &self,
        limit: Duration,
        stop: Option<&AtomicBool>,
        mut look: impl FnMut(&mut State) -> Option<T>,
    ) -> Result<Option<T>, Fault> {
        let mut patience = match stop {
            Some(_) => Patience::with_guest(limit, self.pid),
            None => Patience::new(limit),
        };
        let mut state = self.shared.lock();
        loop {
            let result = look(&mut state);
            if result.is_some() || state.gone {
                return Ok(result);
            }
            if stop.is_some_and(|stop| stop.load(Ordering::Relaxed)) {
                return Err(Fault::new(FaultKind::Interrupted, "interrupted by the user"));
            }
            let left = patience.left();
            if left.is_zero() {
                return Ok(None);
            }
            let waited = self.shared.changed.wait_timeout(state, left.min(LOOK));
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn kill(&self) {
        // Fails only if the process has already ended.
        let _ = pidfd_send_signal(&self.process, Signal::KILL);
        self.shared.end();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // Nothing in a guest is worth saving.
        self.kill();
        if let Some(keeper) = self.keeper.take() {
            let _ = keeper.join();
        }
    }
}

impl Session {
    /// Sends bytes to an agent, at most as many as a frame can hold.
    pub fn write(&self, agent: usize, bytes: &[u8]) -> io::Result<()> {
        self.machine
            .send(Frame { session: self.number, message: Message::Bytes(agent, bytes.to_vec()) })
    }

    /// Returns how an agent ended, in words.
    pub fn exit_report(&self, agent: usize) -> String {
        let words = self
            .machine
            .wait(EXIT, None, |state| state.sessions.get(&self.number)?.ended.get(agent)?.clone());
        match words {
            Ok(Some(words)) => words,
            _ if self.machine.is_alive() => "still running".into(),
            _ => self.machine.exit_report(),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.machine.lower(self.number);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads frames until the end of the port.
    fn read_frames(&self, mut port: UnixStream) {
        while let Ok(frame) = Frame::read(&mut port) {
            self.handle(frame);
            self.changed.notify_all();
        }
        self.end();
    }

    fn handle(&self, frame: Frame) {
        let mut state = self.lock();
        if let Message::Ready(ready) = frame.message {
            state.ready = Some(ready);
            return;
        }
        let Some(session) = state.sessions.get_mut(&frame.session) else { return };
        match frame.message {
            Message::Raised(pids) => session.raised = Some(Ok(pids)),
            Message::Refused(fault) => session.raised = Some(Err(fault)),
            Message::Bytes(agent, bytes) => {
                // The receiver of the agent's output may be gone.
                let _ = session.pipes[agent].as_ref().map(|pipe| pipe.send(bytes));
            }
            Message::Ended(agent, words) => {
                session.ended[agent] = Some(words);
                session.pipes[agent] = None;
            }
            Message::Lowered => session.lowered = true,
            Message::Ready(_) | Message::Raise(_) | Message::Lower => {}
        }
    }

    /// Marks the guest as gone and ends every pipe.
    fn end(&self) {
        let mut state = self.lock();
        state.gone = true;
        for session in state.sessions.values_mut() {
            session.pipes = [None, None];
        }
        drop(state);
        self.changed.notify_all();
    }
}

/// Starts qemu in a thread that waits for it. The kernel kills qemu when that thread ends, and
/// therefore also when this process does, for whatever reason.
fn keep(start: Start, shared: Arc<Shared>) -> Result<(JoinHandle<()>, Process), Fault> {
    let (started, result) = sync_channel(1);
    let mut command = qemu::command(&start);
    // Signals to our process group are meant for us; the guest still has results to deliver.
    command.process_group(0);
    let program = start.program.clone();
    let Start { kernel, initramfs, port, monitor, networks, .. } = start;
    let work = move || {
        let wire = networks.iter().flat_map(Network::descriptors);
        let files = [kernel.as_fd(), initramfs.as_fd(), port.as_fd()];
        let monitored = monitor.iter().map(AsFd::as_fd);
        let inherited: Vec<_> = files.into_iter().chain(monitored).chain(wire).collect();
        let child = process::spawn_tied(command, &inherited);
        // Close our copies, so that the port ends when qemu does.
        drop(inherited);
        drop((kernel, initramfs, port, monitor, networks));
        let mut child = match child {
            Ok(child) => child,
            Err(e) => return drop(started.send(Err(e))),
        };
        match held(&mut child) {
            Ok(process) => drop(started.send(Ok(process))),
            Err(e) => {
                // Without a pidfd, nothing could kill it later.
                let _ = child.kill();
                let _ = child.wait();
                return drop(started.send(Err(e)));
            }
        }
        let exit = child.wait().ok();
        shared.lock().exit = exit;
        shared.end();
    };
    let thread = spawn_thread("guest-keeper", work)?;
    let started = result.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
    let started =
        started.map_err(|e| Fault::system(format!("starting {}", program.display()), &e))?;
    Ok((thread, started))
}

fn held(child: &mut Child) -> io::Result<Process> {
    let console = Tail::of(child.stdout.take(), CONSOLE).map_err(io::Error::other)?;
    let words = Tail::of(child.stderr.take(), WORDS).map_err(io::Error::other)?;
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    Ok(Process { process, pid: child.id(), console, words })
}

/// Number of console lines that a fault quotes.
const QUOTED: usize = 6;

/// Returns how a guest ended, in words. `exit` is the status of qemu, if it has ended; `words` is
/// the last line that qemu printed.
pub(super) fn describe(console: &str, exit: Option<ExitStatus>, words: Option<&str>) -> String {
    let how = match (panic(console), exit) {
        (Some(words), _) => format!("the guest's kernel panicked: {words}"),
        (None, Some(status)) if status.success() && words.is_none() => {
            switched_off(console).to_owned()
        }
        (None, Some(status)) => {
            let words = words.map(|line| format!(": {line}")).unwrap_or_default();
            format!("the guest's qemu {}{words}", ending(status))
        }
        (None, None) => "the guest closed its port".to_owned(),
    };
    format!("{how}; {}", shows(console, "ended with"))
}

/// Returns the message of a kernel panic, or `None` if there was none (kernel/panic.c).
pub(super) fn panic(console: &str) -> Option<String> {
    console.lines().rev().find_map(|line| {
        let (_, words) = line.split_once("Kernel panic - not syncing: ")?;
        Some(words.trim().to_owned())
    })
}

/// Returns why qemu exited without an error (`-no-reboot`). The kernel prints an orderly restart or
/// power-off on the console (kernel/reboot.c), and nothing if the processor cannot continue (a
/// triple fault).
fn switched_off(console: &str) -> &'static str {
    if console.contains("reboot: Restarting system") {
        "the guest restarted"
    } else if console.contains("reboot: Power down") {
        "the guest powered off"
    } else {
        "the guest was reset without a message from its kernel"
    }
}

/// Returns the last lines of a console as a clause: `its console VERB: a | b`.
pub(super) fn shows(console: &str, verb: &str) -> String {
    match quoted(console).as_str() {
        "" => "its console shows nothing".to_owned(),
        lines => format!("its console {verb}: {lines}"),
    }
}

/// Returns the last lines of a console, joined into one, without control characters.
pub(super) fn quoted(console: &str) -> String {
    let clean = |line: &str| -> String {
        line.chars().filter(|c| !c.is_control()).collect::<String>().trim().to_owned()
    };
    let lines: Vec<String> = console.lines().map(clean).filter(|line| !line.is_empty()).collect();
    let first = lines.len().saturating_sub(QUOTED);
    lines.get(first..).unwrap_or_default().join(" | ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_console_is_quoted_on_one_line() {
        assert_eq!(quoted(""), "");
        assert_eq!(quoted("a\r\n\n  b \u{1b}[1m\n"), "a | b [1m");
        let many: String = (0..100).map(|n| format!("line {n}\n")).collect();
        assert_eq!(quoted(&many).split(" | ").count(), QUOTED);
        assert!(quoted(&many).ends_with("line 99"));
    }

    #[test]
    fn every_end_has_its_words() {
        let clean = Some(ExitStatus::from_raw(0));
        let killed = Some(ExitStatus::from_raw(9));
        let oops =
            "Oops: 0002\n[  1.5] Kernel panic - not syncing: Fatal exception \n[ 1.6] Rebooting";
        let refused = "qemu: no such device";
        let terminated = "qemu: terminating on signal 15 from pid 1";
        for (console, exit, words, expected) in [
            (oops, clean, None, "the guest's kernel panicked: Fatal exception; its console ended"),
            ("[1] reboot: Restarting system\n", clean, None, "the guest restarted; its console"),
            ("[1] reboot: Power down", clean, None, "the guest powered off; its"),
            ("booting", clean, None, "the guest was reset without a message from its kernel; its"),
            ("", killed, None, "the guest's qemu killed by signal 9 (SIGKILL); its console shows"),
            ("", Some(ExitStatus::from_raw(256)), Some(refused), "exited with code 1: qemu: no"),
            ("", clean, Some(terminated), "exited with code 0: qemu: terminating on signal 15"),
            ("", None, None, "the guest closed its port; its console shows nothing"),
        ] {
            let text = describe(console, exit, words);
            assert!(text.contains(expected), "{text}");
        }
        assert!(describe(oops, None, None).ends_with("| [ 1.6] Rebooting"));
    }
}
