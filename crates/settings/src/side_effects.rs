//! Sysctls that change more than themselves in a way that could not be undone. They are refused on
//! every host, before anything changes; in a namespace that a testbed creates and drops, anything
//! may be set.

use bytepath_record::{Fault, SysctlName};

/// Side effect and remedy of each parameter, by the last part of its name.
const REFUSED: &[(&str, &str, &str)] = &[
    (
        "disable_ipv6",
        "takes addresses, routes and neighbours of IPv6 away",
        "they could not be restored; set it by hand",
    ),
    (
        "addr_gen_mode",
        "gives the device another address",
        "it would stay when the mode is restored; set it by hand",
    ),
    ("force_forwarding", "makes a router of the device", "set it by hand"),
    (
        "platform_labels",
        "drops the routes of labels beyond it",
        "they could not be restored; set it by hand",
    ),
    (
        "stable_secret",
        "is a secret that the kernel does not forget once it has one",
        "a study would publish it; set it by hand",
    ),
    (
        "tcp_fastopen_key",
        "is a secret that the kernel does not forget once it has one",
        "a study would publish it; set it by hand",
    ),
    (
        "nf_hooks_lwtunnel",
        "cannot be turned off again, in any network namespace, until the machine is rebooted",
        "set it by hand",
    ),
    (
        "watchdog",
        "moves kernel.nmi_watchdog and kernel.soft_watchdog, too",
        "set kernel.nmi_watchdog",
    ),
];

/// Parameters that show another one in coarser units, so that writing back their value loses
/// precision: their folder, their name, and the name of the exact one.
const COARSER: &[(&str, &str, &str)] = &[
    ("neigh", "unres_qlen", "unres_qlen_bytes"),
    ("neigh", "base_reachable_time", "base_reachable_time_ms"),
    ("neigh", "retrans_time", "retrans_time_ms"),
    ("route", "gc_min_interval", "gc_min_interval_ms"),
];

/// Returns why bytepath does not set this parameter on a host, or `None` if it does.
pub(super) fn refusal(name: &SysctlName) -> Option<Fault> {
    let parts: Vec<&str> = name.as_str().split('.').collect();
    let last = parts.last()?;
    let refused = |text: String, remedy: &str| Some(Fault::unsupported(text).remedy(remedy));
    if let Some((_, does, remedy)) = REFUSED.iter().find(|(refused, ..)| refused == last) {
        return refused(format!("{name} {does}"), remedy);
    }
    if let Some(exact) = parts.get(2).and_then(|folder| finer(folder, last)) {
        let remedy = format!("set {}", [&parts[..parts.len() - 1], &[exact]].concat().join("."));
        return refused(format!("{name} is a coarser view of {exact}"), &remedy);
    }
    // neigh_copy_dflt_parms, net/core/neighbour.c; its gc_* belong to the whole table.
    if let ["net", _, "neigh", "default", parameter] = parts[..]
        && !parameter.starts_with("gc_thresh")
        && parameter != "gc_interval"
    {
        let text = format!("{name} changes every device that has no value of its own");
        return refused(text, "name the device in place of default");
    }
    None
}

/// Returns the exact parameter behind one that shows coarser units.
pub(super) fn finer(folder: &str, name: &str) -> Option<&'static str> {
    let found = COARSER.iter().find(|(place, coarse, _)| (*place, *coarse) == (folder, name));
    found.map(|(_, _, exact)| *exact)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_undone_is_refused_with_what_to_do() {
        for (name, remedy) in [
            ("net.ipv6.conf.eth0.disable_ipv6", "set it by hand"),
            ("net.netfilter.nf_hooks_lwtunnel", "set it by hand"),
            ("net.ipv4.neigh.eth0.unres_qlen", "set net.ipv4.neigh.eth0.unres_qlen_bytes"),
            ("net.ipv6.neigh.eth0.retrans_time", "set net.ipv6.neigh.eth0.retrans_time_ms"),
            ("net.ipv6.route.gc_min_interval", "set net.ipv6.route.gc_min_interval_ms"),
            ("net.ipv4.neigh.default.locktime", "name the device in place of default"),
            ("net.ipv4.tcp_fastopen_key", "set it by hand"),
            ("kernel.watchdog", "set kernel.nmi_watchdog"),
        ] {
            let fault = refusal(&SysctlName::new(name).unwrap()).expect(name);
            assert!(fault.message.starts_with(name), "{fault}");
            assert!(fault.remedy.as_ref().is_some_and(|said| said.contains(remedy)), "{fault}");
        }
        for name in [
            "net.ipv4.neigh.eth0.unres_qlen_bytes",
            "net.ipv4.neigh.default.gc_thresh3",
            "net.ipv6.route.gc_min_interval_ms",
            "kernel.nmi_watchdog",
            "net.ipv4.tcp_rmem",
        ] {
            assert_eq!(refusal(&SysctlName::new(name).unwrap()), None);
        }
    }
}
