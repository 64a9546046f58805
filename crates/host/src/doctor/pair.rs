//! Rules over two hosts: differences between them, or between the NICs at the ends of their link.

use super::findings::Findings;
use super::nic::known_nics;
use bytepath_record::{Facts, Finding, Role};

/// Facts of a NIC that should be the same at both ends: name of the fact, name for users.
const NIC_FACTS: [(&str, &str); 4] = [
    ("driver", "driver"),
    ("driver_version", "version of the driver"),
    ("firmware", "firmware"),
    ("speed", "speed (Mbit/s)"),
];

/// Returns findings about two hosts together, the sender's first, joined by these devices. If the
/// device of a host is unknown, its only NIC is examined.
pub fn examine_pair(facts: [&Facts; 2], devices: &[Vec<String>; 2]) -> Vec<Finding> {
    let mut all = Findings::default();
    let [sender, receiver] = Role::ALL.map(|role| {
        let facts = facts[role as usize];
        match &devices[role as usize][..] {
            [] => only_nic(facts).into_iter().collect(),
            named => named.to_vec(),
        }
    });
    let [of_sender, others] = facts;
    for (card, other) in sender.iter().zip(&receiver) {
        for (what, name) in NIC_FACTS {
            let here = of_sender.setting(&format!("nic.{card}.{what}"));
            let both = here.zip(others.setting(&format!("nic.{other}.{what}")));
            // An in-tree driver has the kernel's version, which is reported below.
            let apart =
                both.filter(|(here, there)| here != there && *here != of_sender.kernel_release);
            let Some((here, there)) = apart else { continue };
            all.distorts(
                format!("{name}: {here} of {card} (sender), {there} of {other} (receiver)"),
                "differences between the ends may come from the cards and not from the path",
                "update one of them: `devlink dev flash`, or the vendor's tool",
            );
        }
    }
    let [here, there] = facts.map(|facts| &facts.kernel_release);
    if here != there && !here.is_empty() && !there.is_empty() {
        all.note(
            format!("kernel: {here} (sender), {there} (receiver)"),
            "a path's code may differ between the ends",
            "boot the same kernel on both, unless that is the question",
        );
    }
    all.0
}

/// Returns the NIC of a host that has only one.
fn only_nic(facts: &Facts) -> Option<String> {
    let nics = known_nics(facts);
    nics.first().filter(|_| nics.len() == 1).map(|card| (*card).to_owned())
}
