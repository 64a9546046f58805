//! The plain data that everything else depends on: a request (a cell), a result (a trial), and the
//! messages between controller and agent.
//!
//! Only these types reach a disk or a pipe. They do not depend on how they are measured. A new
//! field has a default, so that older records can be read; changing the meaning or name of a field
//! requires a new [`SCHEMA_VERSION`].

#![forbid(unsafe_code)]

mod cell;
mod cell_name;
mod clocks;
mod facts;
mod fault;
mod finding;
mod fragments;
mod hops;
mod kernel;
mod latency;
mod ledger;
mod list;
mod load;
mod observation;
mod option;
mod placement;
mod power;
mod profile;
mod published;
mod reach;
mod reading;
mod setting;
mod sizes;
mod study;
mod trial;
pub mod unit;
mod visible;
pub mod wire;
mod work;

pub use cell::{
    Activity, Cell, CellId, Half, LinkSettings, MOST_FLOWS, Netem, Protocol, Stream, TapSettings,
    Tls, Touch, is_model,
};
pub use cell_name::{shared_levels, without_levels};
pub use clocks::{Clocks, HostClock};
pub use facts::{
    Attempt, Facts, GPU, LINK_DEVICE, LINK_NODE, MOST_FILES, Outcome, Privileges, SSH_CONNECTION,
    Support, free_huge_pages, huge_pages,
};
pub use fault::{Fault, FaultKind};
pub use finding::{Finding, Severity};
pub use fragments::{FEW, FREED_AT_ONCE, FragmentCounts};
pub use hops::Hops;
pub use kernel::{Kernel, KernelHosts};
pub use latency::{Latency, Percentile};
pub use ledger::{COMPLETED_AS_COPIED, COPIED_ON_THE_WAY, Evidence, Ledger, Manner};
pub use list::{distinct, grouped, joined, listed};
pub use load::{Load, Peak};
pub use observation::{
    Absent, Connection, CopyCount, Counter, CpuSource, CpuTime, Ending, Observation, ObservedCall,
    ObservedSocket, ObservedTcp, ObservedThread, ProfileSummary, ProfiledFunction, Traffic, Way,
};
pub use option::{Implied, OptionKind, OptionSpec, OptionValue, Options};
pub use placement::{CpuTurns, Placement, SoftirqCpu};
pub use power::{LogClock, LoggedTrial, Power, PowerLog, PowerSource, Rest, TimeSpan};
pub use profile::{
    Bytes, ProfileRecord, ProfiledCells, Profiling, SAMPLING_OPTIONS, SamplePrice, Sampling,
};
pub use published::{
    Levels, Published, PublishedColumn, PublishedFactor, PublishedFigure, PublishedRow, ReadFrom,
    StudyFigure,
};
pub use reach::{Contact, Passage, Ports, ProbeResult, Route};
pub use reading::{Aggregation, MOST_VALUES, Reading, Scope, Series, Unit};
pub use setting::{
    Channels, Coalescing, Cpus, DeviceName, FlowRule, GRO, HW_GRO, IdleChoice, LRO, NapiTiming,
    NumaNode, PacketLimits, Restoration, RestorationRow, Rings, SETTING_FORMS, Setting,
    SettingRecord, SettingValue, Split, SysctlName, TapFlags, WantedSetting, Word,
};
pub use sizes::Sizes;
pub use study::{
    Budget, CopyCeiling, Design, Judgement, Schedule, Source, Stopping, Study, StudyHeader,
};
pub use trial::{
    CallRow, HOST_CHANGE, MODEL, MOST_TABLES, ProvenWitness, REVERSE, RX_PACKETS, Role, RoleRecord,
    SizeDistribution, ThreadCalls, ThreadTime, Trial, TrialStatus,
};
pub use visible::{is_unsafe_to_display, one_line, visible, visible_json};
pub use work::{Cost, Terms, Work};

/// Version of every record on disk and on the wire. A reader accepts this version and older ones,
/// and refuses newer ones by name.
///
/// 2: a trial has `work` and `count` in place of `window_bytes`, may have `latency`;
/// a reading has `aggregation`; a ledger may have `discarded`.
pub const SCHEMA_VERSION: u32 = 2;

/// True if a field need not be written.
fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}
