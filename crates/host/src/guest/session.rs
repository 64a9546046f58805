//! A session in a guest: two agents in their own namespaces, or one agent whose peer is elsewhere.

use super::frame::{Frame, LARGEST, Layout, Message};
use super::nics::{self, NicPair};
use crate::{AgentProcess, LocalAgent, pair_of_agents, spawn_thread};
use bytepath_record::Fault;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// State folders of the agents of two hosts in one guest. Each agent sets its own NICs, and only
/// one program may change a host's settings, so each has a folder to itself.
const STATES: [&str; 2] = ["/run/bytepath-sender", "/run/bytepath-receiver"];

/// How long a process may take to end after its output has ended.
const GRACE: Duration = Duration::from_millis(500);

/// The agents of a session. Dropping it ends them.
pub(super) struct Session {
    to_agents: Vec<Sender<Vec<u8>>>,
    agents: Vec<Shared>,
}

/// An agent until its session is taken down. The threads that forward its output share it and wait
/// for its end, but must not keep it alive.
type Shared = Arc<Mutex<Option<LocalAgent>>>;

/// Output of an agent or a program.
struct Written {
    from: Box<dyn Read + Send>,
    by: Shared,
    grace: Duration,
}

/// The processes of a new session.
struct Started {
    agents: Vec<LocalAgent>,
    /// Standard error of a program, forwarded as if it were another agent.
    errors: Option<Box<dyn Read + Send>>,
    grace: Duration,
}

fn start(layout: Layout, program: &Path) -> Result<Started, Fault> {
    let agents = match layout {
        Layout::Pair => pair_of_agents(program, None)?.into(),
        Layout::Nics { pair, pairs, parameters } => {
            let unknown = || Fault::unsupported(format!("there are no NICs called {pair}"));
            let nics = NicPair::named(&pair).ok_or_else(unknown)?;
            nics.renew(pairs, &parameters)?;
            let agents = pair_of_agents(program, Some(STATES))?;
            nics.move_to_agents(pairs, agents.each_ref().map(|agent| agent.process.id()))?;
            agents.into()
        }
        Layout::One => {
            nics::renew_link()?;
            let mut command = AgentProcess::command(program);
            let failed = program.display().to_string();
            let start = move || match command.spawn() {
                Ok(child) => Ok([AgentProcess::new(child)?]),
                Err(e) => Err(Fault::not_started(&failed, &e)),
            };
            LocalAgent::start(start)?.into()
        }
        #[cfg(feature = "test-support")]
        Layout::Command(command) => {
            let mut child = super::command::start(&command)?;
            let errors = child.stderr.take().map(|errors| Box::new(errors) as _);
            let agents = LocalAgent::start(move || Ok([AgentProcess::new(child)?]))?.into();
            // A program may close its output long before it ends.
            return Ok(Started { agents, errors, grace: Duration::from_secs(60) });
        }
    };
    Ok(Started { agents, errors: None, grace: GRACE })
}

impl Session {
    /// Raises a session. `program` is the executable of the agents. Also returns their process ids.
    pub(super) fn raise(
        number: u32,
        layout: Layout,
        program: &Path,
        output: &Output,
    ) -> Result<(Session, Vec<u32>), Fault> {
        let Started { agents, errors, grace } = start(layout, program)?;
        let pids = agents.iter().map(|agent| agent.process.id()).collect();
        let mut session = Session { to_agents: Vec::new(), agents: Vec::new() };
        let mut all = Vec::new();
        let name = format!("session-{number}");
        for mut agent in agents {
            let pipe = agent.process.take_pipe();
            let shared: Shared = Arc::new(Mutex::new(Some(agent)));
            session.agents.push(shared.clone());
            let (sender, bytes) = channel::<Vec<u8>>();
            let mut to_agent = pipe.to_agent;
            spawn_thread(&name, move || {
                // If the agent has ended, its other pipe reports that.
                let write =
                    |bytes: Vec<u8>| to_agent.write_all(&bytes).and_then(|()| to_agent.flush());
                bytes.into_iter().map(write).find(Result::is_err);
            })?;
            session.to_agents.push(sender);
            all.push(Written { from: pipe.from_agent, by: shared, grace });
        }
        if let (Some(errors), Some(first)) = (errors, session.agents.first()) {
            all.push(Written { from: errors, by: first.clone(), grace });
        }
        for (agent, written) in all.into_iter().enumerate() {
            let output = output.clone();
            spawn_thread(&name, move || carry(number, agent, written, &output))?;
        }
        Ok((session, pids))
    }

