//! The thread that starts the agents of a testbed on this machine. The kernel kills
//! them when it ends, so it waits for nothing else than the end of the testbed, and
//! whoever raised the testbed may do so from any thread.

use crate::record::{Fault, FaultKind};
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
