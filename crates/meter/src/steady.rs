//! What must not change while bytes flow: the clock used for all times, the speed of the CPUs, the
//! CPUs that threads may use, the settings of the link. A change invalidates the trial
//! (`stats::judge_events`).

use super::context::Snapshot;
use super::{Context, Meter, Output, Reach, Running, ThreadTag, at_stop};
use bytepath_record::{Fault, Role, Scope, Unit, joined};
use bytepath_sys::cgroup::{self, Throttling};
use bytepath_sys::ethtool::Channels;
use bytepath_sys::netlink::{Link, Napi, Netlink};
use bytepath_sys::thread::allowed_to;
use bytepath_sys::{Roots, attribute};
use std::collections::BTreeSet;
use std::sync::PoisonError;

/// Reports changes of thermal throttling (`thermal_throttle/*_throttle_count`,
/// arch/x86/kernel/cpu/mce/therm_throt.c), throttling by the quota of a control group, the clock
/// source, and the settings of the link's devices. The end of a window is compared with the end of
/// the previous one, so that a change between two windows of a stream is noticed too, and reported
/// once. Pinned threads that may run on another CPU are reported for each window.
pub(crate) static METER: Meter = Meter {
    name: "steady",
    summary: "throttled CPUs, used-up CPU quotas, moved threads, a changed clock or link: invalidate a trial",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let context = context.clone();
    let mut last = context.last_look.lock().unwrap_or_else(PoisonError::into_inner);
    last.get_or_insert_with(|| Snapshot {
        // Found once: a window of a slice is short, and at its end one file per group has to be
        // read.
        quota: match sees_machine(&context) {
            true => cgroup::throttling(&context.roots, "self"),
            false => Throttling::new(),
        },
        ..Snapshot::take(&context, &Throttling::new())
    });
    drop(last);
    at_stop(move || {
        let mut last = context.last_look.lock().unwrap_or_else(PoisonError::into_inner);
        let quota = last.as_ref().map(|before| before.quota.clone()).unwrap_or_default();
        let now = Snapshot::take(&context, &quota);
        let output = last.as_ref().map(|before| before.compare(&now, &context));
        *last = Some(now);
        Ok(output.unwrap_or_default())
    })
}

impl Snapshot {
    fn take(context: &Context, quota: &Throttling) -> Snapshot {
        let machine = sees_machine(context);
        let of_device = |device: &String| link_settings(device).unwrap_or_default();
        Snapshot {
            clock_source: machine.then(|| clock_source(&context.roots)).flatten(),
            throttled: if machine { throttled(&context.roots) } else { Vec::new() },
            quota: cgroup::throttling_again(quota),
            links: context.devices.iter().map(of_device).collect(),
        }
    }

    fn compare(&self, now: &Snapshot, context: &Context) -> Output {
        let mut output = Output::default();
        if sees_machine(context) {
            let changed = self.clock_source != now.clock_source;
            output.add("steady.clock_changes", Unit::Count, f64::from(changed), &Scope::Machine);
            if changed {
                let name = |clock: &Option<String>| clock.clone().unwrap_or("none".into());
                let (was, is) = (name(&self.clock_source), name(&now.clock_source));
                output.warnings.push(format!("steady: the clock source was {was} and is {is}"));
            }
        }
        if let Some(taken) = cgroup::most_throttled(&self.quota, &now.quota) {
            output.add("steady.quota", Unit::Seconds, taken.seconds, &Scope::Machine);
        }
        for (cpu, count) in &now.throttled {
            let before = self.throttled.iter().find(|(before, _)| before == cpu);
            let more = before.map_or(0, |(_, before)| count.saturating_sub(*before));
            output.add("steady.throttled", Unit::Count, more as f64, &Scope::Cpu(*cpu));
        }
        let moved: Vec<String> = context.threads.iter().filter_map(describe_moved_thread).collect();
        let scope = Scope::Role(context.role);
        output.add("steady.moved", Unit::Count, moved.len() as f64, &scope);
        output.warnings.extend(moved);
        for (device, (was, is)) in context.devices.iter().zip(self.links.iter().zip(&now.links)) {
            let changes = changes(was, is);
            let scope = Scope::Link(context.role, device.clone());
            output.add("steady.link_changes", Unit::Count, changes.len() as f64, &scope);
            output.warnings.extend(changes.iter().map(|text| format!("steady: {device}: {text}")));
        }
        output
    }
}

/// Describes where a pinned thread may run, if not only on its CPU; `None` if it has ended.
fn describe_moved_thread(thread: &ThreadTag) -> Option<String> {
    let pinned = thread.cpu?;
    let cpus = allowed_to(thread.tid).ok().filter(|cpus| cpus[..] != [pinned])?;
    let is = joined(cpus, ",");
    Some(format!("steady: {} was pinned to CPU {pinned} and may run on {is}", thread.name))
}

