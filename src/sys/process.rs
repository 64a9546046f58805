//! The process itself: signals it ignores, and what ends it.

use std::io;

/// Makes this process die with its parent, even if the parent is killed.
/// `PR_SET_PDEATHSIG`, prctl(2).
pub fn die_with_parent() -> io::Result<()> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    Ok(())
}

/// Ignores what would end an agent early. A terminal sends Ctrl-C to the whole
/// process group, and an agent has to outlive it to hand over what was measured.
pub fn ignore_interrupts() {
    ignore(&[libc::SIGINT, libc::SIGHUP, libc::SIGPIPE, libc::SIGXFSZ]);
}

/// Ignores SIGXFSZ, so that a file-size limit is an error and not a death.
pub fn report_file_size_limit() {
    ignore(&[libc::SIGXFSZ]);
}

fn ignore(signals: &[libc::c_int]) {
    for signal in signals {
        // SAFETY: SIG_IGN is a valid disposition for these signals, and no
        // handler of ours is replaced.
        unsafe { libc::signal(*signal, libc::SIG_IGN) };
    }
}

/// Raises this process's limit on open files to what it may have at most: counters of
/// every CPU of a large machine are held open. A limit that cannot be raised stays.
pub fn allow_many_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}
