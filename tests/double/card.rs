//! The state of a network device, as shown by ethtool(8) and ip(8), one line for each value.

use bytepath::record::DeviceName;
use bytepath::settings::namespace_of;
use bytepath::sys::attribute::{names, text};
use bytepath::sys::device as kernel;
use bytepath::sys::flow_steering as steering;
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::Netlink;
use bytepath::sys::qdisc::ROOT;
use std::os::fd::AsFd;
use std::path::Path;

/// Prints everything that a study may change about a device, here or in the namespace it is lent
/// to.
pub fn card(device: &str) {
    let name = DeviceName::new(device).unwrap();
    match namespace_of(&name).unwrap() {
        Some(namespace) => within(namespace.as_fd(), || print(device)).unwrap(),
        None => print(device),
    }
}

fn print(device: &str) {
    let mut netlink = Netlink::new();
    let link = netlink.link(device).unwrap().unwrap_or_else(|| panic!("{device} is not here"));
    let index = link.index;
    println!("mtu {}, up {}, {:?}", link.mtu, link.up, link.limits);
    let features = netlink.features(index).map(|features| features.active);
    println!("features {features:?}");
    println!("rings {:?}", netlink.rings(index).map_err(|e| e.to_string()));
    println!("channels {:?}", netlink.channels(index).map_err(|e| e.to_string()));
    println!("coalescing {:?}", netlink.coalescing(index).map_err(|e| e.to_string()));
    println!("table {:?}", steering::indirection(device).map_err(|e| e.to_string()));
    println!("rules {:?}", steering::rules(device).map(|table| table.locations).ok());
    let mut all = netlink.qdiscs(index).unwrap().into_iter();
    let root = all.find(|qdisc| qdisc.parent == ROOT && qdisc.handle != 0);
    println!("qdisc {}", root.map_or("of the kernel".to_owned(), |root| root.kind));
    let folder = Path::new("/sys/class/net").join(device);
    for file in ["threaded", "gro_flush_timeout", "napi_defer_hard_irqs", "tx_queue_len"] {
        println!("{file} {:?}", text(&folder.join(file)));
    }
    let mut queues = names(&folder.join("queues"));
    queues.sort();
    for queue in queues {
        let masks = ["rps_cpus", "xps_cpus"];
        let masks = masks.map(|mask| text(&folder.join("queues").join(&queue).join(mask)));
        println!("{queue} {masks:?}");
    }
    for number in kernel::interrupts(device).unwrap() {
        let cpus = text(Path::new(&format!("/proc/irq/{number}/smp_affinity_list")));
        println!("interrupt {number} {cpus:?}");
    }
}
