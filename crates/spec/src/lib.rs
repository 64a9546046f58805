//! Parses and validates what users write: paths with options, links, placements, kernels, profiles,
//! sources of power, settings of hosts, testbeds, whole experiment files.
//!
//! The input is text; the output are values of `bytepath-record`, above all the cells of a study
//! with their stable ids. Everything is pure: available names are passed in as declarations
//! ([`PathSpec`], [`TestbedDeclaration`], [`Catalogues`]), CPUs as lists, and the same text gives
//! the same cells anywhere. Whether a host can do what is requested is not decided here, but in
//! `bytepath-study`, when the hosts are known. Quantities are parsed only by
//! `bytepath_record::unit`, and typed options (`name:key=value,...`) only by `options`. All of it
//! runs in the controller, before the first trial.

#![forbid(unsafe_code)]

mod cells;
mod experiment;
mod inventory;
mod kernel;
mod link;
mod options;
mod order;
mod placement;
mod power;
mod profiling;
mod published;
mod settings;
mod stream;
mod testbed;

pub use cells::{
    CellRequest, PairDeclaration, PathDeclaration, PathSpec, WorkloadDeclaration, cells,
};
pub use experiment::{
    BETWEEN_TRIALS, Catalogues, DEFAULT_BLOCKS, Experiment, Layout, MOST_BLOCKS, MOST_CELLS,
    OWN_FACTORS, check_design, check_lanes, check_stopping, default_design, experiment_schema,
    factor_names, parse_design, parse_experiment, parse_interference, parse_time, parse_warm_up,
    parse_window,
};
pub use inventory::{Chosen, Inventory};
pub use kernel::parse_kernel;
pub use link::{LINK_OPTIONS, PRESETS, Preset, parse_link};
pub use options::{find, resolve, split, suggest, usage};
pub use order::order;
pub use placement::{Cpus, PARTS, PlacementSpec, SHORT_FORMS, parse_cores, read_cores};
pub use power::{POWER_OPTIONS, POWER_SOURCES, parse_power, read_clock, read_rest};
pub use profiling::{
    DEFAULT_PROFILE, MOST_PROFILES, PROFILE_OPTIONS, PROFILED_CELLS, most_profiled, parse_profile,
};
pub use published::{PUBLISHED, find_published, published_names};
pub use settings::{
    ChosenProfile, SETTING_PROFILES, SettingProfile, find_setting_profile, on_devices,
    wanted_settings,
};
pub use stream::{MEMORY_LIMIT, STREAM_OPTIONS, parse_stream, stream_value, with_flags};
pub use testbed::{TestbedChoice, TestbedDeclaration, parse_testbed};
