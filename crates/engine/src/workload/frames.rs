//! The frames of the workload `packets`: their sizes, their contents, and how a sink recognises
//! them.
//!
//! Each is Ethernet, IPv4 and UDP to the port discard (9), from a port specific to its flow, so
//! that anything that hashes headers distinguishes the flows. The MAC addresses are locally
//! administered and belong to no device: a kernel that gets such a frame drops it as meant for
//! another host.

use super::payload::{PATTERN_PERIOD, Pattern, Toucher};
use bytepath_record::{Fault, FaultKind, TapSettings, Touch};
use bytepath_sys::bpf::xdp::Mark;
use bytepath_sys::packet::Frames;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::net::Ipv4Addr;

/// Frames as a cell requests them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FramePlan {
    /// Sizes in the order in which they are sent, bytes without the frame check sequence.
    pub sizes: Vec<u32>,
    /// Maximum number of frames handed to the kernel at once.
    pub burst: u32,
    /// Settings of the tap that the frames go into, or `None` if there is none.
    pub tap: Option<TapSettings>,
    /// Whether the generator's device has a qdisc.
    pub queued: bool,
    /// CPU of vhost's workers, or `None` to leave them to the scheduler.
    pub vhost: Option<u32>,
    /// Frames per second of all flows, or `None` for as fast as possible.
    pub rate: Option<u64>,
    /// Frames of all flows, or `None` for as many as there is time for.
    pub count: Option<u64>,
}

/// Bytes of the headers of a frame.
const HEADERS: usize = ADDRESSES + 2 + 20 + 8;

/// Bytes of both MAC addresses: destination and source.
const ADDRESSES: usize = 12;

/// Destination MAC address of all generated frames, by which they are recognised.
const TARGET: [u8; 6] = *b"\x02bytep";

/// Smallest frame that an Ethernet device sends without padding it (ETH_ZLEN).
const SMALLEST: u32 = 60;

/// Number of sizes drawn from a range before the sequence repeats.
const DRAWN: usize = 256;

/// The simple IMIX: 7 small, 4 medium and 1 large IP packet of 40, 576 and 1500 bytes.
const IMIX: [u32; 12] = [60, 590, 60, 590, 60, 60, 1514, 60, 590, 60, 590, 60];

impl FramePlan {
    /// Bytes of the headers of a frame.
    pub const HEADERS: usize = HEADERS;
    /// MAC addresses: source and destination of the frames.
    pub const HARDWARE: [[u8; 6]; 2] = [*b"\x02athgn", TARGET];
    /// IPv4 addresses: source and destination, which are the link's ends, from the range of RFC
    /// 2544.
    pub const ADDRESSES: [Ipv4Addr; 2] =
        [Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)];
    /// UDP port that the frames go to (discard).
    pub const PORT: u16 = 9;
    /// The bytes by which an XDP program recognises the frames.
    pub const MARK: Mark = Mark { at: 0, bytes: [TARGET[0], TARGET[1], TARGET[2], TARGET[3]] };

    /// UDP port that the frames of a flow come from.
    pub fn port(flow: u32) -> u16 {
        10_000 + (flow % 50_000) as u16
    }

    /// Parses `60`, `60-1514` or `imix`.
    pub fn parse(sizes: &str, burst: u32) -> Result<FramePlan, Fault> {
        let wrong = || {
            Fault::usage(format!("'{sizes}' is not a frame size"))
                .remedy("choose bytes (frame=60), a range (frame=60-1514), or frame=imix")
        };
        let number = |text: &str| text.trim().parse::<u32>().map_err(|_| wrong());
        let sizes = match (sizes, sizes.split_once('-')) {
            ("imix", _) => IMIX.to_vec(),
            (one, None) => vec![number(one)?],
            (_, Some((least, most))) => {
                let (least, most) = (number(least)?, number(most)?);
                if least > most {
                    return Err(wrong());
                }
                let mut random = StdRng::seed_from_u64(0);
                (0..DRAWN).map(|_| random.random_range(least..=most)).collect()
            }
        };
        let plan = FramePlan { sizes, burst, ..FramePlan::default() };
        let smallest = plan.sizes.iter().min().copied().unwrap_or_default();
        if smallest < SMALLEST || plan.largest() > 65_535 {
            let text = format!("frames of {smallest} to {} bytes", plan.largest());
            let remedy = format!("choose {SMALLEST} to 65535 bytes, without the check sequence");
            return Err(Fault::usage(text).remedy(remedy));
        }
        Ok(plan)
    }

    /// The tap whose file descriptors the sink uses, or `None` if the link ends in a device.
    pub fn descriptors(&self) -> Option<TapSettings> {
        self.tap.filter(|tap| !tap.guest)
    }

    /// Size of its largest frame in bytes.
    pub fn largest(&self) -> u32 {
        self.sizes.iter().max().copied().unwrap_or(SMALLEST)
    }

    /// Returns all frames of a flow, in sending order.
    pub fn all(&self, flow: u32) -> Vec<Vec<u8>> {
        let payload = payload();
        self.sizes.iter().map(|size| frame(&payload, flow, *size)).collect()
    }

    /// Like [`FramePlan::all`], ready to be sent in batches.
    pub fn frames(&self, flow: u32) -> Frames {
        let all = self.all(flow);
        let all: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
        Frames::new(&all, self.burst as usize)
    }
}

