//! The thread that starts the agents of a testbed on this machine. The kernel kills
//! them when it ends, so it waits for nothing else than the end of the testbed, and
//! whoever raised the testbed may do so from any thread.

use super::child::AgentProcess;
use crate::record::{Fault, FaultKind};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Ties two agents to whoever holds it. To be dropped after them.
pub(super) struct Keeper {
    /// Dropped to let the thread go.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// The sender's and the receiver's agent.
type Agents = (AgentProcess, AgentProcess);

impl Keeper {
    /// Starts both agents on a thread that lives as long as the keeper.
    pub fn start(
        start: impl FnOnce() -> Result<Agents, Fault> + Send + 'static,
    ) -> Result<(Keeper, AgentProcess, AgentProcess), Fault> {
        let (end, ended) = mpsc::channel::<()>();
        let (started, result) = mpsc::sync_channel(1);
        let keep = move || {
            let _ = started.send(start());
            let _ = ended.recv();
        };
        let thread = std::thread::Builder::new()
            .name("agent-keeper".into())
            .spawn(keep)
            .map_err(|e| Fault::system("starting a thread for the testbed", &e))?;
        let keeper = Keeper { end: Some(end), thread: Some(thread) };
        let (sender, receiver) = result.recv().map_err(|_| {
            Fault::new(FaultKind::System, "the thread that starts the agents ended early")
        })??;
        Ok((keeper, sender, receiver))
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
