//! Starts an agent on a host on which nothing may be installed: a command runs a POSIX shell there,
//! the shell looks for a bytepath of this build or receives a copy over the same pipe, and becomes
//! the agent.
//!
//! The two take turns, so that neither reads what is meant for the other: a shell may read ahead of
//! the command that it runs. Each line from the shell begins with a mark; anything before the first
//! one, such as the greeting of a login shell, is skipped.

use super::child::AgentProcess;
use bytepath_record::wire::LONGEST_PREFACE;
use bytepath_record::{Fault, FaultKind};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::PIPE_BUF;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// How to start an agent on another host.
#[derive(Clone, Copy, Debug)]
pub struct Boot<'a> {
    /// Name of the host for messages: "ssh://peer".
    pub host: &'a str,
    /// The program that the agent must be, and that is copied.
    pub program: &'a Path,
    /// Its build, as returned by [`super::build_of`].
    pub build: &'a str,
    /// Whether a copy is kept there for the next agent when the agent ends.
    pub keeps_copy: bool,
    /// Set when the user cancels.
    pub stop: &'a AtomicBool,
}

/// Time limit for the shell to start: a login and everything it runs.
const BEGINNING: Duration = Duration::from_secs(30);

/// Time limit for the shell to send a line, or to read.
const ANSWER: Duration = Duration::from_secs(30);

/// Interval at which waits check the stop flag.
const LOOK: Duration = Duration::from_millis(50);

/// The script for the shell. It is the same for every host: parameters are sent as lines, which no
/// shell interprets. A copy gets its final name only after it was checked.
///
/// `head -c` may read ahead of the requested bytes, which does no harm, because nothing follows
/// until the shell has answered.
const SCRIPT: &str = include_str!("boot.sh");

/// Prefix of each line from the shell.
const MARK: &str = "bytepath: ";

impl Boot<'_> {
    /// Turns a running shell into an agent.
    pub fn run(&self, shell: &mut AgentProcess) -> Result<(), Fault> {
        let stop = self.stop;
        let began = shell.converse(|to, from| self.talk(&mut Talk { to, from, stop }));
        began.unwrap_or(Err(Trouble::Ended)).map_err(|trouble| trouble.of(self.host, shell))
    }

    fn talk(&self, talk: &mut Talk) -> Result<(), Trouble> {
        talk.send(SCRIPT.as_bytes())?;
        let asks = talk.line(BEGINNING)?;
        let machine = asks.strip_prefix("asks from ").ok_or_else(|| refused(&asks))?;
        let local = rustix::system::uname();
        let local = local.machine().to_string_lossy();
        if machine != local {
            let why = format!("it is a {machine} machine, and this bytepath is for {local}");
            return Err(Trouble::Refused(why));
        }
        let path = self.program.to_str().filter(|text| !text.contains('\n')).unwrap_or("");
        let copies = if self.keeps_copy { "kept" } else { "removed" };
        let mut program = File::open(self.program).map_err(|e| self.unreadable(&e))?;
        let size = program.metadata().map_err(|e| self.unreadable(&e))?.len();
        talk.send(format!("{}\n{path}\n{size}\n{copies}\n", self.build).as_bytes())?;
        let mut answer = talk.line(ANSWER)?;
        if answer == "wanted" {
            // If sending fails, the shell's answer has the reason.
            let sent = self.send_copy(talk, &mut program);
            answer = match (talk.line(ANSWER), sent) {
                (Ok(answer), _) => answer,
                (Err(_), Err(trouble)) | (Err(trouble), Ok(())) => return Err(trouble),
            };
        }
        match answer.as_str() {
            "found" => Ok(()),
            other => Err(refused(other)),
        }
    }

    fn send_copy(&self, talk: &mut Talk, program: &mut File) -> Result<(), Trouble> {
        let mut part = [0; PIPE_BUF];
        loop {
            match program.read(&mut part) {
                Ok(0) => return Ok(()),
                Ok(length) => talk.send(&part[..length])?,
                Err(e) => return Err(self.unreadable(&e)),
            }
        }
    }

    fn unreadable(&self, error: &io::Error) -> Trouble {
        Trouble::Fault(Fault::system(format_args!("reading {}", self.program.display()), error))
    }
}

