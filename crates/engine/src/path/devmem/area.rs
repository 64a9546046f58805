//! The memory that a receive queue writes into.

use super::gpu;
use super::options::{device, memory};
use crate::connection::Flow;
use crate::path::{huge_pages, nic};
use crate::workload::HalfConfig;
use bytepath_record::{Fault, Options};
use bytepath_sys as sys;
use bytepath_sys::devmem::{self, Binding};
use bytepath_sys::dmabuf::{self, Memory, Place};
use bytepath_sys::memory::is_node_refused;
use bytepath_sys::pci::Address;
use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

/// The memory of an area, and the queue to bind it to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AreaSpec {
    pub device: String,
    pub queue: u32,
    pub memory: String,
    /// The GPU of the memory; `None` for the nearest.
    pub gpu: Option<Address>,
    pub bytes: u64,
    pub page_size: Option<u32>,
}

/// A dmabuf, bound to a receive queue for as long as this lives.
#[derive(Debug)]
pub(super) struct Area {
    /// The kernel's number of the dmabuf.
    pub dmabuf: u32,
    pub memory: Box<dyn Memory>,
    /// `None` with a fake kernel.
    _binding: Option<Binding>,
}

/// The areas of a session, by device and receive queue. All flows of a queue share its area.
#[derive(Debug, Default)]
pub(super) struct Areas(Mutex<BTreeMap<(String, u32), Arc<Area>>>);

impl Areas {
    /// Returns the area of a spec, and binds it first if no flow has.
    pub(super) fn of(&self, spec: &AreaSpec) -> Result<Arc<Area>, Fault> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let queue = (spec.device.clone(), spec.queue);
        if let Some(area) = all.get(&queue) {
            return Ok(area.clone());
        }
        let area = Arc::new(Area::bind(spec)?);
        all.insert(queue, area.clone());
        Ok(area)
    }
}

impl AreaSpec {
    /// Returns the area that a receiver's options request.
    pub(super) fn of(job: &HalfConfig, flow: &Flow) -> Result<AreaSpec, Fault> {
        let options = &job.options;
        let device = device(options, flow)?;
        let queue = nic::queue_of(job, flow.index, receive_queues(&device)?);
        let page_size = page_size(options)?;
        Ok(AreaSpec {
            device,
            queue,
            memory: memory(options).to_owned(),
            gpu: gpu::named(options)?,
            bytes: bytes(options),
            page_size,
        })
    }
}

/// Returns the size of a queue's area, bytes.
pub(super) fn bytes(options: &Options) -> u64 {
    options.number("area").unwrap_or(64 << 20)
}

/// Returns the buffer size that options request, or `None` to leave it to the device.
pub(super) fn page_size(options: &Options) -> Result<Option<u32>, Fault> {
    let page_size = options.number("rx-page-size").map(|bytes| bytes as u32);
    match page_size.filter(|bytes| !bytes.is_power_of_two()) {
        None => Ok(page_size),
        Some(bytes) => {
            let message = format!("rx-page-size of {bytes} bytes is not a power of two");
            Err(Fault::usage(message).remedy("choose 4K, 8K, 16K ..., or auto"))
        }
    }
}

impl Area {
    /// Allocates memory and binds it to the queue of a spec.
    pub(super) fn bind(spec: &AreaSpec) -> Result<Area, Fault> {
        let AreaSpec { device, queue, memory, gpu, bytes, page_size } = spec;
        let memory = allocate(memory, *gpu, *bytes, device)?;
        let binding = devmem::bind_receive(device, &[*queue], *page_size, memory.fd());
        let binding = binding.map_err(|refusal| {
            let what = format!("binding a dmabuf to receive queue {queue} of {device}");
            super::support::refused(what, &refusal)
        })?;
        Ok(Area { dmabuf: binding.dmabuf, memory, _binding: Some(binding) })
    }

    /// Makes an unbound area, for fake kernels.
    #[cfg(test)]
    pub(crate) fn unbound(dmabuf: u32, memory: Box<dyn Memory>) -> Arc<Area> {
        Arc::new(Area { dmabuf, memory, _binding: None })
    }
}

