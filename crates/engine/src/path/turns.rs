//! What all movers over the user-space TCP have in common: polls of the stack, and the account.

use crate::connection::userspace::{Hold, Stack};
use crate::connection::{Connection, WitnessPage};
use crate::path::common;
use crate::workload::{Account, Call, HalfConfig, Recorder};
use bytepath_record::{Fault, Manner, Scope, Unit};
use std::time::Duration;

/// Total bytes of the messages that are sent in rotation.
pub(super) fn rotation(job: &HalfConfig) -> u64 {
    (job.options.number("rotate").unwrap_or(0) / job.message_size).max(1) * job.message_size
}

/// Returns the stack of a connection, for a mover with this configuration.
pub(super) fn hold(job: &HalfConfig, connection: &dyn Connection) -> Result<Hold, Fault> {
    Hold::of(connection, job.role, job.options.word("wait") == "spin")
}

/// Calls of both halves: a poll of the stack, which makes many system calls, and sleeping.
pub(super) const STACK: Call = Call(0, "stack");
pub(super) const POLL: Call = Call(1, "poll");

/// Sends the witness page the same way as the stream.
pub(super) fn witness(hold: &Hold) -> Result<(), Fault> {
    let mut page = common::witness_page()?;
    hold.connection.write_all(&page)?;
    WitnessPage::settle(&hold.connection, |after| page.copy_from_slice(after))
}

/// Polls the stack once.
#[inline]
pub(super) fn turn(hold: &Hold, stack: &mut Stack, recorder: &mut Recorder) -> Result<(), Fault> {
    recorder.timed_with(STACK, || stack.poll(), |()| 0).map_err(|e| hold.fault(&e))
}

/// Called when nothing could be moved: sleeps, or spins.
#[inline]
pub(super) fn idle(hold: &Hold, recorder: &mut Recorder) -> Result<(), Fault> {
    if hold.spins {
        std::hint::spin_loop();
        return Ok(());
    }
    recorder.timed_with(POLL, || hold.wait(Duration::MAX), |_| 0).map(drop)
}

/// The account of a half, with the stack's counters if the other half has not reported them.
pub(super) fn account(
    hold: &Hold,
    [bytes, turns]: [u64; 2],
    source: &str,
) -> Result<Account, Fault> {
    let mut account = Account::of(Manner::Copied, bytes, turns, source);
    enter_counts(&mut account, hold, &Scope::Flow(hold.role, hold.connection.index()))?;
    Ok(account)
}

/// Adds the stack's counters, which are reported once.
pub(super) fn enter_counts(account: &mut Account, hold: &Hold, scope: &Scope) -> Result<(), Fault> {
    let Some(counts) = hold.counts()? else { return Ok(()) };
    let frames = [
        ("frames-in", counts.frames_in),
        ("frames-out", counts.frames_out),
        ("frames-again", counts.frames_again),
        ("checksums", counts.computed),
        ("polls", counts.polls),
        ("empty-polls", counts.empty_polls),
        ("probes", counts.probes),
        ("no-room", counts.no_room),
        ("dropped", counts.dropped),
    ];
    let bytes = [("bytes-in", counts.bytes_in), ("bytes-out", counts.bytes_out)];
    account.count("userspace", scope, Unit::Count, frames);
    account.count("userspace", scope, Unit::Bytes, bytes);
    for (count, what) in [
        (counts.injected, "were dropped or reordered on purpose"),
        (counts.damaged, "had a wrong checksum"),
        (counts.dropped, "did not fit into the packet socket"),
    ] {
        if count > 0 {
            account.notes.push(format!("{count} frames of the user-space TCP {what}"));
        }
    }
    Ok(())
}
