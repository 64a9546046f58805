//! The memory that a receive queue writes into.

use super::{device, memory};
use crate::connection::Flow;
use crate::path::nic;
use bytepath_record::{Fault, FaultKind, Options};
use bytepath_sys as sys;
use bytepath_sys::devmem::{self, Binding};
use bytepath_sys::dmabuf::{self, Memory};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Which memory, bound to what.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub device: String,
    pub queue: u32,
    pub memory: String,
    pub bytes: u64,
    pub page_size: Option<u32>,
}

/// A dmabuf, bound for as long as this lives.
#[derive(Debug)]
pub(super) struct Area {
    /// The number by which the kernel names the dmabuf.
    pub dmabuf: u32,
    pub memory: Box<dyn Memory>,
    /// None with a fake kernel.
    _binding: Option<Binding>,
}

/// The areas of a session, by receive queue: one is bound once, for all flows that come by it.
#[derive(Debug, Default)]
pub(super) struct Areas(Mutex<BTreeMap<u32, Arc<Area>>>);

impl Areas {
    /// The area of a place, bound where no flow has done so.
    pub(super) fn of(&self, place: &Place) -> Result<Arc<Area>, Fault> {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(area) = all.get(&place.queue) {
            return Ok(area.clone());
        }
        let area = Arc::new(Area::bind(place)?);
        all.insert(place.queue, area.clone());
        Ok(area)
    }
}

impl Place {
    /// What the options of a receiver request.
    pub(super) fn of(options: &Options, flow: &Flow) -> Result<Place, Fault> {
        let device = device(options, flow)?;
        let queue = nic::queue_of(options, flow.index, receive_queues(&device)?);
        let page_size = page_size(options)?;
        let bytes = options.number("area").unwrap_or(64 << 20);
        Ok(Place { device, queue, memory: memory(options).to_owned(), bytes, page_size })
    }
}

/// The size of a buffer that options request; none leaves it to the device.
pub(super) fn page_size(options: &Options) -> Result<Option<u32>, Fault> {
    let page_size = options.number("rx-page-size").map(|bytes| bytes as u32);
    match page_size.filter(|bytes| !bytes.is_power_of_two()) {
        None => Ok(page_size),
        Some(bytes) => {
            let message = format!("rx-page-size of {bytes} bytes is not a power of two");
            Err(Fault::new(FaultKind::Usage, message).remedy("choose 4K, 8K, 16K ..., or auto"))
        }
    }
}

impl Area {
    /// Binds new memory to the queue of a place.
    pub(super) fn bind(place: &Place) -> Result<Area, Fault> {
        let Place { device, queue, memory, bytes, page_size } = place;
        let memory = allocate(memory, *bytes)?;
        let binding = sys::device::index(device)
            .map_err(devmem::Refusal::from)
            .and_then(|index| devmem::bind_receive(index, &[*queue], *page_size, memory.fd()))
            .map_err(|refusal| {
                let what = format!("binding a dmabuf to receive queue {queue} of {device}");
                Fault::system(what, &refusal.error)
                    .words(refusal.words.as_deref())
                    .remedy(super::support::cure(refusal.error.raw_os_error()))
            })?;
        Ok(Area { dmabuf: binding.dmabuf, memory, _binding: Some(binding) })
    }

    /// An unbound area, for fake kernels.
    #[cfg(test)]
    pub(crate) fn unbound(dmabuf: u32, memory: Box<dyn Memory>) -> Arc<Area> {
        Arc::new(Area { dmabuf, memory, _binding: None })
    }
}

/// Memory of a provider, at least this many bytes.
pub(super) fn allocate(name: &str, bytes: u64) -> Result<Box<dyn Memory>, Fault> {
    let provider = dmabuf::provider(name).ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("there is no memory '{name}' for dmabufs"))
    })?;
    let len = usize::try_from(bytes).unwrap_or(usize::MAX);
    provider.allocate(len).map_err(|e| {
        let fault = Fault::system(format_args!("a dmabuf of {bytes} bytes of {name}"), &e);
        let remedy = match (name, e.raw_os_error()) {
            ("udmabuf" | "udmabuf-huge", Some(libc::EINVAL)) => {
                "raise /sys/module/udmabuf/parameters/size_limit_mb (64 by default)"
            }
            ("udmabuf-huge", Some(libc::ENOMEM)) => "reserve huge pages: sysctl vm.nr_hugepages",
            _ => "'bytepath paths' lists what each kind of memory lacks on this host",
        };
        fault.remedy(remedy)
    })
}

/// How many receive queues a device has, at least one.
fn receive_queues(device: &str) -> Result<u32, Fault> {
    let queues = sys::device::receive_queues(device)
        .map_err(|e| Fault::system(format!("receive queues of {device}"), &e));
    match queues? {
        0 => {
            let message = format!("{device} has no receive queues");
            Err(Fault::new(FaultKind::Unsupported, message).remedy("name another: device=DEV"))
        }
        queues => Ok(queues),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn the_queues_are_asked_of_the_kernel() {
        assert!(receive_queues("no-such-dev").unwrap_err().message.contains("no-such-dev"));
        match receive_queues("lo") {
            Ok(queues) => assert_eq!(queues, 1),
            Err(fault) => skip!("{fault}"),
        }
    }

    #[test]
    fn a_refused_binding_names_device_queue_and_remedy() {
        let place = Place {
            device: "lo".into(),
            queue: 3,
            memory: "none such".into(),
            bytes: 4096,
            page_size: None,
        };
        assert_eq!(Area::bind(&place).unwrap_err().kind, FaultKind::Usage);
        let place = Place { memory: "udmabuf".into(), ..place };
        let fault = Area::bind(&place).unwrap_err();
        assert!(fault.remedy.is_some(), "{fault}");
        let expected = ["queue 3 of lo", "4096 bytes of udmabuf"];
        assert!(expected.iter().any(|part| fault.message.contains(part)), "{fault}");
    }
}
