//! An agent as a child process: its pipes, its last output, and how it is ended for certain.

use super::host::AgentPipe;
use bytepath_record::Fault;
use bytepath_sys::process::spawn_tied;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, geteuid, kill_process_group, pidfd_open};
use std::collections::VecDeque;
use std::fs;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread::{JoinHandle, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long an agent may take to end after its standard input was closed, and how long to wait for
/// the exit status of one that seems gone.
const GRACE: Duration = Duration::from_millis(500);

/// Interval of checks whether a program should stop.
const POLL: Duration = Duration::from_millis(20);

/// Bytes kept of the end of an agent's standard error.
const TAIL: usize = 4096;

/// A running agent. Dropping it ends the process and reaps it.
pub struct AgentProcess {
    child: Child,
    stdin: SharedStdin,
    stdout: Option<ChildStdout>,
    stderr: Arc<Tail>,
}

impl AgentProcess {
    /// Returns the command line of an agent, with the pipes that [`AgentProcess::new`] expects.
    pub fn command(program: &Path) -> Command {
        let mut command = Command::new(program);
        command.arg("agent");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// Takes over a child with such pipes; ends it on failure. A missing pipe is treated as closed.
    pub fn new(mut child: Child) -> Result<AgentProcess, Fault> {
        let stdin = SharedStdin(Arc::new(Mutex::new(child.stdin.take())));
        let stdout = child.stdout.take();
        let errors = child.stderr.take();
        let mut agent = AgentProcess { child, stdin, stdout, stderr: Tail::ended() };
        agent.stderr = Tail::of(errors, TAIL)?;
        Ok(agent)
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Takes its pipe. A second call returns a closed one.
    pub fn take_pipe(&mut self) -> AgentPipe {
        let from_agent: Box<dyn Read + Send> = match self.stdout.take() {
            Some(stdout) => Box::new(stdout),
            None => Box::new(io::empty()),
        };
        AgentPipe { to_agent: Box::new(self.stdin.clone()), from_agent }
    }

    /// Uses its pipes before they are taken; `None` if one is missing.
    pub(super) fn converse<T>(
        &mut self,
        talk: impl FnOnce(&mut ChildStdin, &mut ChildStdout) -> T,
    ) -> Option<T> {
        let mut stdin = self.stdin.0.lock().unwrap_or_else(PoisonError::into_inner);
        Some(talk(stdin.as_mut()?, self.stdout.as_mut()?))
    }

    /// Closes its standard input, upon which the agent ends.
    pub fn close(&self) {
        self.stdin.close();
    }

    /// True if it has not ended yet.
    pub fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Describes how it ended; waits briefly for that.
    pub fn exit_report(&mut self) -> String {
        self.exit_report_within(GRACE)
    }

    /// Describes how it ended; waits up to `time` for that.
    pub fn exit_report_within(&mut self, time: Duration) -> String {
        let Some(status) = self.wait(time) else {
            return "still running".to_string();
        };
        let how = ending(status);
        match self.stderr.last_line(GRACE) {
            Some(line) => format!("{how}: {line}"),
            None => how,
        }
    }

    /// Waits up to `timeout` for its end.
    fn wait(&mut self, timeout: Duration) -> Option<ExitStatus> {
        if let Ok(Some(status)) = self.child.try_wait() {
            return Some(status);
        }
        // The child has not been reaped, so its id cannot have been reused.
        let pid = Pid::from_raw(self.child.id() as i32)?;
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let deadline = Instant::now() + timeout;
        let _ = retry_on_intr(|| {
            let remaining = deadline.saturating_duration_since(Instant::now());
            let timeout = Timespec::try_from(remaining).ok();
            poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], timeout.as_ref())
        });
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        self.close();
        if self.wait(GRACE).is_none() {
            // Fails only if it has just ended, which is fine.
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

/// The writing end of the agent's standard input, which can be closed even if clones exist: a
/// forgotten clone must not keep an agent alive.
#[derive(Clone)]
struct SharedStdin(Arc<Mutex<Option<ChildStdin>>>);

impl SharedStdin {
    fn close(&self) {
        // A thread that is blocked in a write holds the lock. In that case the agent does not read,
        // and is killed instead.
        if let Ok(mut stdin) = self.0.try_lock() {
            *stdin = None;
        }
    }

    fn with<T>(&self, act: impl FnOnce(&mut ChildStdin) -> io::Result<T>) -> io::Result<T> {
        let mut stdin = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        act(stdin.as_mut().ok_or(io::ErrorKind::BrokenPipe)?)
    }
}

impl Write for SharedStdin {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|stdin| stdin.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.with(|stdin| stdin.flush())
    }
}

/// Describes an exit status: "exited with code 1", "killed by signal 9 (SIGKILL)".
pub fn ending(status: ExitStatus) -> String {
    // "signal: 11 (SIGSEGV) (core dumped)"
    let text = status.to_string();
    match (status.code(), text.strip_prefix("signal: ")) {
        (Some(code), _) => format!("exited with code {code}"),
        (None, Some(signal)) => {
            format!("killed by signal {}", signal.trim_end_matches(" (core dumped)"))
        }
        (None, None) => text,
    }
}

/// An agent that is a process of this machine. `process` comes first, because fields are dropped in
/// order and the thread has to outlive it.
pub struct LocalAgent {
    pub process: AgentProcess,
    _parent: Arc<ParentThread>,
}

impl LocalAgent {
    /// Starts agents, in this order, on a thread that lives as long as any of them.
    pub fn start<const N: usize>(
        start: impl FnOnce() -> Result<[AgentProcess; N], Fault> + Send + 'static,
    ) -> Result<[LocalAgent; N], Fault> {
        let (parent, processes) = ParentThread::start(start)?;
        let parent = Arc::new(parent);
        Ok(processes.map(|process| LocalAgent { process, _parent: parent.clone() }))
    }
}

/// The thread to whose lifetime agents are tied. Must be dropped after them.
struct ParentThread {
    /// Dropped to end the thread.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl ParentThread {
    fn start<T: Send + 'static>(
        start: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<(ParentThread, T), Fault> {
        let (end, ended) = mpsc::channel::<()>();
        let (started, result) = mpsc::sync_channel(1);
        let keep = move || {
            let _ = started.send(start());
            let _ = ended.recv();
        };
        let thread = spawn_thread("agent-parent", keep)?;
        let parent = ParentThread { end: Some(end), thread: Some(thread) };
        let started = result
            .recv()
            .map_err(|_| Fault::failed("the thread that starts the agents ended early"))??;
        Ok((parent, started))
    }
}

/// Starts a thread of this name.
pub fn spawn_thread<T: Send + 'static>(
    name: &str,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, Fault> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn(work);
    thread.map_err(|e| Fault::not_started(format_args!("thread {name}"), &e))
}

/// Like [`spawn_thread`], for a thread that ends within a scope.
pub fn spawn_scoped<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    name: &str,
    work: impl FnOnce() -> T + Send + 'scope,
) -> Result<ScopedJoinHandle<'scope, T>, Fault> {
    let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work);
    thread.map_err(|e| Fault::not_started(format_args!("thread {name}"), &e))
}

