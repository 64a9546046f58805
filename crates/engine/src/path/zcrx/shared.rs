//! Queues shared by several flows of a stream: the first flow registers a queue, the others import
//! it. Each flow has its own engine, and each engine its own ring.

use super::setup::Writer;
use bytepath_sys::uring::zcrx::Exported;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// The shared queues of a session, by index among the queues of all adapters that its flows are
/// spread over.
#[derive(Debug, Default)]
pub(super) struct SharedQueues(pub Mutex<BTreeMap<u32, Arc<SharedQueue>>>);

/// A queue shared by several flows.
#[derive(Debug)]
pub(super) struct SharedQueue {
    /// Handle that the other flows import.
    pub exported: Exported,
    /// What writes into it.
    pub writer: Writer,
    claimed: Mutex<Copied>,
}

/// Copies counted by the kernel: fragments and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Copied {
    pub fragments: u64,
    pub bytes: u64,
}

impl SharedQueue {
    /// A queue of which no copies are claimed yet.
    pub(super) fn new(exported: Exported, writer: Writer) -> SharedQueue {
        SharedQueue { exported, writer, claimed: Mutex::default() }
    }

    /// Returns the share of the copies counted so far that a flow claims when it ends: at most as
    /// much as it received. The kernel counts per queue, not per flow; the claims add up to the
    /// kernel's count.
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
        /// Flows end one after the other while copies for the others continue.
        #[test]
        fn claims_add_up(
            flows in prop::collection::vec((1u64..1000, 1u64..1000), 1..8),
        ) {
            // Before each end, every remaining flow receives data, of which a part is copied.
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