    /// Passes bytes to an agent.
    pub(super) fn pass(&self, agent: usize, bytes: Vec<u8>) {
        // An agent that has ended reads nothing.
        let _ = self.to_agents.get(agent).map(|to| to.send(bytes));
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let taken: Vec<Option<LocalAgent>> =
            self.agents.iter().map(|one| lock(one).take()).collect();
        // Close all before waiting for any.
        taken.iter().flatten().for_each(|agent| agent.process.close());
    }
}

/// Forwards an agent's output to the host, then how it ended.
fn carry(session: u32, agent: usize, mut written: Written, output: &Output) {
    let mut buffer = vec![0; LARGEST];
    while let Ok(n @ 1..) = written.from.read(&mut buffer) {
        let bytes = buffer.get(..n).unwrap_or_default().to_vec();
        if output.send(session, Message::Bytes(agent, bytes)).is_err() {
            return;
        }
    }
    let words = match &mut *lock(&written.by) {
        Some(running) => running.process.exit_report_within(written.grace),
        // The session was taken down: the host does not read the status.
        None => return,
    };
    let _ = output.send(session, Message::Ended(agent, words));
}

fn lock(agent: &Shared) -> std::sync::MutexGuard<'_, Option<LocalAgent>> {
    agent.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The port to the host, shared by threads.
#[derive(Clone)]
pub(super) struct Output(Arc<Mutex<File>>);

impl Output {
    pub(super) fn new(port: File) -> Output {
        Output(Arc::new(Mutex::new(port)))
    }

    pub(super) fn send(&self, session: u32, message: Message) -> io::Result<()> {
        let mut port = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        Frame { session, message }.write(&mut *port)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::process::Command;
    use std::time::Instant;

    /// Counts the processes that run `program`, and the threads of this process that serve the
    /// test's sessions.
    fn left(program: &Path) -> (usize, usize) {
        let folders = fs::read_dir("/proc").unwrap().flatten();
        let lines = folders.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
        let named = program.to_str().unwrap();
        let processes = lines.filter(|line| String::from_utf8_lossy(line).contains(named)).count();
        let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
        let names = tasks.filter_map(|task| fs::read_to_string(task.path().join("comm")).ok());
        (processes, names.filter(|name| name.starts_with("session-77")).count())
    }

    #[test]
    fn sessions_that_are_lowered_leave_no_process_and_no_thread() {
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("agent");
        // Like an agent, it ends with its input; and its path stays on its command line. A child
        // process writes it, so that no fork in another test's thread inherits a descriptor open
        // for writing (ETXTBSY).
        let script =
            "printf '#!/bin/sh\\nwhile read line; do :; done\\n' > \"$0\"; chmod 755 \"$0\"";
        let written = Command::new("sh").arg("-c").arg(script).arg(&program).status().unwrap();
        assert!(written.success());
        let output = Output::new(File::options().write(true).open("/dev/null").unwrap());
        for number in 7700..7705 {
            let raised = Session::raise(number, Layout::Pair, &program, &output);
            let (session, pids) = match raised {
                Ok(raised) => raised,
                Err(fault) => {
                    assert!(!bytepath_sys::namespace::privileged(), "{fault}");
                    bytepath_testing::skip!("{fault}");
                    return;
                }
            };
            assert_eq!(pids.len(), 2);
            assert_eq!(left(&program).0, 2, "two agents, and none of earlier sessions");
            session.pass(0, b"hello\n".to_vec());
            drop(session);
        }
        let deadline = Instant::now() + Duration::from_secs(5);
        while left(&program) != (0, 0) {
            assert!(Instant::now() < deadline, "left: {:?}", left(&program));
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
