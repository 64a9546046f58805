//! The label of a path, which has to be earned from both ledgers.

use crate::record::{Ledger, Manner, ProvenWitness, Role, Work};

/// Share of the bytes that must be proven one way or the other before the
/// label says so without a percentage.
const NEARLY_ALL: f64 = 0.95;

/// One end of the path, in words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    ZeroCopy,
    Copied,
    Mixed(f64),
    /// More of it thrown away than passed without a copy: this share of all bytes.
    Discarded(f64),
    Unknown,
}

/// The sender's ledger after the witness page has spoken: bytes that the path
/// believes it passed by reference are entered as copied if the page was found
/// copied on its way.
pub fn believe(tx: &Ledger, witness: Option<ProvenWitness>) -> Ledger {
    match witness {
        Some(ProvenWitness::Copied) => {
            by_reference(tx, Manner::Copied, "but the witness page was copied on the way")
        }
        Some(ProvenWitness::Shared) | None => tx.clone(),
    }
}

/// The sender's ledger where the two ends share no memory. A wire copies the
/// witness page in any case, so the page says nothing of the sender's kernel, and
/// the path's own evidence stands alone.
pub fn untested(tx: &Ledger) -> Ledger {
    by_reference(tx, Manner::NotCopied, "by the sender's word alone, as a wire is between the ends")
}

/// The ledger with what was passed by reference entered in this manner.
fn by_reference(tx: &Ledger, manner: Manner, why: &str) -> Ledger {
    let mut ledger = Ledger { mode: tx.mode.clone(), ..Ledger::default() };
    for e in &tx.evidence {
        match e.manner {
            Manner::NotCopied => {
                ledger.enter(manner, e.bytes, e.events, format!("{}, {why}", e.source));
            }
            other => ledger.enter(other, e.bytes, e.events, e.source.clone()),
        }
    }
    ledger
}

/// What may be said of a flow whose ends kept these ledgers.
pub fn label(work: Work, tx: &Ledger, rx: &Ledger) -> String {
    let label = earned(work, tx, rx);
    let modes: Vec<&str> =
        [tx, rx].iter().map(|l| l.mode.as_str()).filter(|m| !m.is_empty()).collect();
    if modes.is_empty() { label } else { format!("{label} ({})", modes.join(", ")) }
}

fn earned(work: Work, tx: &Ledger, rx: &Ledger) -> String {
    match (end(tx), end(rx)) {
        (End::ZeroCopy, End::ZeroCopy) => "zero-copy".into(),
        (End::Copied, End::Copied) => "copied".into(),
        // Both ends send and receive, and each has one ledger for both.
        (tx, rx) if work == Work::Exchanges => {
            let [client, server] = Role::ALL.map(|role| work.actor(role));
            format!("{client} {}, {server} {}", words(tx), words(rx))
        }
        (End::Copied, End::ZeroCopy) => "zero-copy receive, send copied by the kernel".into(),
        (End::ZeroCopy, End::Copied) => "zero-copy send, receive copied".into(),
        (tx, rx) => format!("send {}, receive {}", words(tx), words(rx)),
    }
}

fn end(ledger: &Ledger) -> End {
    if ledger.delivered == 0 {
        End::Unknown
    } else if ledger.not_copied_share() >= NEARLY_ALL {
        End::ZeroCopy
    } else if ledger.copied_share() >= NEARLY_ALL {
        End::Copied
    } else if ledger.discards() || ledger.discarded > ledger.not_copied {
        End::Discarded(ledger.discarded_share())
    } else if ledger.unknown > ledger.delivered / 2 {
        End::Unknown
    } else {
        End::Mixed(ledger.not_copied_share())
    }
}

