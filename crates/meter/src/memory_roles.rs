//! Traffic between processor and memory by role: each agent makes a monitoring group of resctrl for
//! its threads before bytes flow, reads it at the edges of the windows, and removes it when its
//! session ends (Documentation/filesystems/resctrl.rst). So no group appears or disappears during a
//! window: the counts of a control group's monitoring groups are included in its own count only as
//! long as they exist.
//!
//! Kernel threads that poll a NIC for several cells of a block belong to the group of the cell
//! being run: each session takes them over when its windows begin.
//!
//! The figure is the traffic between memory and the last-level cache of the role's threads,
//! including softirqs that run on top of them. Memory accesses by devices themselves belong to no
//! thread.

use super::role_traffic::{Counter, Traffic, cache_name};
use super::workers::{self, Worker};
use super::{Context, Meter, Output, Prepared, Reach, Running, at_stop, attempted};
use bytepath_record::{Facts, Fault, Role, Scope, Unit};
use bytepath_sys::attribute;
use bytepath_sys::resctrl::{self, MonitoringGroup};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::{MutexGuard, PoisonError};

pub(crate) static METER: Meter = Meter {
    name: "memory-roles",
    summary: "bytes between processor and memory by role, by a monitoring group of resctrl for each",
    reach: Reach::Agent,
    usual: false,
    attempt: |roots| attempted(ATTEMPT, describe_free_ids(&roots.sys)),
    probe: |facts: &Facts| facts.require(ATTEMPT, REMEDY),
    prepare,
    start,
    finish,
    ..Meter::BASE
};

/// Name of the attempt, as in [`Facts`].
const ATTEMPT: &str = "memory-roles.resctrl";

const REMEDY: &str = "outside a virtual machine, as root: mount -t resctrl resctrl /sys/fs/resctrl, on a processor with \
     cqm_mbm_total in /proc/cpuinfo, with a monitoring id free for each role";

/// The counter files of a group, and their metrics.
const COUNTED: [(&str, &str); 2] =
    [("mbm_total_bytes", "memory.role.total"), ("mbm_local_bytes", "memory.role.local")];

/// Returns how many monitoring ids are free, or why threads cannot be monitored here. Makes no
/// group.
fn describe_free_ids(sys: &Path) -> Result<String, Fault> {
    let mount = sys.join(resctrl::MOUNT);
    let [all, taken] = resctrl::ids(&mount).map_err(|e| match e.kind() {
        ErrorKind::NotFound => Fault::unsupported(
            "there is no /sys/fs/resctrl/mon_groups: resctrl is not mounted, or this processor does \
             not monitor",
        ),
        _ => Fault::system("/sys/fs/resctrl/mon_groups", &e),
    })?;
    let caches = attribute::names(&mount.join("mon_data"));
    let counts = |cache: &String| mount.join("mon_data").join(cache).join(COUNTED[0].0).exists();
    if !caches.iter().any(counts) {
        return Err(Fault::unsupported("/sys/fs/resctrl/mon_data has no mbm_total_bytes"));
    }
    match all.saturating_sub(taken) {
        0 => Err(Fault::unsupported(format!("all {all} monitoring ids (RMIDs) are taken"))),
        free => Ok(format!("{free} of {all} monitoring ids have no group")),
    }
}

fn prepare(context: &Context) -> Result<Option<Prepared>, Fault> {
    let mount = context.roots.sys.join(resctrl::MOUNT);
    if resctrl::ids(&mount).is_err_and(|e| e.kind() == ErrorKind::NotFound) {
        return Ok(None);
    }
    remove_left(&context.roots.sys);
    *of_session(context) = Some(monitored(context, &mount));
    Ok(None)
}

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let read = |context: &Context| match &*of_session(context) {
        Some(Ok(traffic)) => traffic.files.iter().map(Counter::read).collect(),
        _ => Vec::new(),
    };
    if let Some(Ok(traffic)) = &mut *of_session(context) {
        let mount = context.roots.sys.join(resctrl::MOUNT);
        let claimed = claim(&traffic.group, &traffic.shared, context.role, &mount);
        traffic.lack = traffic.lack.take().or(claimed.err());
    }
    let before = read(context);
    let context = context.clone();
    at_stop(move || {
        let now = read(&context);
        if let Some(Ok(traffic)) = &mut *of_session(&context) {
            traffic.add(before, now);
            traffic.lack = traffic.lack.take().or_else(|| traffic.strayed());
        }
        Ok(Output::default())
    })
}

