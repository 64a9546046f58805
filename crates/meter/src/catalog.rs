//! All meters, and how they are chosen.

use super::*;
use bytepath_record::Role;
use bytepath_record::wire::MeterRequest;
use serde_json::Value;

/// Every meter, in the order of tables.
pub static CATALOG: &[&Meter] = &[
    &throughput::METER,
    &cpu::METER,
    &threads::METER,
    &SYSCALLS,
    &SIZES,
    &tcp_info::METER,
    &tcp_stack::METER,
    &softnet::METER,
    &softirqs::METER,
    &ipis::METER,
    &link::METER,
    &nic::METER,
    &steady::METER,
    &cstates::METER,
    &frequency::METER,
    &power::METER,
    &nvml::METER,
    &idxd::METER,
    &memory::METER,
    &memory_roles::METER,
    &counters::METER,
    &locks::METER,
    &handoffs::METER,
    &profile::METER,
];

/// Engines time their system calls if this meter is requested.
pub static SYSCALLS: Meter = Meter {
    name: "syscalls",
    summary: "system calls of the engine: count, errors, time, bytes (timed in place)",
    reach: Reach::Engine,
    ..Meter::BASE
};

/// Engines record the size of each piece if this meter is requested.
pub static SIZES: Meter = Meter {
    name: "sizes",
    summary: "distribution of transfer sizes in bytes (counted in place)",
    reach: Reach::Engine,
    ..Meter::BASE
};

/// The meters of a study that names no meters.
pub fn regular() -> impl Iterator<Item = &'static Meter> {
    CATALOG.iter().copied().filter(|meter| meter.usual)
}

/// The meters that a study may name. Profiles are requested by a separate option.
pub fn selectable() -> impl Iterator<Item = &'static Meter> {
    CATALOG.iter().copied().filter(|meter| meter.name != PROFILE_NAME)
}

/// A meter with its options.
#[derive(Clone)]
pub struct Chosen {
    pub meter: &'static Meter,
    /// See [`Context::options`].
    pub options: Value,
    /// The only role that has it; `None` if its reach decides.
    pub role: Option<Role>,
}

/// Returns the requested meters of a catalogue, in the catalogue's order.
pub fn chosen(catalog: &[&'static Meter], requests: &[MeterRequest]) -> Vec<Chosen> {
    let choose = |meter: &&'static Meter| {
        let request = requests.iter().find(|request| request.name == meter.name)?;
        Some(Chosen { meter, options: request.options.clone(), role: None })
    };
    catalog.iter().filter_map(choose).collect()
}
