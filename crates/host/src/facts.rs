//! Facts of a host, read from `/proc` and `/sys` (proc(5), sysfs(5)). Nothing is tried here, and
//! nothing can fail: facts that a host does not report are left out.

use bytepath_record::{Facts, MOST_FILES, Privileges, free_huge_pages, huge_pages, joined};
use bytepath_sys::attribute::{self, names, text as read};
use bytepath_sys::cgroup::{self, Limits};
use bytepath_sys::{Roots, hwmon, pmu, powercap};
use rustix::thread::CapabilitySet;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

/// Reads the facts of this host, without attempts.
pub fn survey(roots: &Roots) -> Facts {
    let kernel = |name: &str| read(&roots.proc.join("sys/kernel").join(name)).unwrap_or_default();
    let status = read(&roots.proc.join("self/status")).unwrap_or_default();
    let online =
        read(&roots.sys.join("devices/system/cpu/online")).map(|text| attribute::list(&text));
    let allowed = field(&status, "Cpus_allowed_list").map(attribute::list).unwrap_or_default();
    let is_online = |cpu: &u32| online.as_ref().is_none_or(|online| online.contains(cpu));
    let cpus: Vec<u32> = allowed.iter().copied().filter(is_online).collect();
    let uid_map = read(&roots.proc.join("self/uid_map")).unwrap_or_default();
    let privileges = privileges(&status, &uid_map);
    Facts {
        siblings: siblings(roots, online.as_ref().unwrap_or(&cpus)),
        machine: kernel("random/boot_id"),
        kernel_release: kernel("osrelease"),
        kernel_version: kernel("version"),
        // `/proc/sys/kernel/arch` exists since Linux 6.1; before that, the binary's own
        // architecture is the next best.
        architecture: Some(kernel("arch"))
            .filter(|shown| !shown.is_empty())
            .unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
        cpu_model: cpu_model(&read(&roots.proc.join("cpuinfo")).unwrap_or_default()),
        cpus,
        nodes: nodes(&roots.sys)
            .into_iter()
            .filter_map(|(node, folder)| {
                Some((node, attribute::list(&read(&folder.join("cpulist"))?)))
            })
            .collect(),
        memory: memory(&read(&roots.proc.join("meminfo")).unwrap_or_default()),
        page_size: rustix::param::page_size() as u64,
        booted: None,
        settings: adjustable(roots)
            .into_iter()
            .chain(built_in(roots))
            .chain(free_pages(roots))
            .chain(limits(roots))
            .chain(files(roots, &privileges))
            .collect(),
        privileges,
        attempts: Vec::new(),
    }
}

/// Returns the limits of this process's control groups, if there are any.
fn limits(roots: &Roots) -> Vec<(String, String)> {
    let Limits { cpus, memory, pids } = cgroup::limits(roots);
    let named = [
        ("cgroup.cpu", cpus.map(|cpus| format!("{cpus:.2} CPUs"))),
        ("cgroup.memory", memory.map(|bytes| bytes.to_string())),
        ("cgroup.pids", pids.map(|count| count.to_string())),
    ];
    named.into_iter().filter_map(|(name, limit)| Some((name.to_owned(), limit?))).collect()
}

/// Returns how many files a process like this one may open. A process that may raise any limit is
/// bound by what the kernel allows each process (Documentation/admin-guide/sysctl/fs.rst,
/// `nr_open`).
fn files(roots: &Roots, privileges: &Privileges) -> Option<(String, String)> {
    let may_raise = !privileges.user_namespace
        && privileges.capabilities.iter().any(|name| name == "SYS_RESOURCE");
    let most = match may_raise {
        true => read(&roots.proc.join("sys/fs/nr_open")),
        false => read(&roots.proc.join("self/limits")).and_then(|limits| {
            // The line has the soft limit, which this process raises, and the hard one
            // (proc_pid_limits(5)).
            let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
            line.split_whitespace().nth(1).map(str::to_owned)
        }),
    };
    most.map(|most| (MOST_FILES.to_owned(), most))
}

