//! Which CPUs the roles run on.

use super::options::usage;
use crate::record::{Fault, Placement};

/// A placement and how ids name it (empty for the default).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreSpec {
    /// The CPUs.
    pub placement: Placement,
    /// Part of a cell's id.
    pub difference: String,
}

/// Reads `two` (sender and receiver on a CPU each; the default), `one` (both
/// on one CPU), `none` (the scheduler decides) or `S,R` (two CPU numbers).
/// `allowed` are the CPUs that this process may use; others are an error.
pub fn parse_cores(text: &str, allowed: &[u32]) -> Result<CoreSpec, Fault> {
    let cores = read_cores(text, allowed)?;
    let missing = |cpu: &u32| !allowed.contains(cpu);
    let Placement { sender, receiver } = cores.placement;
    match sender.into_iter().chain(receiver).find(missing) {
        None => Ok(cores),
        Some(_) if text.trim() == "two" => Err(usage("this process may use only one CPU".into())
            .remedy("--cores one, or --cores none")),
        Some(cpu) => Err(usage(format!("CPU {cpu} does not exist or may not be used"))
            .remedy(format!("this process may use {}", list(allowed)))),
    }
}

/// As [`parse_cores`], but a CPU that is not there is no error: an experiment
/// is written once for many machines. `two` on a machine with one CPU names the
/// next number as the second.
pub fn read_cores(text: &str, allowed: &[u32]) -> Result<CoreSpec, Fault> {
    let pinned = |sender, receiver, difference: &str| CoreSpec {
        placement: Placement { sender: Some(sender), receiver: Some(receiver) },
        difference: difference.to_owned(),
    };
    match (text.trim(), allowed) {
        (_, []) => Err(usage("this process may use no CPU at all".into())),
        ("none", _) => {
            Ok(CoreSpec { placement: Placement::default(), difference: "cores=none".into() })
        }
        ("one", [first, ..]) => Ok(pinned(*first, *first, "cores=one")),
        ("two", [first, second, ..]) => Ok(pinned(*first, *second, "")),
        ("two", [first]) => Ok(pinned(*first, first.saturating_add(1), "")),
        (pair, _) => {
            let (sender, receiver) = parse_pair(pair)?;
            Ok(pinned(sender, receiver, &format!("cores={sender}/{receiver}")))
        }
    }
}

fn list(cpus: &[u32]) -> String {
    let list: Vec<String> = cpus.iter().map(u32::to_string).collect();
    list.join(", ")
}

fn parse_pair(text: &str) -> Result<(u32, u32), Fault> {
    let wrong = || {
        usage(format!("'{text}' is no placement"))
            .remedy("write two, one, none, or two CPU numbers: sender,receiver")
    };
    let (sender, receiver) = text.split_once(',').ok_or_else(wrong)?;
    let cpu = |t: &str| t.trim().parse::<u32>().map_err(|_| wrong());
    Ok((cpu(sender)?, cpu(receiver)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placements() {
        let cpus = |text: &str, allowed: &[u32]| {
            parse_cores(text, allowed).map(|c| (c.placement.sender, c.placement.receiver))
        };
        assert_eq!(cpus("two", &[0, 1, 2]).unwrap(), (Some(0), Some(1)));
        assert_eq!(cpus("one", &[3]).unwrap(), (Some(3), Some(3)));
        assert_eq!(cpus("none", &[0]).unwrap(), (None, None));
        assert_eq!(cpus("2, 0", &[0, 2]).unwrap(), (Some(2), Some(0)));
        let elsewhere = |text: &str| read_cores(text, &[0]).unwrap().placement;
        assert_eq!(elsewhere("0,7"), Placement { sender: Some(0), receiver: Some(7) });
        assert_eq!(elsewhere("two"), Placement { sender: Some(0), receiver: Some(1) });
        assert!(cpus("two", &[0]).unwrap_err().remedy.unwrap().contains("one"));
        assert!(cpus("0,7", &[0, 1]).unwrap_err().message.contains("CPU 7"));
        assert!(cpus("left", &[0, 1]).unwrap_err().message.contains("'left'"));
    }
}
