//! The ledger of a role: how many bytes went through, and how we know whether
//! they were copied.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Bytes that crossed the boundary between application and kernel at one end,
/// split by what is known of them. `delivered = copied + not_copied + unknown`
/// holds at all times because every entry goes through [`Ledger::enter`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ledger {
    /// All bytes of the flow, warm-up and drain included.
    pub delivered: u64,
    /// Bytes known to have been copied by the CPU.
    pub copied: u64,
    /// Bytes known not to have been copied.
    pub not_copied: u64,
    /// Bytes without proof either way.
    pub unknown: u64,
    /// What each of the sums rests on.
    pub evidence: Vec<Evidence>,
    /// What the label has to add, where a path can run in a mode that is not what
    /// its name promises: "NODEV". Empty for most.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub mode: String,
}

/// One source of knowledge about bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Evidence {
    /// What it says of the bytes.
    pub manner: Manner,
    /// Bytes it speaks of.
    pub bytes: u64,
    /// Events (completions, calls, mappings) that said so.
    pub events: u64,
    /// The source, in words: "MSG_ZEROCOPY completion without COPIED".
    pub source: String,
}

/// What happened to bytes on their way between application and kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// Copied by the CPU.
    Copied,
    /// Moved by reference: mapped, pinned, spliced, or written by a device.
    NotCopied,
    /// No proof either way.
    Unknown,
}

impl Ledger {
    /// Enters bytes with the evidence for them. Entries of the same source and
    /// manner are added up; an entry of no bytes and no events is ignored.
    pub fn enter(&mut self, manner: Manner, bytes: u64, events: u64, source: impl Into<String>) {
        if bytes == 0 && events == 0 {
            return;
        }
        let source = source.into();
        self.delivered += bytes;
        match manner {
            Manner::Copied => self.copied += bytes,
            Manner::NotCopied => self.not_copied += bytes,
            Manner::Unknown => self.unknown += bytes,
        }
        let known = self.evidence.iter_mut().find(|e| e.manner == manner && e.source == source);
        match known {
            Some(known) => {
                known.bytes += bytes;
                known.events += events;
            }
            None => self.evidence.push(Evidence { manner, bytes, events, source }),
        }
    }

    /// Adds the ledger of another flow of the same role.
    pub fn add(&mut self, other: &Ledger) {
        for e in &other.evidence {
            self.enter(e.manner, e.bytes, e.events, e.source.clone());
        }
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
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
