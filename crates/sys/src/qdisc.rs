//! Qdiscs of devices: rtnetlink(7), RTM_GETQDISC and related calls (net/sched/sch_api.c). Encoded
//! here, because the bindings of the `tc` family are larger than the rest of bytepath.

use super::bytes::{text, u32_at, u64_at};
use super::interface_request::words;
use super::netlink::{Netlink, acknowledged};
use super::nic_stats::Counted;
use super::route_request::{RawRequest, attributes, push_attribute};
use libc::{TCA_KIND, TCA_OPTIONS, TCA_STATS2};
use std::ffi::CString;
use std::io;

/// An active qdisc.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Qdisc {
    /// Interface index of its device.
    pub device: u32,
    /// Its name: `fq_codel`, `noqueue`.
    pub kind: String,
    /// Its handle; 0 if the kernel added it by itself.
    pub handle: u32,
    /// Its parent; [`ROOT`] for the root.
    pub parent: u32,
    /// Its options as the kernel reports them (`TCA_OPTIONS`), in the format in which it accepts
    /// them.
    pub options: Vec<u8>,
    /// Counters of packets and bytes that it sent, dropped and has queued.
    pub counts: Vec<Counted>,
}

/// `TC_H_ROOT`: the parent of a device's root qdisc.
pub const ROOT: u32 = 0xffff_ffff;

// linux/gen_stats.h.
const TCA_STATS_BASIC: u16 = 1;
const TCA_STATS_QUEUE: u16 = 3;
/// Bytes of `struct tcmsg`: family and padding, device, handle, parent, info.
const HEADER: usize = 20;

/// Parameters of the qdisc netem (net/sched/sch_netem.c).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Netem {
    /// Delay of a packet in ns.
    pub delay: u64,
    /// Rate in bytes per second; `None` for no limit.
    pub rate: Option<u64>,
    /// Packets per million that are lost; `reorder`: packets per million that are not delayed.
    pub loss: u32,
    pub reorder: u32,
}

impl Netem {
    /// Its options: `struct tc_netem_qopt` and attributes (linux/pkt_sched.h).
    pub fn options(&self) -> Vec<u8> {
        // Most packets held: those of a second at 100 Gbit/s in packets of 64 KiB.
        const LIMIT: u32 = 200_000;
        const TCA_NETEM_REORDER: u16 = 3;
        const TCA_NETEM_RATE: u16 = 6;
        const TCA_NETEM_RATE64: u16 = 8;
        const TCA_NETEM_LATENCY64: u16 = 10;
        let part =
            |millionths: u32| (u64::from(u32::MAX) * u64::from(millionths) / 1_000_000) as u32;
        // Every packet may overtake, with that probability.
        let gap = u32::from(self.reorder > 0);
        let mut options = words(&[0, LIMIT, part(self.loss), gap, 0, 0]);
        push_attribute(&mut options, TCA_NETEM_LATENCY64, &self.delay.to_ne_bytes());
        if self.reorder > 0 {
            push_attribute(&mut options, TCA_NETEM_REORDER, &words(&[part(self.reorder), 0]));
        }
        if let Some(rate) = self.rate {
            let low = u32::try_from(rate).unwrap_or(u32::MAX);
            push_attribute(&mut options, TCA_NETEM_RATE, &words(&[low, 0, 0, 0]));
            if low == u32::MAX {
                push_attribute(&mut options, TCA_NETEM_RATE64, &rate.to_ne_bytes());
            }
        }
        options
    }
}

impl Netlink {
    /// Returns the qdiscs of a device that is up; a device that is down has none.
    pub fn qdiscs(&mut self, index: u32) -> io::Result<Vec<Qdisc>> {
        let (kind, flags) = (libc::RTM_GETQDISC, libc::NLM_F_DUMP);
        let request = RawRequest::route(kind, flags, header(index, 0, 0));
        // The kernel reports those of all devices.
        self.dump(&request, |message| Ok(parse(message).filter(|qdisc| qdisc.device == index)))
    }

    /// Replaces the root qdisc of a device. With a handle of 0 the kernel chooses one; without
    /// options the qdisc has its defaults. ENOENT: the kernel has no such qdisc.
    pub fn replace_root_qdisc(
        &mut self,
        index: u32,
        kind: &str,
        handle: u32,
        options: &[u8],
    ) -> io::Result<()> {
        let mut payload = header(index, handle, ROOT);
        push_attribute(&mut payload, TCA_KIND, CString::new(kind)?.as_bytes_with_nul());
        if !options.is_empty() {
            push_attribute(&mut payload, TCA_OPTIONS, options);
        }
        let flags = libc::NLM_F_CREATE | libc::NLM_F_REPLACE;
        let request = RawRequest::route(libc::RTM_NEWQDISC, flags, payload);
        acknowledged(&mut self.socket, &request)
    }

