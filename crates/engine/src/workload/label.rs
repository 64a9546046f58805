//! The label of a path, derived from both ledgers.

use bytepath_record::{COPIED_ON_THE_WAY, Ledger, Manner, ProvenWitness, Work};

/// Share of the bytes that must be proven to have gone one way for the label to state it without a
/// percentage.
const NEARLY_ALL: f64 = 0.95;

/// Classification of one end of the path.
#[derive(Clone, Copy, Debug, PartialEq)]
enum EndClass {
    ZeroCopy,
    Copied,
    Mixed(f64),
    /// Discarded over half of its bytes, or more than it passed without a copy; the share of all
    /// bytes.
    Discarded(f64),
    Unknown,
}

/// The sender's ledger after the witness page was read: if the page was copied on its way, bytes
/// that the path reported as passed by reference are entered as copied.
pub fn after_witness(tx: &Ledger, witness: Option<ProvenWitness>) -> Ledger {
    match witness {
        Some(ProvenWitness::Copied) => tx.sent_by_reference(Manner::Copied, COPIED_ON_THE_WAY),
        Some(ProvenWitness::Shared) | None => tx.clone(),
    }
}

/// The sender's ledger if the two ends share no memory. A wire copies the witness page in any case,
/// so the page proves nothing about the sender's kernel; only the path's own evidence remains.
pub fn untested(tx: &Ledger) -> Ledger {
    tx.sent_by_reference(
        Manner::NotCopied,
        "by the sender's account only, because there is a wire between the ends",
    )
}

/// Returns the label that follows from both ends' ledgers. In a workload of exchanges both ends
/// send and receive, so each ledger is labelled with its actor, otherwise with its direction.
pub fn label(work: Work, tx: &Ledger, rx: &Ledger) -> String {
    let label = match (work, classify_end(tx), classify_end(rx)) {
        (_, EndClass::ZeroCopy, EndClass::ZeroCopy) => "zero-copy".into(),
        (_, EndClass::Copied, EndClass::Copied) => "copied".into(),
        (Work::Exchanges, tx, rx) => {
            let [client, server] = work.terms().actors;
            format!("{client} {}, {server} {}", words(tx), words(rx))
        }
        (_, tx, rx) => one_way(tx, rx),
    };
    let modes: Vec<&str> =
        [tx, rx].iter().map(|l| l.mode.as_str()).filter(|m| !m.is_empty()).collect();
    if modes.is_empty() { label } else { format!("{label} ({})", modes.join(", ")) }
}

fn one_way(tx: EndClass, rx: EndClass) -> String {
    match (tx, rx) {
        (EndClass::Copied, EndClass::ZeroCopy) => {
            "zero-copy receive, send copied by the kernel".into()
        }
        (EndClass::ZeroCopy, EndClass::Copied) => "zero-copy send, receive copied".into(),
        (tx, rx) => format!("send {}, receive {}", words(tx), words(rx)),
    }
}

fn classify_end(ledger: &Ledger) -> EndClass {
    if ledger.delivered == 0 {
        EndClass::Unknown
    } else if ledger.not_copied_share() >= NEARLY_ALL {
        EndClass::ZeroCopy
    } else if ledger.copied_share() >= NEARLY_ALL {
        EndClass::Copied
    } else if ledger.discards() || ledger.discarded > ledger.not_copied {
        EndClass::Discarded(ledger.discarded_share())
    } else if ledger.unknown > ledger.delivered / 2 {
        EndClass::Unknown
    } else {
        EndClass::Mixed(ledger.not_copied_share())
    }
}

