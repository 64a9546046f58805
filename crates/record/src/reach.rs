//! The route of the bytes between two hosts, and whether they arrive: what agents find out
//! before the first trial.

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
    /// Name of the device that they leave by.
    pub device: String,
    /// The address that they come from; `None` if the kernel names none.
    pub source: Option<IpAddr>,
    /// The router that they go to first; `None` if the peer is on the link.
    pub gateway: Option<IpAddr>,
    /// MTU of the device in bytes.
    pub mtu: u32,
    /// Whether the address is one of the host's own.
    pub own: bool,
}

/// How far the sender came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "contact")]
pub enum Contact {
    /// Connections are established, and the token is answered.
    Made {
        /// Data from the sender to the receiver.
        forth: Passage,
        /// Data from the receiver to the sender.
        back: Passage,
        /// The path MTU in bytes, as the sender's kernel now has it.
        mtu: u32,
    },
    /// A connection is established, and the token is not answered.
    Mute,
    /// Nothing answers.
    Silent,
    /// The connection is refused: a reset, or ICMP "port unreachable".
    Refused,
    /// The kernel gives another reason.
    Failed {
        /// Its words.
        error: String,
    },
}

/// What becomes of data in one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Passage {
    /// It arrives in packets of the path MTU.
    Whole,
    /// It arrives in packets of at most this many bytes; 0 where in none that was tried.
    UpTo(u32),
}

/// What the receiver saw of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Met {
    /// Whether a connection was started whose third packet is missing (SYN_RECV): what the
    /// sender sends arrives, and the answers do not.
    pub half_open: bool,
    /// Connections that were established.
    pub accepted: u32,
    /// Largest packet in bytes that this end's kernel takes the way back for; `None` if
    /// no data went there.
    pub mtu: Option<u32>,
}
