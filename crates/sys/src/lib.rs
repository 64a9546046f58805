//! System calls, rings, netlink, BPF, and readers of `/proc` and `/sys`: the only crate with
//! `unsafe`.
//!
//! Each file wraps one kernel interface so that its callers cannot misuse it. It knows nothing of
//! paths, meters or studies, and makes no decisions. Agents and the controller both call it; most
//! calls act on the calling thread's own namespaces. Errors are `std::io::Error`, and the
//! documentation of a call names the codes that its caller should know.
//!
//! | Family | Modules |
//! |---|---|
//! | TCP sockets | [`tcp`], [`tcp_sockets`], [`eventpoll`], [`zerocopy`], [`errqueue`], [`ktls`], [`pipe`], [`devmem`] |
//! | frames | [`packet`], [`packet_batch`], [`packet_ring`], [`packet_vnet`], [`xsk`], [`vhost`], [`tap`], [`macvtap`], [`pktgen`] |
//! | network devices | [`netlink`], [`addressing`], [`bridge`], [`qdisc`], [`ethtool`], [`driver_info`], [`flow_steering`], [`nic_stats`], [`device`] |
//! | network namespaces | [`namespace`], [`lasting_namespace`] |
//! | io_uring | [`uring`] |
//! | BPF | [`bpf`], [`btf`] |
//! | perf events | [`perf`], [`pmu`] |
//! | `/proc` and `/sys` | [`procfs`], [`netstat`], [`interrupts`], [`attribute`], [`cpuidle`], [`hwmon`], [`powercap`], [`resctrl`] |
//! | GPUs and other devices | [`cuda`], [`nvml`], [`dmabuf`], [`idxd`] |
//! | memory | [`memory`], [`copying`], [`allocations`], [`allowance`] |
//! | processes, threads, time | [`launch`], [`process`], [`thread`], [`boot`], [`clock`], [`calls`], [`cgroup`] |
//! | files | [`files`], [`file_lock`] |

pub mod addressing;
pub mod allocations;
pub mod allowance;
pub mod attribute;
pub mod boot;
pub mod bpf;
pub mod bridge;
pub mod btf;
mod bytes;
pub mod calls;
pub mod cgroup;
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
pub mod eventpoll;
pub mod file_lock;
pub mod files;
pub mod flow_steering;
pub mod hwmon;
pub mod idxd;
mod interface_request;
pub mod interrupts;
pub mod kept_socket;
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
pub mod pci;
pub mod perf;
pub mod pipe;
pub mod pktgen;
pub mod pmu;
pub mod poll_set;
pub mod powercap;
pub mod process;
pub mod procfs;
pub mod qdisc;
pub mod resctrl;
mod route_request;
pub mod tap;
pub mod tcp;
pub mod tcp_sockets;
#[cfg(test)]
mod test_net;
pub mod thread;
pub mod uring;
pub mod vhost;
pub mod xsk;
pub mod zerocopy;

use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

/// Where `/proc` and `/sys` are: the real ones, or a tree of files in a test.
#[derive(Clone, Debug)]
pub struct Roots {
    /// Folder used in place of `/proc`.
    pub proc: PathBuf,
    /// Folder used in place of `/sys`.
    pub sys: PathBuf,
    /// File used in place of what netlink reports about NICs; `None` to query the kernel. If the
    /// file does not exist, nothing is known about NICs.
    pub nics: Option<PathBuf>,
}

impl Roots {
    pub fn real() -> Self {
        Roots { proc: "/proc".into(), sys: "/sys".into(), nics: None }
    }

    /// Trees of files below one folder: `DIR/proc`, `DIR/sys`, `DIR/cards.json`.
    pub fn recorded(dir: &Path) -> Self {
        Roots { proc: dir.join("proc"), sys: dir.join("sys"), nics: Some(dir.join("cards.json")) }
    }
}

/// Converts the result of a raw system call to a `Result`.
pub(crate) fn check(result: libc::c_long) -> std::io::Result<usize> {
    if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result as usize) }
}

/// ioctl(2).
///
/// # Safety
///
/// The argument is what the request takes, with room for its answer.
pub(crate) unsafe fn ioctl<T>(
    file: impl AsFd,
    request: u32,
    argument: *mut T,
) -> std::io::Result<usize> {
    // SAFETY: by the caller's promise.
    check(unsafe { libc::ioctl(file.as_fd().as_raw_fd(), request as _, argument) }.into())
}
