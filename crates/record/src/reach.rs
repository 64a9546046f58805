//! The route between two hosts, and whether bytes arrive: what agents determine before the first
//! trial.

use serde::{Deserialize, Serialize};
use std::net::IpAddr;

/// A range of ports, both ends included.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ports {
    /// The lowest.
    pub low: u16,
    /// The highest.
    pub high: u16,
}

/// The route that a host's kernel chooses for packets to an address (`ip route get`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Name of the outgoing device.
    pub device: String,
    /// The source address; `None` if the kernel reports none.
    pub source: Option<IpAddr>,
    /// The next router; `None` if the peer is on the link.
    pub gateway: Option<IpAddr>,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Whether the address is one of the host's own.
    pub own: bool,
}

/// How far the sender got.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "contact")]
pub enum Contact {
    /// Connections are established, and the token is acknowledged.
    Made {
        /// Data from the sender to the receiver.
        forth: Passage,
        /// Data from the receiver to the sender.
        back: Passage,
        /// The path MTU in bytes, as the sender's kernel reports it now.
        mtu: u32,
    },
    /// A connection is established, but the token is not acknowledged.
    Mute,
    /// No response.
    Silent,
    /// The connection is refused: a reset, or ICMP "port unreachable".
    Refused,
    /// The kernel reports another error.
    Failed {
        /// Its message.
        error: String,
    },
}

/// Result of sending data in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passage {
    /// It arrives in packets of the path MTU.
    Whole,
    /// It arrives in packets of at most this many bytes; 0 if none of the sizes tried arrived.
    UpTo(u32),
}

/// What the receiver observed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeResult {
    /// Whether a connection was started but its third packet is missing (SYN_RECV): packets from
    /// the sender arrive, and the responses do not.
    pub half_open: bool,
    /// Connections that were established.
    pub accepted: u32,
    /// Path MTU towards the sender in bytes, by this end's kernel; `None` if no data was sent
    /// there.
    pub mtu: Option<u32>,
}
