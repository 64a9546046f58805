//! vhost-net without a guest: the kernel's vhost worker moves the frames of a tap into memory of
//! ours, as it does for a virtual machine (linux/vhost.h, drivers/vhost/net.c). This process takes
//! the role of the guest's receive queue.
//!
//! # Why this is safe to call
//!
//! The worker writes to the queue's memory for as long as the queue has a backend. The backend is
//! removed, which waits for the worker, before the memory is freed; if that fails, the memory is
//! leaked.

mod ring;

pub use ring::{HEADER, Malformed, Piece, Shape};

use super::{ioctl, procfs, tap, tcp};
use ring::ReceiveRing;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The device that provides vhost-net.
pub const DEVICE: &str = "/dev/vhost-net";

/// How the names of its workers begin; the id of the thread that requested it follows.
pub const WORKER: &str = "vhost-";

// Bits of features: linux/virtio_config.h, virtio_net.h, vhost.h.
const VERSION_1: u64 = 1 << 32;
const MRG_RXBUF: u64 = 1 << 15;
/// vhost writes the header, since the tap provides none (`VHOST_NET_F_VIRTIO_NET_HDR`).
const OWN_HEADER: u64 = 1 << 27;

// Requests, as built by `_IOR` and similar macros of asm-generic/ioctl.h.
const GET_FEATURES: u32 = 0x8008_af00;
const SET_FEATURES: u32 = 0x4008_af00;
const SET_OWNER: u32 = 0xaf01;
const SET_MEM_TABLE: u32 = 0x4008_af03;
const SET_VRING_NUM: u32 = 0x4008_af10;
const SET_VRING_ADDR: u32 = 0x4028_af11;
const SET_VRING_BASE: u32 = 0x4008_af12;
const SET_VRING_KICK: u32 = 0x4008_af20;
const SET_VRING_CALL: u32 = 0x4008_af21;
const SET_VRING_ERR: u32 = 0x4008_af22;
const NET_SET_BACKEND: u32 = 0x4008_af30;

/// The guest's receive queue; the transmit queue stays without a backend.
const RECEIVE: u32 = 0;

/// The step at which setting up vhost-net failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
pub enum Step {
    /// Opening [`DEVICE`].
    #[strum(to_string = "opening /dev/vhost-net")]
    Open,
    /// Starting the worker (`VHOST_SET_OWNER`).
    #[strum(to_string = "starting the vhost worker")]
    Owner,
    #[strum(to_string = "negotiating features with vhost-net")]
    Features,
    /// Configuring the queue.
    #[strum(to_string = "configuring the queue of vhost-net")]
    Queue,
    /// Using the tap as its backend.
    #[strum(to_string = "passing the tap to vhost-net")]
    Backend,
}

/// Why vhost-net could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
pub struct Refused {
    pub step: Step,
    /// The error that the kernel returned.
    pub error: io::Error,
}

/// Why nothing more can arrive.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The thread with this id has ended.
    #[error("the vhost worker (thread {0}) has ended")]
    WorkerEnded(u32),
    /// The tap was deleted.
    #[error("the tap that vhost-net reads is gone")]
    DeviceGone,
    /// The worker found something in the queue that it cannot process.
    #[error("the vhost worker reports a broken queue")]
    QueueBroken,
    /// The ring contains something invalid.
    #[error("vhost-net broke the queue: {0}")]
    Malformed(#[from] Malformed),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// How often either side did something to notify or await the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of [`Receiver::take`] that returned frames.
    pub batches: u64,
    /// Times the worker was out of buffers and was notified of new ones.
    pub kicks: u64,
    /// Calls of [`Receiver::wait`] that slept.
    pub sleeps: u64,
}

/// A receive queue that vhost-net fills with the frames of a tap.
#[derive(Debug)]
pub struct Receiver {
    device: File,
    ring: ManuallyDrop<ReceiveRing>,
    tap: OwnedFd,
    kick: OwnedFd,
    call: OwnedFd,
    broken: OwnedFd,
    /// Thread id of the kernel's worker: a thread of this process since Linux 6.4, before that a
    /// kernel thread. `None` if `/proc` does not show it.
    pub worker: Option<u32>,
    /// Counts of batches, kicks and sleeps.
    pub counts: Counts,
}

/// Returns the features of this kernel's vhost-net. ENOENT: it has no vhost-net; EACCES: this user
/// may not open it.
pub fn features() -> io::Result<u64> {
    features_of(&open()?)
}

