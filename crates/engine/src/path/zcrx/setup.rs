//! Registers a queue to receive from: of the device that the flow uses, or one without a device.

use super::plan::{Memory, Plan, queue_of};
use super::probe::NIC;
use crate::connection::Flow;
use crate::path::huge_pages::{MAY_CHOOSE_NODE, reserve};
use crate::path::ring;
use crate::workload::HalfConfig;
use bytepath_record::{Fault, FaultKind};
use bytepath_sys::device;
use bytepath_sys::dmabuf;
use bytepath_sys::memory::is_node_refused;
use bytepath_sys::uring::zcrx::{self, Abilities, AreaMemory, QueueShape, RecvZcRing};
use std::io;
use std::time::{Duration, Instant};

/// What writes the bytes into the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// The device with this name.
    Device(String),
    /// The kernel, which copies them there.
    Kernel {
        /// The device that was tried first and lacks support.
        unable: Option<String>,
    },
}

impl Writer {
    /// True if it is a device.
    pub(super) fn is_device(&self) -> bool {
        matches!(self, Writer::Device(_))
    }
}

/// How long a NIC's queue may still belong to a ring that was closed: the
/// kernel tears rings down in the background without notification.
const SETTLING: Duration = Duration::from_secs(5);

/// Registers a queue: of the device that the flow uses, if it can, else one without a device.
pub(super) fn register(
    plan: &Plan,
    job: &HalfConfig,
    abilities: Option<Abilities>,
    flow: &Flow,
) -> Result<(RecvZcRing, Writer), Fault> {
    let no_device = abilities.is_some_and(|can| can.no_device);
    let mut unable = None;
    if plan.device {
        let address = flow.local_address()?;
        let name = device::of_address(address).map_err(|e| {
            Fault::system(format!("cannot find the device with address {address}"), &e)
        })?;
        let failed = match on_device(plan, job, abilities, flow, &name)? {
            Ok(ring) => return Ok((ring, Writer::Device(name))),
            Err(e) => e,
        };
        if failed.raw_os_error() != Some(libc::EOPNOTSUPP) || !no_device {
            return Err(refused(plan, Some(&name), &failed));
        }
        unable = Some(name);
    }
    if !no_device {
        let fault = Fault::unsupported("this kernel has no queues without a device");
        return Err(fault.remedy("boot Linux 7.1 or later, or leave device=auto"));
    }
    for (asked, option, instead) in [
        (plan.buffer.is_some(), "rx-buf-len", "rx-buf-len=auto"),
        (plan.memory == Memory::Dmabuf, "memory=dmabuf", "memory=normal or huge"),
    ] {
        if asked {
            let text =
                format!("{option} requires a NIC: without a device (NODEV) the kernel copies");
            return Err(Fault::usage(text).remedy(format!("give {instead}")));
        }
    }
    let shape = shape(plan, abilities, None, None)?;
    let ring = RecvZcRing::register(flow.fd(), shape, plan.completions, plan.batch);
    ring.map(|ring| (ring, Writer::Kernel { unable })).map_err(|e| refused(plan, None, &e))
}

/// Registers the planned queue of a device; the inner error is the kernel's.
fn on_device(
    plan: &Plan,
    job: &HalfConfig,
    abilities: Option<Abilities>,
    flow: &Flow,
    name: &str,
) -> Result<io::Result<RecvZcRing>, Fault> {
    let index = device::index(name);
    let index = index.map_err(|e| Fault::system(format!("cannot find device {name}"), &e))?;
    let queues = device::receive_queues(name);
    let queues = queues
        .map_err(|e| Fault::system(format!("cannot count the receive queues of {name}"), &e))?;
    let queue = queue_of(job, flow.index, queues)?;
    // A software device most likely refuses, and can be tried without allocating all the memory
    // first.
    if device::driver(name).is_ok_and(|driver| driver.is_none())
        && let Err(e) = zcrx::try_queue(index, queue)
    {
        return Ok(Err(e));
    }
    let begin = Instant::now();
    let mut pause = Duration::from_millis(1);
    loop {
        let shape = shape(plan, abilities, Some((index, queue)), node_of(name))?;
        match RecvZcRing::register(flow.fd(), shape, plan.completions, plan.batch) {
            Err(e)
                if matches!(e.raw_os_error(), Some(libc::EEXIST | libc::EBUSY))
                    && begin.elapsed() < SETTLING =>
            {
                std::thread::sleep(pause);
                pause = (pause * 2).min(Duration::from_millis(100));
            }
            other => return Ok(other),
        }
    }
}