/// Returns the cores with more than one thread (Documentation/admin-guide/cputopology.rst,
/// `thread_siblings_list`).
fn siblings(roots: &Roots, cpus: &[u32]) -> Vec<Vec<u32>> {
    let of = |cpu: &u32| {
        let topology = format!("devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        read(&roots.sys.join(topology))
            .map(|text| attribute::list(&text))
            .filter(|core| core.len() > 1)
    };
    let cores: BTreeSet<Vec<u32>> = cpus.iter().filter_map(of).collect();
    cores.into_iter().collect()
}

/// Sysctls that affect throughput, by their names in sysctl(8).
const SYSCTLS: &[&str] = &[
    "fs.pipe-max-size",
    "fs.pipe-user-pages-soft",
    "kernel.io_uring_disabled",
    "kernel.nmi_watchdog",
    "kernel.numa_balancing",
    "kernel.perf_event_paranoid",
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.optmem_max",
    "net.core.rmem_max",
    "net.core.wmem_max",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_fastopen",
    "net.ipv4.tcp_limit_output_bytes",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_tw_reuse",
    "net.ipv4.tcp_wmem",
    "vm.max_map_count",
    "vm.nr_hugepages",
];

/// Other attributes: name of the fact, path below `/sys`.
const ATTRIBUTES: &[(&str, &str)] = &[
    ("clocksource", "devices/system/clocksource/clocksource0/current_clocksource"),
    ("cpuidle.driver", "devices/system/cpu/cpuidle/current_driver"),
    ("cpuidle.governor", "devices/system/cpu/cpuidle/current_governor"),
    ("cpu.isolated", "devices/system/cpu/isolated"),
    ("cpu.online", "devices/system/cpu/online"),
    ("cpu.nohz_full", "devices/system/cpu/nohz_full"),
    ("cpu.smt", "devices/system/cpu/smt/control"),
    ("cpufreq.boost", "devices/system/cpu/cpufreq/boost"),
    ("cpufreq.no_turbo", "devices/system/cpu/intel_pstate/no_turbo"),
    ("numa.memory", "devices/system/node/has_memory"),
    ("numa.nodes", "devices/system/node/online"),
];

/// Attributes that list all choices, with brackets around the current one.
const CHOICES: &[(&str, &str)] = &[
    ("transparent_hugepage", "kernel/mm/transparent_hugepage/enabled"),
    ("lockdown", "kernel/security/lockdown"),
];

/// Kernel options that determine how CPU time is accounted, when the kernel preempts, what it
/// checks at run time, and which paths it has.
const OPTIONS: &[&str] = &[
    "DEBUG_PREEMPT",
    "HARDENED_USERCOPY",
    "HZ",
    "IO_URING_ZCRX",
    "IRQ_TIME_ACCOUNTING",
    "KASAN",
    "MAX_SKB_FRAGS",
    "NET_DEVMEM",
    "NO_HZ_FULL",
    "PREEMPT",
    "PREEMPT_DYNAMIC",
    "PREEMPT_LAZY",
    "PREEMPT_NONE",
    "PREEMPT_RT",
    "PREEMPT_VOLUNTARY",
    "PROVE_LOCKING",
    "SLUB_DEBUG_ON",
    "TICK_CPU_ACCOUNTING",
    "TLS",
    "TLS_DEVICE",
    "VIRT_CPU_ACCOUNTING_GEN",
];

/// Reads the facts that someone could change while a study runs.
pub(super) fn adjustable(roots: &Roots) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut keep = |name: String, value: Option<String>| {
        // The kernel prints an empty CPU list as "(null)".
        if let Some(value) = value.filter(|value| !value.is_empty() && value != "(null)") {
            settings.insert(name, value);
        }
    };
    for name in SYSCTLS {
        let path = roots.proc.join("sys").join(name.replace('.', "/"));
        let words = |text: String| joined(text.split_whitespace(), " ");
        keep(name.to_string(), read(&path).map(words));
    }
    for (name, path) in ATTRIBUTES {
        keep(name.to_string(), read(&roots.sys.join(path)));
    }
    for (name, path) in CHOICES {
        keep(name.to_string(), read(&roots.sys.join(path)).map(|text| chosen(&text)));
    }
    let cpus = roots.sys.join("devices/system/cpu");
    keep("cpufreq.governor".into(), of_all(&cpus, "cpufreq/scaling_governor"));
    keep("cpufreq.preference".into(), of_all(&cpus, "cpufreq/energy_performance_preference"));
    keep("cpuidle.states".into(), idle_states(&cpus.join("cpu0/cpuidle")));
    for (node, folder) in nodes(&roots.sys) {
        let pages = read(&folder.join("hugepages/hugepages-2048kB/nr_hugepages"));
        keep(huge_pages(Some(node)), pages);
    }
    for device in ["kvm", "udmabuf", "vhost-net"] {
        let shown = roots.sys.join("class/misc").join(device).exists();
        keep(format!("device.{device}"), shown.then(|| "there".into()));
    }
    let engines = names(&roots.sys.join("bus/dsa/devices"));
    keep("device.dsa".into(), (!engines.is_empty()).then(|| engines.join(" ")));
    for (name, value) in super::nics::settings(roots) {
        keep(name, Some(value));
    }
    settings
}

