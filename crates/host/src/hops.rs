//! What happened to frames at a device and in its queueing discipline.

use bytepath_record::{Fault, FaultKind, Hops};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::qdisc::ROOT;
use std::io;

/// What a device of this namespace and its root discipline have dropped so far, and what waits
/// there. A discipline of several (mq) reports the sums of all.
pub fn hops(device: &str) -> Result<Hops, Fault> {
    let failed = |e: io::Error| Fault::system(format!("counting the drops of {device}"), &e);
    let mut netlink = Netlink::new();
    let link = netlink.link(device).map_err(failed)?;
    let traffic = netlink.traffic(device).map_err(failed)?;
    let (Some(link), Some(traffic)) = (link, traffic) else {
        return Err(Fault::new(FaultKind::PeerLost, format!("device {device} no longer exists"))
            .remedy("find out what removed it; a tap disappears when its reader closes it"));
    };
    let all = netlink.qdiscs(link.index).map_err(failed)?;
    let root = all.iter().find(|qdisc| qdisc.parent == ROOT);
    let count = |name: &str| {
        let counts = root.map_or(&[][..], |root| &root.counts);
        counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
    };
    Ok(Hops {
        device_sent: traffic.sent,
        device_dropped: traffic.dropped,
        arrival_dropped: traffic.dropped_on_arrival,
        qdisc_dropped: count("drops"),
        qdisc_queued: count("qlen"),
        ..Hops::default()
    })
}
