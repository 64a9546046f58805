//! A program that waits before its first instruction until everything that observes it is in place:
//! fork(2), execve(2), wait4(2).

use super::{check, process};
use std::ffi::{CString, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// A child that has not executed the program yet. Dropping it ends it.
#[derive(Debug)]
pub struct PausedProgram {
    /// Its process id, which the program keeps.
    pub pid: u32,
    /// The child waits for a byte from here; at end of file it exits.
    go: Option<File>,
    /// Where the child reports the error if the program cannot be executed.
    failed: File,
}

/// A child that executes the program.
#[derive(Debug)]
pub struct Launched {
    pid: u32,
}

/// How a child ended and the resources it used, including those of its own children that it waited
/// for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ExitStatus {
    /// Exit code, or the signal that killed it.
    pub how: How,
    pub user: Duration,
    pub system: Duration,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// It exited with this code.
    Code(i32),
    /// It was killed by this signal.
    Signal(i32),
}

/// Resolves a command to a file: the name itself if it contains a slash, else the first executable
/// of that name in the folders of `PATH`.
pub fn find(command: &OsStr, path: Option<OsString>) -> io::Result<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return Ok(command.into());
    }
    let path = path.unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    let mut error = io::Error::new(io::ErrorKind::NotFound, "no such program on the PATH");
    for folder in std::env::split_paths(&path) {
        let file = folder.join(command);
        match file.metadata() {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(file);
            }
            Ok(_) => {
                let text = format!("{} is not executable", file.display());
                error = io::Error::new(io::ErrorKind::PermissionDenied, text);
            }
            Err(_) => {}
        }
    }
    Err(error)
}

impl PausedProgram {
    /// Forks the child. `arguments` begin with the program's own name (`argv[0]`).
    pub fn new(file: &Path, arguments: &[OsString]) -> io::Result<PausedProgram> {
        let text = |text: &OsStr| {
            CString::new(text.as_bytes()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
        };
        let file = text(file.as_os_str())?;
        let arguments: Vec<CString> =
            arguments.iter().map(|argument| text(argument)).collect::<io::Result<_>>()?;
        let environment: Vec<CString> = std::env::vars_os()
            .filter_map(|(key, value)| {
                let mut pair = key.into_vec();
                pair.push(b'=');
                pair.extend(value.into_vec());
                CString::new(pair).ok()
            })
            .collect();
        let list = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (argv, envp) = (list(&arguments), list(&environment));
        let (wait, go) = pipe()?;
        let (failed, report) = pipe()?;
        // SAFETY: the child only makes system calls before it executes the program or ends, as
        // fork(2) requires in a process with threads.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            // SAFETY: every pointer is to memory made above, of which the child has a copy; the
            // lists end in null.
            unsafe { child(&wait, &go, &report, file.as_ptr(), argv.as_ptr(), envp.as_ptr()) }
        }
        let pid = check(pid.into())? as u32;
        Ok(PausedProgram { pid, go: Some(go.into()), failed: failed.into() })
    }

    /// Lets the child execute the program. The error is why it cannot be executed.
    pub fn release(mut self) -> io::Result<Launched> {
        let launched = Launched { pid: self.pid };
        let mut errno = [0; 4];
        // Taken, so that it is closed here and dropping `self` does nothing.
        let go = self.go.take().map_or(Ok(()), |mut go| go.write_all(&[1]));
        let error = match go.and_then(|()| self.failed.read_exact(&mut errno)) {
            // End of file: exec closed the other end.
            Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(launched),
            Err(e) => {
                // The child may have ended already; this makes sure that it ends.
                let _ = signal(self.pid, libc::SIGKILL);
                e
            }
            Ok(()) => io::Error::from_raw_os_error(i32::from_ne_bytes(errno)),
        };
        launched.wait()?;
        Err(error)
    }
}

impl Drop for PausedProgram {
    fn drop(&mut self) {
        if let Some(go) = self.go.take() {
            drop(go);
            // The child ends at end of file; its status is not used.
            let _ = Launched { pid: self.pid }.wait();
        }
    }
}

