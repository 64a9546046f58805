//! Traffic between processor and memory by role: each agent makes a monitoring group of resctrl for its
//! threads, and removes it with its window (Documentation/filesystems/resctrl.rst).
//!
//! It is what its threads' last-level cache takes from memory and writes to it, softirqs that run on top of
//! them included. What a device moves by itself is of no thread.

use super::{Context, Meter, Output, Prepared, Reach, Running, at_stop, attempted, workers};
use bytepath_record::{Facts, Fault, Role, Scope, Unit};
use bytepath_sys::resctrl::{self, MonitoringGroup};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

pub(crate) static METER: Meter = Meter {
    name: "memory-roles",
    summary: "bytes between processor and memory by role, by a monitoring group of resctrl for each",
    reach: Reach::Agent,
    usual: false,
    attempt: |roots| attempted(ATTEMPT, able(&roots.sys)),
    probe: |facts: &Facts| facts.require(ATTEMPT, REMEDY),
    prepare,
    start: |context| match prepare(context)? {
        Some(ready) => ready(),
        None => (Meter::BASE.start)(context),
    },
    ..Meter::BASE
};

/// Name of the attempt, as in [`Facts`].
const ATTEMPT: &str = "memory-roles.resctrl";

const REMEDY: &str = "outside a virtual machine, as root: mount -t resctrl resctrl /sys/fs/resctrl, on a processor with \
     cqm_mbm_total in /proc/cpuinfo, with a monitoring id free for each role";

/// How the names of all groups begin.
const LEAD: &str = "bytepath-";

/// The files of a group that count, and their metrics.
const COUNTED: [(&str, &str); 2] =
    [("mbm_total_bytes", "memory.role.total"), ("mbm_local_bytes", "memory.role.local")];

/// How many monitoring ids are free, or why threads cannot be monitored here. Makes no group.
fn able(sys: &Path) -> Result<String, Fault> {
    let mount = sys.join(resctrl::MOUNT);
    let [all, taken] = resctrl::ids(&mount).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Fault::unsupported(
            "there is no /sys/fs/resctrl/mon_groups: resctrl is not mounted, or this processor does \
             not monitor",
        ),
        _ => Fault::system("/sys/fs/resctrl/mon_groups", &e),
    })?;
    let caches = bytepath_sys::attribute::names(&mount.join("mon_data"));
    let counts = |cache: &String| mount.join("mon_data").join(cache).join(COUNTED[0].0).exists();
    if !caches.iter().any(counts) {
        return Err(Fault::unsupported("/sys/fs/resctrl/mon_data has no mbm_total_bytes"));
    }
    match all.saturating_sub(taken) {
        0 => Err(Fault::unsupported(format!("all {all} monitoring ids (RMIDs) are taken"))),
        free => Ok(format!("{free} of {all} monitoring ids are free")),
    }
}

fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let mount = context.roots.sys.join(resctrl::MOUNT);
    if resctrl::ids(&mount).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    remove_left(&context.roots.sys);
    let role = context.role;
    let group = match MonitoringGroup::make(&mount, &format!("{LEAD}{role}")) {
        Ok(group) => group,
        Err(e) => {
            let why = refusal(&mount, &Fault::system("cannot make a monitoring group", &e));
            return Ok(Some(Box::new(move || only_warn(why))));
        }
    };
    let mut warnings = Vec::new();
    for worker in workers::of_role(context) {
        if let Err(e) = group.add(worker.tid) {
            let text = format!("{} cannot be monitored", worker.name);
            warnings.push(refusal(&mount, &Fault::system(text, &e)));
        }
    }
    Ok(Some(Box::new(move || begin(group, role, warnings))))
}

/// Removes the groups of processes that were killed; their folders.
pub fn remove_left(sys: &Path) -> Vec<PathBuf> {
    resctrl::remove_left(&sys.join(resctrl::MOUNT), LEAD)
}

/// A warning with what resctrl itself says.
fn refusal(mount: &Path, fault: &Fault) -> String {
    let words = resctrl::last_refusal(mount).map_or(String::new(), |words| format!(" ({words})"));
    format!("memory-roles: {}{words}", fault.message)
}

fn only_warn(why: String) -> Result<Box<dyn Running>, Fault> {
    at_stop(|| Ok(Output { warnings: vec![why], ..Output::default() }))
}

fn begin(
    group: MonitoringGroup,
    role: Role,
    warnings: Vec<String>,
) -> Result<Box<dyn Running>, Fault> {
    let read = |(file, metric): (&str, _)| {
        let files = group.counters(file).into_iter();
        (metric, files.map(|path| (resctrl::bytes(&path), path)).collect::<Vec<_>>())
    };
    let before = COUNTED.map(read);
    at_stop(move || {
        let now = before.map(|(metric, files)| (metric, traffic(&files)));
        let mut output = Output { warnings, ..Output::default() };
        for (metric, bytes) in now {
            match bytes {
                Ok(None) => {}
                Ok(Some(bytes)) => {
                    output.add(metric, Unit::Bytes, bytes as f64, &Scope::Role(role));
                }
                Err(why) => output.warnings.push(format!("memory-roles: no {metric}: {why}")),
            }
        }
        if let Err(e) = group.remove() {
            output
                .warnings
                .push(format!("memory-roles: its group stays until the next study: {e}"));
        }
        Ok(output)
    })
}

/// What the group of these files has moved since they were read, all caches together; `None` if there
/// are none. A part of a sum is no figure.
fn traffic(before: &[(Result<u64, String>, PathBuf)]) -> Result<Option<u64>, String> {
    let since = |(before, path): &(Result<u64, String>, PathBuf)| {
        let (begin, end) = (before.clone(), resctrl::bytes(path));
        let (begin, end) = begin.and_then(|begin| Ok((begin, end?))).map_err(|shown| {
            let cache = path.parent().and_then(Path::file_name).unwrap_or_default();
            format!("{} shows {shown}", cache.display())
        })?;
        end.checked_sub(begin)
            .ok_or_else(|| format!("{} went back from {begin} to {end}", path.display()))
    };
    let sum = before.iter().map(since).sum::<Result<u64, String>>()?;
    Ok((!before.is_empty()).then_some(sum))
}
