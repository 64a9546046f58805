//! A replacement for the tail loss probe of RFC 8985: if nothing is acknowledged for a few round
//! trips although bytes are in flight, smoltcp gets duplicates of the last acknowledgement, and
//! retransmits the first segment. Its own timer, of a second at least, remains for repeated losses.

use super::frame::{ETHERNET, Tcp};
use smoltcp::time::{Duration, Instant};
use smoltcp::wire::Ipv4Packet;

/// Shortest time without acknowledgements that counts as a loss (RFC 8985, 7.2).
const SHORTEST: Duration = Duration::from_millis(10);

/// Round trips without acknowledgements that count as a loss.
const ROUND_TRIPS: u32 = 4;

/// Room for all headers of a frame.
const HEADERS: usize = 160;

/// Decides when the last segments of a burst count as lost.
#[derive(Debug)]
pub(super) struct Probe {
    /// The headers of the peer's last frame.
    last: [u8; HEADERS],
    length: usize,
    /// Offset of the low byte of its window.
    window: usize,
    acknowledged: u32,
    /// When `acknowledged` last advanced, or something was sent after it, or a probe was made.
    since: Instant,
    /// Probes since `acknowledged` advanced.
    made: u32,
    /// The end of a segment's sequence numbers and when it was sent, to measure a round trip.
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
    /// Notes a sent segment with payload that ends at this sequence number; `again` if it is a
    /// retransmission.
    #[inline]
    pub(super) fn sent(&mut self, end: u32, again: bool, now: Instant) {
        if again {
            // Which of the two was acknowledged would be ambiguous (RFC 6298).
            self.sample = None;
        } else if self.sample.is_none() {
            self.sample = Some((end, now));
            self.since = self.since.max(now);
        }
    }

    /// Notes a frame from the peer.
    #[inline]
    pub(super) fn came(&mut self, tcp: &Tcp, frame: &[u8], now: Instant) {
        if tcp.payload > HEADERS || tcp.opens() || tcp.ends() {
            return;
        }
        self.last[..tcp.payload].copy_from_slice(&frame[..tcp.payload]);
        (self.length, self.window) = (tcp.payload, tcp.header + 15);
        // The duplicate follows the payload that came with this frame.
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

    /// Returns when the next probe is due, or `None` if nothing is in flight. `next` is the
    /// sequence number after the last byte sent.
    #[inline]
    pub(super) fn at(&self, next: Option<u32>) -> Option<Instant> {
        let under_way = next.is_some_and(|next| (self.acknowledged.wrapping_sub(next) as i32) < 0);
        let timeout = (self.round_trip * ROUND_TRIPS).max(SHORTEST) * (1 << self.made.min(6));
        (under_way && self.length > 0).then_some(self.since + timeout)
    }

    /// Writes a duplicate acknowledgement into `frame` and returns its length, or `None` if it is
    /// not due.
    pub(super) fn make(
        &mut self,
        next: Option<u32>,
        frame: &mut [u8],
        now: Instant,
    ) -> Option<usize> {
        self.at(next).filter(|at| *at <= now)?;
        (self.since, self.made) = (now, self.made + 1);
        // smoltcp counts duplicates from the start again if the window changes.
        if self.last[self.window - 1..=self.window] != [0, 0] {
            self.last[self.window] ^= 1;
        }
        frame[..self.length].copy_from_slice(&self.last[..self.length]);
        shorten(&mut frame[..self.length]);
        Some(self.length)
    }
}

/// Adjusts the IP header of a frame whose payload was cut off.
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
            // The next probe is due after twice as long.
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
