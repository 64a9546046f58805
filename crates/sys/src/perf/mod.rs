//! Sampling by perf_event_open(2): what can be counted, opened on CPUs, read
//! from the kernel's ring buffers, and taken apart.
//!
//! [`Event`] turns a name into what the kernel expects, [`Sampler`] opens
//! it on CPUs and drains the rings, [`records`] takes the bytes apart. Names and
//! records are pure; only the sampler calls the kernel.

mod cost;
mod count;
mod event;
mod record;
mod ring;
mod sampler;

pub use cost::{Cost, sample_cost};
pub use count::{Count, Tally, ThreadCount};
pub use event::{Event, Unit, UnknownEvent};
pub use record::{Call, Chain, Malformed, Mmap, Record, Sample, Task, records};
pub use ring::{Span, spans};
pub use sampler::{Control, LARGEST_SAMPLE, Rate, Refused, Request, Sampler, Step};
