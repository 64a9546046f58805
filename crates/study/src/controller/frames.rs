//! Accounts for the frames of a trial: sent, dropped on the way, received, or still queued.

use super::remote::Remotes;
use bytepath_record::{Cell, Fault, Hops, Role, RoleRecord};
use std::time::{Duration, Instant};

/// How long the sender's device may take to forward frames, and how often it is checked.
const FORWARDED: Duration = Duration::from_secs(1);
const POLL: Duration = Duration::from_millis(10);

/// Returns the frame counters of the link's devices: what the sender's sent and dropped, and what
/// the receiver's dropped on arrival. The two ends of a veth pair count the same drop.
pub(super) fn count(remotes: &mut Remotes, cell: &Cell) -> Result<Hops, Fault> {
    let is_macvtap = cell.link.tap.is_some_and(|tap| tap.macvtap);
    let counts_arrivals = is_macvtap || remotes.properties.has_cable;
    let sent = remotes.count_frames(Role::Sender)?;
    let at_sink = counts_arrivals.then(|| remotes.count_frames(Role::Receiver)).transpose()?;
    let at_sink = at_sink.unwrap_or_default();
    let arrival_dropped = at_sink.arrival_dropped;
    // Between the ends of a veth pair, and to a macvtap, nothing is lost unseen.
    let device_received = if remotes.properties.has_cable { at_sink.device_received } else { 0 };
    Ok(Hops { arrival_dropped, device_received, ..sent })
}

/// Returns the devices' counters once the sender's device has sent or dropped all frames of its
/// generator, or after a timeout. A process that forwards frames from there, such as a guest's
/// qemu, may have to wait for a CPU, and a notified sink takes silence for the end.
pub(super) fn wait_until_forwarded(
    remotes: &mut Remotes,
    cell: &Cell,
    before: &Hops,
    roles: &[RoleRecord],
) -> Result<Hops, Fault> {
    let tx = roles.first().and_then(|sender| sender.hops).unwrap_or_default();
    let end = Instant::now() + remotes.agents.timeout(FORWARDED);
    loop {
        let now = count(remotes, cell)?;
        let Hops { qdisc_dropped, device_dropped, device_sent, .. } = hop_deltas(before, &now, tx);
        let dropped = Hops { qdisc_dropped, device_dropped, ..tx };
        let is_forwarded = dropped.lost() + device_sent >= dropped.generated();
        if is_forwarded || tx.drops_untold || !remotes.properties.has_cable || Instant::now() > end
        {
            return Ok(now);
        }
        remotes.pass(POLL)?;
    }
}

/// Returns the devices' counts since before the first frame, and what is queued there, in frames of
/// the generator.
fn hop_deltas(before: &Hops, now: &Hops, by_ends: Hops) -> Hops {
    let each = by_ends.merged.max(1);
    Hops {
        qdisc_dropped: now.qdisc_dropped.saturating_sub(before.qdisc_dropped),
        qdisc_queued: now.qdisc_queued,
        device_sent: now.device_sent.saturating_sub(before.device_sent) * each,
        device_received: now.device_received.saturating_sub(before.device_received) * each,
        device_dropped: now.device_dropped.saturating_sub(before.device_dropped) * each,
        arrival_dropped: now.arrival_dropped.saturating_sub(before.arrival_dropped) * each,
        ..Hops::default()
    }
}

/// Accounts for all frames, from the counts of both ends and those of the devices before the first
/// frame, after the generator's last, and after the sink's last.
pub(super) fn account_for(roles: &mut [RoleRecord], [before, left, after]: &[Hops; 3]) -> Hops {
    let mut by_ends = Hops::default();
    roles.iter_mut().filter_map(|role| role.hops.take()).for_each(|one| by_ends.add(&one));
    let mut hops = hop_deltas(before, after, by_ends);
    hops.add(&by_ends);
    hops.arrival_dropped = hops.arrival_dropped.saturating_sub(hops.dropped_as_asked);
    if hops.drops_untold {
        let sent = hops.device_sent.saturating_sub(hops.strays);
        hops.device_dropped = hops.offered.saturating_sub(sent);
    }
    // A sink that does not read is drained for counting, and frames from the qdisc follow those
    // from the ring.
    let moved = hops.ring_queued.min(left.qdisc_queued.saturating_sub(after.qdisc_queued));
    hops.ring_queued -= moved;
    hops.qdisc_queued += moved;
    hops.wire_dropped = lost_between(&hops);
    hops
}

/// Returns the frames that are counted nowhere else and that the sink's device did not receive, if
/// it counts those. Its count includes frames of others, and may include those that it dropped.
fn lost_between(hops: &Hops) -> u64 {
    let missing = u64::try_from(hops.unaccounted()).unwrap_or(0);
    if hops.device_received == 0 {
        return 0;
    }
    missing.min(hops.device_sent.saturating_sub(hops.device_received))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_that_no_device_of_a_cable_counts_are_lost_between_them() {
        let of = |sent, received, by_sink, unread| {
            let ends = Hops { offered: 1000, received: by_sink, ..Hops::default() };
            let hops = Hops { device_sent: sent, device_received: received, ..ends };
            lost_between(&Hops { ring_queued: unread, ..hops })
        };
        assert_eq!(of(1000, 700, 700, 0), 300, "what the sink's device has not had");
        assert_eq!(of(1000, 705, 700, 0), 295, "others' frames are in its count");
        assert_eq!(of(1000, 1000, 700, 0), 0, "what it had was lost after it");
        assert_eq!(of(1000, 700, 700, 300), 0, "all are found elsewhere");
        assert_eq!(of(1000, 0, 700, 0), 0, "no cable, or no count");
    }
}
