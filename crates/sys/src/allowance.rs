//! A limit on the memory of this process while it reads what others wrote, and last words where
//! that does not suffice: no parser of ours or of a crate has to count what it takes.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::alloc::{GlobalAlloc, Layout, System};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
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

impl Drop for Limit {
    fn drop(&mut self) {
        HOLDS.store(false, Ordering::Release);
        // What was allowed before cannot be refused now.
        let _ = setrlimit(Resource::Data, self.before);
    }
}

#[cold]
fn refused() {
    if !HOLDS.load(Ordering::Acquire) {
        return;
    }
    // Set once, before there was a limit; another thread that says it already ends us both.
    let words = WORDS.lock().unwrap_or_else(PoisonError::into_inner);
    let (text, code) = &*words;
    // SAFETY: the text is there while it is written, and then the process ends; nothing of it is
    // run any more that might need memory.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len());
        libc::_exit(*code)
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
