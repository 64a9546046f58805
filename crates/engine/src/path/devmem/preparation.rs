//! NIC settings by which a flow, and nothing else, arrives on the
//! queue that the dmabuf is bound to.

use crate::path::{Wire, nic};
use bytepath_record::{Fault, Options, Setting};

/// The settings of a receiver's device, in the order in which they have to be made.
pub(super) fn settings(options: &Options, wire: &Wire) -> Result<Vec<Setting>, Fault> {
    nic::own_queues("devmem", options, wire)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionValue;
    use std::net::IpAddr;

    fn wire(driver: &'static str, queues: u32) -> Wire<'static> {
        Wire {
            device: "eth1",
            driver,
            queues,
            own: "10.0.0.2".parse().unwrap(),
            peer: "10.0.0.1".parse().unwrap(),
            port: Some(5201),
            flows: 1,
            connects: false,
        }
    }

    fn typed(queue: Option<u64>, wire: &Wire) -> Result<Vec<String>, Fault> {
        let mut options = Options::default();
        let queue = queue.map(OptionValue::Number);
        options.0.extend(queue.map(|queue| ("queue".to_owned(), queue)));
        let settings = settings(&options, wire)?;
        Ok(settings.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn the_queue_is_set_apart_and_the_flow_is_steered_to_it() {
        let v6 = Wire {
            own: "fd00::2".parse::<IpAddr>().unwrap(),
            peer: "fd00::1".parse().unwrap(),
            port: None,
            ..wire("gve", 4)
        };
        let steered = "flow eth1 src=10.0.0.1 dst=10.0.0.2 dst-port=5201";
        for (wire, queue, expected) in [
            (
                wire("mlx5_core", 16),
                None,
                vec![
                    "feature eth1 rx-gro-hw=on".to_owned(),
                    "rings eth1 tcp-data-split=on".into(),
                    "spread eth1 queues=15".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    format!("{steered} queue=15"),
                ],
            ),
            (
                wire("bnxt_en", 16),
                Some(3),
                vec![
                    "rings eth1 tcp-data-split=on hds-thresh=0".into(),
                    "spread eth1 queues=3".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    format!("{steered} queue=3"),
                ],
            ),
            (
                v6,
                None,
                vec![
                    "rings eth1 tcp-data-split=on".into(),
                    "spread eth1 queues=3".into(),
                    "feature eth1 rx-ntuple-filter=on".into(),
                    "flow eth1 src=fd00::1 dst=fd00::2 queue=3".into(),
                ],
            ),
        ] {
            assert_eq!(typed(queue, &wire).unwrap(), expected, "{wire:?}");
        }
    }

    #[test]
    fn a_queue_that_cannot_be_set_apart_is_refused() {
        for (queue, queues) in [(None, 1), (None, 0), (Some(0), 8), (Some(8), 8)] {
            let fault = typed(queue, &wire("gve", queues)).unwrap_err();
            assert!(fault.remedy.unwrap().contains("ethtool -L eth1"), "{queue:?} of {queues}");
        }
    }
}
