//! What a NIC has to be set to before it writes payload into memory of ours:
//! what `zcrx` and `devmem` both ask of it (Documentation/networking/devmem.rst,
//! Documentation/networking/iou-zcrx.rst).

use crate::record::{DeviceName, Fault, FaultKind, FlowRule, Rings, Setting, Split};
use std::net::IpAddr;

/// A NIC that is to be prepared, as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Nic {
    /// Its name.
    pub device: DeviceName,
    /// Receive queues it uses.
    pub queues: u32,
    /// Own address of the stream's flows.
    pub address: IpAddr,
    /// The peer's address, if it is known.
    pub peer: Option<IpAddr>,
    /// The port that the flows go to, if it is known.
    pub port: Option<u16>,
}

/// Settings that give a stream the receive queue with this number for itself, in
/// the order in which to make them: headers are split off every packet, no other
/// flow is spread to the queue, and the stream's flows are steered there. A flow
/// that went there by chance would find its payload unreadable, so that a rule
/// must name the port or, on a network of its own, the peer.
pub(super) fn own_queue(nic: &Nic, queue: u32) -> Result<Vec<Setting>, Fault> {
    let device = || nic.device.clone();
    let refused = |text: String| Fault::new(FaultKind::Usage, text);
    if queue >= nic.queues {
        let text = format!("{} has {} receive queues, and none is {queue}", nic.device, nic.queues);
        return Err(refused(text));
    }
    if queue == 0 {
        let text = format!(
            "receive queue 0 of {} cannot be had alone: flows of others are spread over the queues \
             below the one of a stream",
            nic.device
        );
        return Err(refused(text).remedy("give a queue from 1 on, and the device two or more"));
    }
    if nic.peer.is_none() && nic.port.is_none() {
        let text = format!("no rule tells the stream's flows from others on {}", nic.device);
        return Err(refused(text));
    }
    let split = Rings { tcp_data_split: Some(Split::On), hds_thresh: Some(0), ..Rings::default() };
    let rule = FlowRule {
        source: nic.peer,
        destination: Some(nic.address),
        destination_port: nic.port,
        ipv6: nic.address.is_ipv6(),
        queue,
        ..FlowRule::default()
    };
    let settings = [
        Setting::Rings { device: device(), rings: split },
        Setting::Spread { device: device(), queues: queue },
        Setting::Flow { device: device(), rule },
    ];
    settings.into_iter().map(Setting::checked).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nic() -> Nic {
        Nic {
            device: DeviceName::new("eth2").unwrap(),
            queues: 8,
            address: [10, 0, 0, 2].into(),
            peer: Some([10, 0, 0, 1].into()),
            port: Some(5201),
        }
    }

    fn commands(nic: &Nic, queue: u32) -> Vec<String> {
        own_queue(nic, queue).unwrap().iter().map(Setting::command).collect()
    }

    #[test]
    fn a_queue_is_split_cleared_and_steered_to_in_this_order() {
        assert_eq!(
            commands(&nic(), 7),
            [
                "ethtool -G eth2 tcp-data-split on hds-thresh 0",
                "ethtool -X eth2 equal 7",
                "ethtool -N eth2 flow-type tcp4 src-ip 10.0.0.1 dst-ip 10.0.0.2 dst-port 5201 \
                 action 7",
            ]
        );
        let six = Nic {
            address: "fd00::2".parse().unwrap(),
            peer: Some("fd00::1".parse().unwrap()),
            port: None,
            ..nic()
        };
        let steer = "ethtool -N eth2 flow-type tcp6 src-ip fd00::1 dst-ip fd00::2 action 3";
        assert_eq!(commands(&six, 3)[2], steer);
        let by_port = Nic { peer: None, ..nic() };
        assert!(commands(&by_port, 1)[2].ends_with("dst-ip 10.0.0.2 dst-port 5201 action 1"));
    }

    #[test]
    fn what_would_break_other_flows_is_refused() {
        for (nic, queue, why) in [
            (nic(), 8, "none is 8"),
            (nic(), 0, "cannot be had alone"),
            (Nic { queues: 1, ..nic() }, 0, "cannot be had alone"),
            (Nic { peer: None, port: None, ..nic() }, 7, "no rule tells"),
        ] {
            let fault = own_queue(&nic, queue).unwrap_err();
            assert!(fault.message.contains(why), "{fault}");
        }
        // Both families at once would be a rule that no flow matches.
        let mixed = Nic { peer: Some("fd00::1".parse().unwrap()), ..nic() };
        assert!(own_queue(&mixed, 7).is_err());
    }
}
