//! Values of settings with several parts, each of which is optional.

use super::Split;
use super::words::Words;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) trait Parts: Sized {
    fn parse(words: &mut Words) -> Result<Self, Fault>;

    /// Returns name and value of each part that is set, in the order in which they are written.
    fn parts(&self) -> Vec<(&'static str, String)>;
}

/// Declares such values: for each part its type, its typed name, and the parser of its value. Parts
/// that are `None` are not changed.
macro_rules! parts {
    (@text flag $value:ident) => { on_or_off($value).to_owned() };
    (@text $read:ident $value:ident) => { $value.to_string() };
    ($($(#[$doc:meta])* $type:ident { $(
        $(#[$part:meta])* $field:ident: $value:ty = ($name:literal, $read:ident),
    )* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(rename_all = "kebab-case")]
        pub struct $type { $(
            $(#[$part])*
            #[serde(default, skip_serializing_if = "Option::is_none")]
            pub $field: Option<$value>,
        )* }

        impl Parts for $type {
            fn parse(words: &mut Words) -> Result<Self, Fault> {
                Ok($type { $($field: words.$read($name)?,)* })
            }

            fn parts(&self) -> Vec<(&'static str, String)> {
                let parts = [$(($name, self.$field.map(|value| parts!(@text $read value))),)*];
                parts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
            }
        }
    )*};
}

parts! {
    /// The parts of [`Setting::Rings`](super::Setting::Rings); `None` leaves one unchanged.
    Rings {
        /// Descriptors of each receive ring.
        rx: u32 = ("rx", number),
        /// Descriptors of each transmit ring.
        tx: u32 = ("tx", number),
        /// Bytes of each receive buffer.
        rx_buf_len: u32 = ("rx-buf-len", size),
        /// Whether headers go into separate buffers.
        tcp_data_split: Split = ("tcp-data-split", split),
        /// Packets up to this many bytes are not split.
        hds_thresh: u32 = ("hds-thresh", size),
    }

    /// The parts of [`Setting::Channels`](super::Setting::Channels); `None` leaves one unchanged.
    Channels {
        /// Queues that only receive.
        rx: u32 = ("rx", number),
        /// Queues that only send.
        tx: u32 = ("tx", number),
        /// Pairs of queues with one interrupt.
        combined: u32 = ("combined", number),
    }

    /// The parts of [`Setting::Coalescing`](super::Setting::Coalescing); `None` leaves one
    /// unchanged.
    Coalescing {
        /// Most microseconds between a received packet and its interrupt.
        rx_usecs: u32 = ("rx-usecs", number),
        /// Most received packets before an interrupt.
        rx_frames: u32 = ("rx-frames", number),
        /// Most microseconds between a sent packet and its interrupt.
        tx_usecs: u32 = ("tx-usecs", number),
        /// Most sent packets before an interrupt.
        tx_frames: u32 = ("tx-frames", number),
        /// Whether the driver adapts to the rate of received packets.
        adaptive_rx: bool = ("adaptive-rx", flag),
        /// Whether the driver adapts to the rate of sent packets.
        adaptive_tx: bool = ("adaptive-tx", flag),
    }

    /// The parts of [`Setting::Napi`](super::Setting::Napi), for each instance; `None` leaves one
    /// unchanged.
    NapiTiming {
        /// Polls in a row that find nothing before interrupts are allowed again.
        defer_hard_irqs: u32 = ("defer-hard-irqs", number),
        /// Nanoseconds until it polls without an interrupt, and GRO flushes its packets.
        gro_flush_timeout: u32 = ("gro-flush-timeout", number),
        /// Nanoseconds for which a busy-polling program that finds packets keeps interrupts off.
        irq_suspend_timeout: u32 = ("irq-suspend-timeout", number),
        /// 0: it polls in softirqs, 1: in a kernel thread (Linux 6.17), 2: in one that busy polls.
        threaded: u32 = ("threaded", number),
    }

    /// The parts of [`Setting::PacketLimits`](super::Setting::PacketLimits), in bytes; `None`
    /// leaves one unchanged.
    PacketLimits {
        /// Sent, IPv6. Up to 65536 it also sets that of IPv4.
        gso: u32 = ("gso", size),
        /// Received, IPv6. Up to 65536 it also sets that of IPv4.
        gro: u32 = ("gro", size),
        /// Sent, IPv4.
        gso_ipv4: u32 = ("gso-ipv4", size),
        /// Received, IPv4.
        gro_ipv4: u32 = ("gro-ipv4", size),
    }

    /// The parts of [`Setting::TapFlags`](super::Setting::TapFlags); `None` leaves one unchanged.
    TapFlags {
        /// Whether packets carry a `struct virtio_net_hdr` (IFF_VNET_HDR).
        vnet_hdr: bool = ("vnet-hdr", flag),
        /// Whether the reader polls with NAPI (IFF_NAPI).
        napi: bool = ("napi", flag),
        /// Whether a full ring stops the queue instead of dropping (IFF_BACKPRESSURE, Linux 7.3).
        backpressure: bool = ("backpressure", flag),
    }
}

pub(super) fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