/// Allocates at least `bytes` bytes from the provider `name`. Huge pages come from the NUMA node of
/// `device`, GPU memory from `gpu` or else from the GPU nearest to it.
pub(super) fn allocate(
    name: &str,
    gpu: Option<Address>,
    bytes: u64,
    device: &str,
) -> Result<Box<dyn Memory>, Fault> {
    let named = |provider: &&dmabuf::Provider| provider.name == name;
    let provider = dmabuf::PROVIDERS
        .iter()
        .find(named)
        .ok_or_else(|| Fault::usage(format!("there is no memory '{name}' for dmabufs")))?;
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    let node = sys::device::node(device).ok().flatten();
    let gpu = (name == "gpu").then(|| gpu::find(gpu, Some(device))).transpose()?;
    (provider.allocate)(len, Place { node, gpu }).map_err(|e| no_memory(name, len, node, &e))
}

fn no_memory(name: &str, len: usize, node: Option<u32>, error: &io::Error) -> Fault {
    let fault = Fault::system(format_args!("a dmabuf of {len} bytes of {name}"), error);
    if is_node_refused(error) {
        return fault.remedy(huge_pages::MAY_CHOOSE_NODE);
    }
    fault.remedy(match (name, error.raw_os_error()) {
        ("udmabuf" | "udmabuf-huge", Some(libc::EINVAL)) => {
            "raise /sys/module/udmabuf/parameters/size_limit_mb (64 by default)".to_owned()
        }
        ("udmabuf-huge", Some(libc::ENOMEM)) => huge_pages::reserve(len, node),
        _ => "'bytepath paths' lists what each kind of memory lacks on this host".to_owned(),
    })
}

/// Returns the number of receive queues of a device, at least one.
fn receive_queues(device: &str) -> Result<u32, Fault> {
    let queues = sys::device::receive_queues(device)
        .map_err(|e| Fault::system(format!("receive queues of {device}"), &e));
    match queues? {
        0 => Err(Fault::unsupported(format!("{device} has no receive queues"))
            .remedy("name another: device=DEV")),
        queues => Ok(queues),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::FaultKind;
    use bytepath_sys::memory::NodeRefused;
    use bytepath_testing::skip;

    #[test]
    fn huge_pages_whose_node_may_not_be_chosen_ask_for_the_capability() {
        let refused = io::Error::from_raw_os_error(libc::EPERM);
        let refused = io::Error::new(refused.kind(), NodeRefused(refused));
        let fault = no_memory("udmabuf-huge", 1 << 21, Some(0), &refused);
        assert!(fault.message.contains("set_mempolicy"), "{fault}");
        assert_eq!(fault.kind, FaultKind::Permission);
        assert!(fault.remedy.unwrap().contains("CAP_SYS_NICE"));
        let few = no_memory("udmabuf-huge", 1 << 21, Some(0), &io::Error::from_raw_os_error(12));
        assert!(few.remedy.unwrap().contains("hugepages 2M node=0 1"));
    }

    #[test]
    fn an_area_is_of_a_queue_of_one_device() {
        let areas = Areas::default();
        let memory = dmabuf::FakeDmabuf::new(4096, true).unwrap();
        let bound = Area::unbound(1, Box::new(memory));
        areas.0.lock().unwrap().insert(("eth1".into(), 3), bound.clone());
        let of = |device: &str, queue| {
            let memory = "none such".to_owned();
            areas.of(&AreaSpec {
                device: device.into(),
                queue,
                memory,
                gpu: None,
                bytes: 4096,
                page_size: None,
            })
        };
        assert!(Arc::ptr_eq(&of("eth1", 3).unwrap(), &bound));
        assert!(of("eth1", 2).is_err() && of("eth2", 3).is_err(), "these would be bound");
    }

    #[test]
    fn reads_receive_queues_from_kernel() {
        assert!(receive_queues("no-such-dev").unwrap_err().message.contains("no-such-dev"));
        match receive_queues("lo") {
            Ok(queues) => assert_eq!(queues, 1),
            Err(fault) => skip!("{fault}"),
        }
    }

    #[test]
    fn binding_faults_name_device_and_queue() {
        let spec = AreaSpec {
            device: "lo".into(),
            queue: 3,
            memory: "none such".into(),
            gpu: None,
            bytes: 4096,
            page_size: None,
        };
        assert_eq!(Area::bind(&spec).unwrap_err().kind, FaultKind::Usage);
        let spec = AreaSpec { memory: "udmabuf".into(), ..spec };
        let fault = Area::bind(&spec).unwrap_err();
        assert!(fault.remedy.is_some(), "{fault}");
        let expected = ["queue 3 of lo", "4096 bytes of udmabuf"];
        assert!(expected.iter().any(|part| fault.message.contains(part)), "{fault}");
    }
}
