//! Resets a tap to its initial state. A veth pair is recreated for each link; a tap
//! stays, because a guest holds the other end of it, and so does what was set of it.

use super::nic::is_set;
use bytepath_record::Fault;
use bytepath_sys::namespace::Sysfs;
use bytepath_sys::netlink::{Limits, Link, Netlink};
use std::io::ErrorKind;

/// `GSO_LEGACY_MAX_SIZE` and `GRO_LEGACY_MAX_SIZE` (linux/netdevice.h): what devices
/// begin with.
const LEGACY_MAX_SIZE: u32 = 65536;

/// Takes the device down and undoes what a link sets: addresses, limits, queueing
/// discipline, RPS, threaded NAPI. MTU and offloads every link sets for itself.
pub(crate) fn reset_tap(netlink: &mut Netlink, link: &Link, name: &str) -> Result<(), Fault> {
    let failed = |what: &str| {
        let what = format!("resetting {name}: {what}");
        move |e| Fault::system(&what, &e)
    };
    netlink.set_down(link.index).map_err(failed("taking it down"))?;
    netlink.remove_addresses(link.index).map_err(failed("removing its addresses"))?;
    let limits = beginning(&link.limits);
    if limits != Limits::default() {
        netlink.set_limits(link.index, &limits).map_err(failed("its limits of GSO and GRO"))?;
    }
    match netlink.delete_root_qdisc(link.index) {
        // There is none but the kernel's own.
        Err(e) if matches!(e.kind(), ErrorKind::InvalidInput | ErrorKind::NotFound) => {}
        deleted => deleted.map_err(failed("its queueing discipline"))?,
    }
    // Where sysfs cannot be mounted, none of this can have been set.
    let Ok(sysfs) = Sysfs::open() else { return Ok(()) };
    let device = format!("class/net/{name}");
    let rps = (0..link.rx_queues).map(|queue| format!("{device}/queues/rx-{queue}/rps_cpus"));
    for path in rps.chain([format!("{device}/threaded")]) {
        // A kernel that does not have it has not set it.
        if sysfs.read(&path).is_ok_and(|text| is_set(&text)) {
            sysfs.write(&path, "0").map_err(failed(&path))?;
        }
    }
    Ok(())
}

/// Those limits that are not what devices begin with, to be set to that.
fn beginning(now: &Limits) -> Limits {
    let other =
        |size: Option<u32>| size.filter(|size| *size != LEGACY_MAX_SIZE).map(|_| LEGACY_MAX_SIZE);
    Limits {
        gso: other(now.gso),
        gro: other(now.gro),
        gso_ipv4: other(now.gso_ipv4),
        gro_ipv4: other(now.gro_ipv4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_that_were_changed_are_set() {
        let begun = Limits {
            gso: Some(LEGACY_MAX_SIZE),
            gro: Some(LEGACY_MAX_SIZE),
            gso_ipv4: Some(LEGACY_MAX_SIZE),
            gro_ipv4: None,
        };
        assert_eq!(beginning(&begun), Limits::default());
        let changed = Limits { gro: Some(524_280), ..begun };
        let set = Limits { gro: Some(LEGACY_MAX_SIZE), ..Limits::default() };
        assert_eq!(beginning(&changed), set);
    }
}
