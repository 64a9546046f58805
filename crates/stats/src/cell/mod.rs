//! One cell: the sum of its measured trials. Each file is one part of a row of the analysis, and
//! none compares the cell with another.

mod facts;
mod hops;
mod idle;
mod placement;
mod pool;

pub(crate) use facts::facts;
pub use facts::{Fact, FactKind, FactStep, fact_steps, sink};
pub use hops::{HopsRow, RateLimit};
pub use idle::IdleShare;
pub(crate) use idle::idle;
pub use placement::{CpuShare, ELSEWHERE_LIMIT, ReceiveWork, collisions};
pub use pool::{CountedText, Fragments, PooledCall, PooledCalls, Shares, rejections};
pub(crate) use pool::{
    calls, calls_by_thread, count, count_exact, fragments, sizes, without_numbers,
};