/// Returns the sums over all windows; a warning instead if a part is missing.
fn finish(context: &Context) -> Output {
    let mut output = Output::default();
    let mut warn = |text: String| output.warnings.push(format!("memory-roles: {text}"));
    let traffic = match of_session(context).take() {
        None => return output,
        Some(Err(why)) => {
            warn(format!("no figure: {why}"));
            return output;
        }
        Some(Ok(traffic)) => traffic,
    };
    if let Err(e) = traffic.group.remove() {
        warn(format!("its group stays until the next study: {e}"));
    }
    if let Some(lack) = traffic.lack {
        warn(format!("no figure: {lack}"));
        return output;
    }
    for (_, metric) in COUNTED {
        let files = traffic.files.iter().filter(|file| file.metric == metric);
        if let Some(bytes) = files.map(|file| file.moved).reduce(|a, b| a + b) {
            output.add(metric, Unit::Bytes, bytes as f64, &Scope::Role(context.role));
        }
    }
    output
}

fn of_session(context: &Context) -> MutexGuard<'_, Option<Result<Traffic, String>>> {
    context.memory_traffic.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes a group of all of the role's threads, or fails.
fn monitored(context: &Context, mount: &Path) -> Result<Traffic, String> {
    let group = MonitoringGroup::make(mount, &group_name(context.role))
        .map_err(|e| refusal(mount, &Fault::system("cannot make a monitoring group", &e)))?;
    let mut workers = workers::of_role(context);
    claim(&group, &workers, context.role, mount)?;
    // The other threads belong to this process.
    workers.retain(|worker| worker.dir.parent() == Some(&context.roots.proc));
    let own = own_caches(context);
    let counter = |(file, metric): (&str, &'static str)| {
        let of = |path: PathBuf| {
            let is_idle = own.as_ref().is_some_and(|own| !own.contains(&cache_name(&path)));
            Counter { metric, path, is_idle, moved: 0 }
        };
        group.counters(file).into_iter().map(of).collect::<Vec<_>>()
    };
    let files = COUNTED.into_iter().flat_map(counter).collect();
    Ok(Traffic { group, shared: workers, files, lack: None })
}

/// Adds threads to a session's group, including those in a group of another session of the role.
fn claim(
    group: &MonitoringGroup,
    workers: &[Worker],
    role: Role,
    mount: &Path,
) -> Result<(), String> {
    for worker in workers {
        match resctrl::group_of(&worker.dir) {
            Some(other) if other == group.name() => continue,
            Some(other) if !resctrl::is_named(&other, &group_name(role)) => {
                return Err(format!("{} is in the monitoring group {other}", worker.name));
            }
            _ => {}
        }
        match group.add(worker.tid) {
            Err(e) if e.raw_os_error() != Some(libc::ESRCH) => {
                let text = format!("{} cannot be monitored", worker.name);
                return Err(refusal(mount, &Fault::system(text, &e)));
            }
            _ => {}
        }
    }
    Ok(())
}

/// Returns the last-level caches of the CPUs that the role's threads are pinned to; `None` if a
/// thread may run anywhere.
fn own_caches(context: &Context) -> Option<Vec<String>> {
    let cache = |cpu: u32| {
        let file = format!("devices/system/cpu/cpu{cpu}/cache/index3/id");
        let id = attribute::text(&context.roots.sys.join(file))?.parse::<u32>().ok()?;
        Some(format!("mon_L3_{id:02}"))
    };
    context.threads.iter().map(|thread| cache(thread.cpu?)).collect()
}

/// Returns the folders of groups left behind by processes that were killed.
pub fn leftover_groups(sys: &Path) -> Vec<PathBuf> {
    of_roles(sys, resctrl::left)
}

/// Removes groups left behind; returns their folders.
pub fn remove_left(sys: &Path) -> Vec<PathBuf> {
    of_roles(sys, resctrl::remove_left)
}

fn of_roles(sys: &Path, of_name: fn(&Path, &str) -> Vec<PathBuf>) -> Vec<PathBuf> {
    let of = |role: Role| of_name(&sys.join(resctrl::MOUNT), &group_name(role));
    Role::ALL.into_iter().flat_map(of).collect()
}

/// Returns the name of a role's groups, without their number.
fn group_name(role: Role) -> String {
    format!("bytepath-{role}")
}

/// Describes what the kernel refused, with its reason if it gave one.
fn refusal(mount: &Path, fault: &Fault) -> String {
    let reason = resctrl::last_refusal(mount).map_or(String::new(), |text| format!(" ({text})"));
    format!("{}{reason}", fault.message)
}