    /// Removes the root qdisc of a device; the kernel installs its default
    /// (`net.core.default_qdisc`, or none for a virtual device). EINVAL or ENOENT: the kernel's
    /// default is already installed.
    pub fn delete_root_qdisc(&mut self, index: u32) -> io::Result<()> {
        let request = RawRequest::route(libc::RTM_DELQDISC, 0, header(index, 0, ROOT));
        acknowledged(&mut self.socket, &request)
    }
}

fn header(index: u32, handle: u32, parent: u32) -> Vec<u8> {
    words(&[0, index, handle, parent, 0])
}

/// Parses a message that describes a qdisc; `None` if it is truncated.
fn parse(message: &[u8]) -> Option<Qdisc> {
    let mut qdisc = Qdisc {
        device: u32_at(message, 4)?,
        handle: u32_at(message, 8)?,
        parent: u32_at(message, 12)?,
        ..Qdisc::default()
    };
    for (kind, value) in attributes(message.get(HEADER..)?) {
        match kind {
            TCA_KIND => qdisc.kind = text(value),
            TCA_OPTIONS => qdisc.options = value.to_vec(),
            TCA_STATS2 => {
                attributes(value).for_each(|(kind, value)| count(&mut qdisc, kind, value))
            }
            _ => {}
        }
    }
    Some(qdisc)
}

/// Parses `struct gnet_stats_basic` and `gnet_stats_queue`.
fn count(qdisc: &mut Qdisc, kind: u16, value: &[u8]) {
    let mut put = |name, count: Option<u64>| qdisc.counts.extend(count.map(|count| (name, count)));
    let number = |at| u32_at(value, at).map(u64::from);
    match kind {
        TCA_STATS_BASIC => {
            put("bytes", u64_at(value, 0));
            put("packets", number(8));
        }
        TCA_STATS_QUEUE => {
            let names = ["qlen", "backlog", "drops", "requeues", "overlimits"];
            names.into_iter().enumerate().for_each(|(at, name)| put(name, number(4 * at)));
        }
        _ => {}
    }
}

/// Runs `parse` on any bytes, for fuzzing.
pub fn decode_anything(message: &[u8]) {
    let _ = parse(message);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_has_no_queue() {
        let found = Netlink::new().qdiscs(1).unwrap();
        let roots: Vec<&Qdisc> = found.iter().filter(|qdisc| qdisc.parent == ROOT).collect();
        assert!(matches!(roots.as_slice(), [root] if root.kind == "noqueue"), "{found:?}");
    }

    #[test]
    fn messages_that_are_cut_off() {
        let mut whole = header(7, 0x8001_0000, ROOT);
        push_attribute(&mut whole, TCA_KIND, b"pfifo\0");
        push_attribute(&mut whole, TCA_OPTIONS, &[1, 2, 3, 4, 5]);
        let qdisc = parse(&whole).unwrap();
        let expected = Qdisc {
            device: 7,
            kind: "pfifo".into(),
            handle: 0x8001_0000,
            parent: ROOT,
            options: vec![1, 2, 3, 4, 5],
            counts: vec![],
        };
        assert_eq!(qdisc, expected);
        for length in 0..whole.len() {
            parse(&whole[..length]);
        }
        // A length of zero must end the iteration.
        whole[HEADER..HEADER + 2].copy_from_slice(&[0, 0]);
        assert_eq!(parse(&whole).unwrap().kind, "");
    }

    #[test]
    fn counters_are_recognised_by_name() {
        let words = |words: &[u32]| words.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
        let (mut stats, mut message) = (Vec::new(), header(12, 0x8001_0000, ROOT));
        let basic = [1000u64.to_ne_bytes().to_vec(), words(&[10, 0])].concat();
        push_attribute(&mut stats, TCA_STATS_BASIC, &basic);
        push_attribute(&mut stats, TCA_STATS_QUEUE, &words(&[2, 3000, 4, 5, 6]));
        push_attribute(&mut message, TCA_STATS2, &stats);
        let expected = [
            ("bytes", 1000),
            ("packets", 10),
            ("qlen", 2),
            ("backlog", 3000),
            ("drops", 4),
            ("requeues", 5),
            ("overlimits", 6),
        ];
        assert_eq!(parse(&message).unwrap().counts, expected);
        for length in 0..message.len() {
            decode_anything(&message[..length]);
        }
    }
}
