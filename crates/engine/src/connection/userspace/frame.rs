//! The fields of a TCP frame that the device of a stack needs, read in place.

use smoltcp::wire::{IpAddress, Ipv4Packet, Ipv6Packet, TcpPacket};

/// Bytes of an Ethernet header.
pub(super) const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const TCP: u8 = 6;
const UDP: u8 = 17;

/// Bytes of a TCP header without options, and the offset of its checksum.
const TCP_HEADER: usize = 20;
const CHECKSUM: usize = 16;

const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// TCP options (RFC 9293, RFC 2018).
const END: u8 = 0;
const NOTHING: u8 = 1;
const SEGMENT_SIZE: u8 = 2;
const SACK: u8 = 5;

/// Whether a frame carries UDP.
pub(super) fn is_datagram(frame: &[u8]) -> bool {
    let protocol = match frame.get(12..14) {
        Some([8, 0]) => frame.get(ETHERNET + 9),
        Some([0x86, 0xdd]) => frame.get(ETHERNET + 6),
        _ => None,
    };
    protocol == Some(&UDP)
}

/// Offsets and fields of an Ethernet frame that carries TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tcp {
    /// True for IPv6, false for IPv4.
    pub v6: bool,
    /// Offset of the TCP header.
    pub header: usize,
    /// Offset of the payload.
    pub payload: usize,
    /// End of the payload: a short frame is padded.
    pub end: usize,
    /// Sequence number of the first byte of payload.
    pub sequence: u32,
    /// Acknowledgement number: that of the next byte that the sender of this frame expects.
    pub acknowledged: u32,
    /// Source and destination port.
    pub ports: [u16; 2],
    flags: u8,
}

