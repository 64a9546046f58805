//! How large the buffers of a fast path must be: computed from the rate, the delay and the bytes
//! that the application holds. Nothing here is measured.

use bytepath_record::Facts;
use schemars::JsonSchema;
use serde::Serialize;

/// The requirements of a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Goal {
    /// Payload, in bits per second.
    pub rate: f64,
    /// Round-trip time, in seconds.
    pub rtt: f64,
    /// MTU, in bytes.
    pub mtu: u32,
    /// Bytes that the application holds before it returns their buffers.
    pub hold: u64,
    /// Receive queues that share the rate, with one flow each.
    pub queues: u32,
    /// Entries of each receive ring; `None` takes the smallest that suffices.
    pub ring: Option<u32>,
    /// Size of a receive buffer in bytes: a page, or a larger `rx_buf_len`.
    pub buffer: u32,
}

/// TCP and IPv4 headers, and the timestamps that Linux sends by default
/// (include/net/tcp.h, `TCPOLEN_TSTAMP_ALIGNED`).
pub(crate) const HEADERS: u32 = 40;
/// See [`HEADERS`].
pub(crate) const TIMESTAMPS: u32 = 12;

/// Most packets that one NAPI poll takes (`NAPI_POLL_WEIGHT`).
pub const POLL_WEIGHT: f64 = 64.0;

/// Token ranges of one `SO_DEVMEM_DONTNEED` (net/core/sock.c): 128 ranges, at
/// most 1024 fragments.
pub const DONTNEED: f64 = 1024.0;

/// The computed sizes and rates.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sizing {
    /// Payload of a full segment, in bytes.
    pub segment: u32,
    /// The MTU whose segments fill whole receive buffers.
    pub page_mtu: u32,
    /// Bandwidth-delay product in bytes, all queues together.
    pub delay_product: f64,
    /// Bytes that a sender has in flight while it probes for more: twice that.
    pub in_flight: f64,
    /// Packets per second, all queues together.
    pub packets: f64,
    /// Polls per second if each finds a full [`POLL_WEIGHT`].
    pub polls: f64,
    /// Entries of each ring.
    pub ring: u32,
    /// The smallest ring that holds what one queue has in flight, a power of two.
    pub least_ring: u32,
    /// Bytes of buffers for each ring.
    pub ring_bytes: u64,
    /// Bytes of the area, udmabuf or GPU buffer of each queue: the ring and what the application
    /// holds, in huge pages.
    pub area: u64,
    /// Huge pages of 2 MiB for all queues.
    pub huge_pages: u64,
    /// Buffers that the application holds per queue.
    pub held: u64,
    /// Calls per second that return buffers, at [`DONTNEED`] buffers a call.
    pub recycles: f64,
    /// Seconds until a queue at full rate has filled its area, if nothing is returned.
    pub lasts: f64,
    /// Bytes that `tcp_rmem` and `tcp_wmem` must allow: twice what one flow has in flight, because
    /// a socket buffer is charged for memory, not payload.
    pub socket_buffer: u64,
}

/// Largest ring that drivers offer, and that the io_uring refill ring supports.
pub const LARGEST_RING: u32 = 32768;

const HUGE_PAGE: u64 = 2 << 20;

impl Sizing {
    /// Computes the sizing for a goal.
    pub fn of(goal: &Goal) -> Sizing {
        let segment = goal.mtu.saturating_sub(HEADERS + TIMESTAMPS).max(1);
        let queues = f64::from(goal.queues.max(1));
        let bytes = goal.rate / 8.0;
        let delay_product = bytes * goal.rtt;
        let in_flight = 2.0 * delay_product;
        // A segment larger than a buffer takes several buffers.
        let buffers = segment.div_ceil(goal.buffer.max(1));
        let packets = bytes / f64::from(segment);
        let needed = (in_flight / queues / f64::from(segment)).ceil() * f64::from(buffers);
        let least_ring = (needed.max(1.0) as u64).min(1 << 31).next_power_of_two() as u32;
        let ring = goal.ring.unwrap_or(least_ring);
        let ring_bytes = u64::from(ring) * u64::from(goal.buffer);
        let hold = goal.hold.div_ceil(u64::from(goal.queues.max(1)));
        let area = (ring_bytes + hold).next_multiple_of(HUGE_PAGE);
        Sizing {
            segment,
            page_mtu: goal.buffer + HEADERS + TIMESTAMPS,
            delay_product,
            in_flight,
            packets,
            polls: packets / POLL_WEIGHT,
            ring,
            least_ring,
            ring_bytes,
            area,
            huge_pages: area / HUGE_PAGE * u64::from(goal.queues.max(1)),
            held: hold.div_ceil(u64::from(goal.buffer.max(1))),
            recycles: packets * f64::from(buffers) / DONTNEED,
            lasts: area as f64 * queues / bytes.max(f64::MIN_POSITIVE),
            socket_buffer: (2.0 * in_flight / queues).ceil() as u64,
        }
    }
}