/// Waits until a program on a host echoes a line: the connection is open.
pub fn echoes(host: &str, program: &mut AgentProcess, stop: &AtomicBool) -> Result<(), Fault> {
    let open = program.converse(|to, from| {
        let mut talk = Talk { to, from, stop };
        talk.send(format!("{MARK}there\n").as_bytes())?;
        talk.line(BEGINNING).map(drop)
    });
    open.unwrap_or(Err(Trouble::Ended)).map_err(|trouble| trouble.of(host, program))
}

/// Why a shell did not become an agent.
enum Trouble {
    Fault(Fault),
    /// Its pipe was closed.
    Ended,
    Silent(Duration),
    Stopped,
    Refused(String),
}

impl Trouble {
    fn of(self, host: &str, process: &mut AgentProcess) -> Fault {
        match self {
            Trouble::Fault(fault) => fault,
            Trouble::Ended => {
                let how = process.exit_report();
                Fault::peer_lost(format!("no shell started on {host}: {how}")).remedy(remedy(&how))
            }
            Trouble::Silent(time) => {
                Fault::peer_lost(format!("{host} was silent for {} s", time.as_secs()))
            }
            Trouble::Stopped => Fault::new(FaultKind::Interrupted, "interrupted by the user"),
            Trouble::Refused(why) => {
                Fault::unsupported(format!("cannot start an agent on {host}: {why}")).remedy(
                    "install this bytepath there, in the PATH, or use one that \
                     runs on every distribution: make static",
                )
            }
        }
    }
}

fn refused(line: &str) -> Trouble {
    Trouble::Refused(line.strip_prefix("failed: ").unwrap_or(line).to_owned())
}

/// Suggests a remedy by the last message of ssh(1).
fn remedy(words: &str) -> &'static str {
    let hints = [
        (
            "Host key verification failed",
            "run ssh to it once by hand: its key is new or has changed",
        ),
        ("Permission denied", "login must work without a password: use ssh-copy-id or ssh-agent"),
        ("Could not resolve", "use the name that ssh knows, or its address"),
        ("Connection refused", "is sshd running there, on this port?"),
        ("timed out", "is it up, and does the firewall allow ssh?"),
        ("No route to host", "is it up, and is there a route to it?"),
    ];
    let hints = hints.iter().find(|(mark, _)| words.contains(mark));
    hints.map_or("try the command by hand: it must run `sh` there", |(_, remedy)| remedy)
}

/// The pipes to a shell, used with timeouts.
struct Talk<'a> {
    to: &'a mut ChildStdin,
    from: &'a mut ChildStdout,
    stop: &'a AtomicBool,
}

impl Talk<'_> {
    /// Returns the next line with the mark, without the mark.
    fn line(&mut self, timeout: Duration) -> Result<String, Trouble> {
        let deadline = Instant::now() + timeout;
        let mut line = Vec::new();
        // One byte at a time, because whatever follows the line belongs to the agent.
        for _ in 0..LONGEST_PREFACE {
            await_ready(self.from.as_fd(), PollFlags::IN, deadline, timeout, self.stop)?;
            let mut byte = [0];
            match self.from.read(&mut byte) {
                Ok(0) => return Err(Trouble::Ended),
                Ok(_) if byte[0] != b'\n' => line.push(byte[0]),
                Ok(_) => {
                    let text = String::from_utf8_lossy(&line);
                    if let Some(text) = text.trim_end().strip_prefix(MARK) {
                        return Ok(text.to_owned());
                    }
                    line.clear();
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return Err(Trouble::Ended),
            }
        }
        Err(Trouble::Refused("what runs there is not a shell".to_owned()))
    }

    fn send(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        // A pipe that is ready accepts this much without blocking (pipe(7)).
        for part in bytes.chunks(PIPE_BUF) {
            let deadline = Instant::now() + ANSWER;
            await_ready(self.to.as_fd(), PollFlags::OUT, deadline, ANSWER, self.stop)?;
            self.to.write_all(part).map_err(|_| Trouble::Ended)?;
        }
        self.to.flush().map_err(|_| Trouble::Ended)
    }
}

