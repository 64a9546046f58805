//! What is measured while bytes flow: one file per meter, one line each in
//! [`CATALOG`]. Meters run in the agent, around the measured window.

#![forbid(unsafe_code)]

pub mod bpf;
mod counters;
mod cpu;
mod cstates;
mod frequency;
mod handoffs;
mod held;
mod ipis;
mod link;
mod locks;
mod nic;
mod nvml;
mod power;
mod profile;
mod softirqs;
mod softnet;
mod steady;
mod tallies;
mod tcp_info;
mod tcp_stack;
mod threads;
mod throughput;
mod workers;

pub use power::{
    NAME as POWER_NAME, at_rest, dcmi_reading, printed_watts, support as power_support,
};
pub use profile::{Capture, NAME as PROFILE_NAME, price as sample_price};
pub use steady::LastLook;
pub use tcp_stack::Stack as TcpCounters;

use bytepath_record::wire::MeterRequest;
use bytepath_record::{
    Attempt, Facts, Fault, FaultKind, OptionSpec, Reading, Role, Scope, Series, Support,
    ThreadTime, Unit, Work,
};
use bytepath_sys::Roots;
use bytepath_sys::netlink::Netlink;
use bytepath_sys::procfs::{self, Malformed, Source};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Something that measures during a trial.
pub trait Meter: Sync {
    /// Name in the catalogue, as the user types it.
    fn name(&self) -> &'static str;

    /// One line: what it measures and from which source.
    fn summary(&self) -> &'static str;

    /// How far one instance of it sees; decides in which agents it runs.
    fn reach(&self) -> Reach;

    /// Options of the form `key=value` that can be set of it. The meter reads what was
    /// set with [`Context::options`].
    fn options(&self) -> &'static [OptionSpec] {
        &[]
    }

    /// Whether a study has it that does not name its meters.
    fn usual(&self) -> bool {
        !self.apart()
    }

    /// What has to be tried on a host to know whether it works there.
    fn attempt(&self, roots: &Roots) -> Option<Attempt> {
        let _ = roots;
        None
    }

    /// Whether it works on a host of which this is known.
    fn probe(&self, facts: &Facts) -> Support {
        let _ = facts;
        Support::Yes
    }

    /// Whether it runs in trials of its own alone, because it costs the stream
    /// more than other meters do.
    fn apart(&self) -> bool {
        false
    }

    /// Does what takes too long for the start of a window. Called before the
    /// bytes flow; most meters have nothing to do.
    fn prepare(&self, context: &Context) -> Result<Option<Box<dyn Prepared>>, Fault> {
        let _ = context;
        Ok(None)
    }

    /// Begins to measure. Called at the start of the window, so it has to be
    /// quick (well under a millisecond). Not called where `prepare` gave something
    /// to start.
    fn start(&self, context: &Context) -> Result<Box<dyn Running>, Fault>;
}

/// A meter that is ready to start.
pub trait Prepared: Send {
    /// Begins to measure, as quickly as [`Meter::start`].
    fn start(self: Box<Self>) -> Result<Box<dyn Running>, Fault>;
}

/// A meter between start and stop.
pub trait Running: Send {
    /// Called about every [`TICK`]; most meters have nothing to do.
    fn tick(&mut self) {}

    /// The end of the window.
    fn stop(self: Box<Self>) -> Result<Output, Fault>;
}

/// Time between two ticks of the agent's control thread.
pub const TICK: std::time::Duration = std::time::Duration::from_millis(100);

/// How far a meter sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The whole machine: runs in one agent per machine.
    Machine,
    /// The agent's network namespace and its own process: runs in every agent.
    Agent,
    /// Counted by the engine itself; the catalogue entry only switches it on.
    Engine,
}

/// What a meter may look at, and how it was asked to measure.
#[derive(Clone)]
pub struct Context {
    /// Where `/proc` and `/sys` are.
    pub roots: Roots,
    /// The role this agent plays.
    pub role: Role,
    pub threads: Vec<ThreadTag>,
    /// The connections, by flow.
    pub flows: Arc<Vec<OwnedFd>>,
    pub work: Work,
    /// How much of it a flow has done so far: bytes moved, exchanges.
    pub moved: Arc<dyn Fn(u32) -> u64 + Send + Sync>,
    /// The network device of the link.
    pub device: Option<String>,
    /// Whether the host has no other role, so that what is of its machine is seen here.
    pub alone: bool,
    /// What the meter `steady` saw last of the stream's surroundings.
    pub last_look: LastLook,
    /// This meter's options, in the form that it alone reads; null for its defaults.
    pub options: Value,
}

impl Context {
    /// The receiver's host without a stream: no threads, no connections, no device.
    pub fn idle(roots: Roots) -> Context {
        Context {
            roots,
            role: Role::Receiver,
            threads: Vec::new(),
            flows: Arc::new(Vec::new()),
            work: Work::default(),
            moved: Arc::new(|_| 0),
            device: None,
            alone: false,
            last_look: Default::default(),
            options: Value::Null,
        }
    }

    /// The options as the meter's own type; none where nothing was set.
    pub fn options<T: DeserializeOwned>(&self) -> Result<Option<T>, Fault> {
        Option::deserialize(&self.options).map_err(|e| {
            Fault::new(FaultKind::Usage, format!("the options cannot be read: {e}"))
                .remedy("`bytepath meters` lists the options of each meter")
        })
    }
}

