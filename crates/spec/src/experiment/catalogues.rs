//! What an experiment file may name.

use crate::link::LINK_OPTIONS;
use crate::options::short;
use crate::stream::STREAM_OPTIONS;
use crate::{Cpus, PathSpec, TestbedChoice, TestbedDeclaration, suggest, usage};
use bytepath_record::Fault;

/// The names of this host, or of hosts that were queried.
#[derive(Clone, Debug, Default)]
pub struct Catalogues {
    /// Paths and pairs.
    pub paths: PathSpec,
    /// The testbeds; the first is the default.
    pub testbeds: Vec<TestbedDeclaration>,
    /// Names of the meters.
    pub meters: Vec<&'static str>,
    /// Those of a study that names none.
    pub usual_meters: Vec<&'static str>,
    /// CPUs to choose from: those of this machine, or of the hosts of the testbed.
    pub cpus: Cpus,
    /// The testbed that was requested, whatever the experiment names.
    pub testbed: Option<TestbedChoice>,
    /// The placement that was requested, whatever placements the experiment names.
    pub cores: Option<String>,
    /// The workload of cells that name none; empty takes the first there is.
    pub workload: String,
}

impl Catalogues {
    /// The meters that the words select, in the order of the words: each a meter's name,
    /// `default`, `all` or `none`.
    pub fn meters<'a>(
        &self,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Result<Vec<String>, Fault> {
        let mut chosen: Vec<String> = Vec::new();
        for word in words {
            let meant = match word {
                // Earlier files have `usual`.
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

/// The factors that are not options of the stream or the link, and what they take.
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

/// The name of every factor that an experiment file may vary.
pub fn factor_names() -> Vec<&'static str> {
    let own = OWN_FACTORS.iter().map(|(name, _)| *name);
    own.chain(STREAM_OPTIONS.iter().chain(LINK_OPTIONS).map(|spec| spec.name)).collect()
}
