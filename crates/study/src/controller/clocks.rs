//! The clocks of separate hosts: the offset of each from this machine's, and the moment at which
//! both ends open their windows.
//!
//! A clock is read as by NTP (RFC 5905): the remote clock was read at some time within the round
//! trip, so the midpoint is assumed, which is off by at most half of the trip. Of several round
//! trips the shortest is the most accurate.

use super::remote::{Remotes, each};
use bytepath_record::wire::ReadClock;
use bytepath_record::{Clocks, Fault, HostClock, Role};
use bytepath_sys::clock;
use std::time::{Duration, Instant};

/// The most round trips to each host.
const TRIPS: usize = 8;

/// Time after which no further round trip to a host is started.
const TIME: Duration = Duration::from_millis(50);

/// How long before its due time a request is sent, in addition to the longest round trip: the agent
/// has meters to start.
const LEAD: Duration = Duration::from_millis(20);

/// A wall clock that is off by more than this is worth a remark, seconds.
const WALL: f64 = 60.0;

/// Offsets of a host's clocks from this machine's, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Clock {
    /// CLOCK_MONOTONIC there minus here.
    offset: i64,
    /// Largest error of `offset`.
    error: u64,
    /// CLOCK_REALTIME there minus here.
    wall: i64,
    /// The longest round trip.
    longest: u64,
}

/// One round trip, ns: when the call was sent and the reply arrived, and the clock there.
#[derive(Clone, Copy)]
struct Trip {
    sent: u64,
    received: u64,
    monotonic: u64,
    /// CLOCK_REALTIME there minus here when the reply arrived.
    wall: i64,
}

impl Clock {
    /// Returns the clock by the shortest of these round trips, or `None` if there are none.
    fn of(trips: &[Trip]) -> Option<Clock> {
        let length = |trip: &Trip| trip.received.saturating_sub(trip.sent);
        let best = trips.iter().min_by_key(|trip| length(trip))?;
        let half = length(best) / 2;
        let longest = trips.iter().map(length).max().unwrap_or_default();
        let offset = best.monotonic.wrapping_sub(best.sent + half).cast_signed();
        Some(Clock { offset, error: half, wall: best.wall.saturating_add_unsigned(half), longest })
    }

    /// Converts a time of this machine's CLOCK_MONOTONIC to the host's.
    fn there(&self, here: u64) -> u64 {
        here.saturating_add_signed(self.offset)
    }
}

/// Reads the clocks of both hosts, or returns `None` if they have no clocks of their own.
pub(super) fn read(remotes: &mut Remotes) -> Result<Option<[Clock; 2]>, Fault> {
    let apart = remotes.has_clocks_apart();
    apart.then(|| each(|role| read_one(remotes, role))).transpose()
}

fn read_one(remotes: &mut Remotes, role: Role) -> Result<Clock, Fault> {
    let begin = Instant::now();
    let mut trips = Vec::with_capacity(TRIPS);
    while trips.len() < TRIPS && (trips.is_empty() || begin.elapsed() < TIME) {
        let sent = clock::monotonic();
        let there = remotes.agents.call(role, ReadClock {})?;
        let (received, now) = (clock::monotonic(), clock::realtime());
        let wall = there.realtime.wrapping_sub(now).cast_signed();
        trips.push(Trip { sent, received, monotonic: there.monotonic, wall });
    }
    Clock::of(&trips).ok_or_else(|| Fault::failed("no clock was read"))
}

/// Returns remarks on wall clocks that are far off.
pub(super) fn remarks(clocks: &[Clock; 2]) -> Vec<String> {
    let remark = |(role, clock): (Role, &Clock)| {
        let off = seconds(clock.wall);
        let way = if off > 0.0 { "ahead of" } else { "behind" };
        (off.abs() > WALL).then(|| {
            format!(
                "the wall clock of the {role}'s host is {:.0} s {way} this machine's: it affects \
                 only figures of a power meter whose log was written there",
                off.abs()
            )
        })
    };
    Role::ALL.into_iter().zip(clocks).filter_map(remark).collect()
}

/// When both ends open and close a window.
pub(super) struct Appointment {
    /// Opening and closing time by the clock of each role's host.
    pub at: [[u64; 2]; 2],
    /// Opening and closing time by this machine's clock.
    pub here: [Instant; 2],
}

impl Appointment {
    /// Makes an appointment after `before`, or as soon after as the requests can arrive in time.
    pub(crate) fn make(clocks: &[Clock; 2], before: Duration, length: Duration) -> Appointment {
        let longest = clocks.iter().map(|clock| clock.longest).max().unwrap_or_default();
        let lead = before.max(LEAD + Duration::from_nanos(longest));
        let (now, begin) = (clock::monotonic(), Instant::now() + lead);
        let after = [lead, lead + length].map(|time| now + time.as_nanos() as u64);
        let at = clocks.map(|clock| after.map(|moment| clock.there(moment)));
        Appointment { at, here: [begin, begin + length] }
    }
}

/// How far the edges of both ends' windows were apart, over all windows of a trial.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Apart {
    /// Seconds by which the sender's window opened after the receiver's, and closed.
    pub edges: [f64; 2],
    /// How far each may be off.
    pub error: f64,
}

