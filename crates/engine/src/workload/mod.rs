//! The workloads: what is done over a connection, and by whom. One file each, and one line in
//! [`CATALOG`].
//!
//! A workload owns the loop. It names which halves of a path each of its actors opens and with which
//! job, and plays the actor of one flow, on a thread of its own in an agent: turn by turn it has the
//! movers ([`Tx`], [`Rx`]) move bytes, which enter them in the [`Recorder`]. That reads the phase from
//! the [`Gate`], by which the agent's control thread starts and ends the window. At the end there is
//! one [`FlowEnd`]: the movers' account of the whole stream and the counts of the window.
//!
//! A thread that drives many connections plays their actors at once, by an [`EventLoop`].
//!
//! How the bytes move is up to the path, how the ends met to the connection, and where actors run to
//! the testbed. The loops allocate nothing and take no lock.

mod actor;
mod catalog;
mod crr;
mod event_loop;
mod frames;
mod gate;
mod label;
mod load;
mod mover;
mod packets;
mod payload;
mod recorder;
mod rr;
mod rr_loop;
mod sizes;
mod stream;
mod stream_loop;
mod tally;

pub use actor::{Actor, Direction, Workload};
pub use catalog::{CATALOG, of};
pub use crr::failures;
pub use event_loop::{
    Crew, ENDLESS, EventLoop, FAST_OPEN, Passing, PlayLoop, Service, Shares, handshake,
};
pub use frames::{FrameInspector, FramePlan};
pub use gate::{Gate, Phase, Progress};
pub use label::{after_witness, label, untested};
pub use mover::{Account, Group, HalfConfig, Rx, Tx};
pub use packets::{QUIET, share};
pub use payload::{PATTERN_PERIOD, Pattern, Toucher};
pub use recorder::{Call, Detail, Recorder};
pub use stream::both_ways;
pub use tally::{CallStats, Edge, FlowEnd, Window};

// Files that tests run with loom's atomics and locks name these by `super::sync`.
use std::sync;
