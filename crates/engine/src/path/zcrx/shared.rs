//! Queues that several flows of a stream receive from: the first registers one, the others
//! import it. Each flow has an engine, and each engine a ring of its own.

use super::setup::Writer;
use bytepath_sys::uring::zcrx::Exported;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The queues of a session that are shared, by their number among those of all adapters that its
/// flows are spread over.
#[derive(Debug, Default)]
pub(super) struct SharedQueues(pub Mutex<BTreeMap<u32, Arc<SharedQueue>>>);

/// A queue that several flows receive from.
#[derive(Debug)]
pub(super) struct SharedQueue {
    /// What the other flows import.
    pub exported: Exported,
    /// Who writes into it.
    pub writer: Writer,
    claimed: Mutex<Copied>,
}

/// Copies that the kernel has counted: fragments and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    pub fragments: u64,
    pub bytes: u64,
}

impl SharedQueue {
    /// A queue of which nothing is claimed yet.
    pub(super) fn new(exported: Exported, writer: Writer) -> SharedQueue {
        SharedQueue { exported, writer, claimed: Mutex::default() }
    }

    /// What a flow that ends takes of the copies that were counted so far: as much
    /// as it received. The kernel counts for the queue, not for a flow; what the
    /// flows claim adds up to what was counted.
    pub(super) fn claim(&self, counted: Copied, received: u64) -> Copied {
        let mut claimed = self.claimed.lock().unwrap_or_else(PoisonError::into_inner);
        claim(&mut claimed, counted, received)
    }
}

fn claim(claimed: &mut Copied, counted: Copied, received: u64) -> Copied {
    let left = counted.bytes.saturating_sub(claimed.bytes);
    let bytes = left.min(received);
    let part = if left == 0 { 1.0 } else { bytes as f64 / left as f64 };
    let fragments = counted.fragments.saturating_sub(claimed.fragments);
    let fragments = (fragments as f64 * part).round() as u64;
    claimed.bytes += bytes;
    claimed.fragments += fragments;
    Copied { fragments, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Flows end one after the other while the rest goes on being copied.
        #[test]
        fn claims_add_up(
            flows in prop::collection::vec((1u64..1000, 1u64..1000), 1..8),
        ) {
            // Before each end every flow that is left receives and is copied a part.
            let mut claimed = Copied::default();
            let mut counted = Copied::default();
            let mut received = vec![0; flows.len()];
            let mut sum = Copied::default();
            for end in 0..flows.len() {
                for flow in end..flows.len() {
                    let (bytes, part) = flows[flow];
                    received[flow] += bytes;
                    counted.bytes += bytes.min(part);
                    counted.fragments += 1;
                }
                let part = claim(&mut claimed, counted, received[end]);
                prop_assert!(part.bytes <= received[end]);
                sum.bytes += part.bytes;
                sum.fragments += part.fragments;
            }
            prop_assert_eq!(sum, counted);
        }
    }
}
