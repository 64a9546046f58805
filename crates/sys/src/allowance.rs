//! A limit on the memory of this process while it reads what others wrote, and last words where
//! that does not suffice: no parser of ours or of a crate has to count what it takes.

use super::{Roots, cgroup};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Mutex, PoisonError};

/// The system's allocator. Where a limit holds and memory is refused, the process ends with
/// the words given to [`limit`].
pub struct Allocator;

/// Holds a limit; dropping it lifts the limit.
#[derive(Debug)]
pub struct Limit {
    before: Rlimit,
}

static HOLDS: AtomicBool = AtomicBool::new(false);
/// A child whose end is waited for before this process ends, with its exit code; 0 for none.
static CHILD: AtomicI32 = AtomicI32::new(0);
static WORDS: Mutex<(String, i32)> = Mutex::new((String::new(), 0));

/// Limits the memory of this process (`RLIMIT_DATA`, setrlimit(2)) to so many bytes, or fewer where
/// it has a lower limit. Beyond it the process prints `words` on standard error and ends with
/// `code`. A program that is started meanwhile has the limit, too.
pub fn limit(bytes: u64, words: impl Into<String>, code: i32) -> io::Result<Limit> {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = (words.into(), code);
    let before = getrlimit(Resource::Data);
    let lower = before.current.map_or(bytes, |known| known.min(bytes));
    setrlimit(Resource::Data, Rlimit { current: Some(lower), ..before })?;
    HOLDS.store(true, Ordering::Release);
    Ok(Limit { before })
}

/// From now on, where memory is refused, the process prints `words` and ends with the exit code of
/// this child, which may still run.
pub fn outlive(child: u32, words: impl Into<String>) {
    *WORDS.lock().unwrap_or_else(PoisonError::into_inner) = (words.into(), 0);
    CHILD.store(child as i32, Ordering::Release);
    HOLDS.store(true, Ordering::Release);
}

/// The child of [`outlive`] has ended with this code, and was waited for.
pub fn outlived(code: i32) {
    WORDS.lock().unwrap_or_else(PoisonError::into_inner).1 = code;
    CHILD.store(0, Ordering::Release);
}

/// Bytes that this process may still take under its own limits (`RLIMIT_AS`, `RLIMIT_DATA`) and
/// those of its control groups; `None` if there are none.
pub fn left(roots: &Roots) -> Option<u64> {
    let text = std::fs::read_to_string(roots.proc.join("self/statm")).unwrap_or_default();
    // Size first, data and stack sixth (proc_pid_statm(5)).
    let pages: Vec<u64> = text.split(' ').filter_map(|word| word.trim().parse().ok()).collect();
    let page = rustix::param::page_size() as u64;
    let own = [(Resource::As, 0), (Resource::Data, 5)].into_iter().filter_map(|(resource, at)| {
        let used = pages.get(at).copied().unwrap_or_default() * page;
        Some(getrlimit(resource).current?.saturating_sub(used))
    });
    own.chain(cgroup::memory_left(roots)).min()
}

/// Bytes that this process may take without another's loss: the least of [`left`] and what the machine
/// has (`MemAvailable`, proc_meminfo(5)). `None` if neither is known.
pub fn available(roots: &Roots) -> Option<u64> {
    let text = std::fs::read_to_string(roots.proc.join("meminfo")).unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    left(roots).into_iter().chain(kib.map(|kib| kib << 10)).min()
}

impl Drop for Limit {
    fn drop(&mut self) {
        HOLDS.store(false, Ordering::Release);
        // What was allowed before cannot be refused now.
        let _ = setrlimit(Resource::Data, self.before);
    }
}

/// The exit code of a process that ends by a panic.
const PANICKED: i32 = 101;

#[cold]
fn refused() {
    if !HOLDS.load(Ordering::Acquire) {
        // Printing a panic takes memory, and where there is none it waits for itself for ever.
        if std::thread::panicking() {
            let text = b"bytepath: no memory is left\n";
            // SAFETY: the text is a static, and nothing of this process is run any more.
            unsafe {
                libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
                libc::_exit(PANICKED)
            }
        }
        return;
    }
    // Held by no one who allocates; another thread that says it already ends us both.
    let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let (text, mut code) = (&words.0, words.1);
    let (child, mut status) = (CHILD.load(Ordering::Acquire), 0);
    // SAFETY: the text is there while it is written, `status` while it is waited for, and then the
    // process ends; nothing of it is run any more that might need memory.
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

// SAFETY: every call is handed on to the system's allocator as it is, and so is its answer.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the rules of this trait.
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
