//! GPUs of two hosts, whose memory the path devmem can use.

use super::findings::Findings;
use bytepath_record::{Facts, Finding, Role, joined};

/// Returns notes about the GPUs at each end, and which one devmem takes. The sender's facts come
/// first. Both ends may be on one machine; its GPUs are then named once.
pub fn examine_gpus(facts: [&Facts; 2]) -> Vec<Finding> {
    let mut all = Findings::default();
    let [sender, receiver] = facts.map(|facts| {
        joined(facts.gpus().map(|(address, words)| format!("{address} ({words})")), ", ")
    });
    let named = |role, gpus| (format!("GPUs of the {role}"), gpus);
    let ends = match sender == receiver {
        true => vec![("GPUs".to_owned(), sender)],
        false => vec![named(Role::Sender, sender), named(Role::Receiver, receiver)],
    };
    for (whose, gpus) in ends.into_iter().filter(|(_, gpus)| !gpus.is_empty()) {
        all.note(
            format!("{whose}: {gpus}"),
            "devmem:memory=gpu takes memory of the first",
            "--path devmem:memory=gpu,gpu=ADDRESS takes that of another",
        );
    }
    all.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Attempt, GPU, Outcome};

    #[test]
    fn the_gpus_of_one_machine_are_named_once() {
        let facts = |address: &str| {
            let outcome = Outcome::Works("Made-up GPU, behind a PCI bridge of eth1".into());
            let attempts = vec![Attempt { name: format!("{GPU}{address}"), outcome }];
            Facts { attempts, ..Facts::default() }
        };
        let (one, other, none) = (facts("0000:65:00.0"), facts("0000:17:00.0"), Facts::default());
        let said = |ends: [&Facts; 2]| -> Vec<String> {
            examine_gpus(ends).into_iter().map(|finding| finding.what).collect()
        };
        let words = "0000:65:00.0 (Made-up GPU, behind a PCI bridge of eth1)";
        assert_eq!(said([&one, &one]), [format!("GPUs: {words}")]);
        let apart = said([&one, &other]);
        assert_eq!(apart[0], format!("GPUs of the sender: {words}"));
        assert!(apart[1].starts_with("GPUs of the receiver: 0000:17:00.0 ("), "{apart:?}");
        assert_eq!(said([&none, &one]), [format!("GPUs of the receiver: {words}")]);
        assert_eq!(said([&none, &none]), [""; 0]);
    }
}
