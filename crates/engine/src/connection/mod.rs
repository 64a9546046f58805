//! The connections: how the two ends of a flow meet, and what movers move over.
//!
//! One file per transport: the kernel's TCP and UDP, frames of a link, and a TCP stack in this process.
//! One end listens and the other connects; whoever connects shows the session's token and the
//! flow's index first ([`hello`]), and who does not is not let in. What comes out is a [`Connection`]
//! per flow, encrypted if the contract requires it ([`tls`]).
//!
//! A byte passes through here without being touched: movers of the kernel's TCP and UDP work on the
//! socket of a [`Flow`], those of other transports on a type of their own. Only the token, the
//! witness page ([`WitnessPage`]) and the end of a stream are sent by this room. It runs in the
//! agents; whether two hosts can connect at all is tested before a study by [`reach`].

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