fn words(end: End) -> String {
    match end {
        End::ZeroCopy => "zero-copy".into(),
        End::Copied => "copied".into(),
        End::Mixed(share) => format!("{:.0} % zero-copy", share * 100.0),
        End::Discarded(share) if share > 0.5 => "discarded".into(),
        End::Discarded(share) => format!("{:.0} % discarded", share * 100.0),
        End::Unknown => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Manner;

    fn label(tx: &Ledger, rx: &Ledger) -> String {
        super::label(Work::Bytes, tx, rx)
    }

    fn ledger(copied: u64, not_copied: u64, unknown: u64) -> Ledger {
        let mut l = Ledger::default();
        l.enter(Manner::Copied, copied, 1, "c");
        l.enter(Manner::NotCopied, not_copied, 1, "n");
        l.enter(Manner::Unknown, unknown, 1, "u");
        l
    }

    #[test]
    fn labels_are_earned() {
        let (zero, copy) = (ledger(2, 98, 0), ledger(100, 0, 0));
        assert_eq!(label(&zero, &zero), "zero-copy");
        assert_eq!(label(&copy, &copy), "copied");
        assert_eq!(label(&zero, &copy), "zero-copy send, receive copied");
        assert_eq!(label(&copy, &zero), "zero-copy receive, send copied by the kernel");
    }

    #[test]
    fn a_mode_that_is_not_what_the_name_promises_is_said() {
        let copy = ledger(100, 0, 0);
        let nodev = Ledger { mode: "NODEV".into(), ..copy.clone() };
        assert_eq!(label(&copy, &nodev), "copied (NODEV)");
        let mut both = nodev.clone();
        both.add(&nodev);
        assert_eq!((both.mode.as_str(), both.copied), ("NODEV", 200));
        assert_eq!(believe(&nodev, Some(ProvenWitness::Copied)).mode, "NODEV");
    }

    #[test]
    fn unproven_bytes_earn_nothing() {
        let zero = ledger(0, 100, 0);
        assert_eq!(label(&ledger(0, 0, 100), &zero), "send unknown, receive zero-copy");
        assert_eq!(label(&Ledger::default(), &zero), "send unknown, receive zero-copy");
        assert_eq!(label(&zero, &ledger(50, 50, 0)), "send zero-copy, receive 50 % zero-copy");
    }

    #[test]
    fn a_receiver_that_never_looks_is_never_zero_copy() {
        let (zero, copy) = (ledger(0, 100, 0), ledger(100, 0, 0));
        let mut discards = Ledger::default();
        discards.enter(Manner::Discarded, 1000, 10, "recv(2) with MSG_TRUNC");
        assert_eq!(label(&zero, &discards), "send zero-copy, receive discarded");
        assert_eq!(label(&copy, &discards), "send copied, receive discarded");
        // Neither is one that throws a good part away beside what it maps.
        discards.enter(Manner::NotCopied, 900, 9, "mapped");
        assert_eq!(label(&zero, &discards), "send zero-copy, receive discarded");
        discards.enter(Manner::NotCopied, 900, 9, "mapped");
        assert_eq!(label(&zero, &discards), "send zero-copy, receive 64 % zero-copy");
    }

    #[test]
    fn ends_that_send_and_receive_are_named_by_what_they_are() {
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
    fn a_copied_witness_page_overrules_the_sender() {
        let zero = ledger(5, 95, 0);
        let believed = believe(&zero, Some(ProvenWitness::Copied));
        assert_eq!((believed.copied, believed.not_copied, believed.delivered), (100, 0, 100));
        assert!(believed.evidence.iter().any(|e| e.source.contains("witness")));
        assert_eq!(label(&believed, &zero), "zero-copy receive, send copied by the kernel");
        assert_eq!(believe(&zero, Some(ProvenWitness::Shared)), zero);
    }

    #[test]
    fn between_machines_the_sender_s_own_evidence_stands() {
        let told = untested(&ledger(5, 95, 0));
        assert_eq!((told.copied, told.not_copied, told.delivered), (5, 95, 100));
        let sources: Vec<&str> = told.evidence.iter().map(|e| e.source.as_str()).collect();
        assert_eq!(sources.iter().filter(|s| s.contains("a wire is between")).count(), 1);
    }
}
