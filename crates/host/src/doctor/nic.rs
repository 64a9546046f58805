//! How a NIC's settings affect a measurement: rules over the facts `nic.CARD.*`.

use super::findings::Findings;
use bytepath_record::{Facts, Severity};
use std::collections::BTreeSet;

/// Descriptors of a ring in published runs of one fast flow.
const RING: u32 = 4096;

/// Packets from this size on are BIG TCP, bytes (include/linux/netdevice.h, GSO_LEGACY_MAX_SIZE).
const BIG: u32 = 65_537;

/// Longest delay of an interrupt that is still short compared with a round trip, microseconds.
const LONG_WAIT: u32 = 100;

/// Payload as a fraction of a bus's bytes, with packets of 256 bytes and headers of 20 to 28 (PCI
/// Express Base Specification, "Transaction Layer").
const PACKETS: f64 = 0.9;

/// Qdiscs that delay or drop on purpose (tc(8)).
const SHAPERS: &[&str] = &["htb", "tbf", "hfsc", "cake", "netem", "cbq"];

/// Adds findings about every NIC whose settings are known.
pub(super) fn examine(facts: &Facts, all: &mut Findings) {
    for card in known_nics(facts) {
        Examined { facts, card }.all(all);
    }
}

/// Returns the names of the NICs whose settings are known.
pub(super) fn known_nics(facts: &Facts) -> BTreeSet<&str> {
    let names = facts.settings.keys().filter_map(|name| name.strip_prefix("nic."));
    names.filter_map(|name| Some(name.rsplit_once('.')?.0)).collect()
}

struct Examined<'a> {
    facts: &'a Facts,
    card: &'a str,
}

