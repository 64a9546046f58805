//! Values of settings that have several parts, each of which may be left alone.

use super::Split;
use super::words::Words;
use crate::Fault;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub(super) trait Parts: Sized {
    fn parse(words: &mut Words) -> Result<Self, Fault>;

    /// Name and value of each part that is set, in the order in which they are written.
    fn parts(&self) -> Vec<(&'static str, String)>;
}

/// Declares such values: of each part its type, and how it is typed, a name and the reader of
/// its value. Parts that are `None` are left alone.
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
    /// What [`Setting::Rings`](super::Setting::Rings) sets; `None` leaves it alone.
    Rings {
        /// Descriptors of each receive ring.
        rx: u32 = ("rx", number),
        /// Descriptors of each transmit ring.
        tx: u32 = ("tx", number),
        /// Bytes of each receive buffer.
        rx_buf_len: u32 = ("rx-buf-len", size),
        /// Whether headers go into buffers of their own.
        tcp_data_split: Split = ("tcp-data-split", split),
        /// Packets up to this many bytes are not split.
        hds_thresh: u32 = ("hds-thresh", size),
    }

    /// What [`Setting::Channels`](super::Setting::Channels) sets; `None` leaves it alone.
    Channels {
        /// Queues that only receive.
        rx: u32 = ("rx", number),
        /// Queues that only send.
        tx: u32 = ("tx", number),
        /// Pairs of queues with one interrupt.
        combined: u32 = ("combined", number),
    }

    /// What [`Setting::Coalescing`](super::Setting::Coalescing) sets; `None` leaves it alone.
    Coalescing {
        /// Most microseconds between a received packet and its interrupt.
        rx_usecs: u32 = ("rx-usecs", number),
        /// Most received packets before an interrupt.
        rx_frames: u32 = ("rx-frames", number),
        /// Most microseconds between a sent packet and its interrupt.
        tx_usecs: u32 = ("tx-usecs", number),
        /// Most sent packets before an interrupt.
        tx_frames: u32 = ("tx-frames", number),
        /// The driver follows the rate of received packets.
        adaptive_rx: bool = ("adaptive-rx", flag),
        /// The driver follows the rate of sent packets.
        adaptive_tx: bool = ("adaptive-tx", flag),
    }

    /// What [`Setting::Napi`](super::Setting::Napi) sets of each instance; `None` leaves it alone.
    NapiTiming {
        /// Polls in a row that find nothing before interrupts are allowed again.
        defer_hard_irqs: u32 = ("defer-hard-irqs", number),
        /// Nanoseconds until it polls although nothing interrupts, and GRO lets go of packets.
        gro_flush_timeout: u32 = ("gro-flush-timeout", number),
        /// Nanoseconds for which a busy-polling program that finds something keeps interrupts off.
        irq_suspend_timeout: u32 = ("irq-suspend-timeout", number),
        /// 0: it polls in softirqs, 1: in a kernel thread (Linux 6.17), 2: in one that busy polls.
        threaded: u32 = ("threaded", number),
    }

    /// What [`Setting::PacketLimits`](super::Setting::PacketLimits) sets, in bytes; `None` leaves it alone.
    PacketLimits {
        /// Sent, IPv6. Up to 65536 it sets the one of IPv4, too.
        gso: u32 = ("gso", size),
        /// Received, IPv6. Up to 65536 it sets the one of IPv4, too.
        gro: u32 = ("gro", size),
        /// Sent, IPv4.
        gso_ipv4: u32 = ("gso-ipv4", size),
        /// Received, IPv4.
        gro_ipv4: u32 = ("gro-ipv4", size),
    }

    /// What [`Setting::TapFlags`](super::Setting::TapFlags) sets; `None` leaves it alone.
    TapFlags {
        /// Packets carry a `struct virtio_net_hdr` (IFF_VNET_HDR).
        vnet_hdr: bool = ("vnet-hdr", flag),
        /// The reader polls with NAPI (IFF_NAPI).
        napi: bool = ("napi", flag),
        /// A full ring stops the queue instead of dropping (IFF_BACKPRESSURE,
        /// Linux 7.3).
        backpressure: bool = ("backpressure", flag),
    }
}

pub(super) fn on_or_off(on: bool) -> &'static str {
    if on { "on" } else { "off" }
}
