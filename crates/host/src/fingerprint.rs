//! A host's settings: the facts that must not change while a study runs.

use super::facts::adjustable;
use bytepath_sys::Roots;
use bytepath_sys::attribute::{names, text as read};
use std::collections::BTreeMap;

/// Settings by name, as the host prints them.
pub type Fingerprint = BTreeMap<String, String>;

/// Facts that change by themselves while a study runs: a congestion control's
/// module is loaded when a socket requests it, and devices come with modules.
const PASSING: &[&str] = &["net.ipv4.tcp_available_congestion_control", "device."];

/// Sysctls, clock source, governors, idle states, the CPUs of every interrupt, and
/// attributes, rings, queues, offloads and queueing disciplines of the network
/// cards: what the doctor reads, as far as it can be changed, and what moves
/// packets.
pub fn fingerprint(roots: &Roots) -> Fingerprint {
    let passing = |name: &str| PASSING.iter().any(|passing| name.starts_with(passing));
    let mut all = adjustable(roots);
    all.retain(|name, _| !passing(name));
    for irq in names(&roots.proc.join("irq")) {
        let path = roots.proc.join("irq").join(&irq).join("smp_affinity_list");
        all.extend(read(&path).map(|cpus| (format!("irq.{irq}.cpus"), cpus)));
    }
    all
}

/// What differs between two looks at a host, each in words that name it:
/// "net.core.rmem_max was 212992 and is 67108864".
pub fn differences(before: &Fingerprint, now: &Fingerprint) -> Vec<String> {
    let both: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = both.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let text = |value: Option<&String>| value.map_or("not there".to_owned(), String::clone);
    changed
        .map(|name| format!("{name} was {} and is {}", text(before.get(name)), text(now.get(name))))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named() {
        let of = |pairs: &[(&str, &str)]| -> Fingerprint {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let before = of(&[("clocksource", "tsc"), ("irq.24.cpus", "0-1"), ("x", "1")]);
        let now = of(&[("clocksource", "hpet"), ("x", "1"), ("y", "2")]);
        assert_eq!(
            differences(&before, &now),
            [
                "clocksource was tsc and is hpet",
                "irq.24.cpus was 0-1 and is not there",
                "y was not there and is 2",
            ]
        );
        assert!(differences(&now, &now).is_empty());
    }

    #[test]
    fn this_host_holds_still() {
        let roots = Roots::real();
        let one = fingerprint(&roots);
        assert!(one.contains_key("net.ipv4.tcp_rmem") && one.contains_key("clocksource"));
        assert!(one.keys().any(|name| name.starts_with("irq.")), "{one:?}");
        assert!(!one.keys().any(|name| name.starts_with("config.")), "{one:?}");
    }
}
