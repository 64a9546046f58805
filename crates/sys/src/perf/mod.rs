//! Sampling by perf_event_open(2): naming events, opening them on CPUs, reading the kernel's ring
//! buffers, and decoding the records.
//!
//! [`Event`] turns a name into what the kernel expects, [`Sampler`] opens it on CPUs and drains the
//! rings, [`records`] decodes the bytes. Names and records are pure; only the sampler calls the
//! kernel.

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
