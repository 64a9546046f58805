//! The names that an experiment file may use.

use crate::link::LINK_OPTIONS;
use crate::options::short;
use crate::stream::STREAM_OPTIONS;
use crate::{Cpus, PathSpec, TestbedChoice, TestbedDeclaration, suggest, usage};
use bytepath_record::Fault;

/// The names available on this host, or on hosts that were queried.
#[derive(Clone, Debug, Default)]
pub struct Catalogues {
    /// Paths and pairs.
    pub paths: PathSpec,
    /// The testbeds; the first is the default.
    pub testbeds: Vec<TestbedDeclaration>,
    /// Names of the meters.
    pub meters: Vec<&'static str>,
    /// The default meters.
    pub usual_meters: Vec<&'static str>,
    /// CPUs available for placement: those of this machine, or of the hosts of the testbed.
    pub cpus: Cpus,
    /// The testbed requested by the caller, which overrides that of the experiment.
    pub testbed: Option<TestbedChoice>,
    /// The placement requested by the caller, which overrides those of the experiment.
    pub cores: Option<String>,
    /// The workload of cells that name none; empty takes the first in the catalogue.
    pub workload: String,
}

impl Catalogues {
    /// Returns the selected meters, in the order of `words`: each is a meter's name, `default`,
    /// `all` or `none`.
    pub fn meters<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>, Fault> {
        let mut chosen: Vec<String> = Vec::new();
        for word in words {
            let meant = match word {
                // Older files use `usual`.
                "default" | "usual" => &self.usual_meters[..],
                "all" => &self.meters,
                "none" => &[],
                name => match self.meters.iter().position(|known| *known == name) {
                    Some(at) => &self.meters[at..=at],
                    None => {
                        let fault = usage(format!("there is no meter '{}'", short(name)));
                        return Err(suggest(fault, name, self.meters.iter().copied()));
                    }
                },
            };
            let fresh = meant.iter().filter(|name| !chosen.iter().any(|one| one == *name));
            let fresh: Vec<String> = fresh.map(|name| (*name).to_owned()).collect();
            chosen.extend(fresh);
        }
        Ok(chosen)
    }
}

/// The factors that are not options of the stream or the link, with the syntax of their levels.
pub const OWN_FACTORS: &[(&str, &str)] = &[
    ("path", "both halves of the path: PAIR[:key=value,...] or TX[:...]+RX[:...]"),
    ("tx", "the sender's half of the path alone: TX[:key=value,...]"),
    ("rx", "the receiver's half of the path alone: RX[:key=value,...]"),
    ("workload", "workload: NAME[:key=value,...]"),
    ("link", "the link: PRESET[:key=value,...]"),
    (
        "cores",
        "CPU placement: two-cores, one-core, together, apart, unpinned, S,R, or parts (softirq=1)",
    ),
    ("kernel", "kernel that hosts boot: [NAME=]SOURCE [COMMAND LINE]"),
    ("settings", "host settings, as for --set, separated by semicolons; or none"),
];

/// Names of all factors that an experiment file may vary.
pub fn factor_names() -> Vec<&'static str> {
    let own = OWN_FACTORS.iter().map(|(name, _)| *name);
    own.chain(STREAM_OPTIONS.iter().chain(LINK_OPTIONS).map(|spec| spec.name)).collect()
}
