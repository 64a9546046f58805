//! Profiles: what was on the CPUs, by call stack; where they come from, what
//! they become, and how two of them differ. Pure but for symbol files.

pub mod export;
pub mod import;
mod model;
pub mod pprof;

pub use model::{
    Builder, Frame, FrameId, FrameKind, Header, Owner, Profile, Sample, StackId, Thread, ThreadId,
    Track, Weight, Work,
};