/// A meter with its options.
#[derive(Clone)]
pub struct Chosen {
    pub meter: &'static dyn Meter,
    /// Its options, as in [`Context::options`].
    pub options: Value,
    /// The only end that has it; none: those that its reach says.
    pub role: Option<Role>,
}

/// The meters of a catalogue that are requested, in the catalogue's order.
pub fn chosen(catalog: &[&'static dyn Meter], requests: &[MeterRequest]) -> Vec<Chosen> {
    let choose = |meter: &&'static dyn Meter| {
        let request = requests.iter().find(|request| request.name == meter.name())?;
        Some(Chosen { meter: *meter, options: request.options.clone(), role: None })
    };
    catalog.iter().filter_map(choose).collect()
}

/// A thread to watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTag {
    /// Thread id within this process.
    pub tid: u32,
    /// Name that reports show.
    pub name: String,
}

/// What a meter says of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Output {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Run time of threads.
    pub threads: Vec<ThreadTime>,
    /// What the reader should know.
    pub warnings: Vec<String>,
    /// Samples, from the meter `profile` alone.
    pub capture: Option<Box<Capture>>,
}

impl Output {
    /// Adds one number of a kind that adds up over windows.
    fn add(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::sum(metric, unit, value, scope.clone()));
    }

    /// Adds a level or a rate, of which several windows have a mean.
    fn level(&mut self, metric: &str, unit: Unit, value: f64, scope: &Scope) {
        self.readings.push(Reading::mean(metric, unit, value, scope.clone()));
    }
}

/// A file of `/proc` that is read at both edges of the window and whose
/// failures carry its name.
struct Watched {
    source: Source,
    path: PathBuf,
}

impl Watched {
    fn open(path: PathBuf) -> Result<Self, Fault> {
        let source = Source::open(&path).map_err(|e| Fault::system(path.display(), &e))?;
        Ok(Watched { source, path })
    }

    /// Reads the file and takes from it what is needed.
    fn read<T>(&mut self, take: impl FnOnce(&str) -> Result<T, Malformed>) -> Result<T, Fault> {
        let text = self.source.read().map_err(|e| Fault::system(self.path.display(), &e))?;
        take(&text).map_err(|e| {
            Fault::new(FaultKind::Unsupported, e.to_string())
                .remedy("disable this meter, and please report the kernel version")
        })
    }
}

/// The kernel threads that poll for a device: folder below `/proc`, id, name. A device of
/// another namespace may have the same name, so the ids are requested where the kernel
/// reports them (Linux 6.8).
fn polling_threads(proc: &Path, device: &str) -> Vec<(PathBuf, u32, String)> {
    let mut found = procfs::napi_threads(proc, device);
    let mut netlink = Netlink::new();
    let link = netlink.link(device).ok().flatten();
    if let Some(napis) = link.and_then(|link| netlink.napis(link.index).ok()) {
        found.retain(|(_, id, _)| napis.iter().any(|napi| napi.thread == Some(*id)));
    }
    found
}

/// Every meter, in the order in which tables show them.
pub static CATALOG: &[&dyn Meter] = &[
    &throughput::Throughput,
    &cpu::CPU,
    &threads::Threads,
    &SYSCALLS,
    &SIZES,
    &tcp_info::TcpInfoMeter,
    &tcp_stack::TcpStack,
    &softnet::Softnet,
    &softirqs::Softirqs,
    &ipis::Ipis,
    &link::Link,
    &nic::Nic,
    &steady::Steady,
    &cstates::CSTATES,
    &frequency::FREQUENCY,
    &power::Power,
    &nvml::Nvml,
    &counters::Counters,
    &locks::LOCKS,
    &handoffs::HANDOFFS,
    &profile::Profile,
];

/// The meters of a study that names none.
pub fn regular() -> impl Iterator<Item = &'static dyn Meter> {
    CATALOG.iter().copied().filter(|meter| meter.usual())
}

/// The meters that a study may name. Profiles are requested in a way of their own.
pub fn selectable() -> impl Iterator<Item = &'static dyn Meter> {
    CATALOG.iter().copied().filter(|meter| meter.name() != PROFILE_NAME)
}

/// Engines time their system calls where this meter is requested.
pub static SYSCALLS: Counted = Counted {
    name: "syscalls",
    summary: "system calls of the engine: count, errors, time, bytes (timed in place)",
};
/// Engines enter the size of each piece where this meter is requested.
pub static SIZES: Counted = Counted {
    name: "sizes",
    summary: "distribution of transfer sizes in bytes (counted in place)",
};

/// A meter whose counting is part of the engine.
pub struct Counted {
    /// Name in the catalogue.
    pub name: &'static str,
    summary: &'static str,
}

impl Meter for Counted {
    fn name(&self) -> &'static str {
        self.name
    }
    fn summary(&self) -> &'static str {
        self.summary
    }
    fn reach(&self) -> Reach {
        Reach::Engine
    }
    fn start(&self, _: &Context) -> Result<Box<dyn Running>, Fault> {
        struct Nothing;
        impl Running for Nothing {
            fn stop(self: Box<Self>) -> Result<Output, Fault> {
                Ok(Output::default())
            }
        }
        Ok(Box::new(Nothing))
    }
}
