//! The data paths: how bytes get from the memory of a program to a connection, and back.
//!
//! A path is a static description in a file of its own and one line in [`CATALOG`]. Its sending and
//! its receiving half are chosen separately; [`PAIRS`] names useful combinations. A half's `check`
//! decides from the facts of a host whether it can run there, without touching it; `open` allocates
//! all memory and returns a mover ([`crate::workload::Tx`], [`crate::workload::Rx`]), which makes
//! the system calls. The workload decides which bytes move, and for how long.
//!
//! On its way out, a byte is in the half's message, and the mover hands it to the kernel, a ring, a
//! device or the user-space TCP. On its way in, the mover takes it from there and passes it to the
//! workload's `Toucher`. `attempt` runs on an agent's control thread, movers run on the threads of
//! their flows; `check`, `nic_settings` and `huge_pages` are pure and run in the controller.

mod af_xdp;
mod busy_poll;
mod catalog;
mod common;
mod devmem;
mod discard;
mod epoll;
mod event_loop;
mod frames;
mod half;
mod huge_pages;
mod msg_zerocopy;
mod nic;
mod packet;
mod packet_ring;
mod pktgen;
mod poll;
mod ring;
mod sendfile;
mod socket;
mod splice;
mod tap;
mod tcp_zerocopy_receive;
mod tls;
mod turns;
mod udp_gso;
mod uring;
mod uring_loop;
mod uring_zc;
mod userspace;
mod userspace_loop;
mod vhost;
mod xdp;
mod zcrx;
mod zerocopy_send;

pub use busy_poll::{FixedQueues, unpolled};
#[cfg(test)]
pub(crate) use catalog::cell_of;
pub use catalog::{
    CATALOG, FRAME_PAIRS, PAIRS, Pair, TAP_PAIRS, cell_for_end, crosses_adapters, find,
    has_vhost_worker, suits_workload, transport,
};
#[cfg(test)]
pub(crate) use event_loop::tests::loops;
pub use half::{DataPath, FlowNic, HalfPath, OpenLoop, OpenRx, OpenTx, Opened};
pub use huge_pages::{HugePages, PagesTaken, check_huge_pages};
pub use nic::{
    OwnQueues, STEERED_PORTS, channels, header_split, spread_ports, steering, to_requested,
    warn_of_first_queue,
};
pub use tls::{encrypts, support as tls_support};
pub use userspace::offloaded;

use common::{
    Epoll, Sum, buffer, fits, looked_for, message, needs_stream, reads_into_kernel_memory,
    refuse_if, send_page, set_lowat, tried, waits_within_messages, witness_page,
};
