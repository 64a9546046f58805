//! The context in which a meter measures.

use super::role_traffic::SessionTraffic;
use bytepath_record::{Fault, Role, Work};
use bytepath_sys::Roots;
use bytepath_sys::cgroup::Throttling;
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex};

/// The data available to a meter, and its options.
#[derive(Clone)]
pub struct Context {
    /// Where `/proc` and `/sys` are.
    pub roots: Roots,
    /// The role of this agent.
    pub role: Role,
    pub threads: Vec<ThreadTag>,
    /// The connections, by flow.
    pub flows: Arc<Vec<OwnedFd>>,
    pub work: Work,
    /// Work done by a flow so far: bytes moved, or exchanges.
    pub moved: Arc<dyn Fn(u32) -> u64 + Send + Sync>,
    /// The network devices of the link; empty over an existing network.
    pub devices: Vec<String>,
    /// Whether the host has only this role, so that it measures the whole machine.
    pub alone: bool,
    /// Process id of the qemu that runs the peer; `None` if the peer is not a guest of this host.
    pub qemu: Option<u32>,
    /// See [`PreviousSnapshot`].
    pub last_look: PreviousSnapshot,
    /// Traffic that the meter `memory-roles` counts for a session.
    pub memory_traffic: SessionTraffic,
    /// This meter's options, in a format that only it reads; null for its defaults.
    pub options: Value,
}

impl Context {
    /// The receiver's host without a stream: no threads, connections or device.
    pub fn idle(roots: Roots) -> Context {
        Context {
            roots,
            role: Role::Receiver,
            threads: Vec::new(),
            flows: Arc::new(Vec::new()),
            work: Work::default(),
            moved: Arc::new(|_| 0),
            devices: Vec::new(),
            alone: false,
            qemu: None,
            last_look: Default::default(),
            memory_traffic: Default::default(),
            options: Value::Null,
        }
    }

    /// Returns the options as the meter's own type; `None` if nothing was set.
    pub fn options<T: DeserializeOwned>(&self) -> Result<Option<T>, Fault> {
        Option::deserialize(&self.options).map_err(|e| {
            Fault::usage(format!("the options cannot be read: {e}"))
                .remedy("`bytepath meters` lists the options of each meter")
        })
    }
}

/// A thread to measure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThreadTag {
    /// Thread id within this process.
    pub tid: u32,
    /// Name that reports show.
    pub name: String,
    /// The CPU that it is pinned to, if any.
    pub cpu: Option<u32>,
}

/// The previous snapshot of the meter `steady`; `None` before the first.
pub type PreviousSnapshot = Arc<Mutex<Option<Snapshot>>>;

/// State that must not change while bytes flow.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Snapshot {
    pub(crate) clock_source: Option<String>,
    /// Throttle counts by CPU, for those CPUs that have one.
    pub(crate) throttled: Vec<(u32, u64)>,
    /// Throttling by the CPU quotas of its control groups.
    pub(crate) quota: Throttling,
    /// Settings of each of the link's devices, by name.
    pub(crate) links: Vec<Vec<(&'static str, String)>>,
}