impl Examined<'_> {
    fn setting(&self, what: &str) -> Option<&str> {
        self.facts.setting(&format!("nic.{}.{what}", self.card))
    }

    /// Parses "512 of 8192" into two numbers.
    fn of_most(&self, what: &str) -> Option<(u32, u32)> {
        let (now, most) = self.setting(what)?.split_once(" of ")?;
        now.parse().ok().zip(most.parse().ok())
    }

    fn all(&self, all: &mut Findings) {
        self.rings(all);
        self.interrupts(all);
        self.offloads(all);
        self.header_split(all);
        self.big_packets(all);
        self.bus(all);
        self.huge_pages(all);
        let card = self.card;
        if let Some(qdisc) = self.setting("qdisc").filter(|qdisc| SHAPERS.contains(qdisc)) {
            all.distorts(
                format!("{card}: the qdisc {qdisc} shapes what is sent"),
                "its rate and delays are measured instead of the path",
                &format!("tc qdisc replace dev {card} root fq"),
            );
        }
    }

    fn rings(&self, all: &mut Findings) {
        let card = self.card;
        if let Some((now, most)) =
            self.of_most("rx_ring").filter(|(now, most)| *now < RING.min(*most))
        {
            let target = RING.min(most);
            all.distorts(
                format!("{card}: receive rings have {now} descriptors, {most} are possible"),
                "a burst that the ring cannot hold is dropped by the card, and TCP slows down",
                &format!("ethtool -G {card} rx {target}"),
            );
        }
        if let Some((1, most)) = self.of_most("channels").filter(|(_, most)| *most > 1) {
            all.note(
                format!("{card}: one receive queue, {most} are possible"),
                "all flows share one CPU's softirq, and zcrx and devmem find no queue for themselves",
                &format!(
                    "ethtool -L {card} combined {}",
                    most.min(self.facts.cpus.len().max(2) as u32)
                ),
            );
        }
    }

    /// Checks for obstacles to BIG TCP ("gso_max_size" in Documentation/networking/ip-sysctl.rst;
    /// include/linux/skbuff.h, MAX_SKB_FRAGS).
    fn big_packets(&self, all: &mut Findings) {
        let card = self.card;
        let most = self.setting("tso_max_size").and_then(|text| text.parse::<u32>().ok());
        if let Some(most) = most.filter(|most| *most < BIG) {
            all.note(
                format!("{card}: its segmentation takes packets of up to {most} bytes"),
                "a cell with a larger gso-max cannot run (published runs of BIG TCP used 131072)",
                &format!("leave gso-max at {most}, or use a card with a larger tso_max_size"),
            );
        }
        let fragments = self.facts.setting("config.MAX_SKB_FRAGS");
        if let (Some("17"), Some(BIG..)) = (fragments, most) {
            all.note(
                format!("{card}: the kernel's packets hold 17 fragments (CONFIG_MAX_SKB_FRAGS)"),
                "a received packet of 4 KiB pages is limited to 68 KiB, so BIG TCP gains little",
                "boot a kernel with CONFIG_MAX_SKB_FRAGS=45",
            );
        }
    }

    /// Checks for a bus that is slower than the NIC's link, although the NIC cannot use a faster
    /// one.
    fn bus(&self, all: &mut Findings) {
        let card = self.card;
        let number = |what: &str| self.setting(what)?.split(' ').next()?.parse::<f64>().ok();
        let Some(((transfers, lanes), link)) =
            number("pcie_speed").zip(number("pcie_width")).zip(number("speed"))
        else {
            return;
        };
        let encoded = if transfers < 8.0 { 0.8 } else { 128.0 / 130.0 };
        let (bus, link) = (transfers * lanes * encoded * PACKETS, link / 1000.0);
        if link > bus {
            all.distorts(
                format!("{card}: its bus carries about {bus:.0} Gbit/s, its link {link:.0} Gbit/s"),
                "the bus is the bottleneck instead of the path",
                "use another slot or card; see `lspci -vv`, LnkSta",
            );
        }
    }

    /// Checks for huge pages that are all on other nodes than the NIC.
    fn huge_pages(&self, all: &mut Findings) {
        let (card, Some(node)) = (self.card, self.setting("node")) else { return };
        let local = self.facts.number(&format!("numa.node{node}.hugepages.2M"));
        let is_pages =
            |name: &&String| name.starts_with("numa.node") && name.ends_with(".hugepages.2M");
        let named = self.facts.settings.keys().filter(is_pages);
        let others: u64 = named.filter_map(|name| self.facts.number::<u64>(name)).sum();
        if local == Some(0) && others > 0 {
            all.distorts(
                format!("{card} is on NUMA node {node}, and all {others} huge pages are elsewhere"),
                "receive areas of zcrx and devmem move every byte across the interconnect",
                &format!("bytepath run --set \"hugepages 2M node={node} 128\""),
            );
        }
    }

    fn interrupts(&self, all: &mut Findings) {
        let card = self.card;
        if self.setting("adaptive_coalescing") == Some("on") {
            all.distorts(
                format!("{card}: interrupt coalescing adapts to the load"),
                "interrupt rates differ between paths, and from trial to trial",
                &format!("ethtool -C {card} adaptive-rx off rx-usecs 8"),
            );
            return;
        }
        let waits = self.setting("rx_coalescing").and_then(|text| text.split_once(" us"));
        let waits = waits.and_then(|(micros, _)| micros.parse::<u32>().ok());
        if let Some(micros) = waits.filter(|micros| *micros > LONG_WAIT) {
            all.note(
                format!("{card}: an interrupt waits {micros} us for more packets"),
                "each round trip is that much longer, so buffers must be larger (bytepath size)",
                &format!("ethtool -C {card} rx-usecs 8"),
            );
        }
    }

    fn offloads(&self, all: &mut Findings) {
        let card = self.card;
        let rules = [
            (
                "gro",
                "off",
                Severity::Distorts,
                "GRO is off",
                "every packet goes up the stack individually, which hides the cost of a path",
                "gro on",
            ),
            (
                "tso",
                "off",
                Severity::Distorts,
                "TSO is off",
                "the CPU segments what is sent, which hides the cost of a path",
                "tso on",
            ),
            (
                "lro",
                "on",
                Severity::Distorts,
                "LRO is on",
                "packets are merged without the headers that zero-copy receive needs",
                "lro off",
            ),
            (
                "rx_checksum",
                "off",
                Severity::Distorts,
                "receive checksums are not offloaded",
                "the CPU reads every byte, so every path touches the payload",
                "rx on",
            ),
            (
                "hw_gro",
                "off",
                Severity::Note,
                "hardware GRO is available and off",
                "published runs of zcrx gained a third from it",
                "rx-gro-hw on",
            ),
        ];
        for (what, state, severity, text, effect, option) in rules {
            if self.setting(what) == Some(state) {
                let command = format!("ethtool -K {card} {option}");
                all.add(severity, format!("{card}: {text}"), effect, &command);
            }
        }
    }

    fn header_split(&self, all: &mut Findings) {
        let card = self.card;
        match (self.setting("header_split"), self.setting("header_split_threshold")) {
            (Some("off"), _) => all.blocks(
                format!("{card}: header split is off"),
                "zcrx and devmem cannot receive into memory of their own on this card",
                &format!("ethtool -G {card} tcp-data-split on"),
            ),
            (Some("on"), Some(threshold)) if threshold != "0" => all.distorts(
                format!("{card}: packets up to {threshold} bytes are not split from their headers"),
                "they are copied, on a path labelled zero-copy",
                &format!("ethtool -G {card} hds-thresh 0"),
            ),
            _ => {}
        }
    }
}
