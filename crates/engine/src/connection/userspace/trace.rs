//! The state of one connection as its device sees it: decides the segment size, which bytes are
//! retransmissions, which acknowledgements smoltcp sees, and how often.

use super::frame::Tcp;
use super::probe::Probe;
use smoltcp::time::Instant;

/// Duplicate acknowledgements that cause a retransmission (RFC 5681).
pub(super) const DUPLICATES: u32 = 3;

/// The state of a connection, from its frames.
#[derive(Debug)]
pub(super) struct Trace {
    /// Its ports, ours first, once it has begun.
    pub ports: Option<[u16; 2]>,
    /// Largest payload of a segment that the peer accepts, bytes.
    pub segment: u16,
    /// How often to repeat the last received frame.
    pub repeats: u32,
    /// The sequence number after the last byte sent.
    next: Option<u32>,
    /// The sequence number of our FIN, once sent.
    ended: Option<u32>,
    /// The last acknowledgement number, and how often it was repeated with a gap after it.
    acknowledged: u32,
    duplicates: u32,
    /// The end of what had been sent when a loss was noticed; recovery ends once this is
    /// acknowledged.
    recovers_up_to: Option<u32>,
    probe: Probe,
}

impl Default for Trace {
    fn default() -> Trace {
        Trace {
            ports: None,
            segment: u16::MAX,
            repeats: 0,
            next: None,
            ended: None,
            acknowledged: 0,
            duplicates: 0,
            recovers_up_to: None,
            probe: Probe::default(),
        }
    }
}

impl Trace {
    /// Creates the state of a connection between these ports, ours first.
    pub(super) fn new(ports: [u16; 2]) -> Trace {
        Trace { ports: Some(ports), ..Trace::default() }
    }

    /// Notes a received frame. Returns whether smoltcp should see it.
    #[inline]
    pub(super) fn came(&mut self, tcp: &Tcp, frame: &[u8], now: Instant) -> bool {
        if let (true, Some(size)) = (tcp.opens(), tcp.segment_size(frame)) {
            self.segment = size;
        }
        self.probe.came(tcp, frame, now);
        !tcp.only_acknowledges() || self.acknowledge(tcp.acknowledged, tcp.shows_a_gap(frame))
    }

    /// Notes an acknowledgement, and requests repeats if it is a partial one (RFC 6582). Returns
    /// whether smoltcp should see it. Duplicates that acknowledge all but our FIN are hidden: at
    /// the third, smoltcp (0.14) would stop its timer, but have no data to retransmit, so a lost
    /// FIN would never be sent again.
    fn acknowledge(&mut self, acknowledged: u32, gap: bool) -> bool {
        if acknowledged == self.acknowledged {
            if self.ended == Some(acknowledged) {
                return false;
            }
            self.duplicates += u32::from(gap);
            if self.duplicates == DUPLICATES && self.recovers_up_to.is_none() {
                self.recovers_up_to = self.next;
            }
            return true;
        }
        (self.acknowledged, self.duplicates) = (acknowledged, 0);
        self.recovers_up_to = self.recovers_up_to.filter(|sent| is_before(acknowledged, *sent));
        if self.recovers_up_to.is_some() {
            self.repeats = DUPLICATES;
        }
        true
    }

    /// Notes a sent frame, which may belong to another connection. Returns whether it contains
    /// retransmitted bytes of this one.
    #[inline]
    pub(super) fn sent(&mut self, tcp: &Tcp, now: Instant) -> bool {
        if tcp.opens() {
            (self.ports, self.next, self.ended) = (Some(tcp.ports), None, None);
        }
        // A reply to a late segment of an earlier connection has sequence numbers of that one.
        if self.ports != Some(tcp.ports) || tcp.resets() {
            return false;
        }
        let payload = tcp.length() as u32;
        let end = tcp.sequence.wrapping_add(payload);
        let known = self.next.unwrap_or(tcp.sequence);
        let again = payload > 0 && is_before(tcp.sequence, known);
        if payload > 0 {
            self.probe.sent(end, again, now);
        }
        self.next = Some(if is_before(known, end) { end } else { known });
        self.ended = self.ended.or(tcp.ends().then_some(end));
        again
    }

    /// Writes a duplicate of the last acknowledgement into `frame` and returns its length, or
    /// `None` if it is not due.
    pub(super) fn probe(&mut self, frame: &mut [u8], now: Instant) -> Option<usize> {
        self.probe.make(self.next, frame, now)
    }

    /// When the next probe is due.
    #[inline]
    pub(super) fn probe_at(&self) -> Option<Instant> {
        self.probe.at(self.next)
    }
}

/// Whether a sequence number comes before another.
fn is_before(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) < 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection::userspace::frame::tests::frame;
    use smoltcp::wire::TcpControl;

    fn trace(next: u32, ended: Option<u32>) -> Trace {
        Trace { next: Some(next), ended, ..Trace::default() }
    }

    #[test]
    fn repeats_only_partial_acknowledgements() {
        let mut trace = trace(10_000, None);
        let mut repeats = |acknowledged, gap| {
            assert!(trace.acknowledge(acknowledged, gap));
            std::mem::take(&mut trace.repeats)
        };
        // Window updates, and a gap that closes before it counts as a loss.
        for (acknowledged, gap) in [(1000, false); 5].into_iter().chain([(2000, true); 3]) {
            assert_eq!(repeats(acknowledged, gap), 0);
        }
        assert_eq!(repeats(3000, false), 0);
        // A loss: recovery lasts until all that had been sent is acknowledged.
        for _ in 0..4 {
            assert_eq!(repeats(3000, true), 0);
        }
        assert_eq!([repeats(5000, true), repeats(5000, true), repeats(7000, false)], [3, 0, 3]);
        assert_eq!([repeats(10_000, true), repeats(11_000, true)], [0, 0]);
    }

    #[test]
    fn hides_duplicates_for_fin() {
        let mut trace = trace(10_000, Some(10_000));
        let mut passes = |acknowledged| trace.acknowledge(acknowledged, true);
        assert_eq!([9000, 9000, 9000].map(&mut passes), [true; 3]);
        assert_eq!([10_000, 10_000].map(&mut passes), [true, false]);
        assert_eq!([10_001, 10_001].map(&mut passes), [true; 2]);
    }

    /// A reply to a late segment of an earlier connection has numbers of that one.
    #[test]
    fn ignores_other_connections() {
        let mut trace = Trace::default();
        let mut send = |control, port: u16, sequence: u32, payload: &[u8]| {
            let mut frame = frame("IPv4", control, false, payload);
            let at = Tcp::of(&frame).unwrap().header;
            frame[at..at + 2].copy_from_slice(&port.to_be_bytes());
            frame[at + 4..at + 8].copy_from_slice(&sequence.to_be_bytes());
            trace.sent(&Tcp::of(&frame).unwrap(), Instant::ZERO);
            (trace.next, trace.ended)
        };
        send(TcpControl::Syn, 5000, 99, b"");
        assert_eq!(send(TcpControl::Psh, 5000, 100, b"seven b"), (Some(107), None));
        assert_eq!(send(TcpControl::Rst, 5000, 1 << 30, b""), (Some(107), None));
        assert_eq!(send(TcpControl::None, 5001, 1 << 30, b""), (Some(107), None));
        assert_eq!(send(TcpControl::Fin, 5000, 107, b""), (Some(107), Some(107)));
    }

    #[test]
    fn sequence_numbers_wrap() {
        assert!(is_before(u32::MAX - 10, 10) && !is_before(10, u32::MAX - 10));
        assert!(!is_before(7, 7));
    }
}
