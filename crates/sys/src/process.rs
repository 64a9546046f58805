//! This process: signals it ignores, limits, and programs tied to it.

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Sets whether this process dies with its parent, even if the parent is killed.
/// `PR_SET_PDEATHSIG`, prctl(2), which is preserved by execve(2).
pub fn die_with_parent(dies: bool) -> io::Result<()> {
    Ok(set_parent_process_death_signal(dies.then_some(Signal::KILL))?)
}

/// Starts a program that the kernel kills when the calling thread ends (`PR_SET_PDEATHSIG`,
/// prctl(2)) and that inherits these descriptors under the same numbers.
pub fn spawn_tied(command: Command, inherited: &[BorrowedFd]) -> io::Result<Child> {
    spawn_signalled(command, Signal::KILL, inherited)
}

/// Like [`spawn_tied`], but with SIGTERM instead, for a program that may have to clean up.
pub fn spawn_tied_sigterm(command: Command) -> io::Result<Child> {
    spawn_signalled(command, Signal::TERM, &[])
}

/// Returns the output of a program that ends with the calling thread; its standard input is empty.
pub fn output_tied(mut command: Command) -> io::Result<Output> {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    spawn_tied(command, &[])?.wait_with_output()
}

fn spawn_signalled(
    mut command: Command,
    signal: Signal,
    inherited: &[BorrowedFd],
) -> io::Result<Child> {
    let parent = rustix::process::getpid();
    let numbers: Vec<RawFd> = inherited.iter().map(AsRawFd::as_raw_fd).collect();
    let hook = move || -> io::Result<()> {
        set_parent_process_death_signal(Some(signal))?;
        // A parent that died before the line above sends no signal.
        if rustix::process::getppid() != Some(parent) {
            return Err(rustix::io::Errno::SRCH.into());
        }
        numbers.iter().try_for_each(|number| inherit(*number))
    };
    // SAFETY: the hook makes system calls only. It allocates nothing, takes no
    // lock, and reads memory that was prepared before the fork.
    unsafe { command.pre_exec(hook) };
    command.spawn()
}

/// Runs in a child made above: makes a descriptor survive execve.
fn inherit(number: RawFd) -> io::Result<()> {
    // SAFETY: the parent borrows the descriptor with this number while it forks, so the child has
    // it too, and nothing closes it before execve.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(fd)?;
    Ok(fcntl_setfd(fd, flags - FdFlags::CLOEXEC)?)
}

/// Ignores signals that would end an agent early. A terminal sends Ctrl-C to the whole process
/// group, and timeout(1) and systemd send SIGTERM to all processes; an agent must outlive them to
/// hand over its measurements, and ends with its pipe.
pub fn ignore_interrupts() {
    ignore(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ]);
}

/// Ignores SIGXFSZ, so that exceeding a file-size limit is an error and not fatal.
pub fn report_file_size_limit() {
    ignore(&[libc::SIGXFSZ]);
}

/// Whether this process ignores a signal.
pub fn ignores(signal: libc::c_int) -> bool {
    // SAFETY: all zeros are a valid sigaction, which the call overwrites; without a new one nothing
    // is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether SIGPIPE was already ignored when this process started. Rust ignores it before `main`, so
/// this is recorded even earlier.
pub(crate) static BEGAN_WITHOUT_SIGPIPE: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls the functions in this section before `main`; this one has the right
// type and makes one system call.
#[used]
#[unsafe(link_section = ".init_array")]
static NOTE_SIGPIPE: extern "C" fn() = {
    extern "C" fn note() {
        BEGAN_WITHOUT_SIGPIPE.store(ignores(libc::SIGPIPE), Ordering::Relaxed);
    }
    note
};

fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is a valid disposition for these signals, and it replaces no handler of
        // ours.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Returns the limit on the first thread's stack in bytes (`RLIMIT_STACK`, getrlimit(2)).
pub fn stack_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Stack).current
}

/// Raises this process's limit on open files to at least `count`. EPERM: above its hard limit
/// without privilege (`CAP_SYS_RESOURCE`), or above the limit for any process (`fs.nr_open`).
pub fn allow_files(count: u64) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = maximum.map(|maximum| maximum.max(count));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })?)
}

/// Raises this process's limit on open files to its hard limit: counters of every CPU of a large
/// machine are kept open. If that fails, the limit stays.
pub fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