impl Launched {
    /// Waits until the program has ended.
    pub fn wait(self) -> io::Result<ExitStatus> {
        // SAFETY: all zeros are a valid rusage.
        let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
        let mut status = 0;
        // SAFETY: both pointers are to variables of the right types.
        let mut wait = || unsafe { libc::wait4(self.pid as i32, &mut status, 0, &mut usage) };
        while let Err(e) = check(wait().into()) {
            if e.kind() != io::ErrorKind::Interrupted {
                return Err(e);
            }
        }
        let how = if libc::WIFSIGNALED(status) {
            How::Signal(libc::WTERMSIG(status))
        } else {
            How::Code(libc::WEXITSTATUS(status))
        };
        Ok(ExitStatus { how, user: duration(usage.ru_utime), system: duration(usage.ru_stime) })
    }
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: kill takes plain numbers.
    check(unsafe { libc::kill(pid as libc::pid_t, signal) }.into()).map(drop)
}

/// Code of the child.
///
/// # Safety
/// For a child right after fork. The pointers must be valid for execve(2).
unsafe fn child(
    wait: &OwnedFd,
    go: &OwnedFd,
    report: &OwnedFd,
    file: *const libc::c_char,
    argv: *const *const libc::c_char,
    envp: *const *const libc::c_char,
) -> ! {
    // SAFETY: only system calls that are safe after fork; buffers are local.
    unsafe {
        // The child's own copy of the writing end would prevent end of file.
        libc::close(go.as_raw_fd());
        let mut byte = 0u8;
        let mut got;
        loop {
            got = libc::read(wait.as_raw_fd(), (&raw mut byte).cast(), 1);
            if got != -1 || *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        if got != 1 {
            libc::_exit(127);
        }
        // Signals that were ignored when this process started stay ignored. Rust itself ignores
        // SIGPIPE.
        if !process::BEGAN_WITHOUT_SIGPIPE.load(Ordering::Relaxed) {
            libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        }
        libc::execve(file, argv, envp);
        let error = *libc::__errno_location();
        libc::write(report.as_raw_fd(), (&raw const error).cast(), 4);
        libc::_exit(127)
    }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?)
}

fn duration(time: libc::timeval) -> Duration {
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::from_secs(seconds) + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(command: &[&str]) -> io::Result<How> {
        let arguments: Vec<OsString> = command.iter().map(OsString::from).collect();
        let file = find(&arguments[0], std::env::var_os("PATH"))?;
        Ok(PausedProgram::new(&file, &arguments)?.release()?.wait()?.how)
    }

    #[test]
    fn codes_and_signals_come_through() {
        assert_eq!(run(&["sh", "-c", "exit 7"]).unwrap(), How::Code(7));
        assert_eq!(run(&["sh", "-c", "kill -TERM $$"]).unwrap(), How::Signal(libc::SIGTERM));
    }

    #[test]
    fn what_cannot_be_run_says_why() {
        assert_eq!(run(&["/"]).unwrap_err().raw_os_error(), Some(libc::EACCES));
        assert_eq!(run(&["no-such-program-at-all"]).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert_eq!(run(&["/nowhere/x"]).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    }

    #[test]
    fn a_child_that_ends_before_it_is_let_go_is_reaped() {
        let file = find("true".as_ref(), std::env::var_os("PATH")).unwrap();
        let held = PausedProgram::new(&file, &["true".into()]).unwrap();
        let folder = PathBuf::from(format!("/proc/{}", held.pid));
        signal(held.pid, libc::SIGKILL).unwrap();
        while !std::fs::read_to_string(folder.join("stat")).unwrap().contains(") Z") {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(held.release().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
        assert!(!folder.exists(), "it is still a zombie");
    }

    #[test]
    fn it_waits_until_it_is_let_go() {
        let dir = tempfile::tempdir().unwrap();
        let mark = dir.path().join("mark");
        let arguments = ["touch".into(), mark.clone().into_os_string()];
        let file = find(&arguments[0], std::env::var_os("PATH")).unwrap();
        drop(PausedProgram::new(&file, &arguments).unwrap());
        assert!(!mark.exists(), "a child that was never let go did something");
        let held = PausedProgram::new(&file, &arguments).unwrap();
        assert!(!mark.exists());
        held.release().unwrap().wait().unwrap();
        assert!(mark.exists());
    }
}