/// Payload after the headers: every frame carries the first bytes of this pattern.
fn payload() -> Pattern {
    Pattern::new(PATTERN_PERIOD as u64)
}

/// Builds a flow's frame of this size.
fn frame(payload: &Pattern, flow: u32, size: u32) -> Vec<u8> {
    let mut frame = vec![0; size as usize];
    let ip_length = (size - 14) as u16;
    let [from, to] = FramePlan::HARDWARE;
    frame[..6].copy_from_slice(&to);
    frame[6..ADDRESSES].copy_from_slice(&from);
    frame[12..14].copy_from_slice(&[0x08, 0x00]);
    let ip = &mut frame[14..34];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&ip_length.to_be_bytes());
    // TTL, then protocol UDP.
    ip[8..10].copy_from_slice(&[64, 17]);
    let [source, target] = FramePlan::ADDRESSES;
    ip[12..16].copy_from_slice(&source.octets());
    ip[16..20].copy_from_slice(&target.octets());
    let sum = checksum(ip);
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let udp = &mut frame[34..42];
    udp[..2].copy_from_slice(&FramePlan::port(flow).to_be_bytes());
    udp[2..4].copy_from_slice(&FramePlan::PORT.to_be_bytes());
    // Zero checksum, which UDP over IPv4 allows.
    udp[4..6].copy_from_slice(&(ip_length - 20).to_be_bytes());
    payload.fill(&mut frame[HEADERS..], 0);
    frame
}