/// Reads the facts that are fixed by the machine or at boot.
fn built_in(roots: &Roots) -> BTreeMap<String, String> {
    let folder = roots.sys.join("devices/system/cpu/vulnerabilities");
    let state = |name: String| Some((format!("vulnerability.{name}"), read(&folder.join(name))?));
    let states = names(&folder).into_iter().filter_map(state);
    let options = kernel_options(&roots.proc.join("config.gz"));
    let options = options.into_iter().map(|(name, value)| (format!("config.{name}"), value));
    let ipmi = roots.sys.join("class/ipmi/ipmi0").exists();
    let ipmi = ipmi.then(|| ("device.ipmi".to_owned(), "there".to_owned()));
    let sources = settings(&roots.sys).into_iter().chain(ipmi);
    states.chain(options).chain(sources).filter(|(_, value)| !value.is_empty()).collect()
}

/// Returns the number of 2 MiB huge pages of the machine, and how many are available on it and on
/// each NUMA node (Documentation/admin-guide/mm/hugetlbpage.rst): the free ones that are not
/// reserved by mappings, and those that the kernel may add. They change as programs come and go, so
/// they are not part of any comparison.
fn free_pages(roots: &Roots) -> Vec<(String, String)> {
    const SIZE: &str = "hugepages-2048kB";
    let machine = roots.sys.join("kernel/mm/hugepages").join(SIZE);
    let number = |folder: &Path, name: &str| read(&folder.join(name))?.parse::<u64>().ok();
    let of_machine = |name: &str| number(&machine, name).unwrap_or(0);
    let promised = of_machine("resv_hugepages");
    let more = of_machine("nr_overcommit_hugepages");
    let more = more.saturating_sub(of_machine("surplus_hugepages"));
    let free = |folder: &Path| {
        let free = number(folder, "free_hugepages")?.saturating_sub(promised);
        Some(free.saturating_add(more).to_string())
    };
    let of_nodes = nodes(&roots.sys).into_iter().map(|(node, folder)| {
        // It is unknown on which node pages are reserved.
        let free = number(&folder.join("hugepages").join(SIZE), "free_hugepages");
        (free_huge_pages(Some(node)), free.map(|free| free.saturating_add(more).to_string()))
    });
    let all = (huge_pages(None), number(&machine, "nr_hugepages").map(|all| all.to_string()));
    let known = [all, (free_huge_pages(None), free(&machine))].into_iter().chain(of_nodes);
    known.filter_map(|(name, value)| Some((name, value?))).collect()
}

/// Returns the NUMA nodes with their folders; empty if there is only one
/// (Documentation/ABI/stable/sysfs-devices-node).
fn nodes(sys: &Path) -> Vec<(u32, PathBuf)> {
    let folder = sys.join("devices/system/node");
    let online = read(&folder.join("online")).map(|text| attribute::list(&text));
    let nodes = online.filter(|nodes| nodes.len() > 1).unwrap_or_default().into_iter();
    nodes.map(|node| (node, folder.join(format!("node{node}")))).collect()
}

/// Returns the values of an attribute of all CPUs; a single word if they agree.
fn of_all(cpus: &Path, attribute: &str) -> Option<String> {
    let value = |cpu: &String| read(&cpus.join(cpu).join(attribute));
    let values: BTreeSet<String> = names(cpus).iter().filter_map(value).collect();
    Some(joined(values, " "))
}