impl Receiver {
    /// Takes over a queue of a tap: no one else may read the tap's descriptor from now on. The
    /// worker serves this process until the value is dropped.
    pub fn new(tap: BorrowedFd, shape: Shape) -> Result<Receiver, Refused> {
        let at = |step| move |error| Refused { step, error };
        let device = open().map_err(at(Step::Open))?;
        let worker = start_worker(&device).map_err(at(Step::Owner))?;
        let tap = tap.try_clone_to_owned().map_err(at(Step::Backend))?;
        let with_header = tap::flags(&tap).map_err(at(Step::Backend))? & tap::VNET_HDR;
        agree(&device, shape.mergeable, with_header != 0).map_err(at(Step::Features))?;
        let event = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let event = || event().map_err(|e| at(Step::Queue)(e.into()));
        let [kick, call, broken] = [event()?, event()?, event()?];
        let ring = ManuallyDrop::new(ReceiveRing::new(shape).map_err(at(Step::Queue))?);
        let counts = Counts::default();
        let receiver = Receiver { device, ring, tap, kick, call, broken, worker, counts };
        receiver.show(shape.entries).map_err(at(Step::Queue))?;
        if with_header != 0 {
            tap::set_header_size(receiver.tap.as_fd(), HEADER).map_err(at(Step::Backend))?;
        }
        let backend = receiver.tap.as_raw_fd();
        receiver.vring(NET_SET_BACKEND, backend as u32).map_err(at(Step::Backend))?;
        Ok(receiver)
    }

    /// Number of buffers that are filled and not yet taken.
    pub fn waiting(&self) -> u16 {
        self.ring.waiting()
    }

    /// Passes to `visit` what has arrived, up to `most` frames, gives the buffers back, and wakes
    /// the worker if it was out of them. Returns the number of frames that ended; 0 means that
    /// nothing has arrived, and vhost is not notified.
    #[inline]
    pub fn take(&mut self, most: usize, visit: impl FnMut(Piece)) -> Result<usize, Trouble> {
        let frames = self.ring.take(most, visit)?;
        if frames > 0 {
            self.counts.batches += 1;
            if self.ring.must_kick() {
                self.counts.kicks += 1;
                rustix::io::write(&self.kick, &1u64.to_ne_bytes()).map_err(io::Error::from)?;
            }
        }
        Ok(frames)
    }

    /// Sleeps until something has arrived or `timeout` has passed; returns true if something has
    /// arrived. Errors if nothing more can arrive.
    pub fn wait(&mut self, timeout: Duration) -> Result<bool, Trouble> {
        if self.ring.waiting() > 0 {
            return Ok(true);
        }
        self.ring.want_calls(true);
        if self.ring.waiting() == 0 {
            self.counts.sleeps += 1;
            self.sleep(timeout)?;
        }
        self.ring.want_calls(false);
        let come = self.ring.waiting() > 0;
        if !come {
            self.examine()?;
        }
        Ok(come)
    }

    fn sleep(&self, timeout: Duration) -> Result<(), Trouble> {
        let wanted = [&self.call, &self.broken];
        let mut polled = wanted.map(|event| PollFd::new(event, PollFlags::IN));
        match tcp::wait_for_any(&mut polled, Some(timeout)) {
            Err(e) if e.kind() != io::ErrorKind::Interrupted => return Err(e.into()),
            _ => {}
        }
        if !polled[1].revents().is_empty() {
            return Err(Trouble::QueueBroken);
        }
        // EAGAIN: the timeout passed, and the worker has not called.
        let _ = rustix::io::read(&self.call, &mut [0; 8]);
        Ok(())
    }

    /// Checks whether anything can still arrive; [`Self::wait`] does so itself.
    pub fn examine(&self) -> Result<(), Trouble> {
        match tap::flags(&self.tap) {
            Err(e) if e.raw_os_error() == Some(libc::EBADFD) => return Err(Trouble::DeviceGone),
            other => other?,
        };
        match self.worker {
            Some(tid) if !is_there(tid) => Err(Trouble::WorkerEnded(tid)),
            _ => Ok(()),
        }
    }

    /// Passes memory, ring and events to vhost.
    fn show(&self, entries: u16) -> io::Result<()> {
        let (start, len) = self.ring.extent();
        // Guest addresses are those of this process.
        let mut table =
            MemoryTable { regions: 1, pad: 0, guest: start, len, user: start, flags: 0 };
        // SAFETY: vhost reads a table of one region.
        unsafe { ioctl(&self.device, SET_MEM_TABLE, &raw mut table) }?;
        self.vring(SET_VRING_NUM, entries.into())?;
        self.vring(SET_VRING_BASE, 0)?;
        let mut addresses = self.ring.addresses(RECEIVE);
        // SAFETY: vhost reads one structure. The memory it describes outlives the backend.
        unsafe { ioctl(&self.device, SET_VRING_ADDR, &raw mut addresses) }?;
        self.vring(SET_VRING_KICK, self.kick.as_raw_fd() as u32)?;
        self.vring(SET_VRING_CALL, self.call.as_raw_fd() as u32)?;
        self.vring(SET_VRING_ERR, self.broken.as_raw_fd() as u32)
    }

