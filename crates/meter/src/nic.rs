//! Counters of the link's devices beyond bytes and packets: a driver's own counters, and those of
//! queues, page pools and the qdisc.

use super::{Context, Meter, Output, Reach, Running, at_stop};
use bytepath_record::{Fault, Scope, Unit, listed};
use bytepath_sys::netlink::Netlink;
use bytepath_sys::nic_stats::{Counted, DriverStats, PoolStats, PoolUser, QueueStats};
use bytepath_sys::qdisc::{Qdisc, ROOT};
use std::collections::BTreeMap;

/// Counters of each of the link's devices in the agent's own network namespace. A driver's own
/// counters keep the driver's names; those that did not change are left out, because a NIC has
/// thousands.
pub(crate) static METER: Meter = Meter {
    name: "nic",
    summary: "counters of driver, queues, page pools and qdisc of the device (ethtool -S, netlink)",
    reach: Reach::Agent,
    start,
    ..Meter::BASE
};

/// Most readings of one kind to keep per window.
const MOST: usize = 400;

fn start(context: &Context) -> Result<Box<dyn Running>, Fault> {
    let mut netlink = Netlink::new();
    let mut begun = Vec::new();
    // A trial over an existing network has no device of its own.
    for device in &context.devices {
        let link = netlink.link(device);
        let link = link.map_err(|e| Fault::system(format_args!("nic: {device}"), &e))?;
        // The meter `link` reports a missing device.
        let Some(link) = link else { continue };
        // Drivers without their own counters return an error.
        let mut driver = DriverStats::open(device).ok();
        let before = Counts::read(&mut netlink, link.index, driver.as_mut());
        begun.push((device.clone(), link.index, driver, before));
    }
    let role = context.role;
    at_stop(move || {
        let mut output = Output::default();
        for (device, index, mut driver, before) in begun {
            let after = Counts::read(&mut netlink, index, driver.as_mut());
            let names = driver.map(|driver| driver.names).unwrap_or_default();
            let mut sum = Sum { output, scope: Scope::Link(role, device.clone()) };
            sum.driver(&names, &before.driver, &after.driver, &device);
            sum.queues(&before.queues, &after.queues);
            sum.pools(&before.pools, &after.pools, &device);
            sum.qdisc(&before.qdiscs, &after.qdiscs, &device);
            output = sum.output;
        }
        Ok(output)
    })
}

/// All counters at one moment. Whatever the kernel or the driver does not report is empty.
#[derive(Default)]
struct Counts {
    driver: Vec<u64>,
    queues: Vec<QueueStats>,
    pools: Vec<PoolStats>,
    qdiscs: Vec<Qdisc>,
}

impl Counts {
    fn read(netlink: &mut Netlink, index: u32, driver: Option<&mut DriverStats>) -> Counts {
        let driver = driver.and_then(|driver| driver.read().ok());
        Counts {
            driver: driver.unwrap_or_default(),
            queues: netlink.queue_stats(index).unwrap_or_default(),
            pools: netlink.pool_stats(index).unwrap_or_default(),
            qdiscs: netlink.qdiscs(index).unwrap_or_default(),
        }
    }
}

/// Collects the readings of a window.
struct Sum {
    output: Output,
    scope: Scope,
}

impl Sum {
    fn add(&mut self, metric: &str, unit: Unit, value: f64) {
        self.output.add(metric, unit, value, &self.scope);
    }

    fn driver(&mut self, names: &[String], before: &[u64], after: &[u64], device: &str) {
        if before.len() != after.len() || names.len() < after.len() {
            let text =
                format!("nic: the driver of {device} has different counters than at the start");
            self.output.warnings.push(text);
            return;
        }
        let moved = names.iter().zip(before.iter().zip(after));
        // A value that went down is not a counter, or the device was reset, which the meter `link`
        // reports.
        let moved = moved.filter_map(|(name, (before, after))| {
            after.checked_sub(*before).filter(|gained| *gained > 0).map(|gained| (name, gained))
        });
        let moved: Vec<(&String, u64)> = moved.collect();
        let trouble = moved.iter().filter(|(name, _)| is_trouble(name));
        let trouble: Vec<_> = trouble.map(|(name, gained)| format!("{name} {gained}")).collect();
        for (name, gained) in moved.iter().take(MOST) {
            self.add(&format!("nic.driver.{}", plain(name)), Unit::Count, *gained as f64);
        }
        if moved.len() > MOST {
            let more = moved.len() - MOST;
            let text = format!("nic: {more} more counters of {device} are left out");
            self.output.warnings.push(text);
        }
        if !trouble.is_empty() {
            self.output.warnings.push(format!("nic: {device} counts {}", listed(&trouble, 4)));
        }
    }

