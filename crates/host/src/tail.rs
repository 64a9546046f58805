//! The end of what a process printed, kept without bound on how much it prints.

use std::collections::VecDeque;
use std::io::Read;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The last bytes of a stream, read by a thread of their own, so that the process that
/// writes much never blocks.
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
    /// Follows a pipe to its end and keeps the last `capacity` bytes of it.
    /// Without a pipe it has ended already.
    pub fn of(pipe: Option<impl Read + Send + 'static>, capacity: usize) -> Arc<Tail> {
        let state = Mutex::new(State { ended: pipe.is_none(), ..State::default() });
        let tail = Arc::new(Tail { state, changed: Condvar::new(), capacity });
        if let Some(pipe) = pipe {
            let follower = tail.clone();
            std::thread::spawn(move || follower.follow(pipe));
        }
        tail
    }

    /// What is kept; bytes that are not UTF-8 are replaced.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.lock().bytes.make_contiguous()).into_owned()
    }

    /// The last line with something to say, once the pipe is at its end (a
    /// process that inherited it may hold it open; that is waited for no longer
    /// than `timeout`).
    pub fn last_line(&self, timeout: Duration) -> Option<String> {
        self.await_end(timeout);
        let hint = "note: run with `RUST_BACKTRACE";
        let telling = |line: &&str| !line.is_empty() && !line.starts_with(hint);
        self.text().lines().map(str::trim).rfind(telling).map(str::to_string)
    }

    /// Waits for the end of the pipe, at most that long.
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
