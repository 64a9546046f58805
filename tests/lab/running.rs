//! The built binary as a child of a test.

use signal_hook::flag;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Once};
use std::time::{Duration, Instant};

/// A running bytepath, killed if the test fails.
pub struct Running(pub Child);

impl Running {
    /// Starts it; its standard error is kept.
    pub fn start(command: &mut Command) -> Running {
        heed_signals();
        Running(command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap())
    }

    /// Waits until its standard error contains `words`.
    pub fn wait_for(&mut self, words: &str) {
        let mut stderr = BufReader::new(self.0.stderr.take().unwrap());
        let mut seen = String::new();
        while !seen.contains(words) {
            let mut line = String::new();
            assert!(stderr.read_line(&mut line).unwrap() > 0, "ended before '{words}': {seen}");
            seen.push_str(&line);
        }
        self.0.stderr = Some(stderr.into_inner());
    }

    /// Waits until a condition holds, and fails if bytepath ends before.
    pub fn await_that(&mut self, what: &str, mut holds: impl FnMut() -> bool) {
        await_that(what, || {
            let ended = self.0.try_wait().unwrap().is_some();
            assert!(!ended, "it ended before {what}: {}", self.end().1);
            holds()
        });
    }

    pub fn signal(&self, number: i32) {
        signal(self.0.id(), number);
    }

    /// Waits for its end; returns the exit code and the rest of its standard error.
    pub fn end(&mut self) -> (Option<i32>, String) {
        let mut text = String::new();
        self.0.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        (self.0.wait().unwrap().code(), text)
    }

    /// Sends SIGKILL, and waits until its agents have ended, too: they hold the pipe open.
    pub fn kill(mut self) {
        self.0.kill().unwrap();
        self.end();
    }
}

/// Makes SIGINT effective again. Tests in the background of a shell ignore it, and so would their
/// children: an ignored signal stays ignored over execve(2), a caught one does not.
pub fn heed_signals() {
    static CAUGHT: Once = Once::new();
    CAUGHT.call_once(|| {
        for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
            let always = Arc::new(AtomicBool::new(true));
            flag::register_conditional_shutdown(signal, 130, always).unwrap();
        }
    });
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Children of every thread: `/proc` lists them by the thread that forked.
pub fn children_of(pid: u32) -> Vec<u32> {
    let children = |task: &PathBuf| fs::read_to_string(task.join("children")).unwrap_or_default();
    let texts: Vec<String> = tasks_of(pid).iter().map(children).collect();
    texts.iter().flat_map(|t| t.split_whitespace()).filter_map(|c| c.parse().ok()).collect()
}

/// Folders of a process's threads in `/proc`; empty if it has ended.
pub fn tasks_of(pid: u32) -> Vec<PathBuf> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten();
    tasks.flatten().map(|task| task.path()).collect()
}

pub fn signal(pid: u32, number: i32) {
    let pid = rustix::process::Pid::from_raw(pid as i32).unwrap();
    let signal = rustix::process::Signal::from_named_raw(number).unwrap();
    rustix::process::kill_process(pid, signal).unwrap();
}

/// Runs a command; returns its exit code, standard output and standard error.
pub fn said(command: &mut Command) -> (i32, String, String) {
    let output = bytepath_testing::run_copied(command).unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

/// Waits until a condition holds; `what` describes it.
pub fn await_that(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !holds() {
        assert!(Instant::now() < deadline, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}