/// If roles share clock and CPUs, only the receiver reads them.
fn sees_machine(context: &Context) -> bool {
    context.role == Role::Receiver || context.alone
}

fn clock_source(roots: &Roots) -> Option<String> {
    attribute::text(&roots.sys.join("devices/system/clocksource/clocksource0/current_clocksource"))
}

/// Returns the sums of core and package counts by CPU. Many CPUs, above all virtual ones, have
/// none.
fn throttled(roots: &Roots) -> Vec<(u32, u64)> {
    let folder = roots.sys.join("devices/system/cpu");
    let of_cpu = |cpu: u32| {
        let folder = folder.join(format!("cpu{cpu}/thermal_throttle"));
        let count = |name| attribute::text(&folder.join(name))?.parse::<u64>().ok();
        let core = count("core_throttle_count")?;
        Some((cpu, core + count("package_throttle_count").unwrap_or(0)))
    };
    let number = |name: &String| name.strip_prefix("cpu")?.parse().ok();
    let cpus: BTreeSet<u32> = attribute::names(&folder).iter().filter_map(number).collect();
    cpus.into_iter().filter_map(of_cpu).collect()
}

/// Returns the settings of a device of this namespace; `None` if they cannot be read.
fn link_settings(device: &str) -> Option<Vec<(&'static str, String)>> {
    let mut netlink = Netlink::new();
    let link = netlink.link(device).ok()??;
    let features = netlink.features(link.index).map(|f| f.active).unwrap_or_default();
    let features: BTreeSet<String> = features.into_iter().collect();
    let Link { index, up, operational, carrier_changes, mtu, .. } = link;
    let Link { tx_queues, rx_queues, qdisc, limits, .. } = link;
    Some(vec![
        ("index", index.to_string()),
        ("up", up.to_string()),
        ("carrier", operational.to_string()),
        // A carrier loss that has already ended shows only here.
        ("count of carrier changes", carrier_changes.to_string()),
        ("mtu", mtu.to_string()),
        ("queues", format!("{tx_queues} and {rx_queues}")),
        ("channels", channels(&mut netlink, index)),
        // A driver that rebuilds its queues makes new NAPI instances, even if all settings stay the
        // same.
        ("NAPI instances", instances(&mut netlink, index)),
        ("qdisc", qdisc),
        ("packet limits", format!("{limits:?}")),
        ("features", joined(features, " ")),
    ])
}

/// Describes the queues in use; empty if the driver does not report them.
fn channels(netlink: &mut Netlink, index: u32) -> String {
    let Ok(Channels { rx, tx, combined, .. }) = netlink.channels(index) else {
        return String::new();
    };
    let kinds = [("rx", rx), ("tx", tx), ("combined", combined)];
    let counts = kinds.iter().filter_map(|(kind, count)| Some(format!("{kind}={}", (*count)?)));
    joined(counts, " ")
}

/// Lists their ids, and which have threads; "none" also if the kernel does not report them (before
/// Linux 6.8).
fn instances(netlink: &mut Netlink, index: u32) -> String {
    let mut all = netlink.napis(index).unwrap_or_default();
    all.sort_by_key(|napi| napi.id);
    let with = |napi: &Napi| if napi.thread.is_some() { " with a thread" } else { "" };
    let ids = joined(all.iter().map(|napi| format!("{}{}", napi.id, with(napi))), ", ");
    if ids.is_empty() { "none".into() } else { ids }
}

/// Describes the differences. A device that was removed has no settings.
fn changes(before: &[(&str, String)], now: &[(&str, String)]) -> Vec<String> {
    if !before.is_empty() && now.is_empty() {
        return vec!["the device is gone".into()];
    }
    let pairs = before.iter().zip(now).filter(|(was, is)| was != is);
    pairs.map(|((what, was), (_, is))| format!("{what} was {was} and is {is}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_settings_of_existing_devices_only() {
        let lo = link_settings("lo").expect("every namespace has a loopback device");
        assert!(lo.iter().any(|(what, is)| *what == "mtu" && is.parse::<u32>().is_ok()), "{lo:?}");
        assert_eq!(link_settings("no such device"), None);
    }

    #[test]
    fn describes_changes() {
        let was = [("mtu", "4148".to_owned()), ("carrier", "true".to_owned())];
        let is = [("mtu", "1500".to_owned()), ("carrier", "true".to_owned())];
        assert_eq!(changes(&was, &is), ["mtu was 4148 and is 1500"]);
        assert!(changes(&was, &was).is_empty());
        assert_eq!(changes(&was, &[]), ["the device is gone"]);
    }
}
