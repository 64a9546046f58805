//! `zcrx`: io_uring zero-copy receive. The NIC writes payload directly into memory of the
//! application; only headers pass through the kernel. Documentation/networking/iou-zcrx.rst.
//!
//! If the link's device cannot do that, and the kernel has queues without a device (NODEV, Linux
//! 7.1), the same engine runs on such a queue. Then the kernel copies every byte into the area;
//! ledger and label show it.

mod engine;
mod plan;
mod probe;
mod setup;
mod shared;

use super::huge_pages::flows_over;
use super::nic::{self, QUEUES, each_has_a_flow, own_queues};
use super::{DataPath, FlowNic, HalfPath, HugePages, Opened, busy_poll, ring};
use crate::connection::Connection;
use crate::workload::{Group, HalfConfig, Rx};
use bytepath_record::{Facts, Fault, OptionKind, OptionSpec, Options, Setting, Support};
use plan::Plan;

pub(super) static PATH: DataPath = DataPath {
    name: "zcrx",
    summary: "io_uring: zero-copy receive, the NIC writes into application memory",
    attempt: probe::attempts,
    uses_io_uring: true,
    rx: Some(HalfPath {
        nic_settings,
        huge_pages,
        ..HalfPath::rx(check, open).with_options(OPTIONS).without_read_size()
    }),
    ..DataPath::EMPTY
};

const OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("area", OptionKind::Size(4096, 64 << 30), "64M")
        .help("receive memory in bytes; whole pages"),
    OptionSpec::new("memory", OptionKind::Choice(&["normal", "huge", "dmabuf"]), "normal")
        .help("kind of memory: pages, reserved huge pages, or a udmabuf (Linux 6.16)"),
    OptionSpec::new("rx-buf-len", OptionKind::AutoSize(4096, 1 << 30), "auto")
        .help("bytes of a buffer, a power of two (Linux 7.0, mlx5 and bnxt); auto: a page"),
    OptionSpec::new("rq", OptionKind::WordCount("auto", 1, 32768), "auto")
        .help("entries of the refill ring; auto: one for each buffer, at most 32768"),
    OptionSpec::new("rq-memory", OptionKind::Choice(&["user", "kernel"]), "user")
        .help("provider of the refill ring's memory"),
    OptionSpec::new("recycle", OptionKind::Count(1, 32768), "64")
        .help("buffers returned at a time, at most a quarter of the area"),
    OptionSpec::new("completions", OptionKind::WordCount("auto", 2, 65536), "auto")
        .help("entries of the completion queue; auto: two for each buffer, 1024 to 32768"),
    OptionSpec::new("device", OptionKind::Choice(&["auto", "none"]), "auto")
        .help("none: a queue without a device, always copied (Linux 7.1); auto: if there is none"),
    OptionSpec::new("queue", OptionKind::WordCount("auto", 0, 65535), "auto")
        .help("receive queue of the NIC; auto: its last; 0 takes what is not spread, too"),
    QUEUES,
    OptionSpec::new("share", OptionKind::Flag, "off")
        .help("flows share one queue without a device, as on a NIC (Linux 6.19)"),
    busy_poll::MICROSECONDS,
    busy_poll::PREFER,
    busy_poll::TRACKING,
    ring::IOWAIT,
];

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    super::fits(Plan::of(job, rustix::param::page_size() as u64))
        .and(super::reads_into_kernel_memory(job, PATH.name))
        .and(each_has_a_flow(job))
        .and(probe::support(job, facts))
}

/// Huge pages of the areas for one adapter. Without a device each flow has its own queue, unless
/// they share one.
fn huge_pages(job: &HalfConfig, facts: &Facts, adapter: u32) -> HugePages {
    let is_huge = |plan: &Plan| plan.memory == plan::Memory::Huge;
    let plan = Plan::of(job, rustix::param::page_size() as u64).ok().filter(is_huge);
    let Some(plan) = plan else { return HugePages::default() };
    let is_device = plan.device && !probe::lacks_queues(facts);
    let areas = match is_device || plan.share {
        true => nic::number_of(&job.options),
        false => flows_over(job, adapter),
    };
    HugePages::of(areas, plan.area, facts.node_of_pages().filter(|_| is_device))
}