/// Returns the idle states that a CPU may enter, with their exit latency:
/// "POLL 0us, C1 2us, C6 133us" (Documentation/admin-guide/pm/cpuidle.rst).
fn idle_states(folder: &Path) -> Option<String> {
    let state = |index: usize| {
        let folder = folder.join(format!("state{index}"));
        let (name, latency) = (read(&folder.join("name"))?, read(&folder.join("latency"))?);
        let off = read(&folder.join("disable")).is_some_and(|text| text != "0");
        Some((!off).then(|| format!("{name} {latency}us")))
    };
    Some(joined((0..32).map_while(state).flatten(), ", "))
}

/// Returns "madvise" for "always [madvise] never"; a text without brackets unchanged.
fn chosen(text: &str) -> String {
    let inside = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
    inside.map_or(text, |(choice, _)| choice).to_string()
}

/// Returns the value of `name:` in a file of such lines.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let mut pairs = text.lines().filter_map(|line| line.split_once(':'));
    pairs.find(|(key, _)| key.trim() == name).map(|(_, value)| value.trim())
}

/// x86 calls it "model name"; other architectures use other names, or only numbers.
fn cpu_model(cpuinfo: &str) -> String {
    let names = ["model name", "Model Name", "cpu model", "Processor", "cpu", "uarch"];
    let named = names.iter().find_map(|name| field(cpuinfo, name));
    let arm = || {
        let (implementer, part) = (field(cpuinfo, "CPU implementer")?, field(cpuinfo, "CPU part")?);
        Some(format!("implementer {implementer} part {part}"))
    };
    named.map(str::to_string).or_else(arm).unwrap_or_else(|| "unknown".into())
}

/// Returns `MemTotal` in bytes; 0 if it is missing.
fn memory(meminfo: &str) -> u64 {
    let kib = field(meminfo, "MemTotal").and_then(|value| value.split_whitespace().next());
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0).saturating_mul(1024)
}

/// Capabilities that a path or meter requires.
const CAPABILITIES: [&str; 8] =
    ["NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_NICE", "SYS_RESOURCE", "PERFMON", "BPF"];

fn privileges(status: &str, uid_map: &str) -> Privileges {
    // Uid: real, effective, saved set, file system.
    let euid = field(status, "Uid").and_then(|ids| ids.split_whitespace().nth(1));
    let effective = field(status, "CapEff").and_then(|mask| u64::from_str_radix(mask, 16).ok());
    let all = CapabilitySet::from_bits_retain(effective.unwrap_or(0));
    let granted = all.iter_names().filter(|(name, _)| CAPABILITIES.contains(name));
    Privileges {
        euid: euid.and_then(|id| id.parse().ok()).unwrap_or(u32::MAX),
        user_namespace: is_mapped(uid_map),
        capabilities: granted.map(|(name, _)| name.to_owned()).collect(),
    }
}

/// True outside of the initial user namespace, which maps every id to itself (user_namespaces(7)).
fn is_mapped(uid_map: &str) -> bool {
    let words: Vec<&str> = uid_map.split_whitespace().collect();
    !words.is_empty() && words != ["0", "0", "4294967295"]
}

/// Returns the relevant options from `/proc/config.gz`, if the kernel has it
/// (CONFIG_IKCONFIG_PROC). "n" means "is not set".
fn kernel_options(path: &Path) -> Vec<(String, String)> {
    const LONGEST: u64 = 4 << 20;
    let Ok(file) = File::open(path) else { return Vec::new() };
    let mut bytes = Vec::new();
    let mut unpacked = flate2::read::GzDecoder::new(BufReader::new(file)).take(LONGEST);
    // If the file is damaged, the part before the damage is used.
    let _ = unpacked.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes);
    text.lines().filter_map(kernel_option).collect()
}

fn kernel_option(line: &str) -> Option<(String, String)> {
    let (name, value) = match line.strip_prefix("# CONFIG_") {
        Some(rest) => (rest.strip_suffix(" is not set")?, "n"),
        None => line.strip_prefix("CONFIG_")?.split_once('=')?,
    };
    OPTIONS.contains(&name).then(|| (name.to_string(), value.trim_matches('"').to_string()))
}

/// Settings by name, as the host prints them.
pub type Fingerprint = BTreeMap<String, String>;

