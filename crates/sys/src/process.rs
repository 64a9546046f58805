//! The process itself: signals it ignores, and what ends it.

use rustix::io::{FdFlags, fcntl_getfd, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};

/// Makes this process die with its parent, even if the parent is killed, or live on.
/// `PR_SET_PDEATHSIG`, prctl(2), which outlives execve(2).
pub fn die_with_parent(dies: bool) -> io::Result<()> {
    Ok(set_parent_process_death_signal(dies.then_some(Signal::KILL))?)
}

/// Starts a program that the kernel kills when the calling thread ends
/// (`PR_SET_PDEATHSIG`, prctl(2)) and that inherits these descriptors under the
/// numbers that they have here.
pub fn spawn_tied(command: Command, inherited: &[BorrowedFd]) -> io::Result<Child> {
    spawn_signalled(command, Signal::KILL, inherited)
}

/// The same of a program that the kernel asks to end (SIGTERM): it may have something to
/// clean up.
pub fn spawn_asked(command: Command) -> io::Result<Child> {
    spawn_signalled(command, Signal::TERM, &[])
}

/// What a program prints that ends with this process; its standard input is empty.
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
        // A parent that died before the line above will send no signal any more.
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

/// In a child that was made above: lets a descriptor outlive execve.
fn inherit(number: RawFd) -> io::Result<()> {
    // SAFETY: the parent borrows the descriptor of this number while it forks,
    // so the child has it too, and nothing closes it before execve.
    let fd = unsafe { BorrowedFd::borrow_raw(number) };
    let flags = fcntl_getfd(fd)?;
    Ok(fcntl_setfd(fd, flags - FdFlags::CLOEXEC)?)
}

/// Ignores what would end an agent early. A terminal sends Ctrl-C to the whole process group, and
/// timeout(1) and systemd send SIGTERM to all processes; an agent has to outlive it to hand over what
/// was measured, and ends with its pipe.
pub fn ignore_interrupts() {
    ignore(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ]);
}

/// Ignores SIGXFSZ, so that a file-size limit is an error and not a death.
pub fn report_file_size_limit() {
    ignore(&[libc::SIGXFSZ]);
}

/// Whether this process ignores a signal.
pub fn ignores(signal: libc::c_int) -> bool {
    // SAFETY: all zeros are a valid sigaction, which the call overwrites; without a
    // new one nothing is changed.
    unsafe {
        let mut now: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut now) == 0
            && now.sa_sigaction == libc::SIG_IGN
    }
}

/// Whether SIGPIPE was ignored already when this process started. Rust ignores it
/// before `main`, so this is noted even earlier.
pub(crate) static BEGAN_WITHOUT_SIGPIPE: AtomicBool = AtomicBool::new(false);

// SAFETY: the C library calls what is in this section before `main`; the function has
// the right type and makes one system call.
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
        // SAFETY: SIG_IGN is a valid disposition for these signals, and no
        // handler of ours is replaced.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Bytes that the stack of the first thread may take (`RLIMIT_STACK`, getrlimit(2)).
pub fn stack_limit() -> Option<u64> {
    rustix::process::getrlimit(rustix::process::Resource::Stack).current
}

/// Raises this process's limit on open files to at least this. EPERM: more than it may have, and not
/// privileged (`CAP_SYS_RESOURCE`), or more than any process may (`fs.nr_open`).
pub fn allow_files(count: u64) -> std::io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= count) {
        return Ok(());
    }
    let maximum = maximum.map(|maximum| maximum.max(count));
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(count), maximum })?)
}

/// Raises this process's limit on open files to what it may have at most: counters of
/// every CPU of a large machine are held open. A limit that cannot be raised stays.
pub fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