fn words(end: EndClass) -> String {
    match end {
        EndClass::ZeroCopy => "zero-copy".into(),
        EndClass::Copied => "copied".into(),
        EndClass::Mixed(share) => format!("{:.0} % zero-copy", share * 100.0),
        EndClass::Discarded(share) if share > 0.5 => "discarded".into(),
        EndClass::Discarded(share) => format!("{:.0} % discarded", share * 100.0),
        EndClass::Unknown => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::Manner;

    fn ledger(copied: u64, not_copied: u64, unknown: u64) -> Ledger {
        let mut l = Ledger::default();
        l.enter(Manner::Copied, copied, 1, "c");
        l.enter(Manner::NotCopied, not_copied, 1, "n");
        l.enter(Manner::Unknown, unknown, 1, "u");
        l
    }

    #[test]
    fn labels_follow_ledgers() {
        let (zero, copy) = (ledger(2, 98, 0), ledger(100, 0, 0));
        assert_eq!(label(Work::Bytes, &zero, &zero), "zero-copy");
        assert_eq!(label(Work::Bytes, &copy, &copy), "copied");
        assert_eq!(label(Work::Bytes, &zero, &copy), "zero-copy send, receive copied");
        assert_eq!(
            label(Work::Bytes, &copy, &zero),
            "zero-copy receive, send copied by the kernel"
        );
    }

    #[test]
    fn both_ends_of_an_exchange_send_and_receive() {
        let (half, copy) = (ledger(50, 50, 0), ledger(100, 0, 0));
        assert_eq!(label(Work::Exchanges, &copy, &copy), "copied");
        let words = "client 50 % zero-copy, server copied";
        assert_eq!(label(Work::Exchanges, &half, &copy), words);
    }

    #[test]
    fn label_includes_mode() {
        let copy = ledger(100, 0, 0);
        let nodev = Ledger { mode: "NODEV".into(), ..copy.clone() };
        assert_eq!(label(Work::Bytes, &copy, &nodev), "copied (NODEV)");
        let mut both = nodev.clone();
        both.add(&nodev);
        assert_eq!((both.mode.as_str(), both.copied), ("NODEV", 200));
        assert_eq!(after_witness(&nodev, Some(ProvenWitness::Copied)).mode, "NODEV");
    }

    #[test]
    fn unknown_bytes_are_not_zero_copy() {
        let zero = ledger(0, 100, 0);
        assert_eq!(
            label(Work::Bytes, &ledger(0, 0, 100), &zero),
            "send unknown, receive zero-copy"
        );
        assert_eq!(
            label(Work::Bytes, &Ledger::default(), &zero),
            "send unknown, receive zero-copy"
        );
        assert_eq!(
            label(Work::Bytes, &zero, &ledger(50, 50, 0)),
            "send zero-copy, receive 50 % zero-copy"
        );
    }

    #[test]
    fn discarding_receiver_is_not_zero_copy() {
        let (zero, copy) = (ledger(0, 100, 0), ledger(100, 0, 0));
        let mut discards = Ledger::default();
        discards.enter(Manner::Discarded, 1000, 10, "recv(2) with MSG_TRUNC");
        assert_eq!(label(Work::Bytes, &zero, &discards), "send zero-copy, receive discarded");
        assert_eq!(label(Work::Bytes, &copy, &discards), "send copied, receive discarded");
        // Nor is one that discards a large part in addition to what it maps.
        discards.enter(Manner::NotCopied, 900, 9, "mapped");
        assert_eq!(label(Work::Bytes, &zero, &discards), "send zero-copy, receive discarded");
        discards.enter(Manner::NotCopied, 900, 9, "mapped");
        assert_eq!(label(Work::Bytes, &zero, &discards), "send zero-copy, receive 64 % zero-copy");
    }

    #[test]
    fn labels_name_client_and_server() {
        let label =
            |client: &Ledger, server: &Ledger| super::label(Work::Exchanges, client, server);
        let (zero, copy) = (ledger(0, 100, 0), ledger(100, 0, 0));
        assert_eq!(label(&copy, &copy), "copied");
        assert_eq!(label(&zero, &copy), "client zero-copy, server copied");
        let mut half = ledger(64, 0, 0);
        half.enter(Manner::Discarded, 64, 1, "recv(2) with MSG_TRUNC");
        assert_eq!(label(&half, &half), "client 50 % discarded, server 50 % discarded");
    }

    #[test]
    fn copied_witness_page_overrules_sender() {
        let zero = ledger(5, 95, 0);
        let judged = after_witness(&zero, Some(ProvenWitness::Copied));
        assert_eq!((judged.copied, judged.not_copied, judged.delivered), (100, 0, 100));
        assert!(judged.evidence.iter().any(|e| e.source.contains("witness")));
        assert_eq!(
            label(Work::Bytes, &judged, &zero),
            "zero-copy receive, send copied by the kernel"
        );
        assert_eq!(after_witness(&zero, Some(ProvenWitness::Shared)), zero);
    }

    #[test]
    fn keeps_sender_evidence_between_machines() {
        let ledger = untested(&ledger(5, 95, 0));
        assert_eq!((ledger.copied, ledger.not_copied, ledger.delivered), (5, 95, 100));
        let sources: Vec<&str> = ledger.evidence.iter().map(|e| e.source.as_str()).collect();
        assert_eq!(sources.iter().filter(|s| s.contains("there is a wire between")).count(), 1);
    }

    #[test]
    fn witness_concerns_sent_bytes_only() {
        let mut both = ledger(0, 100, 0);
        both.add(&ledger(0, 60, 0).mark_received());
        let judged = after_witness(&both, Some(ProvenWitness::Copied));
        assert_eq!((judged.delivered, judged.copied, judged.not_copied), (160, 100, 60));
    }
}
