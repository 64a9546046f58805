//! Zero-copy receive: the NIC writes payload into an area of ours, completions report where, and
//! pieces that have been read go back through a refill ring. Documentation/networking/iou-zcrx.rst,
//! io_uring/zcrx.c.
//!
//! # Why this is safe to call
//!
//! While a queue is registered, the kernel pins the pages of its area and of its refill ring, so
//! nothing here can be freed too early. The kernel writes to a piece of the area only after it was
//! given back, and a [`RecvZcRing`] gives a piece back only after the borrow by which the caller
//! reads it has ended. Pieces are checked to lie within the area.

mod abi;
mod arrivals;
mod attempt;
mod refill;
mod register;
mod ring;

pub use abi::RefillEntry;
pub use arrivals::{DecodedCompletion, Owed, Piece, RawCompletion, Reader};
pub use attempt::{try_no_device, try_queue, zcrx_in_kernel};
pub use register::{Abilities, AreaMemory, QueueShape, StatsShape, abilities};
pub use ring::{Counts, Exported, RecvZcRing};
