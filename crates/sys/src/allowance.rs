//! A limit on the memory of this process while it reads what others wrote, and a final message if
//! that is not enough: no parser, ours or a dependency's, has to count its allocations.

use super::{Roots, cgroup};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The system's allocator. If an allocation fails while a limit is in force, the process prints the
/// message given to [`limit`] and exits.
pub struct Allocator;

/// A limit in force; dropping it lifts the limit.
#[derive(Debug)]
pub struct Limit {
    before: Rlimit,
}

static HOLDS: AtomicBool = AtomicBool::new(false);
/// Process id of a child to wait for before this process exits with that child's exit code; 0 if
/// there is none.
static CHILD: AtomicI32 = AtomicI32::new(0);
static WORDS: Mutex<(String, i32)> = Mutex::new((String::new(), 0));

/// Limits the memory of this process (`RLIMIT_DATA`, setrlimit(2)) to `bytes`, or less if it
/// already has a lower limit. If an allocation fails, the process prints `words` on standard error
/// and exits with `code`. Programs started meanwhile inherit the limit.
pub fn limit(bytes: u64, words: impl Into<String>, code: i32) -> io::Result<Limit> {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = (words.into(), code);
    let before = getrlimit(Resource::Data);
    let lower = before.current.map_or(bytes, |known| known.min(bytes));
    setrlimit(Resource::Data, Rlimit { current: Some(lower), ..before })?;
    HOLDS.store(true, Ordering::Release);
    Ok(Limit { before })
}

/// From now on, if an allocation fails, the process prints `words` and exits with the exit code of
/// this child, which it waits for.
pub fn exit_as_child(child: u32, words: impl Into<String>) {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = (words.into(), 0);
    CHILD.store(child as i32, Ordering::Release);
    HOLDS.store(true, Ordering::Release);
}

/// Records that the child of [`exit_as_child`] has ended with this code and has been waited for.
pub fn child_ended(code: i32) {
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).1 = code;
    CHILD.store(0, Ordering::Release);
}

/// Bytes that this process may still allocate under its own limits (`RLIMIT_AS`, `RLIMIT_DATA`) and
/// those of its control groups; `None` if there are none.
pub fn left(roots: &Roots) -> Option<u64> {
    let text = std::fs::read_to_string(roots.proc.join("self/statm")).unwrap_or_default();
    // Size is the first field, data and stack the sixth (proc_pid_statm(5)).
    let pages: Vec<u64> = text.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    let page = rustix::param::page_size() as u64;
    let own = [(Resource::As, 0), (Resource::Data, 5)].into_iter().filter_map(|(resource, at)| {
        let used = pages.get(at).copied().unwrap_or_default() * page;
        Some(getrlimit(resource).current?.saturating_sub(used))
    });
    own.chain(cgroup::memory_left(roots)).min()
}

/// Bytes that this process may allocate without taking memory from other processes: the smaller of
/// [`left`] and `MemAvailable` (proc_meminfo(5)). `None` if neither is known.
pub fn available(roots: &Roots) -> Option<u64> {
    let text = std::fs::read_to_string(roots.proc.join("meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    left(roots).into_iter().chain(kib.map(|kib| kib << 10)).min()
}

impl Drop for Limit {
    fn drop(&mut self) {
        HOLDS.store(false, Ordering::Release);
        // This restores an earlier limit, which the kernel cannot refuse.
        let _ = setrlimit(Resource::Data, self.before);
    }
}

/// The exit code of a process that ends with a panic.
const PANICKED: i32 = 101;

#[cold]
fn refused() {
    if !HOLDS.load(Ordering::Acquire) {
        // Printing a panic allocates, and without memory would wait for its own lock for ever.
        if std::thread::panicking() {
            let text = b"bytepath: no memory is left\n";
            // SAFETY: the text is static, and no other code of this process runs afterwards.
            unsafe {
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
                libc::_exit(PANICKED)
            }
        }
        return;
    }
    // Not held while allocating; if another thread already prints the message, it ends this
    // process.
    let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let (text, mut code) = (&words.0, words.1);
    let (child, mut status) = (CHILD.load(Ordering::Acquire), 0);
    // SAFETY: the text lives while it is written, `status` while the child is waited for, and then
    // the process exits; nothing that could allocate runs any more.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        while child != 0 && libc::waitpid(child, &mut status, 0) != child {
            if *libc::__errno_location() != libc::EINTR {
                break;
            }
        }
        if child != 0 {
            let ended_by = libc::WIFSIGNALED(status).then(|| 128 + libc::WTERMSIG(status));
            code = ended_by.unwrap_or(libc::WEXITSTATUS(status));
        }
        libc::_exit(code)
    }
}

fn checked(memory: *mut u8) -> *mut u8 {
    if memory.is_null() {
        refused();
    }
    memory
}

// SAFETY: every call is passed on unchanged to the system's allocator, and so is its result.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds this trait's contract.
        checked(unsafe { System.alloc(layout) })
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.alloc_zeroed(layout) })
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { System.realloc(memory, layout, size) })
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(memory, layout) }
    }
}
