//! How a host is attached to the link: by an end that its agent makes as a cell asks
//! for it, or by a device that someone else has set up.

use bytepath_record::wire::LinkEnd;
use bytepath_record::{LinkSettings, TapSettings};
use std::net::IpAddr;

/// Where a host is on the link.
#[derive(Clone, Debug)]
pub enum Attachment {
    /// By an end that is made. Its settings are replaced by those of the cell.
    Made(LinkEnd, HwGro),
    /// By one of two ends in namespaces of one kernel.
    Beside {
        /// The end of a veth pair.
        veth: LinkEnd,
        /// What it is in place of that where the cell's link is a tap.
        tap: Box<LinkEnd>,
        /// The same of a veth pair that ends in a macvtap.
        macvtap: Box<LinkEnd>,
    },
    /// By a device that is there, and stays as it is.
    Given {
        /// Its address; none leaves it to be found.
        address: Option<IpAddr>,
        /// Its name; none leaves it to the agent to find the one with the address.
        device: Option<String>,
    },
}

/// Which hardware GRO an end gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HwGro {
    /// What the cell requests.
    AsAsked,
    /// None: the device hands on what it is given as it is.
    Never,
    /// Also with TSO: what crosses a tap whole is received whole only by a device that
    /// takes large packets, which its driver calls hardware GRO (virtio_net).
    WithTso,
}

impl Attachment {
    /// The address, where it is known.
    pub fn address(&self) -> Option<IpAddr> {
        match self {
            Attachment::Made(end, _) | Attachment::Beside { veth: end, .. } => Some(end.address),
            Attachment::Given { address, .. } => *address,
        }
    }

    /// The device, where it is known.
    pub fn device(&self) -> Option<String> {
        match self {
            Attachment::Made(end, _) | Attachment::Beside { veth: end, .. } => {
                Some(end.device.clone())
            }
            Attachment::Given { device, .. } => device.clone(),
        }
    }

    /// What is requested of the agent; `None` if the link is not ours to make.
    pub fn end(&self, settings: &LinkSettings, softirq_cpu: Option<u32>) -> Option<LinkEnd> {
        let (end, hw_gro) = match self {
            Attachment::Made(end, hw_gro) => (end, *hw_gro),
            Attachment::Beside { veth, tap, macvtap } => {
                let end = match settings.tap {
                    Some(TapSettings { macvtap: true, .. }) => &**macvtap,
                    Some(_) => &**tap,
                    None => veth,
                };
                (end, HwGro::AsAsked)
            }
            Attachment::Given { .. } => return None,
        };
        let hw_gro = match hw_gro {
            HwGro::AsAsked => settings.hw_gro,
            HwGro::Never => false,
            HwGro::WithTso => settings.hw_gro || settings.tso,
        };
        let settings = LinkSettings { hw_gro, ..settings.clone() };
        Some(LinkEnd { settings, softirq_cpu, ..end.clone() })
    }
}