    fn queues(&mut self, before: &[QueueStats], after: &[QueueStats]) {
        let mut kept = 0;
        for queue in after {
            let same = |q: &&QueueStats| (q.queue, q.transmits) == (queue.queue, queue.transmits);
            let Some(before) = before.iter().find(same) else { continue };
            let way = if queue.transmits { "tx" } else { "rx" };
            for (name, gained) in gained(&before.counts, &queue.counts) {
                if gained > 0 && kept < MOST {
                    kept += 1;
                    let metric = format!("nic.{way}-{}.{name}", queue.queue);
                    let unit = if name.ends_with("bytes") { Unit::Bytes } else { Unit::Count };
                    self.add(&metric, unit, gained as f64);
                }
            }
        }
    }

    /// Adds the counters of all pools of the device together, and separately those of each receive
    /// queue's pools: the one with memory of a provider, the accompanying one for headers, and
    /// ordinary ones. A pool made during the window counts from zero; one that was destroyed can no
    /// longer be read.
    fn pools(&mut self, before: &[PoolStats], after: &[PoolStats], device: &str) {
        let mut sums: Vec<(&'static str, u64)> = Vec::new();
        let mut apart: BTreeMap<(PoolUser, &str, &str), u64> = BTreeMap::new();
        for pool in after {
            let none = Vec::new();
            let same = before.iter().find(|b| b.id == pool.id).map_or(&none, |b| &b.counts);
            for (name, gained) in gained(same, &pool.counts) {
                match sums.iter_mut().find(|(known, _)| *known == name) {
                    Some((_, sum)) => *sum = sum.saturating_add(gained),
                    None => sums.push((name, gained)),
                }
                if let Some(user) = pool.user.filter(|_| gained > 0) {
                    let sum = apart.entry((user, kind_of(pool, after), name)).or_default();
                    *sum = sum.saturating_add(gained);
                }
            }
        }
        for (name, sum) in &sums {
            self.add(&format!("nic.pool.{name}"), Unit::Count, *sum as f64);
        }
        for ((user, kind, name), sum) in apart.into_iter().take(MOST) {
            let user = match user {
                PoolUser::Queue(queue) => format!("rx-{queue}"),
                PoolUser::Napi(napi) => format!("napi-{napi}"),
            };
            self.add(&format!("nic.pool.{user}.{kind}.{name}"), Unit::Count, sum as f64);
        }
        self.output.warnings.extend(exhausted_pool_warnings(&sums, device));
    }

    /// Adds the counters of the root qdisc, which include those of its children (`mq_dump`,
    /// net/sched/sch_mq.c).
    fn qdisc(&mut self, before: &[Qdisc], after: &[Qdisc], device: &str) {
        let root = |all: &[Qdisc]| all.iter().find(|qdisc| qdisc.parent == ROOT).cloned();
        let Some((before, after)) = root(before).zip(root(after)) else { return };
        if (before.handle, &before.kind) != (after.handle, &after.kind) {
            return;
        }
        for (name, count) in &after.counts {
            let was = count_of(&before.counts, name);
            let value = match *name {
                "qlen" | "backlog" => *count,
                "bytes" => count.saturating_sub(was),
                // The others are 32-bit counters and wrap.
                _ => (*count as u32).wrapping_sub(was as u32).into(),
            };
            let unit = if matches!(*name, "bytes" | "backlog") { Unit::Bytes } else { Unit::Count };
            let metric = format!("nic.qdisc.{name}");
            match *name {
                "qlen" | "backlog" => self.output.level(&metric, unit, value as f64, &self.scope),
                _ => self.add(&metric, unit, value as f64),
            }
            if *name == "drops" && value > 0 {
                let kind = &after.kind;
                // Other qdiscs drop by their own rules.
                let full = if kind.starts_with("pfifo") {
                    ", it was full (its limit, or txqueuelen)"
                } else {
                    ""
                };
                let text =
                    format!("nic: the qdisc {kind} of {device} dropped {value} packets{full}");
                self.output.warnings.push(text);
            }
        }
    }
}

/// What a pool's buffers contain: a queue whose payload goes to memory of a provider has another
/// pool for headers, which the kernel must be able to read.
fn kind_of(pool: &PoolStats, all: &[PoolStats]) -> &'static str {
    match pool.provided {
        true => "provider",
        false if all.iter().any(|other| other.provided && other.user == pool.user) => "header",
        false => "pages",
    }
}

