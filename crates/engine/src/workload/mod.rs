//! The workloads: what is done over a connection, and by which end. Each has one file, and one line
//! in [`CATALOG`].
//!
//! A workload owns the loop. It defines which halves of a path each of its actors opens and how
//! they are configured, and plays the actor of one flow on a dedicated thread in an agent: turn by
//! turn it makes the movers ([`Tx`], [`Rx`]) move bytes, which they enter in the [`Recorder`]. The
//! recorder reads the phase from the [`Gate`], by which the agent's control thread starts and ends
//! the window. The result is one [`FlowEnd`]: the movers' account of the whole stream and the
//! counts of the window.
//!
//! A thread that drives many connections plays all their actors by an [`EventLoop`].
//!
//! The path decides how bytes move, the connection how the ends met, and the testbed where actors
//! run. The loops neither allocate nor lock.

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
    ENDLESS, EventLoop, FAST_OPEN, LoopActor, Passing, PlayLoop, Service, Shares, handshake,
};
pub use frames::{FrameInspector, FramePlan};
pub use gate::{Gate, Phase, Progress};
pub use label::{after_witness, label, untested};
pub use mover::{Account, Group, HalfConfig, Rx, Tx};
pub use packets::{FRAME_WAIT_LIMIT, share};
pub use payload::{PATTERN_PERIOD, Pattern, Toucher};
pub use recorder::{Call, Detail, Recorder};
pub use stream::both_ways;
pub use tally::{CallStats, Edge, FlowEnd, Window};

// Files that are also tested with loom's atomics and locks import these via `super::sync`.
use std::sync;