/// Prefixes of facts that change by themselves while a study runs: the module of a congestion
/// control is loaded when a socket requests it, and modules create devices.
const PASSING: &[&str] = &["net.ipv4.tcp_available_congestion_control", "device."];

/// Reads sysctls, clock source, governors, idle states, the CPUs of every interrupt, and
/// attributes, rings, queues, offloads and qdiscs of the NICs: everything changeable that the
/// doctor reads or that moves packets.
pub fn fingerprint(roots: &Roots) -> Fingerprint {
    let passing = |name: &str| PASSING.iter().any(|passing| name.starts_with(passing));
    let mut all = adjustable(roots);
    all.retain(|name, _| !passing(name));
    for irq in names(&roots.proc.join("irq")) {
        let path = roots.proc.join("irq").join(&irq).join("smp_affinity_list");
        all.extend(read(&path).map(|cpus| (format!("irq.{irq}.cpus"), cpus)));
    }
    all
}

/// Describes the differences between two fingerprints of a host:
/// "net.core.rmem_max: 212992 -> 67108864".
pub fn differences(before: &Fingerprint, now: &Fingerprint) -> Vec<String> {
    let both: std::collections::BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed = both.into_iter().filter(|name| before.get(*name) != now.get(*name));
    let text = |value: Option<&String>| value.map_or("not there".to_owned(), String::clone);
    changed
        .map(|name| format!("{name}: {} -> {}", text(before.get(name)), text(now.get(name))))
        .collect()
}

