//! What netlink reports about the network cards of a host: rings, channels, interrupt
//! coalescing, offloads, header split, queueing discipline. What the kernel says of a
//! card is kept as a [`Card`], so that a recorded host can say the same.

use bytepath_sys::Roots;
use bytepath_sys::driver_info::driver_info;
use bytepath_sys::ethtool::{Channels, Coalescing, DataSplit, Rings};
use bytepath_sys::netlink::{Limits, Netlink};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// What netlink reports of a card that is up. What its driver does not report is none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
pub struct Card {
    /// Name of the root queueing discipline.
    pub qdisc: String,
    /// Offloads that are on, as `ethtool -k` resolves their names.
    pub features: Vec<String>,
    /// Offloads that can be switched.
    pub changeable: Vec<String>,
    /// Descriptors of a receive ring, and the most there can be.
    pub rx_ring: Option<(u32, u32)>,
    /// Descriptors of a transmit ring, and the most there can be.
    pub tx_ring: Option<(u32, u32)>,
    /// Queues that receive, and the most there can be.
    pub queues: Option<(u32, u32)>,
    /// Microseconds and packets that an interrupt of a receiver waits for.
    pub rx_coalescing: (Option<u32>, Option<u32>),
    /// Whether the driver changes that by the load.
    pub adaptive: Option<bool>,
    /// Whether headers are received into buffers of their own; `None` if the driver
    /// cannot or does not say.
    pub header_split: Option<bool>,
    /// Packets up to this many bytes are not split.
    pub split_threshold: Option<u32>,
    /// Largest packets of segmentation offload and GRO, bytes.
    pub big: (Option<u32>, Option<u32>),
    /// The most that the card's own segmentation takes, bytes.
    pub most_segmented: Option<u32>,
    /// Version of the driver, as it reports it.
    pub driver_version: Option<String>,
    /// Version of the card's firmware.
    pub firmware: Option<String>,
}

/// Asks the kernel about these devices; those that are down or gone are left out.
pub fn record(devices: &[String]) -> BTreeMap<String, Card> {
    let mut netlink = Netlink::new();
    let mut card = |device: &String| -> Option<(String, Card)> {
        let link = netlink.link(device).ok()??;
        if !link.up {
            return None;
        }
        let mut card = Card { qdisc: link.qdisc, ..Card::default() };
        let Limits { gso, gro, .. } = link.limits;
        card.big = (gso, gro);
        card.most_segmented = link.tso_max_size;
        if let Ok(info) = driver_info(device) {
            (card.driver_version, card.firmware) = (info.version, info.firmware);
        }
        if let Ok(features) = netlink.features(link.index) {
            (card.features, card.changeable) = (features.active, features.changeable);
        }
        if let Ok(rings) = netlink.rings(link.index) {
            card.rings(&rings);
        }
        if let Ok(channels) = netlink.channels(link.index) {
            card.queues = receiving(&channels);
        }
        if let Ok(Coalescing { rx_usecs, rx_frames, adaptive_rx, .. }) =
            netlink.coalescing(link.index)
        {
            card.rx_coalescing = (rx_usecs, rx_frames);
            card.adaptive = adaptive_rx;
        }
        Some((device.clone(), card))
    };
    devices.iter().filter_map(&mut card).collect()
}

impl Card {
    fn rings(&mut self, rings: &Rings) {
        self.rx_ring = rings.rx.zip(rings.rx_max);
        self.tx_ring = rings.tx.zip(rings.tx_max);
        self.header_split = match rings.tcp_data_split {
            Some(DataSplit::Enabled) => Some(true),
            Some(DataSplit::Disabled) => Some(false),
            Some(DataSplit::Unknown) | None => None,
        };
        self.split_threshold = rings.hds_thresh;
    }

    /// Whether an offload is on.
    pub fn has(&self, feature: &str) -> bool {
        self.features.iter().any(|name| name == feature)
    }

    /// Whether an offload is off and can be switched on.
    pub fn could_have(&self, feature: &str) -> bool {
        !self.has(feature) && self.changeable.iter().any(|name| name == feature)
    }

