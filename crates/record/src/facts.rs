//! What a host is and what it let us do: the input of every probe.

use crate::{Fault, FaultKind};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::str::FromStr;

/// Facts about the machine an agent runs on, seen from inside its namespaces.
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
    /// CPUs that are threads of one core (SMT), core by core; cores with one thread
    /// are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub siblings: Vec<Vec<u32>>,
    /// CPUs of each NUMA node, by its number; empty where there is one node.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub nodes: BTreeMap<u32, Vec<u32>>,
    /// Memory of the machine in bytes.
    pub memory: u64,
    /// Page size in bytes.
    pub page_size: u64,
    /// Seconds that the host took to boot for the study, from the start of its
    /// process until its program answered; `None` if it was up before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booted: Option<f64>,
    /// What this process may do.
    pub privileges: Privileges,
    /// Settings by name, as the host prints them: sysctls, accounting
    /// configuration, clock source. Sorted, so that two hosts can be compared.
    pub settings: BTreeMap<String, String>,
    /// Things that were actually tried, in the order tried.
    pub attempts: Vec<Attempt>,
}

impl Facts {
    /// A setting; `None` if the host does not show it.
    pub fn setting(&self, name: &str) -> Option<&str> {
        self.settings.get(name).map(String::as_str)
    }

    /// A setting that is a number; `None` if the host does not show it, or it is something else.
    pub fn number<T: FromStr>(&self, name: &str) -> Option<T> {
        self.setting(name)?.parse().ok()
    }

    /// CPUs on the NUMA node of a card. `None` if there is one node, or the card's is not known.
    pub fn cpus_near(&self, card: &str) -> Option<&[u32]> {
        self.node(&format!("nic.{card}.node"))
    }

    /// The device of the link, and the CPUs on its NUMA node, as for [`Facts::cpus_near`].
    pub fn cpus_near_link(&self) -> Option<(&str, &[u32])> {
        Some((self.setting(LINK_DEVICE)?, self.node(LINK_NODE)?))
    }

    /// The outcome of an attempt, if it was made.
    pub fn attempt(&self, name: &str) -> Option<&Outcome> {
        self.attempts.iter().find(|a| a.name == name).map(|a| &a.outcome)
    }

    /// `Yes` if the attempt worked; otherwise a refusal with the kernel's
    /// error and the given remedy.
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

    /// The NUMA node whose huge pages the link's device takes; none if the machine has one alone, which
    /// shows those of the machine only.
    pub fn node_of_pages(&self) -> Option<u32> {
        let node = self.number(LINK_NODE)?;
        self.setting(&free_huge_pages(Some(node))).map(|_| node)
    }

    fn node(&self, setting: &str) -> Option<&[u32]> {
        self.nodes.get(&self.number(setting)?).map(Vec::as_slice)
    }
}

/// The fact that names the device of the link, and the one that gives its NUMA node.
pub const LINK_DEVICE: &str = "link.device";
/// See [`LINK_DEVICE`].
pub const LINK_NODE: &str = "link.node";

/// Name of a fact: huge pages of 2 MiB, of a NUMA node or of the machine.
pub fn huge_pages(node: Option<u32>) -> String {
    match node {
        Some(node) => format!("numa.node{node}.hugepages.2M"),
        None => "hugepages.2M".to_owned(),
    }
}

/// Name of a fact: those of [`huge_pages`] that no one uses.
pub fn free_huge_pages(node: Option<u32>) -> String {
    format!("{}.free", huge_pages(node))
}

/// The fact that has the connection by which ssh(1) reached the host, as sshd(8) has it in its
/// variable: address and port of the client, then of the server.
pub const SSH_CONNECTION: &str = "ssh.connection";

/// Name of a fact among [`Facts::settings`]: files that a process may have open at most.
pub const MOST_FILES: &str = "limit.files";

/// What the process may do.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Privileges {
    /// Effective user id, inside the process's user namespace.
    pub euid: u32,
    /// True where the process lives in a user namespace of its own.
    pub user_namespace: bool,
    /// Effective capabilities of interest, by name without the prefix.
    pub capabilities: Vec<String>,
}

impl Privileges {
    /// Whether the process may use perf events of the whole machine, whatever
    /// `kernel.perf_event_paranoid` says (capabilities(7)).
    pub fn may_monitor(&self) -> bool {
        let suffices = |name: &String| name == "PERFMON" || name == "SYS_ADMIN";
        !self.user_namespace && self.capabilities.iter().any(suffices)
    }
}

/// Something that was tried once, and its outcome.
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
    /// It works; the text may carry a detail ("64 entries").
    Works(String),
    /// The kernel refused with this error number.
    Errno(i32),
    /// The kernel refused with this error number and a reason.
    Refused {
        /// The error number.
        errno: i32,
        /// The kernel's own words (a netlink extended acknowledgement).
        words: String,
    },
    /// It could not even be tried; the text names what is missing.
    Missing(String),
}

impl Outcome {
    /// The number of the error that the kernel refused with.
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
    /// It cannot; the user learns why, and what would change that.
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

    /// `Yes` under this condition; otherwise not supported, with reason and remedy.
    pub fn when(is_met: bool, reason: &str, remedy: impl Into<String>) -> Self {
        if is_met { Support::Yes } else { Support::no(reason, remedy) }
    }

    /// What is missing; `None` if nothing is.
    pub fn reason(&self) -> Option<&str> {
        match self {
            Support::Yes => None,
            Support::No { reason, .. } => Some(reason),
        }
    }

    /// True where it can run.
    pub fn is_yes(&self) -> bool {
        matches!(self, Support::Yes)
    }

    /// The first of two refusals, or `Yes` if both can run.
    pub fn and(self, other: Support) -> Support {
        if self.is_yes() { other } else { self }
    }

    /// The fault of requiring it; `None` if it is there.
    pub fn refusal(self) -> Option<Fault> {
        let Support::No { reason, remedy } = self else { return None };
        let remedy = Some(remedy).filter(|remedy| !remedy.is_empty());
        Some(Fault { kind: FaultKind::Unsupported, message: reason, remedy })
    }
}

/// What is not there because of a fault.
impl From<Fault> for Support {
    fn from(fault: Fault) -> Support {
        Support::no(fault.message, fault.remedy.unwrap_or_default())
    }
}
