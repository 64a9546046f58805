//! The thread that starts the agents of a testbed on this machine. The kernel kills
//! them when it ends, so it waits for nothing else than the end of the testbed, and
//! whoever raised the testbed may do so from any thread.

use super::child::AgentProcess;
use crate::record::{Fault, FaultKind, Role};
use std::sync::mpsc;
use std::thread::JoinHandle;

/// Ties agents to whoever holds it. To be dropped after them.
pub(super) struct Keeper {
    /// Dropped to let the thread go.
    end: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Starts agents on a thread that lives as long as the keeper.
    pub fn start<T: Send + 'static>(
        start: impl FnOnce() -> Result<T, Fault> + Send + 'static,
    ) -> Result<(Keeper, T), Fault> {
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
        let started = result.recv().map_err(|_| {
            Fault::new(FaultKind::System, "the thread that starts the agents ended early")
        })??;
        Ok((keeper, started))
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

/// The agents of both roles on this machine, and what they are tied to. They come first,
/// because fields are dropped in order: the thread has to outlive them.
pub(super) struct Agents {
    sender: AgentProcess,
    receiver: AgentProcess,
    _keeper: Keeper,
}

impl Agents {
    /// Starts them, the sender's first.
    pub fn start(
        start: impl FnOnce() -> Result<[AgentProcess; 2], Fault> + Send + 'static,
    ) -> Result<Agents, Fault> {
        let (keeper, [sender, receiver]) = Keeper::start(start)?;
        Ok(Agents { sender, receiver, _keeper: keeper })
    }

    /// The one of a role.
    pub fn of(&mut self, role: Role) -> &mut AgentProcess {
        match role {
            Role::Sender => &mut self.sender,
            Role::Receiver => &mut self.receiver,
        }
    }

    /// The receiver's process.
    pub fn receiver(&self) -> u32 {
        self.receiver.id()
    }
}

impl Drop for Agents {
    fn drop(&mut self) {
        // Both are told before either is waited for.
        self.sender.close();
        self.receiver.close();
    }
}