fn await_ready(
    fd: BorrowedFd,
    what: PollFlags,
    deadline: Instant,
    timeout: Duration,
    stop: &AtomicBool,
) -> Result<(), Trouble> {
    loop {
        if stop.load(Ordering::Relaxed) {
            return Err(Trouble::Stopped);
        }
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Err(Trouble::Silent(timeout));
        }
        let wait = remaining.min(LOOK);
        let wait = Timespec { tv_sec: 0, tv_nsec: wait.subsec_nanos().into() };
        match poll(&mut [PollFd::new(&fd, what)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return Ok(()),
            Err(_) => return Err(Trouble::Ended),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;
    use std::process::{Command, Stdio};

    static NEVER: AtomicBool = AtomicBool::new(false);

    /// A folder that stands for a host: its home, and programs that come first on its PATH.
    struct Folder(tempfile::TempDir);

    impl Folder {
        fn new() -> Folder {
            let folder = tempfile::tempdir().unwrap();
            fs::create_dir(folder.path().join("bin")).unwrap();
            Folder(folder)
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        fn program(&self, name: &str, text: &str) -> PathBuf {
            let file = self.path(name);
            fs::write(&file, format!("#!/bin/sh\n{text}\n")).unwrap();
            fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
            file
        }

        fn boot(&self, script: &str, boot: &Boot) -> (Result<(), Fault>, String) {
            let mut command = Command::new("sh");
            command.args(["-c", script]).env("HOME", self.0.path()).env_remove("XDG_CACHE_HOME");
            let old = std::env::var("PATH").unwrap_or_default();
            command.env("PATH", format!("{}:{old}", self.path("bin").display()));
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut shell = AgentProcess::new(command.spawn().unwrap()).unwrap();
            let result = boot.run(&mut shell);
            let mut said = String::new();
            if result.is_ok() {
                shell.close();
                shell.take_pipe().from_agent.read_to_string(&mut said).unwrap();
            }
            (result, said)
        }
    }

    /// A script that prints this build, and, run as an agent, its own path.
    fn agent(build: &str) -> String {
        format!("[ \"$2\" = --build ] && echo '{build}' && exit\necho \"I am $0\"")
    }

    fn boot<'a>(program: &'a Path, build: &'a str) -> Boot<'a> {
        Boot { host: "the host", program, build, keeps_copy: true, stop: &NEVER }
    }

    #[test]
    fn uses_an_installed_program_without_a_copy() {
        let host = Folder::new();
        let own = host.program("bytepath", &agent("1+a"));
        let found = host.boot("echo Welcome; exec sh", &boot(&own, "1+a"));
        assert_eq!(found, (Ok(()), format!("I am {}\n", own.display())));
        // The copy is of another build, but there is one of the right build on the PATH.
        let installed = host.program("bin/bytepath", &agent("1+b"));
        let found = host.boot("exec sh", &boot(&own, "1+b"));
        assert_eq!(found, (Ok(()), format!("I am {}\n", installed.display())));
        assert!(!host.path(".cache").exists());
    }

    /// A program that cannot be started in place, as if it were on another machine.
    fn elsewhere(host: &Folder, text: &str) -> PathBuf {
        let file = host.program("elsewhere", text);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).unwrap();
        file
    }

    #[test]
    fn a_copy_is_made_once_and_stays_or_goes() {
        let host = Folder::new();
        let program = elsewhere(&host, &format!("{}\n# {}", agent("1+c"), "x".repeat(200_000)));
        let text = fs::read(&program).unwrap();
        let copy = host.path(".cache/bytepath/agent-1+c");
        let expected = format!("I am {}\n", copy.display());
        let kept = boot(&program, "1+c");
        assert_eq!(host.boot("exec sh", &kept), (Ok(()), expected.clone()));
        assert_eq!(fs::read(&copy).unwrap(), text);
        fs::write(&program, "not sent again").unwrap();
        assert_eq!(host.boot("exec sh", &kept), (Ok(()), expected.clone()));
        let removed = Boot { keeps_copy: false, ..kept };
        assert_eq!(host.boot("exec sh", &removed), (Ok(()), expected));
        assert!(!host.path(".cache/bytepath").exists());
    }

    #[test]
    fn without_a_home_the_copy_is_in_a_folder_of_its_own() {
        let host = Folder::new();
        let program = elsewhere(&host, &agent("1+e"));
        let (result, said) = host.boot("unset HOME; exec sh", &boot(&program, "1+e"));
        assert_eq!(result, Ok(()));
        let copy =
            said.trim().strip_prefix("I am /tmp/bytepath.").unwrap_or_else(|| panic!("{said}"));
        let folder = copy.split('/').next().unwrap();
        assert!(!Path::new("/tmp").join(format!("bytepath.{folder}")).exists());
    }

    #[test]
    fn names_what_is_wrong_on_the_host() {
        let host = Folder::new();
        let said = |script: &str, copy: &str| {
            let program = elsewhere(&host, copy);
            host.boot(script, &boot(&program, "1+d")).0.unwrap_err().to_string()
        };
        let broken = said("exec sh", "echo 'GLIBC_9 not found' >&2");
        assert!(broken.contains("does not run there: GLIBC_9 not found"), "{broken}");
        let ended = said("echo 'Permission denied (publickey).' >&2; exit 255", "");
        assert!(ended.contains("code 255: Permission denied"), "{ended}");
        assert!(ended.contains("ssh-copy-id"), "{ended}");
        let odd = said("yes", "");
        assert!(odd.contains("is not a shell"), "{odd}");
        host.program("bin/uname", "echo pdp11");
        let other = said("exec sh", "");
        assert!(other.contains("a pdp11 machine, and this bytepath is for"), "{other}");
        fs::remove_file(host.path("bin/uname")).unwrap();
        host.program("bin/head", "exit 1");
        let full = said("exec sh", &"x".repeat(1 << 20));
        assert!(full.contains("cannot be written"), "{full}");
        let left = fs::read_dir(host.path(".cache/bytepath")).unwrap().count();
        assert_eq!(left, 0, "a copy, or a part of one, is left");
    }

    #[test]
    fn the_user_can_stop_it() {
        let host = Folder::new();
        let stop = AtomicBool::new(true);
        let boot = Boot { stop: &stop, ..boot(Path::new("/x"), "1+e") };
        let fault = host.boot("exec sleep 60", &boot).0.unwrap_err();
        assert_eq!(fault.kind, FaultKind::Interrupted);
    }

    #[test]
    fn several_shells_run_it() {
        let host = Folder::new();
        let own = host.program("bytepath", &agent("1+f"));
        let is_there = |shell: &str| {
            let (program, _) = shell.split_once(' ').unwrap_or((shell, ""));
            let path = std::env::var_os("PATH").unwrap_or_default();
            std::env::split_paths(&path).any(|folder| folder.join(program).exists())
        };
        let shells = ["sh", "dash", "bash", "busybox sh", "ksh", "zsh"];
        for shell in shells.iter().filter(|shell| is_there(shell)) {
            let found = host.boot(&format!("exec {shell}"), &boot(&own, "1+f"));
            assert_eq!(found.0, Ok(()), "{shell}");
        }
    }
}
