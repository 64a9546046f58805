//! Threads: their CPUs and ids.

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use std::io;

/// Pins the calling thread to one CPU.
pub fn pin(cpu: u32) -> io::Result<()> {
    pin_to(None, cpu)
}

/// Pins another thread, of this process or of the kernel, to one CPU. ESRCH: it has ended.
pub fn pin_other(tid: u32, cpu: u32) -> io::Result<()> {
    let tid = Pid::from_raw(tid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    pin_to(Some(tid), cpu)
}

/// Lets another thread run on every CPU allowed to the first thread of this process. ESRCH: it has
/// ended.
pub fn free_other(tid: u32) -> io::Result<()> {
    let tid = Pid::from_raw(tid as i32).ok_or(io::ErrorKind::InvalidInput)?;
    let first = rustix::process::getpid();
    let all = rustix::thread::sched_getaffinity(Some(first))?;
    Ok(sched_setaffinity(Some(tid), &all)?)
}

/// Lets the calling thread run on every CPU allowed to the first thread of this process, except
/// `cpu`, if any other is left.
pub fn leave(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::sched_getaffinity(Some(rustix::process::getpid()))?;
    if set.count() > 1 && (cpu as usize) < CpuSet::MAX_CPU {
        set.unset(cpu as usize);
    }
    Ok(sched_setaffinity(None, &set)?)
}

fn pin_to(thread: Option<Pid>, cpu: u32) -> io::Result<()> {
    if cpu as usize >= CpuSet::MAX_CPU {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    Ok(sched_setaffinity(thread, &set)?)
}

/// Returns the CPUs that this process may run on.
pub fn allowed() -> io::Result<Vec<u32>> {
    allowed_cpus(None)
}

/// Returns the CPUs that another thread may run on. ESRCH: it has ended.
pub fn allowed_to(tid: u32) -> io::Result<Vec<u32>> {
    allowed_cpus(Some(Pid::from_raw(tid as i32).ok_or(io::ErrorKind::InvalidInput)?))
}

fn allowed_cpus(thread: Option<Pid>) -> io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(thread)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect())
}

/// Thread id of the caller, as in `/proc/self/task`.
pub fn id() -> u32 {
    let tid: Pid = rustix::thread::gettid();
    tid.as_raw_nonzero().get() as u32
}