impl Tcp {
    /// Parses a frame. `None` if it is not TCP or is truncated. TCP must follow the IPv6 header
    /// directly: neither end of a stream uses extension headers.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Tcp> {
        let number = |at: usize| Some(u16::from_be_bytes([*frame.get(at)?, *frame.get(at + 1)?]));
        let (v6, header, end) = match number(12)? {
            IPV4 if *frame.get(ETHERNET + 9)? == TCP => {
                let words = usize::from(frame[ETHERNET] & 0xf);
                (false, ETHERNET + 4 * words, ETHERNET + usize::from(number(ETHERNET + 2)?))
            }
            IPV6 if *frame.get(ETHERNET + 6)? == TCP => {
                let payload = usize::from(number(ETHERNET + 4)?);
                (true, ETHERNET + 40, ETHERNET + 40 + payload)
            }
            _ => return None,
        };
        let fixed: &[u8; TCP_HEADER] = frame.get(header..)?.first_chunk()?;
        let payload = header + 4 * usize::from(fixed[12] >> 4);
        let word = |at: usize| u32::from_be_bytes([0, 1, 2, 3].map(|i| fixed[at + i]));
        let (sequence, acknowledged, flags) = (word(4), word(8), fixed[13]);
        let ports = [0, 2].map(|at| u16::from_be_bytes([fixed[at], fixed[at + 1]]));
        let fits = header + TCP_HEADER <= payload && payload <= end && end <= frame.len();
        fits.then_some(Tcp { v6, header, payload, end, sequence, acknowledged, ports, flags })
    }

    /// Returns the bytes of payload.
    pub fn length(&self) -> usize {
        self.end - self.payload
    }

    /// Whether it opens a connection (SYN).
    pub fn opens(&self) -> bool {
        self.flags & SYN != 0
    }

    /// Whether it requests a connection (SYN without ACK).
    pub fn begins(&self) -> bool {
        self.flags & (SYN | ACK) == SYN
    }

    /// Whether it ends a stream or resets a connection (FIN, RST).
    pub fn ends(&self) -> bool {
        self.flags & (FIN | RST) != 0
    }

    /// Whether it resets a connection (RST), which may be another one.
    pub fn resets(&self) -> bool {
        self.flags & RST != 0
    }

    /// Whether it is a pure acknowledgement.
    pub fn only_acknowledges(&self) -> bool {
        self.length() == 0 && !self.opens() && !self.ends()
    }

    /// Returns the offset and the length of an option's value, bytes.
    fn option(&self, frame: &[u8], wanted: u8) -> Option<(usize, usize)> {
        let mut at = self.header + TCP_HEADER;
        while at + 1 < self.payload {
            match (frame[at], usize::from(frame[at + 1])) {
                (END, _) => return None,
                (NOTHING, _) => at += 1,
                (_, length) if length < 2 || at + length > self.payload => return None,
                (kind, length) if kind == wanted => return Some((at + 2, length - 2)),
                (_, length) => at += length,
            }
        }
        None
    }

    /// Returns the largest segment that the sender of this frame accepts, bytes of payload, if
    /// stated.
    pub fn segment_size(&self, frame: &[u8]) -> Option<u16> {
        let (at, length) = self.option(frame, SEGMENT_SIZE)?;
        (length == 2).then(|| u16::from_be_bytes([frame[at], frame[at + 1]]))
    }

    pub fn set_segment_size(&self, frame: &mut [u8], size: u16) {
        if let Some((at, 2)) = self.option(frame, SEGMENT_SIZE) {
            frame[at..at + 2].copy_from_slice(&size.to_be_bytes());
        }
    }

    /// Whether a SACK block reports bytes beyond a gap. Blocks below the acknowledgement number
    /// report bytes that arrived twice (RFC 2883).
    pub fn shows_a_gap(&self, frame: &[u8]) -> bool {
        let Some((at, length)) = self.option(frame, SACK) else { return false };
        let (blocks, _) = frame[at..at + length].as_chunks::<8>();
        blocks.iter().any(|block| {
            let begins = u32::from_be_bytes([0, 1, 2, 3].map(|i| block[i]));
            (self.acknowledged.wrapping_sub(begins) as i32) < 0
        })
    }

    /// Writes the sum of the pseudo header into the checksum field; the kernel or the NIC adds the
    /// rest later (RFC 9293, 3.1). Returns where its sum begins, and the offset of the field from
    /// there.
    pub fn begin_checksum(&self, frame: &mut [u8]) -> [u16; 2] {
        let addresses = if self.v6 { ETHERNET + 8 } else { ETHERNET + 12 };
        let length = (self.end - self.header) as u32;
        let upper = if self.v6 { ETHERNET + 40 } else { ETHERNET + 20 };
        let words = frame[addresses..upper].chunks_exact(2);
        let sum: u32 = words.map(|word| u32::from(u16::from_be_bytes([word[0], word[1]]))).sum();
        let mut sum = sum + u32::from(TCP) + length;
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let at = self.header + CHECKSUM;
        frame[at..at + 2].copy_from_slice(&(sum as u16).to_be_bytes());
        [self.header as u16, CHECKSUM as u16]
    }

    /// Whether its checksum, computed here, is right.
    pub fn is_intact(&self, frame: &[u8]) -> bool {
        let (from, to): (IpAddress, IpAddress) = if self.v6 {
            let packet = Ipv6Packet::new_unchecked(&frame[ETHERNET..]);
            (packet.src_addr().into(), packet.dst_addr().into())
        } else {
            let packet = Ipv4Packet::new_unchecked(&frame[ETHERNET..]);
            (packet.src_addr().into(), packet.dst_addr().into())
        };
        TcpPacket::new_unchecked(&frame[self.header..self.end]).verify_checksum(&from, &to)
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use smoltcp::phy::ChecksumCapabilities;
    use smoltcp::wire::{IpProtocol, IpRepr, TcpControl, TcpRepr, TcpSeqNumber};
    use std::net::IpAddr;

    /// A frame as smoltcp builds it, without a TCP checksum.
    pub(crate) fn frame(family: &str, control: TcpControl, gap: bool, payload: &[u8]) -> Vec<u8> {
        let [from, to] = match family {
            "IPv4" => ["198.18.0.1", "198.18.0.2"],
            _ => ["2001:2::1", "2001:2::2"],
        };
        let [from, to] = [from, to].map(|text| IpAddress::from(text.parse::<IpAddr>().unwrap()));
        let tcp = TcpRepr {
            src_port: 5000,
            dst_port: 6000,
            control,
            seq_number: TcpSeqNumber(7),
            ack_number: Some(TcpSeqNumber(-2)),
            window_len: 1000,
            window_scale: None,
            max_seg_size: (control == TcpControl::Syn).then_some(60_000),
            sack_permitted: false,
            sack_ranges: [gap.then_some((5, 9)), None, None],
            timestamp: None,
            payload,
        };
        let mut without = ChecksumCapabilities::default();
        without.tcp = smoltcp::phy::Checksum::None;
        let ip = IpRepr::new(from, to, IpProtocol::Tcp, tcp.buffer_len(), 64);
        let mut frame = vec![0; ETHERNET + ip.buffer_len()];
        frame[12..14].copy_from_slice(if family == "IPv4" { &[8, 0] } else { &[0x86, 0xdd] });
        ip.emit(&mut frame[ETHERNET..], &without);
        let mut packet = TcpPacket::new_unchecked(&mut frame[ETHERNET + ip.header_len()..]);
        tcp.emit(&mut packet, &from, &to, &without);
        frame
    }

    #[test]
    fn reads_frame_in_place() {
        for (family, header) in [("IPv4", 34), ("IPv6", 54)] {
            let mut opening = frame(family, TcpControl::Syn, false, &[]);
            let tcp = Tcp::of(&opening).unwrap();
            assert_eq!((tcp.v6, tcp.header, tcp.sequence), (family == "IPv6", header, 7));
            assert!(tcp.opens() && !tcp.only_acknowledges());
            assert_eq!(tcp.segment_size(&opening), Some(60_000));
            tcp.set_segment_size(&mut opening, 8960);
            assert_eq!(tcp.segment_size(&opening), Some(8960));

            let acknowledges = frame(family, TcpControl::None, true, &[]);
            let tcp = Tcp::of(&acknowledges).unwrap();
            assert!(tcp.only_acknowledges() && tcp.shows_a_gap(&acknowledges));
            assert_eq!((tcp.acknowledged, tcp.segment_size(&acknowledges)), (u32::MAX - 1, None));

            // A short frame is padded, and a truncated one is refused.
            let mut padded = frame(family, TcpControl::None, false, b"seven");
            padded.extend([0; 9]);
            assert_eq!(Tcp::of(&padded).unwrap().length(), 5);
            assert_eq!(Tcp::of(&padded[..padded.len() - 10]), None);
            assert_eq!(Tcp::of(&padded[..20]), None);
        }
    }

    #[test]
    fn a_gap_is_after_what_is_acknowledged() {
        let mut twice = frame("IPv4", TcpControl::None, true, &[]);
        let tcp = Tcp::of(&twice).unwrap();
        let (at, length) = tcp.option(&twice, SACK).unwrap();
        assert_eq!(length, 8);
        twice[at..at + 4].copy_from_slice(&(u32::MAX - 9).to_be_bytes());
        assert!(!tcp.shows_a_gap(&twice), "these bytes came twice");
    }

    /// The kernel sums everything from the given offset on, including the partial sum in the field.
    #[test]
    fn completes_partial_checksum() {
        for family in ["IPv4", "IPv6"] {
            let mut frame = frame(family, TcpControl::Psh, false, b"an odd payload!");
            let tcp = Tcp::of(&frame).unwrap();
            let [start, offset] = tcp.begin_checksum(&mut frame).map(usize::from);
            assert!(!tcp.is_intact(&frame));
            let words = frame[start..].chunks(2);
            let word =
                |word: &[u8]| u32::from(word[0]) << 8 | u32::from(*word.get(1).unwrap_or(&0));
            let mut sum: u32 = words.map(word).sum();
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            frame[start + offset..][..2].copy_from_slice(&(!sum as u16).to_be_bytes());
            assert!(tcp.is_intact(&frame));
            *frame.last_mut().unwrap() ^= 1;
            assert!(!tcp.is_intact(&frame));
        }
    }
}
