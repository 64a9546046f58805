//! A replacement for the tail loss probe of RFC 8985: if nothing is acknowledged for a few
//! round trips although something is in flight, smoltcp is shown duplicates of the last
//! acknowledgement, and sends the first segment again. Its own timer, of a second at least,
//! remains for repeated losses.

use super::frame::{ETHERNET, Tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::Ipv4Packet;

/// Shortest time after which something is taken for lost (RFC 8985, 7.2).
const SHORTEST: Duration = Duration::from_millis(10);

/// Round trips after which something is.
const ROUND_TRIPS: u32 = 4;

/// Room for all headers of a frame.
const HEADERS: usize = 160;

/// Sees to it that the last segments of a burst are missed in time.
#[derive(Debug)]
pub(super) struct Probe {
    /// The last frame of the peer, without its payload.
    last: [u8; HEADERS],
    length: usize,
    /// Where the low byte of its window is.
    window: usize,
    acknowledged: u32,
    /// When that moved on, or something was sent after it, or a probe was made.
    since: Instant,
    /// Probes since it moved on.
    made: u32,
    /// A sequence number and when the segment before it was sent.
    sample: Option<(u32, Instant)>,
    round_trip: Duration,
}

impl Default for Probe {
    fn default() -> Probe {
        Probe {
            last: [0; HEADERS],
            length: 0,
            window: 0,
            acknowledged: 0,
            since: Instant::ZERO,
            made: 0,
            sample: None,
            round_trip: Duration::ZERO,
        }
    }
}

impl Probe {
    /// A segment with payload was sent, up to this sequence number.
    #[inline]
    pub(super) fn sent(&mut self, end: u32, again: bool, now: Instant) {
        if again {
            // Which of the two was acknowledged will not be known (RFC 6298).
            self.sample = None;
        } else if self.sample.is_none() {
            self.sample = Some((end, now));
            self.since = self.since.max(now);
        }
    }

    /// A frame has come.
    #[inline]
    pub(super) fn came(&mut self, tcp: &Tcp, frame: &[u8], now: Instant) {
        if tcp.payload > HEADERS || tcp.opens() || tcp.ends() {
            return;
        }
        self.last[..tcp.payload].copy_from_slice(&frame[..tcp.payload]);
        (self.length, self.window) = (tcp.payload, tcp.header + 15);
        // What came with it precedes the next frame.
        let sequence = tcp.sequence.wrapping_add(tcp.length() as u32);
        self.last[tcp.header + 4..tcp.header + 8].copy_from_slice(&sequence.to_be_bytes());
        if tcp.acknowledged != self.acknowledged {
            (self.acknowledged, self.since, self.made) = (tcp.acknowledged, now, 0);
        }
        if let Some((end, sent)) = self.sample
            && (tcp.acknowledged.wrapping_sub(end) as i32) >= 0
        {
            self.sample = None;
            self.round_trip = (self.round_trip * 7 + (now - sent)) / 8;
        }
    }

    /// When it will be time for a duplicate, if nothing comes: `next` is the sequence number after
    /// all that was sent.
    #[inline]
    pub(super) fn at(&self, next: Option<u32>) -> Option<Instant> {
        let under_way = next.is_some_and(|next| (self.acknowledged.wrapping_sub(next) as i32) < 0);
        let timeout = (self.round_trip * ROUND_TRIPS).max(SHORTEST) * (1 << self.made.min(6));
        (under_way && self.length > 0).then_some(self.since + timeout)
    }

    /// Writes a duplicate into a frame and gives its length, where it is time for one.
    pub(super) fn make(
        &mut self,
        next: Option<u32>,
        frame: &mut [u8],
        now: Instant,
    ) -> Option<usize> {
        self.at(next).filter(|at| *at <= now)?;
        (self.since, self.made) = (now, self.made + 1);
        // Another window has smoltcp count duplicates from the start.
        if self.last[self.window - 1..=self.window] != [0, 0] {
            self.last[self.window] ^= 1;
        }
        frame[..self.length].copy_from_slice(&self.last[..self.length]);
        shorten(&mut frame[..self.length]);
        Some(self.length)
    }
}

/// Makes a frame whose payload was cut off one without.
fn shorten(frame: &mut [u8]) {
    let bytes = (frame.len() - ETHERNET) as u16;
    if frame[12..14] == [8, 0] {
        let mut packet = Ipv4Packet::new_unchecked(&mut frame[ETHERNET..]);
        packet.set_total_len(bytes);
        packet.fill_checksum();
    } else {
        frame[ETHERNET + 4..ETHERNET + 6].copy_from_slice(&(bytes - 40).to_be_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::userspace::frame::tests::frame;
    use smoltcp::wire::TcpControl;

    fn at(milliseconds: i64) -> Instant {
        Instant::from_millis(milliseconds)
    }

    #[test]
    fn probes_after_silence() {
        for family in ["IPv4", "IPv6"] {
            let (mut probe, mut room) = (Probe::default(), [0; 256]);
            let came = frame(family, TcpControl::Psh, false, b"payload");
            let tcp = Tcp::of(&came).unwrap();
            probe.came(&tcp, &came, at(1));
            let end = tcp.acknowledged.wrapping_add(1000);
            probe.sent(end, false, at(2));
            assert_eq!(probe.make(Some(end), &mut room, at(11)), None, "not yet");
            assert_eq!(probe.make(Some(tcp.acknowledged), &mut room, at(50)), None, "all is there");
            let length = probe.make(Some(end), &mut room, at(12)).unwrap();
            let made = Tcp::of(&room[..length]).unwrap();
            assert!(made.only_acknowledges());
            assert_eq!((made.acknowledged, made.sequence), (tcp.acknowledged, tcp.sequence + 7));
            let window = |frame: &[u8]| frame[tcp.header + 15];
            assert_ne!(window(&room), window(&came));
            // The next one takes twice as long.
            assert_eq!(probe.make(Some(end), &mut room, at(31)), None);
            assert!(probe.make(Some(end), &mut room, at(32)).is_some());
            assert_eq!(window(&room), window(&came));
        }
    }

    #[test]
    fn waits_longer_for_slow_peers() {
        let (mut probe, mut room) = (Probe::default(), [0; 256]);
        let came = frame("IPv4", TcpControl::None, false, b"");
        let tcp = Tcp::of(&came).unwrap();
        for round in 0..40 {
            probe.sent(tcp.acknowledged, false, at(100 * round));
            probe.came(&tcp, &came, at(100 * round + 50));
        }
        let end = tcp.acknowledged.wrapping_add(1);
        probe.sent(end, false, at(5000));
        assert_eq!(probe.make(Some(end), &mut room, at(5190)), None);
        assert!(probe.make(Some(end), &mut room, at(5201)).is_some());
    }
}
