//! The ledger of a role: how many bytes it transferred, and the evidence on whether they were
//! copied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Appended to the source of bytes that were passed by reference, if a witness page was copied.
pub const COPIED_ON_THE_WAY: &str = "but the witness page was copied on the way";

/// Sources of bytes that were passed by reference but copied after all, as reported by the kernel
/// (Documentation/networking/msg_zerocopy.rst; `IORING_NOTIF_USAGE_ZC_COPIED`).
pub const COMPLETED_AS_COPIED: [&str; 2] =
    ["MSG_ZEROCOPY completion with COPIED", "IORING_OP_SEND_ZC notification with ZC_COPIED"];

/// Bytes that crossed the boundary between application and kernel at one end, by whether they were
/// copied. `delivered = copied + not_copied + discarded + unknown` always holds because every entry
/// goes through [`Ledger::enter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// All bytes of the flow, warm-up and drain included.
    pub delivered: u64,
    /// Bytes known to have been copied by the CPU.
    pub copied: u64,
    /// Bytes known not to have been copied.
    pub not_copied: u64,
    /// Bytes that were discarded in the kernel: no application saw them, so they were neither
    /// copied nor passed without a copy.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub discarded: u64,
    /// Bytes without proof either way.
    pub unknown: u64,
    /// The evidence for each of the sums.
    pub evidence: Vec<Evidence>,
    /// Suffix of the label, if a path ran in another mode than its name promises: "NODEV". Usually
    /// empty.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
}

/// One source of evidence about bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What it shows about the bytes.
    pub manner: Manner,
    /// Bytes it refers to.
    pub bytes: u64,
    /// Events (completions, calls, mappings) that showed it.
    pub events: u64,
    /// The source, in words: "MSG_ZEROCOPY completion without COPIED".
    pub source: String,
    /// True for bytes that were received at an end that also sends: a witness page that was sent
    /// shows nothing about them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub came_in: bool,
}

/// What happened to bytes on their way between application and kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// Copied by the CPU.
    Copied,
    /// Moved by reference: mapped, pinned, spliced, or written by a device.
    NotCopied,
    /// Discarded in the kernel, as by `recv` with `MSG_TRUNC`: the bytes never reached the
    /// application, so they were not delivered without a copy either.
    Discarded,
    /// No proof either way.
    Unknown,
}

impl Manner {
    /// Returns its name in words.
    pub fn words(self) -> &'static str {
        match self {
            Manner::Copied => "copied",
            Manner::NotCopied => "not copied",
            Manner::Discarded => "discarded",
            Manner::Unknown => "unknown",
        }
    }
}

impl Evidence {
    /// True if these bytes were passed by reference but copied after all.
    pub fn was_copied_on_the_way(&self) -> bool {
        self.source.ends_with(COPIED_ON_THE_WAY) || COMPLETED_AS_COPIED.contains(&&*self.source)
    }
}

impl Ledger {
    /// Enters bytes with their evidence. Entries of the same source and manner are added up; an
    /// entry of no bytes and no events is ignored.
    pub fn enter(&mut self, manner: Manner, bytes: u64, events: u64, source: impl Into<String>) {
        if bytes == 0 && events == 0 {
            return;
        }
        self.add_one(Evidence { manner, bytes, events, source: source.into(), came_in: false });
    }

    fn add_one(&mut self, entry: Evidence) {
        let Evidence { manner, bytes, events, came_in, .. } = entry;
        self.delivered += bytes;
        match manner {
            Manner::Copied => self.copied += bytes,
            Manner::NotCopied => self.not_copied += bytes,
            Manner::Discarded => self.discarded += bytes,
            Manner::Unknown => self.unknown += bytes,
        }
        let same = |e: &&mut Evidence| {
            (e.manner, e.came_in, &e.source) == (manner, came_in, &entry.source)
        };
        let known = self.evidence.iter_mut().find(same);
        match known {
            Some(known) => {
                known.bytes += bytes;
                known.events += events;
            }
            None => self.evidence.push(entry),
        }
    }

    /// Marks all entries as bytes that were received at an end that also sends.
    pub fn mark_received(mut self) -> Ledger {
        self.evidence.iter_mut().for_each(|entry| entry.came_in = true);
        self
    }

    /// Returns a copy in which the bytes that this end sent by reference have another manner;
    /// received bytes are left as they are.
    pub fn sent_by_reference(&self, manner: Manner, why: &str) -> Ledger {
        self.reclassify(|entry| {
            let is_meant = entry.manner == Manner::NotCopied && !entry.came_in;
            is_meant.then(|| (manner, why.to_owned()))
        })
    }

    /// Returns a copy in which each entry has the manner that `each` returns, with the reason
    /// appended to its source; `None` leaves the entry as it is.
    pub fn reclassify(&self, each: impl Fn(&Evidence) -> Option<(Manner, String)>) -> Ledger {
        let mut ledger = Ledger { mode: self.mode.clone(), ..Ledger::default() };
        for e in &self.evidence {
            let mut entry = e.clone();
            if let Some((manner, words)) = each(e) {
                (entry.manner, entry.source) = (manner, format!("{}, {words}", e.source));
            }
            ledger.add_one(entry);
        }
        ledger
    }

    /// Adds the ledger of another flow of the same role.
    pub fn add(&mut self, other: &Ledger) {
        other.evidence.iter().cloned().for_each(|entry| self.add_one(entry));
        if self.mode.is_empty() {
            self.mode.clone_from(&other.mode);
        }
    }

    /// Share of the bytes known not to have been copied, 0 to 1.
    pub fn not_copied_share(&self) -> f64 {
        share(self.not_copied, self.delivered)
    }

    /// Share of the bytes known to have been copied, 0 to 1.
    pub fn copied_share(&self) -> f64 {
        share(self.copied, self.delivered)
    }

    /// Share of the bytes that were discarded unseen, 0 to 1.
    pub fn discarded_share(&self) -> f64 {
        share(self.discarded, self.delivered)
    }

    /// True if this end discarded more than half of its bytes, which the other end of a comparison
    /// may have delivered.
    pub fn discards(&self) -> bool {
        self.discarded_share() > 0.5
    }
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_discarded_is_delivered_but_not_without_a_copy() {
        let mut ledger = Ledger::default();
        ledger.enter(Manner::Discarded, 90, 9, "recv(2) with MSG_TRUNC");
        ledger.enter(Manner::Copied, 10, 1, "recv(2)");
        let parts = ledger.copied + ledger.not_copied + ledger.discarded + ledger.unknown;
        assert_eq!((ledger.delivered, parts), (100, 100));
        assert_eq!((ledger.not_copied_share(), ledger.discarded_share()), (0.0, 0.9));
        assert!(ledger.discards());
        let mut sum = Ledger::default();
        sum.add(&ledger);
        assert_eq!(sum, ledger);
        let old: Ledger = serde_json::from_str(
            r#"{"delivered": 5, "copied": 5, "not_copied": 0, "unknown": 0, "evidence": []}"#,
        )
        .unwrap();
        assert_eq!((old.discarded, old.discards()), (0, false));
    }
}