/// Returns facts of the available power sources: names of RAPL's zones, events of perf's PMU
/// `power`, sensors of the whole machine.
pub(crate) fn settings(sys: &Path) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut keep = |name: &str, values: Vec<String>| {
        if !values.is_empty() {
            all.push((name.to_owned(), values.join(", ")));
        }
    };
    let zones = powercap::zones(sys);
    let denied = |zone: &&powercap::Zone| File::open(zone.energy()).is_err();
    keep("power.rapl.denied", zones.iter().filter(denied).map(|zone| zone.name.clone()).collect());
    keep("power.rapl", zones.into_iter().map(|zone| zone.name).collect());
    let events = pmu::offered(sys, "power");
    keep("power.perf", events.into_iter().map(|event| event.name).collect());
    let clock = pmu::offered(sys, "msr").into_iter().filter(|event| event.name == "aperf");
    keep("perf.aperf", clock.map(|event| event.name).collect());
    keep("perf.dsa", pmu::units(sys, "dsa"));
    keep("power.hwmon", hwmon::machine_sensors(sys).iter().map(hwmon::Sensor::name).collect());
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorded(name: &str) -> Facts {
        let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/data/hosts");
        survey(&Roots::recorded(&data.join(name)))
    }

    #[test]
    fn a_recorded_root_on_a_vm() {
        let facts = recorded("x86-vm-root");
        assert_eq!(facts.machine, "1b4e28ba-2fa1-11d2-883f-0016d3cca427");
        assert_eq!(facts.kernel_release, "6.18.44");
        assert_eq!(facts.kernel_version, "#1 SMP PREEMPT_DYNAMIC");
        assert_eq!(facts.architecture, "x86_64");
        assert_eq!(facts.cpu_model, "Intel(R) Xeon(R) Processor");
        assert_eq!(facts.cpus, [0, 1]);
        assert_eq!(facts.memory, 24_581_432 * 1024);
        assert_eq!(facts.privileges.euid, 0);
        assert!(!facts.privileges.user_namespace);
        let all_but_one =
            ["NET_ADMIN", "NET_RAW", "IPC_LOCK", "SYS_ADMIN", "SYS_NICE", "PERFMON", "BPF"];
        assert_eq!(facts.privileges.capabilities, all_but_one);
        for (name, value) in [
            ("net.ipv4.tcp_rmem", "4096 131072 33554432"),
            ("net.ipv4.tcp_congestion_control", "bbr"),
            ("fs.pipe-max-size", "1048576"),
            ("clocksource", "kvm-clock"),
            ("transparent_hugepage", "madvise"),
            ("vulnerability.retbleed", "Vulnerable"),
            ("config.HZ", "250"),
            ("config.IRQ_TIME_ACCOUNTING", "n"),
            ("config.PREEMPT_NONE", "y"),
        ] {
            assert_eq!(facts.settings.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert!(!facts.settings.contains_key("cpufreq.governor"));
    }

    #[test]
    fn a_recorded_user_on_an_arm_board() {
        let facts = recorded("arm-board-user");
        assert_eq!(facts.cpu_model, "implementer 0x41 part 0xd0b");
        // Two of four are offline or not available to this process.
        assert_eq!(facts.cpus, [0, 2]);
        assert_eq!(facts.privileges.euid, 0);
        assert!(facts.privileges.user_namespace);
        assert_eq!(facts.privileges.capabilities.len(), CAPABILITIES.len());
        assert_eq!(facts.settings["cpufreq.governor"], "performance schedutil");
        assert!(!facts.settings.keys().any(|name| name.starts_with("config.")));
    }

    #[test]
    fn promised_pages_are_not_free_and_those_that_may_be_added_are() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        std::fs::create_dir_all(&folder).unwrap();
        let free = |files: &[(&str, &str)]| {
            files.iter().for_each(|(name, text)| std::fs::write(folder.join(name), text).unwrap());
            let facts = survey(&Roots::recorded(dir.path()));
            assert_eq!(facts.number::<u64>(&huge_pages(None)), Some(20));
            facts.number::<u64>(&free_huge_pages(None)).unwrap()
        };
        assert_eq!(free(&[("nr_hugepages", "20"), ("free_hugepages", "12")]), 12);
        assert_eq!(free(&[("resv_hugepages", "5")]), 7);
        assert_eq!(free(&[("nr_overcommit_hugepages", "8"), ("surplus_hugepages", "2")]), 13);
    }

    #[test]
    fn a_host_that_shows_nothing_has_no_facts_and_no_panic() {
        let dir = tempfile::tempdir().unwrap();
        let facts = survey(&Roots::recorded(dir.path()));
        assert!(facts.cpus.is_empty() && facts.settings.is_empty() && facts.memory == 0);
        assert_eq!(facts.cpu_model, "unknown");
    }

    #[test]
    fn this_host_has_the_facts_that_every_host_has() {
        let facts = survey(&Roots::real());
        assert!(facts.machine.len() == 36 && facts.memory > 1 << 20, "{facts:?}");
        assert_eq!(facts.cpus, bytepath_sys::thread::allowed().unwrap());
        assert_eq!(facts.privileges.euid, rustix::process::geteuid().as_raw());
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_fastopen", "net.ipv4.tcp_tw_reuse"] {
            assert!(facts.settings.contains_key(name), "{name}: {facts:?}");
        }
    }

    #[test]
    fn lists_of_cpus() {
        assert_eq!(attribute::list("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(attribute::list("2,0-2"), [0, 1, 2]);
        assert_eq!(attribute::list("3-1,x,-,4294967295,0-4294967295,5"), [5]);
        assert!(attribute::list("").is_empty());
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in "\\PC*|[0-9,\\- :\\[\\]]*") {
            attribute::list(&text);
            chosen(&text);
            cpu_model(&text);
            memory(&text);
            memory(&format!("MemTotal: {text}"));
            privileges(&format!("Uid:\t{text}\nCapEff:\t{text}"), &text);
            kernel_option(&text);
            kernel_option(&format!("# CONFIG_{text}"));
        }
    }

    #[test]
    fn changes_are_named() {
        let of = |pairs: &[(&str, &str)]| -> Fingerprint {
            pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
        };
        let before = of(&[("clocksource", "tsc"), ("irq.24.cpus", "0-1"), ("x", "1")]);
        let now = of(&[("clocksource", "hpet"), ("x", "1"), ("y", "2")]);
        assert_eq!(
            differences(&before, &now),
            ["clocksource: tsc -> hpet", "irq.24.cpus: 0-1 -> not there", "y: not there -> 2",]
        );
        assert!(differences(&now, &now).is_empty());
    }

    #[test]
    fn this_host_holds_still() {
        let roots = Roots::real();
        let one = fingerprint(&roots);
        assert!(one.contains_key("net.ipv4.tcp_rmem") && one.contains_key("clocksource"));
        assert!(one.keys().any(|name| name.starts_with("irq.")), "{one:?}");
        assert!(!one.keys().any(|name| name.starts_with("config.")), "{one:?}");
    }
}
