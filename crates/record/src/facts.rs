//! Facts of a host, and the result of what was tried there: the input of every probe.

use crate::{Fault, FaultKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Facts about the machine that an agent runs on, as visible from within its namespaces.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Facts {
    /// Boot id of the kernel: two agents with the same one share a machine.
    pub machine: String,
    /// `uname -r`.
    pub kernel_release: String,
    /// `uname -v`.
    pub kernel_version: String,
    /// `uname -m`.
    pub architecture: String,
    /// Model name of the first CPU.
    pub cpu_model: String,
    /// CPUs that are online and that this process may use.
    pub cpus: Vec<u32>,
    /// CPUs that are threads of one core (SMT), by core; cores with one thread are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Vec<u32>>,
    /// CPUs of each NUMA node, by its number; empty if there is only one node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// Page size in bytes.
    pub page_size: u64,
    /// Seconds that the host took to boot for the study, from the start of its process until its
    /// agent replied; `None` if it was already running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted: Option<f64>,
    /// What this process may do.
    pub privileges: Privileges,
    /// Settings by name, as the host prints them: sysctls, accounting
    /// configuration, clock source. Sorted, so that two hosts can be compared.
    pub settings: BTreeMap<String, String>,
    /// Results of what was actually tried, in order.
    pub attempts: Vec<Attempt>,
}

impl Facts {
    /// Returns a setting; `None` if the host does not report it.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// Returns a numeric setting; `None` if the host does not report it, or if it is not a number.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.setting(name)?.parse().ok()
    }

    /// Returns the CPUs on the NUMA node of a NIC; `None` if there is only one node, or if the
    /// NIC's is unknown.
    pub fn cpus_near(&self, card: &str) -> Option<&[u32]> {
        self.node(&format!("nic.{card}.node"))
    }

    /// Returns the device of the link and the CPUs on its NUMA node, as in [`Facts::cpus_near`].
    pub fn cpus_near_link(&self) -> Option<(&str, &[u32])> {
        Some((self.setting(LINK_DEVICE)?, self.node(LINK_NODE)?))
    }

    /// Whether two hosts are one machine: never if its name could not be read.
    pub fn shares_machine(&self, other: &Facts) -> bool {
        !self.machine.is_empty() && self.machine == other.machine
    }

    /// Returns the outcome of an attempt, if it was made.
    pub fn attempt(&self, name: &str) -> Option<&Outcome> {
        self.attempts.iter().find(|a| a.name == name).map(|a| &a.outcome)
    }

    /// Returns the GPUs that CUDA lists: the PCI address of each, and a description or what it lacks.
    /// The first is the one that a path uses by default.
    pub fn gpus(&self) -> impl Iterator<Item = (&str, &str)> {
        self.attempts.iter().filter_map(|attempt| match &attempt.outcome {
            Outcome::Works(words) | Outcome::Missing(words) => {
                Some((attempt.name.strip_prefix(GPU)?, words.as_str()))
            }
            _ => None,
        })
    }

    /// Returns `Yes` if the attempt worked, otherwise a refusal with the kernel's error and the
    /// given remedy.
    pub fn require(&self, name: &str, remedy: &str) -> Support {
        let error = |errno: &i32| std::io::Error::from_raw_os_error(*errno);
        let reason = match self.attempt(name) {
            Some(Outcome::Works(_)) => return Support::Yes,
            Some(Outcome::Errno(errno)) => format!("{name}: {}", error(errno)),
            Some(Outcome::Refused { errno, words }) => format!("{name}: {}: {words}", error(errno)),
            Some(Outcome::Missing(what)) => format!("{name}: {what}"),
            None => format!("{name} was not tried on this host"),
        };
        Support::no(reason, remedy)
    }

    /// Returns the NUMA node that provides huge pages for the link's device; `None` if the machine
    /// has a single node, and therefore reports only those of the machine.
    pub fn node_of_pages(&self) -> Option<u32> {
        let node = self.number(LINK_NODE)?;
        self.setting(&free_huge_pages(Some(node))).map(|_| node)
    }

    fn node(&self, setting: &str) -> Option<&[u32]> {
        self.nodes.get(&self.number(setting)?).map(Vec::as_slice)
    }
}

/// The prefix of the names of the attempts behind [`Facts::gpus`].
pub const GPU: &str = "devmem.gpu.";

