//! The label of a path, which has to be earned from both ledgers.

use crate::record::{Ledger, ProvenWitness};

/// Share of the bytes that must be proven one way or the other before the
/// label says so without a percentage.
const NEARLY_ALL: f64 = 0.95;

/// One end of the path, in words.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    ZeroCopy,
    Copied,
    Mixed(f64),
    Unknown,
}

/// What may be said of a stream whose ends kept these ledgers. The witness,
/// where there is one, overrules a sender that believes it did not copy.
pub fn label(tx: &Ledger, rx: &Ledger, witness: Option<ProvenWitness>) -> String {
    let sender = match (end(tx), witness) {
        (End::ZeroCopy | End::Mixed(_), Some(ProvenWitness::Copied)) => End::Copied,
        (end, _) => end,
    };
    match (sender, end(rx)) {
        (End::ZeroCopy, End::ZeroCopy) => "zero-copy".into(),
        (End::Copied, End::Copied) => "copied".into(),
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
        End::Unknown => "unknown".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Manner;

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
        let shared = Some(ProvenWitness::Shared);
        assert_eq!(label(&zero, &zero, shared), "zero-copy");
        assert_eq!(label(&copy, &copy, None), "copied");
        assert_eq!(label(&zero, &copy, shared), "zero-copy send, receive copied");
        assert_eq!(label(&copy, &zero, None), "zero-copy receive, send copied by the kernel");
    }

    #[test]
    fn a_silent_copy_is_never_called_zero_copy() {
        let zero = ledger(0, 100, 0);
        let copied = Some(ProvenWitness::Copied);
        assert_eq!(label(&zero, &zero, copied), "zero-copy receive, send copied by the kernel");
        let unproven = ledger(0, 0, 100);
        assert_eq!(label(&unproven, &zero, None), "send unknown, receive zero-copy");
        assert_eq!(label(&Ledger::default(), &zero, None), "send unknown, receive zero-copy");
        let half = ledger(50, 50, 0);
        assert_eq!(label(&zero, &half, None), "send zero-copy, receive 50 % zero-copy");
    }
}