fn nic_settings(options: &Options, wire: &FlowNic) -> Result<Vec<Setting>, Fault> {
    if options.word("device") == "none" {
        return Ok(Vec::new());
    }
    own_queues("zcrx", options, wire)
}

fn open(job: &HalfConfig, connection: &dyn Connection, group: &Group) -> Opened<dyn Rx> {
    Ok(Box::new(engine::Receiver::open(job, connection.kernel()?, group)?))
}

/// These options, all others at their defaults.
#[cfg(test)]
fn options(set: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for spec in OPTIONS {
        let text = set.iter().find(|(name, _)| *name == spec.name).map_or(spec.default, |s| s.1);
        options.0.insert(spec.name.into(), spec.kind.parse(text).unwrap());
    }
    options
}

/// Configuration of a receiver in the stream workload with these options.
#[cfg(test)]
fn job(set: &[(&str, &str)]) -> HalfConfig {
    use bytepath_record::{Cell, Half, Role};
    let half = |path: &str| Half { path: path.into(), options: options(set) };
    HalfConfig::stream(&Cell::new("test", half("uring-zc"), half("zcrx")), Role::Receiver)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn preparation(set: &[(&str, &str)], queues: u32) -> Result<Vec<String>, Fault> {
        Ok(settings_of(set, queues)?.iter().map(Setting::command).collect())
    }

    #[test]
    fn what_a_receiver_sends_is_selected_by_its_port_at_the_end_that_connected() {
        let wire = FlowNic {
            device: "eth2",
            queues: 8,
            given: false,
            own: [10, 0, 0, 1].into(),
            peer: [10, 0, 0, 2].into(),
            port: Some(20_900),
            flows: 1,
            adapter: 0,
            adapters: 1,
            connects: true,
        };
        let settings = nic_settings(&options(&[]), &wire).unwrap();
        let rule = settings.last().unwrap().to_string();
        assert_eq!(rule, "flow eth2 src=10.0.0.2 dst=10.0.0.1 src-port=20900 queue=7");
    }

    fn settings_of(set: &[(&str, &str)], queues: u32) -> Result<Vec<Setting>, Fault> {
        let wire = FlowNic {
            device: "eth2",
            queues,
            given: false,
            own: [10, 0, 0, 2].into(),
            peer: [10, 0, 0, 1].into(),
            port: Some(5201),
            flows: 4,
            adapter: 0,
            adapters: 1,
            connects: false,
        };
        nic_settings(&options(set), &wire)
    }

    #[test]
    fn prepares_nic_for_queue() {
        let commands = |set| preparation(set, 16).unwrap();
        let last = commands(&[]);
        assert_eq!(
            last[..4],
            [
                "ethtool -G eth2 tcp-data-split on",
                "ethtool -G eth2 hds-thresh 0",
                "ethtool -X eth2 equal 15",
                "ethtool -K eth2 rx-ntuple-filter on",
            ]
        );
        assert!(last[4].starts_with("ethtool -N eth2 flow-type tcp4"), "{last:?}");
        assert!(last[4].ends_with("dst-port 5201 action 15"), "{last:?}");
        assert_eq!(commands(&[("queue", "3")])[2], "ethtool -X eth2 equal 3");
        assert_eq!(commands(&[("device", "none")]), Vec::<String>::new());
        let first = commands(&[("queue", "0")]);
        assert_eq!(first[2], "ethtool -X eth2 start 1 equal 15", "the others carry the rest");
        assert!(first[4].ends_with("dst-port 5201 action 0"), "{first:?}");
        let warning = |set| crate::path::warn_of_first_queue(&settings_of(set, 16).unwrap());
        assert!(warning(&[("queue", "0")]).unwrap().contains("queue 0 of eth2"));
        assert_eq!(warning(&[]), None);
        let all = preparation(&[("queue", "0"), ("queues", "2")], 2).unwrap();
        assert_eq!(all[0], "ethtool -L eth2 combined 3");
        assert_eq!(all[3], "ethtool -X eth2 start 2 equal 1");
        let spread = commands(&[("queues", "2")]);
        assert_eq!(spread[2], "ethtool -X eth2 equal 14");
        let to = |at: usize, port: u16, queue| {
            let end = format!("src-port {port} dst-port 5201 action {queue}");
            assert!(spread[at].ends_with(&end), "{spread:?}");
        };
        for (flow, queue) in [(0u16, 14), (1, 15), (2, 14), (3, 15)] {
            to(4 + usize::from(flow), 21_000 + flow, queue);
        }
        let more = preparation(&[("queues", "2")], 2).unwrap();
        assert_eq!(more[0], "ethtool -L eth2 combined 3", "one is left for everything else");
        assert!(preparation(&[("queues", "2"), ("queue", "15")], 16).is_err());
        assert!(preparation(&[("queue", "16")], 16).is_err());
        assert!(preparation(&[], 1).is_err(), "the only queue carries everything else");
        assert!(preparation(&[("queue", "0")], 1).is_err(), "also if it is asked for");
    }

    #[test]
    fn huge_pages_that_are_not_there_are_refused_before_a_trial() {
        use bytepath_record::{Attempt, LINK_NODE, Outcome, Role, free_huge_pages};
        let check = |job: &HalfConfig, facts: &Facts| {
            let pages = huge_pages(job, facts, 0);
            let taken = crate::path::PagesTaken { role: Role::Receiver, facts, pages };
            check(job, facts).and(crate::path::check_huge_pages(&[taken]))
        };
        let tried = |name: &str| Attempt { name: name.into(), outcome: Outcome::Works("".into()) };
        let names = [super::ring::SETUP, "zcrx.kernel", "zcrx.register"];
        let mut facts = Facts { attempts: names.map(tried).into(), ..Facts::default() };
        let huge = job(&[("memory", "huge"), ("area", "64M")]);
        assert_eq!(check(&huge, &facts), Support::Yes, "a host that shows no pages is not judged");
        facts.settings.insert(free_huge_pages(None), "31".into());
        let Support::No { reason, remedy } = check(&huge, &facts) else { panic!("31 are too few") };
        assert!(reason.contains("takes 32 huge pages of 2 MiB, and 31 are free"), "{reason}");
        assert!(remedy.contains("sysctl vm.nr_hugepages=32"), "{remedy}");
        assert_eq!(check(&job(&[("memory", "normal")]), &facts), Support::Yes);
        facts.settings.insert(LINK_NODE.into(), "1".into());
        facts.settings.insert(free_huge_pages(None), "32".into());
        facts.settings.insert(free_huge_pages(Some(1)), "32".into());
        assert_eq!(check(&huge, &facts), Support::Yes, "those of the NIC's node count");
        facts.settings.insert(free_huge_pages(Some(1)), "0".into());
        let Support::No { remedy, .. } = check(&huge, &facts) else { panic!("none of that node") };
        assert!(remedy.contains("hugepages 2M node=1 32"), "{remedy}");
        let guest = Facts { booted: Some(2.5), ..facts };
        let Support::No { remedy, .. } = check(&huge, &guest) else { panic!("nor has it any") };
        assert!(remedy.contains("--kernel 'NAME=SOURCE hugepages=32'"), "{remedy}");
        assert!(!remedy.contains("--set"), "it would reserve the machine's: {remedy}");
    }

    #[test]
    fn an_area_of_each_queue_takes_huge_pages_or_one_of_each_flow_where_there_is_no_device() {
        use bytepath_record::{Attempt, Outcome};
        let tried = |outcome| {
            let attempts = vec![Attempt { name: "zcrx.register".into(), outcome }];
            Facts { attempts, ..Facts::default() }
        };
        let device = tried(Outcome::Works(String::new()));
        let none = tried(Outcome::Errno(libc::EOPNOTSUPP));
        let count = |set: &[(&str, &str)], facts: &Facts| {
            let huge = [set, &[("memory", "huge"), ("area", "64M"), ("queues", "2")]].concat();
            let job = HalfConfig { flows: 7, adapters: 2, ..job(&huge) };
            [0, 1].map(|adapter| huge_pages(&job, facts, adapter).count)
        };
        assert_eq!(count(&[], &device), [64, 64]);
        assert_eq!(count(&[], &none), [128, 96]);
        assert_eq!(count(&[("device", "none")], &device), [128, 96]);
        assert_eq!(count(&[("share", "on")], &none), [64, 64]);
        assert_eq!(count(&[("memory", "normal")], &device), [0, 0]);
    }

    #[test]
    fn every_default_is_a_value_of_its_option() {
        for option in OPTIONS {
            option.kind.parse(option.default).unwrap();
        }
    }
}
