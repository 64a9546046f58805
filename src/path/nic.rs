//! What a NIC has to be set to before it writes payload into memory of ours, so
//! that a flow, and nothing else, comes by one receive queue: what `zcrx` and
//! `devmem` both ask of it (Documentation/networking/devmem.rst, "NIC Setup",
//! Documentation/networking/iou-zcrx.rst, "Setup NIC").

use super::Wire;
use crate::record::{
    DeviceName, Fault, FaultKind, FlowRule, HW_GRO, Options, Rings, Setting, Split, Word,
};

/// The settings of a receiver's device, in the order in which they have to be
/// made. The queue is the one of the option `queue`, or else the last.
pub(super) fn own_queue(path: &str, options: &Options, wire: &Wire) -> Result<Vec<Setting>, Fault> {
    let device = DeviceName::new(wire.device)?;
    let queue = options.number("queue").map_or(wire.queues.saturating_sub(1), |queue| queue as u32);
    if queue == 0 || queue >= wire.queues {
        let text = format!(
            "queue {queue} of the {} that {} has cannot be set apart for {path}",
            wire.queues, wire.device
        );
        return Err(Fault::new(FaultKind::Usage, text).remedy(format!(
            "choose a queue from 1 on (the others carry everything else), or give the device more: \
             ethtool -L {} combined N",
            wire.device
        )));
    }
    // Drivers without a threshold always split, and refuse to be told.
    let hds_thresh = THRESHOLD.contains(&wire.driver).then_some(0);
    let rings = Rings { tcp_data_split: Some(Split::On), hds_thresh, ..Rings::default() };
    // Without it, mlx5 does not split.
    let merging = (wire.driver == "mlx5_core").then(|| Word::new(HW_GRO)).transpose()?;
    let merging =
        merging.map(|feature| Setting::Feature { device: device.clone(), feature, on: true });
    let split = Setting::Rings { device, rings }.checked();
    let merging = merging.map(Setting::checked);
    merging.into_iter().chain([split]).chain(steering(queue, wire)?.into_iter().map(Ok)).collect()
}

/// What sends flows, and nothing else, to one receive queue of a device: also for a path
/// that can do without, so that it is compared over the same queue.
pub fn steering(queue: u32, wire: &Wire) -> Result<Vec<Setting>, Fault> {
    let device = DeviceName::new(wire.device)?;
    let feature = Word::new("rx-ntuple-filter")?;
    let rule = FlowRule {
        source: Some(wire.peer),
        destination: Some(wire.own),
        destination_port: wire.port,
        ipv6: wire.own.is_ipv6(),
        queue,
        ..FlowRule::default()
    };
    let steering = [
        Setting::Spread { device: device.clone(), queues: queue },
        Setting::Feature { device: device.clone(), feature, on: true },
        Setting::Flow { device, rule },
    ];
    steering.into_iter().map(Setting::checked).collect()
}

/// Drivers whose header split has a threshold (`ethtool_ops.supported_ring_params`
/// with `ETHTOOL_RING_USE_HDS_THRS`).
const THRESHOLD: &[&str] = &["bnxt_en", "fbnic", "zcnic"];