impl Apart {
    /// Compares the edges of both windows, each given by the clock of its end.
    pub(crate) fn of(clocks: &[Clock; 2], [sender_edges, receiver_edges]: [[u64; 2]; 2]) -> Apart {
        let [sender, receiver] = clocks;
        let offset = sender.offset.wrapping_sub(receiver.offset);
        let after = |edge: usize| {
            let after = sender_edges[edge].wrapping_sub(receiver_edges[edge]).cast_signed();
            seconds(after.wrapping_sub(offset))
        };
        let error = seconds((sender.error + receiver.error).cast_signed());
        Apart { edges: [after(0), after(1)], error }
    }

    pub(crate) fn add(&mut self, other: Apart) {
        self.edges[0] += other.edges[0];
        self.edges[1] += other.edges[1];
        self.error += other.error;
    }
}

/// Returns the clocks as a trial records them: read before and after it, and how far its windows
/// were apart.
pub(super) fn record(before: &[Clock; 2], after: &[Clock; 2], apart: Apart) -> Clocks {
    let host = |role: Role| {
        let (before, after) = (&before[role as usize], &after[role as usize]);
        HostClock {
            offset: seconds(before.offset),
            error: seconds(before.error.cast_signed()),
            drift: seconds(after.offset.wrapping_sub(before.offset)),
            wall: seconds(before.wall),
        }
    };
    let (sender, receiver) = (host(Role::Sender), host(Role::Receiver));
    let Apart { edges: [opened, closed], error } = apart;
    Clocks { sender, receiver, opened, closed, error }
}

fn seconds(nanoseconds: i64) -> f64 {
    nanoseconds as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A round trip at `sent` to a host whose clock is `offset` ahead.
    fn trip(sent: u64, [there, back]: [u64; 2], offset: i64) -> Trip {
        let monotonic = (sent + there).saturating_add_signed(offset);
        // The wall clock is ahead by the same amount.
        Trip { sent, received: sent + there + back, monotonic, wall: offset - back as i64 }
    }

    #[test]
    fn the_shortest_round_trip_counts() {
        for offset in [-3_600_000_000_000i64, 0, 250_000_000_000] {
            let at = 10_000_000 * MS;
            let even = trip(at, [MS, MS], offset);
            let slow = trip(at + 9 * MS, [40 * MS, MS], offset);
            let clock = Clock::of(&[slow, even]).unwrap();
            let expected = Clock { offset, error: MS, wall: offset, longest: 41 * MS };
            assert_eq!(clock, expected);
            // However uneven the trip, the true offset is within the error.
            let clock = Clock::of(&[slow]).unwrap();
            assert!(clock.offset.abs_diff(offset) <= clock.error, "{clock:?}");
            assert!(clock.wall.abs_diff(offset) <= clock.error, "{clock:?}");
        }
        assert_eq!(Clock::of(&[]), None);
    }

    fn clock(offset: i64) -> Clock {
        Clock { offset, error: MS / 2, wall: 0, longest: 2 * MS }
    }

    #[test]
    fn both_ends_open_at_one_moment_by_their_own_clocks() {
        let clocks = [clock(-7_000), clock(1_000_000_000_000)];
        let (now, here) = (clock::monotonic(), Instant::now());
        let [before, length] = [5, 300].map(Duration::from_millis);
        let appointment = Appointment::make(&clocks, before, length);
        let [[begin, end], [other_begin, _]] = appointment.at;
        assert!(begin - (now - 7_000) >= 22 * MS, "the requests have time to arrive");
        assert_eq!(end - begin, 300 * MS);
        assert_eq!(other_begin - begin, 1_000_000_007_000);
        assert_eq!(appointment.here[1] - appointment.here[0], length);
        let later = Appointment::make(&clocks, length, length);
        assert!(later.here[0] >= here + length);
        assert_eq!(Apart::of(&clocks, appointment.at).edges, [0.0; 2]);
    }

    #[test]
    fn edges_that_are_early_as_often_as_late_cancel() {
        let clocks = [clock(-5), clock(1_000_000_000)];
        let shift = |at: u64, ns: i64| at.saturating_add_signed(ns);
        let sender = [clocks[0].there(500 * MS), clocks[0].there(800 * MS)];
        let receiver = [clocks[1].there(500 * MS), clocks[1].there(800 * MS)];
        let late = [shift(receiver[0], 20_000_000), shift(receiver[1], -3_000_000)];
        let mut apart = Apart::of(&clocks, [sender, late]);
        assert_eq!(apart, Apart { edges: [-0.02, 0.003], error: 0.001 });
        let early = [shift(receiver[0], -20_000_000), receiver[1]];
        apart.add(Apart::of(&clocks, [sender, early]));
        assert_eq!(apart, Apart { edges: [0.0, 0.003], error: 0.002 });
    }

    #[test]
    fn remarks_on_wall_clocks_that_are_minutes_off() {
        let wall = |s: i64| Clock { wall: s * 1_000_000_000, ..clock(0) };
        assert_eq!(remarks(&[wall(-59), wall(60)]), [""; 0]);
        let remarks = remarks(&[wall(-200), wall(0)]);
        assert!(remarks[0].contains("the sender's host is 200 s behind"), "{remarks:?}");
    }
}