/// Runs a program to its end, and returns its status and what it printed on standard error. `None`
/// if `stop` was set, in which case it was killed with all programs it had started.
pub(crate) fn run_unless_stopped(
    mut command: Command,
    stop: &AtomicBool,
) -> io::Result<Option<(ExitStatus, String)>> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).process_group(0);
    let child = spawn_tied(command, &[])?;
    let group = Pid::from_child(&child);
    let mut process = AgentProcess::new(child).map_err(io::Error::other)?;
    loop {
        if let Some(status) = process.wait(POLL) {
            process.stderr.await_end(GRACE);
            return Ok(Some((status, process.stderr.text())));
        }
        if stop.load(Ordering::Relaxed) {
            // It fails only if all have just ended.
            let _ = kill_process_group(group, Signal::KILL);
            return Ok(None);
        }
    }
}

/// Removes files and folders left by processes that were killed: their names consist of `lead`, the
/// process id, a dash and the rest.
pub(crate) fn remove_left(folder: &Path, lead: &str) {
    let own = geteuid().as_raw();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let owner = name.to_str().and_then(|name| name.strip_prefix(lead)?.split_once('-'));
        let Some(owner) = owner.and_then(|(owner, _)| owner.parse::<u32>().ok()) else { continue };
        // A shared folder may contain files of other users.
        let is_ours = entry.metadata().is_ok_and(|metadata| metadata.uid() == own);
        if is_ours && !Path::new("/proc").join(owner.to_string()).exists() {
            // Another process may be faster.
            let _ = match entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                true => fs::remove_dir_all(entry.path()),
                false => fs::remove_file(entry.path()),
            };
        }
    }
}

impl Drop for ParentThread {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// The last bytes of a stream, read by a separate thread, so that a process that writes much never
/// blocks.
pub struct Tail {
    state: Mutex<State>,
    changed: Condvar,
    capacity: usize,
}

#[derive(Default)]
struct State {
    bytes: VecDeque<u8>,
    ended: bool,
}

impl Tail {
    /// Reads a pipe to its end and keeps its last `capacity` bytes. A missing pipe counts as ended.
    pub fn of(
        pipe: Option<impl Read + Send + 'static>,
        capacity: usize,
    ) -> Result<Arc<Tail>, Fault> {
        let Some(pipe) = pipe else { return Ok(Tail::ended()) };
        let (state, changed) = (Mutex::default(), Condvar::new());
        let tail = Arc::new(Tail { state, changed, capacity });
        let follower = tail.clone();
        spawn_thread("tail", move || follower.follow(pipe))?;
        Ok(tail)
    }

    /// An empty one that has ended.
    fn ended() -> Arc<Tail> {
        let state = Mutex::new(State { ended: true, ..State::default() });
        Arc::new(Tail { state, changed: Condvar::new(), capacity: 0 })
    }

    /// Returns the bytes that were kept; those that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.lock().bytes.make_contiguous()).into_owned()
    }

