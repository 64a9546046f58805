//! The only crate with `unsafe`: system calls, rings, netlink, and readers of
//! `/proc` and `/sys`. It is independent of bytepath's own terms; each file is
//! one kernel interface, wrapped so that its callers cannot misuse it.

pub mod addressing;
pub mod allocations;
pub mod allowance;
pub mod attribute;
#[cfg(test)]
mod bed;
pub mod boot;
pub mod bpf;
pub mod bridge;
pub mod btf;
pub mod calls;
pub mod clock;
pub mod copying;
pub mod cpuidle;
pub mod cuda;
pub mod device;
pub mod devmem;
pub mod dmabuf;
pub mod driver_info;
pub mod errqueue;
pub mod ethtool;
pub mod file_lock;
pub mod files;
pub mod flow_steering;
pub mod hwmon;
pub mod idxd;
mod interface_request;
pub mod interrupts;
pub mod ktls;
pub mod lasting_namespace;
pub mod launch;
pub mod macvtap;
pub mod memory;
pub mod namespace;
pub mod netlink;
pub mod netstat;
pub mod nic_stats;
mod nvidia;
pub mod nvml;
pub mod packet;
pub mod packet_batch;
pub mod packet_ring;
pub mod packet_vnet;
pub mod perf;
pub mod pipe;
pub mod pktgen;
pub mod pmu;
pub mod powercap;
pub mod process;
pub mod procfs;
pub mod qdisc;
mod route_request;
pub mod tap;
pub mod tcp;
pub mod tcp_sockets;
pub mod thread;
pub mod uring;
pub mod vhost;
pub mod xsk;
pub mod zerocopy;

use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` are: the real ones, or a tree of files in a test, recorded or
/// made up.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Folder used in place of `/proc`.
    pub proc: PathBuf,
    /// Folder used in place of `/sys`.
    pub sys: PathBuf,
    /// File used in place of what netlink reports about the network cards; none asks the
    /// kernel. A tree of files without such a file says nothing of them.
    pub cards: Option<PathBuf>,
}

impl Roots {
    pub fn real() -> Self {
        Roots { proc: "/proc".into(), sys: "/sys".into(), cards: None }
    }

    /// Trees of files below one folder, recorded or made up: `DIR/proc`, `DIR/sys`, `DIR/cards.json`.
    pub fn recorded(dir: &Path) -> Self {
        Roots { proc: dir.join("proc"), sys: dir.join("sys"), cards: Some(dir.join("cards.json")) }
    }
}

/// The result of a raw system call, as `std` has it.
pub(crate) fn check(result: libc::c_long) -> std::io::Result<usize> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as usize) }
}