/// Returns the increase of each counter.
fn gained<'a>(
    before: &'a [Counted],
    after: &'a [Counted],
) -> impl Iterator<Item = (&'static str, u64)> + 'a {
    after.iter().map(|(name, count)| (*name, count.saturating_sub(count_of(before, name))))
}

/// Returns the counter with this name, or 0 if there is none.
fn count_of(counts: &[Counted], name: &str) -> u64 {
    counts.iter().find(|(known, _)| *known == name).map_or(0, |(_, count)| *count)
}

/// Fraction of the pages that may come from the allocator before a pool counts as exhausted.
const SLOW: f64 = 0.01;

/// Warns of exhausted pools. A pool that gets back the pages it gave out rarely needs the page
/// allocator. If it does, it is too small for what the application holds on to, or its pages are
/// never returned: a copying path then pays for allocation, and one that provides the memory itself
/// (zcrx, devmem) copies or drops.
fn exhausted_pool_warnings(sums: &[(&'static str, u64)], device: &str) -> Vec<String> {
    let count = |name: &str| count_of(sums, name);
    let slow = count("alloc-slow").saturating_add(count("alloc-slow-high-order"));
    let all = slow.saturating_add(count("alloc-fast"));
    let mut warnings = Vec::new();
    if slow as f64 > SLOW * all as f64 {
        warnings.push(format!(
            "nic: page pools of {device} ran dry: {slow} of {all} pages came from the allocator, \
             {} times there was nothing to reuse",
            count("alloc-empty")
        ));
    }
    let lost = count("recycle-ring-full");
    if lost > 0 {
        warnings.push(format!(
            "nic: {lost} pages did not fit back into the page pools of {device}: \
             returned in too large batches"
        ));
    }
    warnings
}

/// Parts of the names of counters of lost or broken packets.
const TROUBLE: &[&str] = &[
    "drop",
    "discard",
    "error",
    "_err",
    "missed",
    "out_of_buffer",
    "no_buf",
    "alloc_fail",
    "timeout",
    "fifo",
    "overrun",
];

fn is_trouble(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    TROUBLE.iter().any(|word| name.contains(word))
}

/// Makes a name safe: drivers may use any, such as "[3]: tx_bytes", "rx_queue_0_xdp drops".
fn plain(name: &str) -> String {
    let allowed = |c: char| if c.is_ascii_alphanumeric() || c == '_' { c } else { '-' };
    name.chars().take(40).map(allowed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::Role;

    fn sum() -> Sum {
        Sum { output: Output::default(), scope: Scope::Link(Role::Receiver, "eth0".into()) }
    }

    fn values(sum: &Sum) -> Vec<(&str, f64)> {
        sum.output.readings.iter().map(|r| (r.metric.as_str(), r.value)).collect()
    }

    #[test]
    fn reads_driver_counters_that_moved() {
        let names = ["rx_packets", "peer_ifindex", "rx out_of_buffer", "temperature"];
        let names = names.map(str::to_owned);
        let mut sum = sum();
        sum.driver(&names, &[10, 7, 1, 50], &[110, 7, 4, 45], "eth0");
        let expected = [("nic.driver.rx_packets", 100.0), ("nic.driver.rx-out_of_buffer", 3.0)];
        assert_eq!(values(&sum), expected);
        assert_eq!(sum.output.warnings, ["nic: eth0 counts rx out_of_buffer 3"]);
        sum.driver(&names, &[1], &[1, 2], "eth0");
        assert!(sum.output.warnings[1].contains("different counters"));
    }

    #[test]
    fn warns_of_pools_that_ran_dry() {
        let pool = |id, fast, slow, empty, full| PoolStats {
            id,
            device: 2,
            user: None,
            provided: false,
            counts: vec![
                ("alloc-fast", fast),
                ("alloc-slow", slow),
                ("alloc-empty", empty),
                ("recycle-ring-full", full),
            ],
        };
        let mut well = sum();
        well.pools(&[pool(1, 100, 64, 1, 0)], &[pool(1, 1_000_100, 65, 2, 0)], "eth0");
        assert_eq!(well.output.warnings, [""; 0]);
        let mut dry = sum();
        dry.pools(
            &[pool(1, 0, 0, 0, 0), pool(2, 0, 0, 0, 0)],
            &[pool(1, 900, 50, 40, 0), pool(2, 0, 50, 9, 3)],
            "eth0",
        );
        assert_eq!(values(&dry)[1], ("nic.pool.alloc-slow", 100.0));
        let warnings = dry.output.warnings.join("\n");
        assert!(warnings.contains("100 of 1000 pages"), "{warnings}");
        assert!(warnings.contains("49 times"), "{warnings}");
        assert!(warnings.contains("3 pages did not fit back"), "{warnings}");
    }

    #[test]
    fn separates_pools_of_payload_and_headers_by_queue() {
        let pool = |id, queue, provided| PoolStats {
            id,
            device: 2,
            user: Some(PoolUser::Queue(queue)),
            provided,
            counts: vec![("alloc-fast", u64::from(id)), ("alloc-empty", 0)],
        };
        let mut sum = sum();
        sum.pools(&[], &[pool(1, 2, false), pool(10, 3, true), pool(100, 3, false)], "eth0");
        let expected = [
            ("nic.pool.alloc-fast", 111.0),
            ("nic.pool.alloc-empty", 0.0),
            ("nic.pool.rx-2.pages.alloc-fast", 1.0),
            ("nic.pool.rx-3.header.alloc-fast", 100.0),
            ("nic.pool.rx-3.provider.alloc-fast", 10.0),
        ];
        assert_eq!(values(&sum), expected);
    }

    #[test]
    fn reads_queues_and_the_root_qdisc() {
        let queue = |queue, packets, drops| QueueStats {
            transmits: false,
            queue,
            counts: vec![("rx-packets", packets), ("rx-hw-drops", drops)],
        };
        let mut sum = sum();
        sum.queues(&[queue(0, 5, 0), queue(1, 5, 0)], &[queue(0, 5, 0), queue(1, 25, 2)]);
        assert_eq!(values(&sum), [("nic.rx-1.rx-packets", 20.0), ("nic.rx-1.rx-hw-drops", 2.0)]);
        sum.output.readings.clear();
        let qdisc = |packets: u64, drops, backlog| Qdisc {
            parent: ROOT,
            kind: "fq_codel".into(),
            counts: vec![("packets", packets), ("drops", drops), ("backlog", backlog)],
            ..Qdisc::default()
        };
        sum.qdisc(&[qdisc(u32::MAX.into(), 1, 9)], &[qdisc(9, 3, 500)], "eth0");
        let expected =
            [("nic.qdisc.packets", 10.0), ("nic.qdisc.drops", 2.0), ("nic.qdisc.backlog", 500.0)];
        assert_eq!(values(&sum), expected);
        assert_eq!(sum.output.warnings, ["nic: the qdisc fq_codel of eth0 dropped 2 packets"]);
        let pfifo = |drops| Qdisc { kind: "pfifo".into(), ..qdisc(1, drops, 0) };
        sum.qdisc(&[pfifo(0)], &[pfifo(4)], "eth0");
        let remedied = "nic: the qdisc pfifo of eth0 dropped 4 packets, it was full (its limit, or txqueuelen)";
        assert_eq!(sum.output.warnings.last().map(String::as_str), Some(remedied));
    }
}