/// How often each byte crosses the memory bus at one end.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Traffic {
    /// The way to receive or send.
    pub way: &'static str,
    /// Crossings per byte if the caches keep nothing.
    pub crossings: f64,
    /// Bytes per second at the goal's rate.
    pub bytes: f64,
}

/// Returns the memory traffic of one end at a rate in bits per second. A device reads or writes
/// each byte once; a copy reads and writes it, and the write first fetches the cache line, unless
/// the copy is large enough for streaming stores. An application that reads the received data adds
/// one crossing.
pub fn traffic(rate: f64) -> [Traffic; 4] {
    let way = |way, crossings| Traffic { way, crossings, bytes: rate / 8.0 * crossings };
    [
        way("receive, copied (socket, io_uring recv)", 4.0),
        way("receive, not copied (mapped, zcrx, devmem)", 1.0),
        way("send, copied (send, io_uring send)", 4.0),
        way("send, not copied (MSG_ZEROCOPY, sendfile)", 1.0),
    ]
}

/// A limit of a host that is too low for a goal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Shortage {
    pub setting: String,
    pub is: u64,
    /// The least value that suffices.
    pub needs: u64,
    /// The command that sets it.
    pub command: String,
}

/// Returns the limits of this host that are too low. Settings that the host does not report are not
/// judged.
pub fn shortages(facts: &Facts, sizing: &Sizing) -> Vec<Shortage> {
    let mut all = Vec::new();
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        let text = facts.setting(name).unwrap_or_default();
        let values: Vec<u64> = text.split_whitespace().filter_map(|v| v.parse().ok()).collect();
        if let [least, first, most] = values[..]
            && most < sizing.socket_buffer
        {
            let needs = sizing.socket_buffer;
            let command = format!("sysctl -w {name}=\"{least} {first} {needs}\"");
            all.push(Shortage { setting: format!("{name} (maximum)"), is: most, needs, command });
        }
    }
    let free = facts.number::<u64>("vm.nr_hugepages");
    if let Some(is) = free.filter(|free| *free < sizing.huge_pages) {
        let needs = sizing.huge_pages;
        let command = format!("sysctl -w vm.nr_hugepages={needs}");
        all.push(Shortage { setting: "vm.nr_hugepages".into(), is, needs, command });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One flow of 200 Gbit/s, 0.1 ms away, as published for devmem TCP and zcrx.
    const PUBLISHED: Goal = Goal {
        rate: 200e9,
        rtt: 0.1e-3,
        mtu: 4148,
        hold: 48 << 20,
        queues: 1,
        ring: Some(4096),
        buffer: 4096,
    };

    #[test]
    fn the_published_arithmetic() {
        let s = Sizing::of(&PUBLISHED);
        assert_eq!((s.segment, s.page_mtu), (4096, 4148));
        assert_eq!((s.delay_product, s.in_flight), (2.5e6, 5e6));
        assert_eq!(s.ring_bytes, 16 << 20);
        assert_eq!(s.area, 64 << 20, "64 MB of udmabuf for each queue pair");
        assert_eq!((s.huge_pages, s.held), (32, 12288));
        assert!((s.lasts - 2.684e-3).abs() < 1e-6, "64 MiB at 25 GB/s: {}", s.lasts);
        assert_eq!(s.least_ring, 2048, "1221 buffers are in flight");
        assert!((s.packets - 6.1035e6).abs() < 1e3, "{}", s.packets);
    }

    #[test]
    fn queues_share_and_large_segments_take_several_buffers() {
        let two = Sizing::of(&Goal { queues: 2, ring: None, ..PUBLISHED });
        assert_eq!((two.ring, two.area), (1024, 28 << 20));
        assert_eq!(two.huge_pages, 28);
        let jumbo = Sizing::of(&Goal { mtu: 9000, ring: None, ..PUBLISHED });
        assert_eq!(jumbo.segment, 8948);
        assert_eq!(jumbo.least_ring, 2048, "559 segments of three buffers");
        let tiny = Sizing::of(&Goal { rate: 1.0, mtu: 52, hold: 0, ring: None, ..PUBLISHED });
        assert_eq!((tiny.segment, tiny.ring, tiny.area), (1, 1, 2 << 20));
    }

    #[test]
    fn a_limit_that_is_too_low_comes_with_its_command() {
        let mut facts = Facts::default();
        let sizing = Sizing::of(&PUBLISHED);
        assert!(shortages(&facts, &sizing).is_empty(), "what is not shown is not judged");
        facts.settings.insert("net.ipv4.tcp_rmem".into(), "4096 131072 6291456".into());
        facts.settings.insert("net.ipv4.tcp_wmem".into(), "4096 16384 16777216".into());
        let all = shortages(&facts, &sizing);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].command, "sysctl -w net.ipv4.tcp_rmem=\"4096 131072 10000000\"");
    }
}
