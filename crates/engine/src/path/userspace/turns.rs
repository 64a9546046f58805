//! What every mover over the user-space TCP does: turns of the stack, and its account.

use crate::connection::WitnessPage;
use crate::connection::userspace::{Hold, Stack};
use crate::path::common;
use crate::workload::{Account, HalfConfig, Recorder};
use bytepath_record::{Fault, Manner, Reading, Role, Scope, Unit};
use std::time::Duration;

/// Bytes of the messages that are sent in turn.
pub(super) fn rotation(job: &HalfConfig) -> u64 {
    (job.options.number("rotate").unwrap_or(0) / job.message_size).max(1) * job.message_size
}

pub(super) fn spins(job: &HalfConfig) -> bool {
    job.options.word("wait") == "spin"
}

/// Slots of both halves' calls: a poll of the stack, which makes many, and sleeping.
pub(super) const STACK: usize = 0;
pub(super) const POLL: usize = 1;
pub(super) const CALLS: &[&str] = &["stack", "poll"];

/// The witness page, which takes the way that the stream will take.
pub(super) fn witness(hold: &Hold) -> Result<(), Fault> {
    let mut page = common::witness_page()?;
    hold.connection().write_all(&page)?;
    WitnessPage::settle(hold.connection(), |after| page.copy_from_slice(after))
}

/// One poll of the stack.
#[inline]
pub(super) fn turn(hold: &Hold, stack: &mut Stack, recorder: &mut Recorder) -> Result<(), Fault> {
    recorder.timed(STACK, || stack.poll().map(|()| 0)).map(drop).map_err(|e| hold.fault(&e))
}

/// Nothing could be moved.
#[inline]
pub(super) fn idle(hold: &Hold, spins: bool, recorder: &mut Recorder) -> Result<(), Fault> {
    if spins {
        std::hint::spin_loop();
        return Ok(());
    }
    let mut result = Ok(true);
    let _ = recorder.timed(POLL, || {
        result = hold.wait(Duration::MAX);
        Ok(0)
    });
    result.map(drop)
}

/// The account of a half, with what the stack has counted if the other half has not reported it.
pub(super) fn account(
    hold: &Hold,
    (role, flow): (Role, u32),
    [bytes, turns]: [u64; 2],
    source: &str,
) -> Result<Account, Fault> {
    let mut account = Account::of(Manner::Copied, bytes, turns, source);
    let Some(counts) = hold.counts()? else { return Ok(account) };
    let mut read = |name: &str, unit, value: f64| {
        let name = format!("userspace.{name}");
        account.readings.push(Reading::sum(name, unit, value, Scope::Flow(role, flow)));
    };
    for (name, count) in [
        ("frames-in", counts.frames_in),
        ("frames-out", counts.frames_out),
        ("frames-again", counts.frames_again),
        ("checksums", counts.computed),
        ("polls", counts.polls),
        ("empty-polls", counts.empty_polls),
        ("probes", counts.probes),
        ("no-room", counts.no_room),
        ("dropped", counts.dropped),
    ] {
        read(name, Unit::Count, count as f64);
    }
    for (name, bytes) in [("bytes-in", counts.bytes_in), ("bytes-out", counts.bytes_out)] {
        read(name, Unit::Bytes, bytes as f64);
    }
    for (count, what) in [
        (counts.injected, "were dropped or reordered on purpose"),
        (counts.damaged, "had a wrong checksum"),
        (counts.dropped, "did not fit into the packet socket"),
    ] {
        if count > 0 {
            account.notes.push(format!("{count} frames of the user-space TCP {what}"));
        }
    }
    Ok(account)
}