    /// Makes a request that takes a number or a descriptor of the receive queue: `struct
    /// vhost_vring_state` and `vhost_vring_file`.
    fn vring(&self, request: u32, value: u32) -> io::Result<()> {
        let mut state = [RECEIVE, value];
        // SAFETY: these requests read two numbers of 32 bits.
        unsafe { ioctl(&self.device, request, &raw mut state) }.map(drop)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        /// Removes the backend.
        const NONE: u32 = u32::MAX;
        if self.vring(NET_SET_BACKEND, NONE).is_ok() {
            // SAFETY: the worker is done with the memory, and nothing uses it after this.
            unsafe { ManuallyDrop::drop(&mut self.ring) };
        }
    }
}

/// `struct vhost_memory` with one `struct vhost_memory_region`.
#[repr(C)]
struct MemoryTable {
    regions: u32,
    pad: u32,
    guest: u64,
    len: u64,
    user: u64,
    flags: u64,
}

const _: () = assert!(size_of::<MemoryTable>() == 40);

fn open() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open(DEVICE)
}

fn features_of(device: &File) -> io::Result<u64> {
    let mut features = 0u64;
    // SAFETY: the request writes 64 bits.
    unsafe { ioctl(device, GET_FEATURES, &raw mut features) }?;
    Ok(features)
}

/// Selects only the features that the queue is written for.
fn agree(device: &File, mergeable: bool, tap_has_header: bool) -> io::Result<()> {
    let merges = if mergeable { MRG_RXBUF } else { 0 };
    let header = if tap_has_header { 0 } else { OWN_HEADER };
    let mut wanted = VERSION_1 | merges | header;
    let missing = wanted & !features_of(device)?;
    if missing != 0 {
        let text = format!("this kernel's vhost-net lacks the features {missing:#x}");
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    // SAFETY: the request reads 64 bits.
    unsafe { ioctl(device, SET_FEATURES, &raw mut wanted) }.map(drop)
}

/// Makes this process the owner, which starts the worker, and finds the worker.
fn start_worker(device: &File) -> io::Result<Option<u32>> {
    // The worker is named after the id, in the initial PID namespace, of the thread that requests
    // it; in another namespace the worker can only be recognised by being new.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = own_workers();
    // SAFETY: the request takes no argument.
    unsafe { ioctl(device, SET_OWNER, std::ptr::null_mut::<u8>()) }?;
    Ok(own_workers().into_iter().find(|tid| !before.contains(tid)))
}

/// Returns the vhost workers of this process: its own threads, and kernel threads made for this
/// thread.
fn own_workers() -> Vec<u32> {
    workers(Path::new("/proc/self/task"), super::thread::id())
}

/// Returns the vhost workers of another process, requested by its first thread.
pub fn workers_of(process: u32) -> Vec<u32> {
    workers(&Path::new("/proc").join(format!("{process}/task")), process)
}

/// Returns vhost workers among the threads of a process, as since Linux 6.4, and among kernel
/// threads.
fn workers(own: &Path, requester: u32) -> Vec<u32> {
    let is_worker = |tid: &u32| {
        procfs::name(&own.join(tid.to_string())).is_some_and(|name| name.starts_with(WORKER))
    };
    let ours = procfs::numbered(own).unwrap_or_default().into_iter().filter(is_worker);
    let kernels = kernel_workers(Path::new("/proc"), &[requester]).into_iter();
    ours.chain(kernels.map(|(_, tid, _)| tid)).collect()
}

/// Returns the workers that these threads requested and that are kernel threads, as before Linux
/// 6.4, named after the requester: folder below `/proc`, id, and name.
pub fn kernel_workers(proc: &Path, requesters: &[u32]) -> Vec<(PathBuf, u32, String)> {
    let names: Vec<String> = requesters.iter().map(|tid| format!("{WORKER}{tid}")).collect();
    procfs::kernel_threads_named(proc, |name| names.iter().any(|wanted| wanted == name))
}

/// Whether a thread of this process, or of the kernel, still exists.
fn is_there(tid: u32) -> bool {
    Path::new("/proc/self/task").join(tid.to_string()).exists()
        || Path::new("/proc").join(tid.to_string()).exists()
}

#[cfg(test)]
mod tests;