/// The Internet checksum (RFC 1071) of a header whose checksum field is zero.
fn checksum(header: &[u8]) -> u16 {
    let words =
        header.chunks_exact(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let sum: u32 = words.sum();
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// Checks and touches each frame that a sink has read.
pub struct FrameInspector {
    /// Bytes that precede the frame: a virtio_net header, or none.
    before: usize,
    toucher: Toucher,
    payload: Option<Pattern>,
}

impl FrameInspector {
    /// Bytes of a `struct virtio_net_hdr` (linux/virtio_net.h), as taps use it.
    pub const VNET_HEADER: usize = 10;

    /// Inspects as `touch` requires. `before` is the number of bytes that precede each frame: 0, or
    /// [`FrameInspector::VNET_HEADER`].
    pub fn new(touch: Touch, before: usize) -> FrameInspector {
        let payload = (touch == Touch::Verify).then(payload);
        let touch = if touch == Touch::Verify { Touch::None } else { touch };
        FrameInspector { before, toucher: Toucher::new(touch, PATTERN_PERIOD as u64), payload }
    }

    /// Returns what was read of the generator's frames: one frame, or several in an unsegmented
    /// message; `None` if it is not the generator's. Errors if the frame was changed on its way.
    #[inline]
    pub fn inspect(&mut self, read: &[u8]) -> Result<Option<FrameCount>, Fault> {
        let (header, frame) = read.split_at_checked(self.before).unwrap_or_default();
        if frame.get(..TARGET.len()) != Some(&TARGET[..]) {
            return Ok(None);
        }
        self.toucher.take(frame)?;
        let length = frame.len().saturating_sub(HEADERS);
        let each = uncut(header).unwrap_or(length);
        if let Some(payload) = &self.payload {
            check_contents(frame, each, payload)?;
        }
        let frames = length.div_ceil(each.max(1)).max(1);
        // If segmented, each would have headers.
        let bytes = frame.len() + (frames - 1) * HEADERS;
        Ok(Some(FrameCount { frames: frames as u64, bytes: bytes as u64 }))
    }
}

/// Number of the generator's frames in one read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameCount {
    pub frames: u64,
    /// Bytes of all of them, each with its headers.
    pub bytes: u64,
}

/// Returns the segment size (payload bytes) of an unsegmented message, if its `struct
/// virtio_net_hdr` has one (VIRTIO_NET_HDR_GSO_UDP_L4).
fn uncut(header: &[u8]) -> Option<usize> {
    const GSO_UDP_L4: u8 = 5;
    match header {
        [_, GSO_UDP_L4, _, _, low, high, ..] => Some(u16::from_ne_bytes([*low, *high]).into()),
        _ => None,
    }
}

/// Compares a frame with what its generator sent, except for the flow's port. In an unsegmented
/// message, every `each` bytes have the same contents.
fn check_contents(frame: &[u8], each: usize, payload: &Pattern) -> Result<(), Fault> {
    let changed =
        |how| Err(Fault::new(FaultKind::Corrupt, format!("a frame was changed on its way: {how}")));
    let Some(bytes) = frame.get(HEADERS..) else {
        return changed("it is shorter than its headers".to_owned());
    };
    let whole = 14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    if whole != frame.len() {
        return changed(format!("it is {} bytes long, not {whole}", frame.len()));
    }
    for (from, part) in (HEADERS..).step_by(each.max(1)).zip(bytes.chunks(each.max(1))) {
        if let Err(at) = payload.check(part, 0) {
            return changed(format!("byte {} is not what was sent", from as u64 + at));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parses_frame_sizes() {
        let sizes = |text: &str| FramePlan::parse(text, 32).map(|plan| plan.sizes);
        assert_eq!(sizes("60").unwrap(), [60]);
        let range = sizes("60-1514").unwrap();
        assert!(range.len() == DRAWN && range.iter().all(|size| (60..=1514).contains(size)));
        assert!(range.iter().max() > Some(&1400) && range.iter().min() < Some(&160));
        let imix = sizes("imix").unwrap();
        let count = |wanted| imix.iter().filter(|size| **size == wanted).count();
        assert_eq!([60, 590, 1514].map(count), [7, 4, 1]);
        for wrong in ["59", "1514-60", "big", "60-", "65536", ""] {
            let fault = sizes(wrong).unwrap_err();
            assert!(fault.kind == FaultKind::Usage && fault.remedy.is_some(), "{wrong}: {fault}");
        }
    }

    #[test]
    fn recognises_own_frames_and_changes() {
        let payload = payload();
        let looked = |read: &[u8], touch, before| FrameInspector::new(touch, before).inspect(read);
        let verified = |read: &[u8]| looked(read, Touch::Verify, 0);
        for size in [60, 61, 590, 1514, 9014] {
            let frame = frame(&payload, 3, size);
            let length = Some(FrameCount { frames: 1, bytes: size.into() });
            assert_eq!(checksum(&frame[14..34]), 0, "the header's own checksum is right");
            assert_eq!(verified(&frame).unwrap(), length);
            let mut changed = frame.clone();
            *changed.last_mut().unwrap() ^= 1;
            assert!(verified(&changed).unwrap_err().message.contains("not what was sent"));
            assert!(verified(&frame[..frame.len() - 1]).is_err());
            assert_eq!(looked(&changed, Touch::Read, 0).unwrap(), length);
            changed[0] = 0xff;
            assert_eq!(verified(&changed).unwrap(), None, "another's frame");
            let with_header = [&[0; 10], &frame[..]].concat();
            assert_eq!(looked(&with_header, Touch::Verify, 10).unwrap(), length);
        }
        assert_eq!(verified(&[0; 8]).unwrap(), None);
    }

    #[test]
    fn counts_frames_of_uncut_message() {
        let payload = payload();
        let one = frame(&payload, 3, 142);
        let mut message = frame(&payload, 3, 342);
        for at in [142, 242] {
            message.copy_within(HEADERS..HEADERS + 100, at);
        }
        let header = [0, 5, 42, 0, 100, 0, 0, 0, 0, 0];
        let mut taken = FrameInspector::new(Touch::Verify, FrameInspector::VNET_HEADER);
        let seen = taken.inspect(&[&header[..], &message].concat()).unwrap();
        assert_eq!(seen, Some(FrameCount { frames: 3, bytes: 3 * 142 }));
        let seen = taken.inspect(&[&[0; 10][..], &one].concat()).unwrap();
        assert_eq!(seen, Some(FrameCount { frames: 1, bytes: 142 }));
        message[250] ^= 1;
        let fault = taken.inspect(&[&header[..], &message].concat()).unwrap_err();
        assert!(fault.message.contains("byte 250 is not what was sent"), "{fault}");
    }
}
