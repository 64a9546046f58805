//! Counts of frames by where each was last seen.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Counts of frames over a whole trial, from the first frame until the sink has taken what was
/// left; of one end, or of both added up. Every generated frame is counted in exactly one place
/// ([`Hops::unaccounted`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hops {
    /// Handed to the kernel by the generator.
    pub offered: u64,
    /// Frames of these returned with an error; they may be among the drops below, too.
    #[serde(default)]
    pub refused: u64,
    /// Dropped by the sender's qdisc.
    #[serde(default)]
    pub qdisc_dropped: u64,
    /// Dropped by the sender's device, whose ring was full.
    #[serde(default)]
    pub device_dropped: u64,
    /// Dropped by the sink's device, for lack of space or memory, if that device counts frames that
    /// the sender's does not.
    #[serde(default)]
    pub arrival_dropped: u64,
    /// Sent by the sender's device, but neither received nor dropped by the sink's according to its
    /// counters: lost on the wire, or in a NIC that does not count it.
    #[serde(default)]
    pub wire_dropped: u64,
    /// Dropped on the sink's side of the device, for lack of space in its socket.
    #[serde(default)]
    pub sink_dropped: u64,
    /// In the qdisc at the end.
    #[serde(default)]
    pub qdisc_queued: u64,
    /// In the device's ring at the end, unread.
    #[serde(default)]
    pub ring_queued: u64,
    /// Read by the sink.
    pub received: u64,
    /// Read by the sink, but not from this generator; in none of the other counts.
    #[serde(default)]
    pub strays: u64,
    /// Sent by the sender's device according to its own counters; for a tap, read by the sink.
    #[serde(default)]
    pub device_sent: u64,
    /// Received by the sink's device according to its own counters, if a cable joins the two.
    #[serde(default)]
    pub device_received: u64,
    /// True if the device does not report all its drops of this generator's frames: those it was
    /// handed and has not sent are taken as dropped.
    #[serde(default)]
    pub drops_untold: bool,
    /// Dropped on purpose by a program on the sink's device; the driver may count them among its
    /// drops.
    #[serde(default)]
    pub dropped_as_asked: u64,
    /// Frames that devices count as one packet, because they receive them as one message; 0 means
    /// one.
    #[serde(default)]
    pub merged: u64,
}

impl Hops {
    /// Returned to the generator and not counted as dropped anywhere: the device's queue was
    /// stopped, and the generator tried again.
    pub fn returned(&self) -> u64 {
        self.refused.saturating_sub(self.qdisc_dropped + self.device_dropped)
    }

    /// Frames that were generated; those that were tried again count once.
    pub fn generated(&self) -> u64 {
        self.offered.saturating_sub(self.returned())
    }

    /// Frames that the kernel accepted from the generator.
    pub fn sent(&self) -> u64 {
        self.offered.saturating_sub(self.refused)
    }

    /// Frames dropped anywhere.
    pub fn lost(&self) -> u64 {
        let on_the_way = self.qdisc_dropped + self.device_dropped + self.wire_dropped;
        on_the_way + self.arrival_dropped + self.sink_dropped
    }

    /// Frames still queued at the end.
    pub fn queued(&self) -> u64 {
        self.qdisc_queued + self.ring_queued
    }

    /// Generated frames that are counted nowhere; negative if more are counted than were generated.
    /// Anything but 0 means that the counts are wrong.
    pub fn unaccounted(&self) -> i64 {
        let places = self.received + self.lost() + self.queued();
        self.generated().wrapping_sub(places) as i64
    }

    /// Adds the counts of another flow, or of the other end.
    pub fn add(&mut self, other: &Hops) {
        self.offered += other.offered;
        self.refused += other.refused;
        self.qdisc_dropped += other.qdisc_dropped;
        self.device_dropped += other.device_dropped;
        self.arrival_dropped += other.arrival_dropped;
        self.wire_dropped += other.wire_dropped;
        self.sink_dropped += other.sink_dropped;
        self.qdisc_queued += other.qdisc_queued;
        self.ring_queued += other.ring_queued;
        self.received += other.received;
        self.strays += other.strays;
        self.device_sent += other.device_sent;
        self.device_received += other.device_received;
        self.drops_untold |= other.drops_untold;
        self.dropped_as_asked += other.dropped_as_asked;
        self.merged = self.merged.max(other.merged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_that_was_refused_and_dropped_is_counted_once() {
        // Without a queue, the kernel returns an error for frames that the device drops.
        let noqueue = Hops {
            offered: 1000,
            refused: 300,
            device_dropped: 300,
            received: 700,
            ..Hops::default()
        };
        assert_eq!((noqueue.unaccounted(), noqueue.generated(), noqueue.sent()), (0, 1000, 700));
        // With a queue, it accepts frames that the device drops later.
        let pfifo = Hops {
            offered: 1000,
            refused: 100,
            qdisc_dropped: 100,
            device_dropped: 200,
            qdisc_queued: 10,
            ring_queued: 20,
            received: 670,
            ..Hops::default()
        };
        assert_eq!((pfifo.unaccounted(), pfifo.returned(), pfifo.lost()), (0, 0, 300));
        assert_eq!(Hops { received: 669, ..pfifo }.unaccounted(), 1);
        assert_eq!(Hops { received: 671, ..pfifo }.unaccounted(), -1);
    }

    #[test]
    fn a_frame_that_was_turned_back_is_tried_again() {
        let stopped = Hops {
            offered: 1500,
            refused: 500,
            device_dropped: 100,
            received: 1000,
            ..Hops::default()
        };
        assert_eq!((stopped.returned(), stopped.generated(), stopped.lost()), (400, 1100, 100));
        assert_eq!(stopped.unaccounted(), 0);
    }
}
