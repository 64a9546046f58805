//! The only module with `unsafe`: system calls, rings, netlink, and readers of
//! `/proc` and `/sys`. It knows nothing of bytepath's own words; each file is
//! one kernel interface, wrapped so that its callers cannot misuse it.

pub mod boot;
pub mod bpf;
pub mod btf;
pub mod calls;
pub mod clock;
pub mod devmem;
pub mod errqueue;
pub mod ethtool;
pub mod file_lock;
pub mod flow_steering;
pub mod launch;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod perf;
pub mod pipe;
pub mod process;
pub mod procfs;
pub mod qdisc;
pub mod tap;
pub mod tcp;
pub mod thread;
pub mod trace_ring;
pub mod tracefs;
pub mod uring;
pub mod zerocopy;

use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` are: the real ones, or a recorded tree in a test.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Folder that stands for `/proc`.
    pub proc: PathBuf,
    /// Folder that stands for `/sys`.
    pub sys: PathBuf,
}

impl Roots {
    /// The running kernel's.
    pub fn real() -> Self {
        Roots { proc: "/proc".into(), sys: "/sys".into() }
    }

    /// Recorded trees below one folder: `DIR/proc` and `DIR/sys`.
    pub fn recorded(dir: &Path) -> Self {
        Roots { proc: dir.join("proc"), sys: dir.join("sys") }
    }
}

/// The result of a raw system call, as `std` has it.
pub(crate) fn check(result: libc::c_long) -> std::io::Result<usize> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as usize) }
}