    /// Its facts, as settings of the host.
    fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = Vec::new();
        let mut keep = |name, value: Option<String>| all.extend(value.map(|value| (name, value)));
        let of = |(now, most): (u32, u32)| format!("{now} of {most}");
        let switch = |on: bool| if on { "on" } else { "off" }.to_owned();
        keep("qdisc", Some(self.qdisc.clone()).filter(|qdisc| !qdisc.is_empty()));
        keep("rx_ring", self.rx_ring.map(of));
        keep("tx_ring", self.tx_ring.map(of));
        keep("channels", self.queues.map(of));
        let (micros, frames) = self.rx_coalescing;
        let waits = [micros.map(|n| format!("{n} us")), frames.map(|n| format!("{n} packets"))];
        let waits: Vec<String> = waits.into_iter().flatten().collect();
        // An adaptive driver may report its present delay, which is not a setting.
        let set = self.adaptive != Some(true);
        keep("rx_coalescing", Some(waits.join(", ")).filter(|text| set && !text.is_empty()));
        keep("adaptive_coalescing", self.adaptive.map(switch));
        for (name, feature) in OFFLOADS {
            let known = self.has(feature) || self.changeable.iter().any(|f| f == feature);
            keep(name, known.then(|| switch(self.has(feature))));
        }
        keep("header_split", self.header_split.map(switch));
        keep("header_split_threshold", self.split_threshold.map(|bytes| bytes.to_string()));
        keep("driver_version", self.driver_version.clone());
        keep("firmware", self.firmware.clone());
        let (gso, gro) = self.big;
        keep("gso_max_size", gso.map(|bytes| bytes.to_string()));
        keep("gro_max_size", gro.map(|bytes| bytes.to_string()));
        keep("tso_max_size", self.most_segmented.map(|bytes| bytes.to_string()));
        all
    }
}

/// Offloads that change what a path costs: fact, kernel's name
/// (net/ethtool/common.c).
const OFFLOADS: &[(&str, &str)] = &[
    ("gro", "rx-gro"),
    ("hw_gro", "rx-gro-hw"),
    ("lro", "rx-lro"),
    ("tso", "tx-tcp-segmentation"),
    ("gso", "tx-generic-segmentation"),
    ("rx_checksum", "rx-checksum"),
    ("scatter_gather", "tx-scatter-gather"),
];

/// Queues that receive: those that do nothing else, and pairs.
fn receiving(channels: &Channels) -> Option<(u32, u32)> {
    let sum = |only: Option<u32>, pairs: Option<u32>| match (only, pairs) {
        (None, None) => None,
        (only, pairs) => Some(only.unwrap_or(0).saturating_add(pairs.unwrap_or(0))),
    };
    let now = sum(channels.rx, channels.combined)?;
    // A driver that has pairs and single queues cannot have the most of both.
    Some((now, channels.combined_max.max(channels.rx_max)?.max(now)))
}

/// Hardware cards of a host, by name: queried from the kernel, or as they
/// were recorded. A record that cannot be read says nothing.
pub(super) fn cards(roots: &Roots) -> BTreeMap<String, Card> {
    match &roots.cards {
        Some(file) => read(file).unwrap_or_default(),
        None => record(&super::nic::cards(&roots.sys.join("class/net"))),
    }
}

/// Facts of every card: "nic.eth0.rx_ring" and the like.
pub(super) fn settings(roots: &Roots) -> Vec<(String, String)> {
    let all = cards(roots).into_iter();
    all.flat_map(|(name, card)| {
        let settings = card.settings().into_iter();
        settings.map(move |(what, value)| (format!("nic.{name}.{what}"), value))
    })
    .collect()
}

fn read(file: &Path) -> io::Result<BTreeMap<String, Card>> {
    const LONGEST: u64 = 1 << 20;
    let mut text = Vec::new();
    File::open(file)?.take(LONGEST).read_to_end(&mut text)?;
    serde_json::from_slice(&text).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_card_is_kept_as_it_is_read() {
        let loopback = record(&["lo".into(), "no-such-dev".into()]);
        let card = &loopback["lo"];
        assert!(loopback.len() == 1 && card.qdisc == "noqueue" && card.has("rx-gro"), "{card:?}");
        assert_eq!((card.rx_ring, card.header_split), (None, None), "loopback has no rings");
        let text = serde_json::to_string(&loopback).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let roots = Roots::recorded(dir.path());
        assert_eq!(cards(&roots), BTreeMap::new());
        std::fs::write(dir.path().join("cards.json"), text).unwrap();
        assert_eq!(cards(&roots), loopback);
        assert!(settings(&roots).contains(&("nic.lo.gro".into(), "on".into())));
        std::fs::write(dir.path().join("cards.json"), "{\"lo\": 3}").unwrap();
        assert_eq!(cards(&roots), BTreeMap::new());
    }

    #[test]
    fn queues_that_receive() {
        let channels = Channels {
            rx: Some(0),
            rx_max: Some(32),
            combined: Some(8),
            combined_max: Some(63),
            ..Channels::default()
        };
        assert_eq!(receiving(&channels), Some((8, 63)));
        assert_eq!(receiving(&Channels::default()), None);
    }
}
