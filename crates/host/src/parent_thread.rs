//! The thread that starts agents on this machine. The kernel kills them when it ends,
//! so it waits only for the end of those agents, and the caller that set up a
//! deployment may do so from any thread.

use super::child::AgentProcess;
use bytepath_record::{Fault, FaultKind};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;

/// An agent that is a process of this machine. The agent comes first, because fields
/// are dropped in order: the thread has to outlive it.
pub struct LocalAgent {
    pub process: AgentProcess,
    _parent: Arc<ParentThread>,
}

impl LocalAgent {
    /// Starts some, in this order, on a thread that lives as long as any of them.
    pub fn start<const N: usize>(
        start: impl FnOnce() -> Result<[AgentProcess; N], Fault> + Send + 'static,
    ) -> Result<[LocalAgent; N], Fault> {
        let (parent, processes) = ParentThread::start(start)?;
        let parent = Arc::new(parent);
        Ok(processes.map(|process| LocalAgent { process, _parent: parent.clone() }))
    }
}

/// Ties agents to its holder. To be dropped after them.
struct ParentThread {
    /// Dropped to let the thread go.
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
        let thread = std::thread::Builder::new()
            .name("agent-parent".into())
            .spawn(keep)
            .map_err(|e| Fault::system("starting a thread for the testbed", &e))?;
        let parent = ParentThread { end: Some(end), thread: Some(thread) };
        let started = result.recv().map_err(|_| {
            Fault::new(FaultKind::System, "the thread that starts the agents ended early")
        })??;
        Ok((parent, started))
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
