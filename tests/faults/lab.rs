//! Where the campaign works: how the binary is started and read, and what it must not leave behind.

use crate::host::Host;
use crate::running::heed_signals;
use anyhow::{Context, Result, bail, ensure};
use bytepath::host::{Fingerprint, differences};
use bytepath::math::Random;
use bytepath::record::is_unsafe_to_display;
use rustix::process::{
    Pid, Signal, WaitOptions, kill_process, kill_process_group, set_child_subreaper, wait,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{Read, Seek};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Memory in KiB that must be enough to read files from others.
const MEMORY: u32 = 256 << 10;

/// How long any command may take: more than the limits of a trial that a fault has stopped.
const PATIENCE: Duration = Duration::from_secs(90);

/// How long a process may outlive its controller: the copy ceiling checks for it only between
/// steps, the longest of which maps and copies 256 MiB.
const LINGERING: Duration = Duration::from_secs(10);

/// Folders in which a program might leave files; only names of bytepath count there.
const FOLDERS: &[&str] = &["/run", "/tmp", "/var/tmp", "/dev/shm", "/var/lib", "/sys/fs/bpf"];

pub struct Lab {
    pub host: Host,
    pub random: Random,
    /// The round's own folder, in which commands start.
    pub folder: PathBuf,
    /// The command lines of the round, in shell notation.
    pub lines: Vec<String>,
    before: Surroundings,
}

/// What a round must leave unchanged.
struct Surroundings {
    fingerprint: Fingerprint,
    devices: Vec<String>,
    mounts: String,
    files: Vec<PathBuf>,
}

/// A running bytepath, whose outputs are files.
pub struct Started {
    pub child: Child,
    out: File,
    err: File,
}

/// How a command ended, and its output.
pub struct Ended {
    pub code: Option<i32>,
    pub signal: Option<i32>,
    pub out: Vec<u8>,
    pub err: String,
}

impl Lab {
    pub fn new() -> Result<Lab> {
        // Processes left by a killed controller become our children, so they are noticed.
        set_child_subreaper(Some(Pid::INIT))?;
        heed_signals();
        let host = Host::new();
        let folder = host.dir.path().to_owned();
        let before = Surroundings::look(&host)?;
        Ok(Lab { host, random: Random::new(0), folder, lines: Vec::new(), before })
    }

    /// Begins a round in a new folder.
    pub fn begin(&mut self, seed: u64) -> Result<()> {
        self.random = Random::new(seed);
        self.lines.clear();
        self.folder = self.host.dir.path().join("round");
        match fs::remove_dir_all(&self.folder) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(e)?,
            _ => Ok(fs::create_dir(&self.folder)?),
        }
    }

    pub fn below(&mut self, bound: usize) -> usize {
        self.random.below(bound)
    }

    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    pub fn journal(&self) -> PathBuf {
        self.host.dir.path().join("state/journal")
    }

    /// Returns a command of the binary with these arguments, in the folder of the round.
    pub fn command(&mut self, arguments: &[impl AsRef<OsStr>]) -> Command {
        let mut command = self.host.command();
        command.current_dir(&self.folder).args(arguments);
        self.note(arguments);
        command
    }

    /// Like [`Lab::command`], with little memory.
    fn bounded(&mut self, arguments: &[impl AsRef<OsStr>]) -> Command {
        self.limited(&format!("ulimit -d {MEMORY}"), arguments)
    }

    /// Like [`Lab::command`], in a shell that first sets `limit` for itself.
    pub fn limited(&mut self, limit: &str, arguments: &[impl AsRef<OsStr>]) -> Command {
        let binary = self.host.command();
        let mut command = Command::new("sh");
        command.envs(binary.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.args(["-c", &format!("{limit}; exec \"$0\" \"$@\"")]);
        command.arg(binary.get_program()).args(arguments).current_dir(&self.folder);
        self.note(arguments);
        command
    }

    fn note(&mut self, arguments: &[impl AsRef<OsStr>]) {
        let mut line = String::from("bytepath");
        for argument in arguments {
            let text = argument.as_ref().to_string_lossy();
            let short: String = text.chars().take(200).collect();
            let quoted: String =
                shlex::try_quote(&short).map_or_else(|_| format!("{short:?}"), Into::into);
            line.extend([" ", quoted.as_str(), if short.len() < text.len() { "..." } else { "" }]);
        }
        self.lines.push(line);
    }

    /// Runs a command to its end, and checks that it is sound.
    pub fn ask(&mut self, arguments: &[impl AsRef<OsStr>]) -> Result<Ended> {
        Started::of(self.command(arguments))?.end()?.sound()
    }

    /// Like [`Lab::ask`], for a command that reads untrusted files, with little memory.
    pub fn ask_bounded(&mut self, arguments: &[impl AsRef<OsStr>]) -> Result<Ended> {
        Started::of(self.bounded(arguments))?.end()?.sound()
    }

    /// Checks that the host is as it was before the campaign.
    pub fn host_is_as_before(&self) -> Result<()> {
        let changed = differences(&self.before.fingerprint, &self.host.look());
        ensure!(changed.is_empty(), "the host changed: {}", changed.join("; "));
        Ok(())
    }

    /// Checks that the round has left nothing behind and changed nothing.
    pub fn nothing_is_left(&mut self) -> Result<()> {
        no_process_is_left()?;
        self.host_is_as_before()?;
        let now = Surroundings::look(&self.host)?;
        ensure!(now.devices == self.before.devices, "network devices: {:?}", now.devices);
        ensure!(now.mounts == self.before.mounts, "mounts:\n{}", now.mounts);
        ensure!(now.files == self.before.files, "files: {:?}", now.files);
        for (file, _) in walk(self.host.dir.path()) {
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let stale = name.ends_with(".part") || name == "journal" || name == "pwned";
            ensure!(!stale, "{} is left", file.display());
        }
        Ok(())
    }

    /// Removes what a finding has left, so that it is not found again.
    pub fn clean_up(&mut self) -> Result<()> {
        for pid in descendants(std::process::id()) {
            strike(pid, libc::SIGKILL);
        }
        no_process_is_left()?;
        Started::of(self.command(&["restore"]))?.end()?;
        let _ = fs::remove_file(self.journal());
        // What stays changed is reported once.
        self.before = Surroundings::look(&self.host)?;
        Ok(())
    }
}

impl Surroundings {
    fn look(host: &Host) -> Result<Surroundings> {
        let mut devices: Vec<String> = names(Path::new("/sys/class/net"));
        devices.sort();
        let own = |folder: &&str| -> Vec<PathBuf> {
            let folder = Path::new(folder);
            let own = |name: &String| name.contains("bytepath") || folder.ends_with("bpf");
            names(folder).into_iter().filter(own).map(|name| folder.join(name)).collect()
        };
        let mut files: Vec<PathBuf> = FOLDERS.iter().flat_map(own).collect();
        files.sort();
        Ok(Surroundings {
            fingerprint: host.look(),
            devices,
            mounts: fs::read_to_string("/proc/self/mountinfo")?,
            files,
        })
    }
}

/// Waits until every process that was started has ended, whoever started it.
fn no_process_is_left() -> Result<()> {
    let begin = Instant::now();
    loop {
        match wait(WaitOptions::NOHANG) {
            Err(rustix::io::Errno::CHILD) => return Ok(()),
            Err(e) => Err(e)?,
            Ok(Some(_)) => {}
            Ok(None) if begin.elapsed() < LINGERING => sleep(Duration::from_millis(1)),
            Ok(None) => {
                let left = descendants(std::process::id());
                let line = |pid: &u32| fs::read_to_string(format!("/proc/{pid}/cmdline")).ok();
                bail!("processes are left: {:?}", left.iter().filter_map(line).collect::<Vec<_>>());
            }
        }
    }
}

/// Sends a signal to a process; false if it no longer exists.
pub fn strike(pid: u32, number: i32) -> bool {
    let known = Pid::from_raw(pid as i32).zip(Signal::from_named_raw(number));
    known.is_some_and(|(pid, signal)| kill_process(pid, signal).is_ok())
}

/// The children of a process, and their descendants.
pub fn descendants(pid: u32) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut open = vec![pid];
    while let Some(pid) = open.pop() {
        for task in names(Path::new(&format!("/proc/{pid}/task"))) {
            let children = fs::read_to_string(format!("/proc/{pid}/task/{task}/children"));
            let children = children.unwrap_or_default();
            let children: Vec<u32> = children.split(' ').filter_map(|c| c.parse().ok()).collect();
            open.extend(&children);
            found.extend(children);
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Every file below a folder, and whether it is a regular one.
pub fn walk(folder: &Path) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.file_type() {
                Ok(kind) if kind.is_dir() => folders.push(entry.path()),
                Ok(kind) => found.push((entry.path(), kind.is_file())),
                Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

pub fn copy(from: &Path, to: &Path) -> Result<()> {
    for (file, _) in walk(from) {
        let copy = to.join(file.strip_prefix(from)?);
        fs::create_dir_all(copy.parent().context("a file is in a folder")?)?;
        fs::copy(&file, copy)?;
    }
    Ok(())
}

impl Started {
    pub fn of(mut command: Command) -> Result<Started> {
        let (out, err) = (tempfile::tempfile()?, tempfile::tempfile()?);
        command.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(err.try_clone()?);
        Ok(Started { child: command.spawn()?, out, err })
    }

    /// Like [`Started::of`], with other outputs.
    pub fn into(mut command: Command, out: Stdio, err: Stdio) -> Result<Started> {
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let nothing = tempfile::tempfile()?;
        Ok(Started { child: command.spawn()?, out: nothing.try_clone()?, err: nothing })
    }

    /// Waits this long, or until it ends; true if it ended.
    pub fn ends_within(&mut self, time: Duration) -> Result<bool> {
        let begin = Instant::now();
        loop {
            match self.child.try_wait()? {
                Some(_) => return Ok(true),
                None if begin.elapsed() >= time => return Ok(false),
                None => sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sends a signal, unless it has ended.
    pub fn signal(&mut self, number: i32) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            strike(self.child.id(), number);
        }
        Ok(())
    }

    /// Like [`Started::signal`], to all of its own process group.
    pub fn signal_group(&mut self, number: i32) -> Result<()> {
        let known = Pid::from_raw(self.child.id() as i32).zip(Signal::from_named_raw(number));
        if let (None, Some((group, signal))) = (self.child.try_wait()?, known) {
            let _ = kill_process_group(group, signal);
        }
        Ok(())
    }

    pub fn end(self) -> Result<Ended> {
        self.end_within(PATIENCE)
    }

    /// Waits for its end, at most this long.
    pub fn end_within(mut self, patience: Duration) -> Result<Ended> {
        if !self.ends_within(patience)? {
            bail!("it hangs, and has said: {}", text(&mut self.err)?);
        }
        let status = self.child.wait()?;
        let mut out = Vec::new();
        self.out.rewind()?;
        self.out.read_to_end(&mut out)?;
        let err = text(&mut self.err)?;
        Ok(Ended { code: status.code(), signal: status.signal(), out, err })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

impl Ended {
    /// Checks that it ended by itself and orderly, whatever its input was.
    pub fn sound(self) -> Result<Ended> {
        ensure!(self.signal.is_none(), "ended by signal {:?}: {}", self.signal, self.err);
        self.tame()
    }

    /// Checks that it did not panic, and that its output cannot control a terminal.
    pub fn tame(self) -> Result<Ended> {
        ensure!(!self.err.contains(" panicked at "), "{}", self.err);
        // A report in a binary format is not meant for terminals.
        let out = String::from_utf8(self.out.clone()).unwrap_or_default();
        for said in [&out, &self.err] {
            let steering =
                said.find(|c| !matches!(c, '\n' | '\r' | '\t') && is_unsafe_to_display(c));
            if let Some(at) = steering {
                let around: String = said[at..].chars().take(40).collect();
                bail!("it writes what steers a terminal: {around:?}");
            }
        }
        Ok(self)
    }

    pub fn with_code(self, codes: &[i32]) -> Result<Ended> {
        let fine = self.code.is_some_and(|code| codes.contains(&code));
        let said = || format!("{}{}", String::from_utf8_lossy(&self.out), self.err);
        ensure!(fine, "exit code {:?}, and not one of {codes:?}: {}", self.code, said());
        // A limit of `compare` that is exceeded or undecided is a result, and is printed as one.
        let verdict = |word: &str| said().lines().any(|line| line.trim_start().starts_with(word));
        let says = match self.code {
            Some(0) => true,
            Some(7) => verdict("FAILED "),
            Some(125) => verdict("UNDECIDED "),
            _ => !self.err.is_empty(),
        };
        ensure!(says, "it does not say what is wrong: {}", said());
        Ok(self)
    }
}
