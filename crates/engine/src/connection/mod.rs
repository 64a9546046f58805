//! The connections: how the two ends of a flow meet, and what movers move bytes over.
//!
//! There is one file per transport: the kernel's TCP and UDP, frames of a link, and a TCP stack in
//! this process. One end listens and the other connects. A connecting end first presents the
//! session's token and the flow's index ([`hello`]); without them, it is not accepted. The result
//! is a [`Connection`] per flow, encrypted if the contract requires it ([`tls`]).
//!
//! Bytes do not pass through this module: movers of the kernel's TCP and UDP work on the socket of
//! a [`Flow`], those of other transports on specific types. This module itself sends only the
//! token, the witness page ([`WitnessPage`]) and the end of a stream. It runs in the agents;
//! whether two hosts can connect at all is tested before a study by [`reach`].

mod flow;
mod frames;
pub mod handshake;
pub mod hello;
mod kernel_tcp;
mod kernel_udp;
pub mod limits;
mod ports;
pub mod reach;
pub mod records;
pub mod tls;
mod transport;
pub mod userspace;
mod witness;

pub use flow::Flow;
pub use frames::{Attached, FRAMES};
pub use kernel_tcp::KERNEL_TCP;
pub(crate) use kernel_tcp::flow_options;
pub use kernel_udp::KERNEL_UDP;
pub use transport::{AllConnected, Connected, Connection, Listener, Terms, Transport};
pub use userspace::USERSPACE_TCP;
pub use witness::{WITNESS_LEN, WitnessPage, read_witness};