/// Returns the NUMA node of a device, if it has one.
fn node_of(name: &str) -> Option<u32> {
    device::node(name).ok().flatten()
}

/// Returns the shape of the planned queue; allocates its memory, except for ordinary pages.
fn shape(
    plan: &Plan,
    abilities: Option<Abilities>,
    device: Option<(u32, u32)>,
    node: Option<u32>,
) -> Result<QueueShape, Fault> {
    let area = match plan.memory {
        Memory::Normal => AreaMemory::Normal(plan.area),
        Memory::Huge => AreaMemory::Huge(plan.area, node),
        Memory::Dmabuf => {
            let memory = dmabuf::pages(plan.area);
            AreaMemory::Dmabuf(memory.map_err(|e| {
                let text = format!("cannot make a dmabuf of {} bytes", plan.area);
                Fault::system(text, &e)
                    .remedy("boot a kernel with CONFIG_UDMABUF, or choose memory=huge")
            })?)
        }
    };
    Ok(QueueShape {
        device,
        area,
        entries: plan.entries,
        buffer: plan.buffer,
        kernel_ring: plan.kernel_ring,
        abilities,
    })
}

pub(super) fn export(
    ring: &mut RecvZcRing,
    abilities: Option<Abilities>,
) -> Result<zcrx::Exported, Fault> {
    if !abilities.is_some_and(|can| can.import) {
        let text = "this kernel cannot share a zcrx queue between the rings of several flows";
        let fault = Fault::unsupported(text);
        return Err(fault.remedy("boot Linux 6.19 or later, or use one flow"));
    }
    ring.export().map_err(|e| ring::fault("cannot export the queue", &e))
}

/// The fault for a queue that could not be registered, of this device or without one.
fn refused(plan: &Plan, device: Option<&str>, error: &io::Error) -> Fault {
    let queue = device.map(|name| format!("receive queue of {name}"));
    let queue = queue.as_deref().unwrap_or("queue without a device");
    let fault = Fault::system(format!("cannot register a {queue}"), error);
    if is_node_refused(error) {
        return fault.remedy(MAY_CHOOSE_NODE);
    }
    match (error.raw_os_error(), device) {
        (Some(libc::ENOMEM), _) if plan.memory == Memory::Huge => {
            fault.remedy(reserve(plan.area, device.and_then(node_of)))
        }
        (Some(libc::ENOMEM), _) => {
            fault.remedy("raise 'ulimit -l' (RLIMIT_MEMLOCK), or choose a smaller area")
        }
        (Some(libc::EPERM), _) => fault.remedy("run as root, not in a user namespace"),
        (Some(libc::EOPNOTSUPP), Some(_)) => {
            Fault { kind: FaultKind::Unsupported, ..fault }.remedy(NIC)
        }
        (Some(libc::EINVAL), Some(name)) => fault.remedy(format!(
            "ethtool -G {name} tcp-data-split on; ethtool -G {name} hds-thresh 0; rx-buf-len=auto"
        )),
        // net_mp_open_rxq(), net/core/netdev_rx_queue.c.
        (Some(libc::EEXIST | libc::EBUSY), Some(_)) => fault.remedy(
            "free the queue (another program's memory, AF_XDP, or leased to a container), detach \
             XDP from the device, or choose queue=N",
        ),
        (Some(libc::ERANGE), Some(_)) => {
            fault.remedy("rx-buf-len larger than a page needs memory=huge")
        }
        (Some(libc::ENETDOWN), Some(name)) => fault.remedy(format!("ip link set dev {name} up")),
        _ => fault,
    }
}