    /// Returns the last informative line, once the pipe is at its end. A process that inherited the
    /// pipe may keep it open, so this waits for `timeout` at most.
    pub fn last_line(&self, timeout: Duration) -> Option<String> {
        self.await_end(timeout);
        let hint = "note: run with `RUST_BACKTRACE";
        let telling = |line: &&str| !line.is_empty() && !line.starts_with(hint);
        self.text().lines().map(str::trim).rfind(telling).map(str::to_string)
    }

    /// Waits up to `timeout` for the end of the pipe.
    pub fn await_end(&self, timeout: Duration) {
        drop(self.changed.wait_timeout_while(self.lock(), timeout, |state| !state.ended));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn follow(&self, mut pipe: impl Read) {
        let mut buffer = [0u8; 1024];
        while let Ok(n @ 1..) = pipe.read(&mut buffer) {
            let bytes = &mut self.lock().bytes;
            bytes.extend(buffer.iter().take(n));
            let excess = bytes.len().saturating_sub(self.capacity);
            bytes.drain(..excess);
        }
        self.lock().ended = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    fn shell(script: &str) -> AgentProcess {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        AgentProcess::new(command.spawn().unwrap()).unwrap()
    }

    #[test]
    fn what_the_dead_have_left_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let of = |pid: u32| folder.path().join(format!("ssh-{pid}-0"));
        let (own, dead) = (std::process::id(), u32::MAX);
        fs::write(of(own), "").unwrap();
        fs::create_dir(of(dead)).unwrap();
        fs::write(of(dead).join("file"), "").unwrap();
        remove_left(folder.path(), "ssh-");
        assert!(of(own).exists() && !of(dead).exists());
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_its_children() {
        let folder = tempfile::tempdir().unwrap();
        let (child, stop) = (folder.path().join("child"), AtomicBool::new(false));
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 60 & echo $! >\"$0.part\"; mv \"$0.part\" \"$0\"; wait"]);
        command.arg(&child);
        let stopped = thread::scope(|scope| {
            let running = scope.spawn(|| run_unless_stopped(command, &stop));
            while !child.exists() {
                thread::sleep(POLL);
            }
            stop.store(true, Ordering::Relaxed);
            running.join().unwrap().unwrap()
        });
        assert_eq!(stopped, None);
        let pid =
            Pid::from_raw(fs::read_to_string(child).unwrap().trim().parse().unwrap()).unwrap();
        let gone = || {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat"));
            stat.map_or(true, |stat| stat.contains(") Z "))
        };
        let begin = Instant::now();
        while !gone() {
            assert!(begin.elapsed() < Duration::from_secs(2), "process {pid} lives");
            thread::sleep(POLL);
        }
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        let ended = run_unless_stopped(command, &AtomicBool::new(false)).unwrap().unwrap();
        assert_eq!((ended.0.code(), ended.1.as_str()), (Some(3), "why\n"));
    }

    #[test]
    fn exit_report_has_the_status_and_the_last_line() {
        let mut agent = shell("echo first >&2; echo 'disk on fire' >&2; echo >&2; exit 3");
        assert_eq!(agent.exit_report(), "exited with code 3: disk on fire");
        assert_eq!(agent.exit_report(), "exited with code 3: disk on fire");
        assert_eq!(shell("kill -9 $$").exit_report(), "killed by signal 9 (SIGKILL)");
        let panic = "echo 'the cause' >&2; echo 'note: run with `RUST_BACKTRACE=1`' >&2; exit 101";
        assert_eq!(shell(panic).exit_report(), "exited with code 101: the cause");
    }

    #[test]
    fn a_flood_on_stderr_neither_blocks_nor_grows() {
        let mut agent = shell("yes noise | head -n 200000 >&2; echo end >&2");
        let mut pipe = agent.take_pipe();
        pipe.from_agent.read_to_end(&mut Vec::new()).unwrap();
        assert_eq!(agent.exit_report(), "exited with code 0: end");
        assert!(agent.stderr.text().len() <= TAIL);
    }

    #[test]
    fn agent_ends_at_end_of_input_despite_other_holders_of_its_pipe() {
        let mut agent = shell("cat");
        let mut pipe = agent.take_pipe();
        pipe.to_agent.write_all(b"hello\n").unwrap();
        pipe.to_agent.flush().unwrap();
        let mut answer = [0; 6];
        pipe.from_agent.read_exact(&mut answer).unwrap();
        assert_eq!(&answer, b"hello\n");
        let start = Instant::now();
        drop(agent);
        assert!(start.elapsed() < GRACE, "it had to be killed");
        assert_eq!(pipe.to_agent.write(b"x").unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }

    #[test]
    fn an_agent_that_does_not_listen_is_killed() {
        let agent = shell("exec sleep 60");
        let pid = agent.id();
        drop(agent);
        // ESRCH: not even a zombie is left.
        let gone = rustix::process::test_kill_process(Pid::from_raw(pid as i32).unwrap());
        assert_eq!(gone, Err(rustix::io::Errno::SRCH));
    }
}