/// The fact that names the device of the link; [`LINK_NODE`] has its NUMA node.
pub const LINK_DEVICE: &str = "link.device";
/// See [`LINK_DEVICE`].
pub const LINK_NODE: &str = "link.node";

/// Returns the name of a fact: huge pages of 2 MiB, of a NUMA node or of the machine.
pub fn huge_pages(node: Option<u32>) -> String {
    match node {
        Some(node) => format!("numa.node{node}.hugepages.2M"),
        None => "hugepages.2M".to_owned(),
    }
}

/// Returns the name of a fact: those of [`huge_pages`] that are unused.
pub fn free_huge_pages(node: Option<u32>) -> String {
    format!("{}.free", huge_pages(node))
}

/// The fact that describes the connection by which ssh(1) reached the host, as in sshd(8)'s
/// `SSH_CONNECTION`: address and port of the client, then of the server.
pub const SSH_CONNECTION: &str = "ssh.connection";

/// Name of a fact among [`Facts::settings`]: largest number of files that a process may open.
pub const MOST_FILES: &str = "limit.files";

/// Privileges of the process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Privileges {
    /// Effective user id, inside the process's user namespace.
    pub euid: u32,
    /// True if the process runs in a user namespace other than the initial one.
    pub user_namespace: bool,
    /// Effective capabilities of interest, by name without the prefix.
    pub capabilities: Vec<String>,
}

impl Privileges {
    /// True if the process may use perf events of the whole machine, regardless of
    /// `kernel.perf_event_paranoid` (capabilities(7)).
    pub fn may_monitor(&self) -> bool {
        let suffices = |name: &String| name == "PERFMON" || name == "SYS_ADMIN";
        !self.user_namespace && self.capabilities.iter().any(suffices)
    }
}

/// Something that was tried once, with its outcome.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Attempt {
    /// Dotted name of what was tried: "io_uring.setup".
    pub name: String,
    /// Its outcome.
    pub outcome: Outcome,
}

/// The outcome of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It works; the text may contain a detail ("64 entries").
    Works(String),
    /// The kernel refused with this error number.
    Errno(i32),
    /// The kernel refused with this error number and a reason.
    Refused {
        /// The error number.
        errno: i32,
        /// The kernel's message (a netlink extended acknowledgement).
        words: String,
    },
    /// It could not be tried; the text names what is missing.
    Missing(String),
}

impl Outcome {
    /// Returns the error number of a refusal by the kernel.
    pub fn errno(&self) -> Option<i32> {
        match self {
            Outcome::Errno(errno) | Outcome::Refused { errno, .. } => Some(*errno),
            Outcome::Works(_) | Outcome::Missing(_) => None,
        }
    }
}

/// Whether something can run on a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", tag = "supported")]
pub enum Support {
    /// It can.
    Yes,
    /// It cannot; the user is shown why, and what would help.
    No {
        /// What is missing.
        reason: String,
        /// What would help.
        remedy: String,
    },
}

impl Support {
    /// Not supported, with reason and remedy.
    pub fn no(reason: impl Into<String>, remedy: impl Into<String>) -> Self {
        Support::No { reason: reason.into(), remedy: remedy.into() }
    }

    /// `Yes` if the condition holds; otherwise not supported, with reason and remedy.
    pub fn when(is_met: bool, reason: &str, remedy: impl Into<String>) -> Self {
        if is_met { Support::Yes } else { Support::no(reason, remedy) }
    }

    /// Returns what is missing, or `None`.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Support::Yes => None,
            Support::No { reason, .. } => Some(reason),
        }
    }

    /// True if it can run.
    pub fn is_yes(&self) -> bool {
        matches!(self, Support::Yes)
    }

    /// Returns the first refusal of the two, or `Yes` if there is none.
    pub fn and(self, other: Support) -> Support {
        if self.is_yes() { other } else { self }
    }

    /// Converts a refusal into a fault; `None` if it is supported.
    pub fn refusal(self) -> Option<Fault> {
        let Support::No { reason, remedy } = self else { return None };
        let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
        Some(Fault { kind: FaultKind::Unsupported, message: reason, remedy })
    }
}

/// Unsupported because of a fault.
impl From<Fault> for Support {
    fn from(fault: Fault) -> Support {
        Support::no(fault.message, fault.remedy.unwrap_or_default())
    }
}
