//! Frames of a link: no handshake, no peer. A flow of the sender is the device that its frames are
//! sent to; one of the receiver is what receives them: a queue of a tap, or the device at the other
//! end.

use super::{Connection, Flow, Listener, Terms, Transport};
use bytepath_record::{Fault, FaultKind, Protocol};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::packet;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

pub const FRAMES: &Transport = &Transport {
    name: "frames of the link",
    protocol: Protocol::Frames,
    check: |_| Ok(()),
    listen,
    connect: |_, terms, _, flows| {
        let device = terms.device.map(Device::find).transpose()?;
        let flow = |index| -> Arc<dyn Connection> {
            Arc::new(Attached { device: device.clone(), ..Attached::new(index) })
        };
        Ok((0..flows).map(flow).collect())
    },
};

/// Returns one flow per queue of a tap or, if the link ends in a device, one per flow of the
/// contract. The device is made promiscuous, since the frames' destination address is nobody's.
/// Frames have no ports.
fn listen(address: IpAddr, terms: &Terms) -> Result<Listener, Fault> {
    let device = terms.device.map(Device::find).transpose()?;
    let open_to_all = device.as_ref().map(|device| {
        packet::promiscuous(device.index).map(Arc::new).map_err(|e| {
            Fault::system(format!("making {} promiscuous", device.name), &e)
                .remedy("run as root, or with CAP_NET_RAW")
        })
    });
    let (open_to_all, queues) = (open_to_all.transpose()?, terms.queues.to_vec());
    Ok(Listener::new((address, 0).into(), move |_, flows| {
        let queues = match queues.as_slice() {
            [] => vec![None; flows as usize],
            queues => queues.iter().cloned().map(Some).collect(),
        };
        let flow = |(index, queue)| -> Arc<dyn Connection> {
            let (device, open_to_all) = (device.clone(), open_to_all.clone());
            Arc::new(Attached { device, queue, _open_to_all: open_to_all, ..Attached::new(index) })
        };
        Ok((0..).zip(queues).map(flow).collect())
    }))
}

/// A device in this namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Device {
    name: String,
    index: u32,
}

impl Device {
    fn find(name: &str) -> Result<Device, Fault> {
        let found = Netlink::new().link(name);
        let found = found.map_err(|e| Fault::system(format!("cannot look for {name}"), &e))?;
        let index = found.ok_or_else(|| missing_device(name))?.index;
        Ok(Device { name: name.to_owned(), index })
    }
}

/// The fault for a missing device.
fn missing_device(name: &str) -> Fault {
    Fault::peer_lost(format!("there is no device {name}"))
        .remedy("find out what removed it; a tap disappears when its reader closes it")
}

/// Attachment of one flow to the link.
#[derive(Clone, Debug)]
pub struct Attached {
    index: u32,
    device: Option<Device>,
    queue: Option<Arc<OwnedFd>>,
    /// While held, the device accepts frames with any destination.
    _open_to_all: Option<Arc<OwnedFd>>,
    cut: Arc<AtomicBool>,
}

impl Attached {
    fn new(index: u32) -> Attached {
        let cut = Arc::default();
        Attached { index, device: None, queue: None, _open_to_all: None, cut }
    }

    /// Returns the attachment of a connection whose transport is [`FRAMES`].
    pub fn of(connection: &dyn Connection) -> Result<Attached, Fault> {
        let any: &dyn std::any::Any = connection;
        any.downcast_ref().cloned().ok_or_else(|| {
            Fault::failed("a frame path over another transport").remedy("report this as a bug")
        })
    }

    /// Returns the interface index of its device, in this namespace.
    pub fn device(&self) -> Result<u32, Fault> {
        self.device.as_ref().map(|device| device.index).ok_or_else(|| {
            Fault::usage("this end of the link has no device")
                .remedy("choose a link with a device at each end, such as --link offload")
        })
    }

    /// Returns its queue of the tap.
    pub fn queue(&self) -> Result<Arc<OwnedFd>, Fault> {
        self.queue.clone().ok_or_else(|| {
            Fault::usage("this end of the link is not a tap queue").remedy("choose --link tap")
        })
    }

    /// Errors if the flow was cut from outside; must be called wherever a mover waits.
    pub fn check(&self) -> Result<(), Fault> {
        match self.cut.load(Ordering::Relaxed) {
            false => Ok(()),
            true => Err(Fault::peer_lost(format!("flow {}: it was cut in the middle", self.index))),
        }
    }

    /// The fault of a call that failed on this flow. If the device went down or was removed, it is
    /// `PeerLost`.
    pub fn fault(&self, call: &str, error: &std::io::Error) -> Fault {
        let device = self.device.as_ref().map_or("the tap's queue", |device| &device.name);
        let fault = Fault::system(format_args!("flow {}: {call} at {device}", self.index), error);
        match error.raw_os_error() {
            Some(libc::ENETDOWN | libc::ENXIO | libc::ENODEV | libc::EBADFD | libc::EIO) => {
                let remedy = "the device went down or was removed: find out why";
                Fault { kind: FaultKind::PeerLost, ..fault }.remedy(remedy)
            }
            _ => fault,
        }
    }
}

impl Connection for Attached {
    fn index(&self) -> u32 {
        self.index
    }

    fn kernel(&self) -> Result<Flow, Fault> {
        Err(Fault::usage("frames have no connected socket")
            .remedy("choose a frame path, such as packet+tap"))
    }

    fn end_stream(&self) -> Result<(), Fault> {
        Ok(())
    }

    fn wait_acknowledged(&self, _: Duration) -> Result<(), Fault> {
        Ok(())
    }

    fn read_exact(&self, _: &mut [u8]) -> Result<(), Fault> {
        self.kernel().map(drop)
    }

    /// A sender may sleep in the kernel until its frames are sent; taking its device down wakes it.
    fn cut(&self) {
        self.cut.store(true, Ordering::Relaxed);
        if let (Some(device), None) = (&self.device, &self.queue) {
            let _ = Netlink::new().set_down(device.index);
        }
    }

    fn close(&self) {}
}
