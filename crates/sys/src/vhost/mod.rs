//! vhost-net without a guest: the kernel's vhost worker moves the frames of a tap into
//! memory of ours, as it does for a virtual machine (linux/vhost.h, drivers/vhost/net.c).
//! We play the receive queue of the guest.
//!
//! # Why this is safe to call
//!
//! The worker writes to the queue's memory for as long as the queue has a backend. The
//! backend is removed, which waits for the worker, before the memory is returned;
//! where that fails the memory is leaked.

mod ring;

pub use ring::{HEADER, Malformed, Piece, Shape};

use super::{ioctl, procfs, tap, tcp};
use ring::ReceiveRing;
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd};
use std::fs::{File, OpenOptions};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The device by which vhost-net is reached.
pub const DEVICE: &str = "/dev/vhost-net";

// Bits of features: linux/virtio_config.h, virtio_net.h, vhost.h.
const VERSION_1: u64 = 1 << 32;
const MRG_RXBUF: u64 = 1 << 15;
/// vhost writes the header, since the tap gives none (`VHOST_NET_F_VIRTIO_NET_HDR`).
const OWN_HEADER: u64 = 1 << 27;

// Requests, as `_IOR` and related calls of asm-generic/ioctl.h make them.
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

/// The guest's receive queue; the other one stays without a backend.
const RECEIVE: u32 = 0;

/// What was being done when vhost-net could not be set up.
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
    /// Making the queue and showing it.
    #[strum(to_string = "configuring the queue of vhost-net")]
    Queue,
    /// Taking the tap for its backend.
    #[strum(to_string = "passing the tap to vhost-net")]
    Backend,
}

/// vhost-net could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {error}")]
pub struct Refused {
    pub step: Step,
    /// What the kernel returned.
    pub error: io::Error,
}

/// Why nothing more can come.
#[derive(Debug, thiserror::Error)]
pub enum Trouble {
    /// The thread of this id is gone.
    #[error("the vhost worker (thread {0}) has ended")]
    WorkerEnded(u32),
    /// The tap was deleted.
    #[error("the tap that vhost-net reads is gone")]
    DeviceGone,
    /// The worker has met something in the queue that it cannot process.
    #[error("the vhost worker reports a broken queue")]
    QueueBroken,
    /// The ring holds what it cannot hold.
    #[error("vhost-net broke the queue: {0}")]
    Malformed(#[from] Malformed),
    /// A system call failed.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// How often either side had to be notified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// [`Receiver::take`] that brought frames.
    pub batches: u64,
    /// The worker was out of buffers and was notified of new ones.
    pub kicks: u64,
    /// [`Receiver::wait`] that slept.
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
    /// Thread id of the kernel's worker: a thread of this process since Linux 6.4, before
    /// that one of the kernel's own. `None` if `/proc` does not show it.
    pub worker: Option<u32>,
    /// How often either side had to be notified.
    pub counts: Counts,
}

/// Features that this kernel's vhost-net has. ENOENT: it has none; EACCES: it is not ours
/// to open.
pub fn features() -> io::Result<u64> {
    features_of(&open()?)
}

impl Receiver {
    /// Takes a queue of a tap. From here on no one else may read the tap's descriptor.
    /// The worker serves this process until the value is dropped.
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

    /// Buffers that are filled and were not taken.
    pub fn waiting(&self) -> u16 {
        self.ring.waiting()
    }

    /// Looks at what has come, up to `most` frames, gives the buffers back, and wakes the
    /// worker if it was out of them. The value is the frames that ended; 0 says that
    /// nothing is there, and is no reason to ask vhost anything.
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

    /// Sleeps until something has come or the time is over: true when something has. What
    /// has gone wrong meanwhile is an error.
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
        // EAGAIN: the time was over, and nothing has called.
        let _ = rustix::io::read(&self.call, &mut [0; 8]);
        Ok(())
    }

    /// Whether anything can still come; [`Self::wait`] asks by itself.
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

    /// Shows memory, ring and events to vhost.
    fn show(&self, entries: u16) -> io::Result<()> {
        let (start, len) = self.ring.extent();
        // Addresses of the guest are those of this process.
        let mut table =
            MemoryTable { regions: 1, pad: 0, guest: start, len, user: start, flags: 0 };
        // SAFETY: vhost reads a table of one region.
        unsafe { ioctl(&self.device, SET_MEM_TABLE, &raw mut table) }?;
        self.vring(SET_VRING_NUM, entries.into())?;
        self.vring(SET_VRING_BASE, 0)?;
        let mut addresses = self.ring.addresses(RECEIVE);
        // SAFETY: vhost reads one structure. What it says is memory that outlives the backend.
        unsafe { ioctl(&self.device, SET_VRING_ADDR, &raw mut addresses) }?;
        self.vring(SET_VRING_KICK, self.kick.as_raw_fd() as u32)?;
        self.vring(SET_VRING_CALL, self.call.as_raw_fd() as u32)?;
        self.vring(SET_VRING_ERR, self.broken.as_raw_fd() as u32)
    }

    /// A request that takes a number or a descriptor of the receive queue: `struct
    /// vhost_vring_state` and `vhost_vring_file`.
    fn vring(&self, request: u32, value: u32) -> io::Result<()> {
        let mut state = [RECEIVE, value];
        // SAFETY: these requests read two numbers of 32 bits.
        unsafe { ioctl(&self.device, request, &raw mut state) }.map(drop)
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        /// Takes the backend away.
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

/// Takes the features that the queue is written for, and no more.
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
    // The worker is named after the thread that requests it, as the initial PID namespace
    // numbers it; in another namespace only that it is new shows which it is.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _turn = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    let before = own_workers();
    // SAFETY: the request takes no argument.
    unsafe { ioctl(device, SET_OWNER, std::ptr::null_mut::<u8>()) }?;
    Ok(own_workers().into_iter().find(|tid| !before.contains(tid)))
}

/// Threads that are vhost workers: our own, and those that the kernel made for this thread.
fn own_workers() -> Vec<u32> {
    workers(Path::new("/proc/self/task"), super::thread::id())
}

/// Threads that are the vhost workers of another process, whose first thread requested them.
pub fn workers_of(process: u32) -> Vec<u32> {
    workers(&Path::new("/proc").join(format!("{process}/task")), process)
}

/// Vhost workers among the threads of a process, as since Linux 6.4, and among the kernel's, where
/// they are named after the thread that requested them.
fn workers(own: &Path, requester: u32) -> Vec<u32> {
    let named = |folder: &Path, tid: u32, wanted: &dyn Fn(&str) -> bool| {
        procfs::name(&folder.join(tid.to_string())).is_some_and(|name| wanted(&name))
    };
    let all = Path::new("/proc");
    let exact = format!("vhost-{requester}");
    let ours = procfs::numbered(own).unwrap_or_default();
    let ours = ours.into_iter().filter(|tid| named(own, *tid, &|name| name.starts_with("vhost-")));
    let kernels = procfs::kernel_threads(all);
    let kernels = kernels.into_iter().filter(|tid| named(all, *tid, &|name| name == exact));
    ours.chain(kernels).collect()
}

/// Whether a thread of this process, or of the kernel, still is.
fn is_there(tid: u32) -> bool {
    Path::new("/proc/self/task").join(tid.to_string()).exists()
        || Path::new("/proc").join(tid.to_string()).exists()
}

#[cfg(test)]
mod tests;
