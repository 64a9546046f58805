//! Rules over the facts of a host: what would distort, hide or prevent a measurement.

mod dsa;
mod findings;
mod gpu;
mod libraries;
mod nic;
mod pair;

pub use dsa::examine_dsa;
pub use gpu::examine_gpus;
pub use libraries::examine_libraries;
pub use pair::examine_pair;

use bytepath_record::{Facts, Finding, joined};
use bytepath_sys::Roots;
use bytepath_sys::attribute::{self, text as read};
use findings::Findings;

/// The present state of a host, in addition to its facts.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Moment {
    /// Load average of the last minute.
    pub load: Option<f64>,
    /// Fraction of all CPU time since boot that the hypervisor took.
    pub steal: Option<f64>,
    /// Packet sockets in this network namespace.
    pub packet_sockets: usize,
    /// Whether a daemon (irqbalance) moves interrupts.
    pub irqbalance: bool,
}

/// Reads the present state of a host.
pub fn moment(roots: &Roots) -> Moment {
    let load = read(&roots.proc.join("loadavg"));
    let packet = read(&roots.proc.join("net/packet")).unwrap_or_default();
    let daemons = bytepath_sys::procfs::numbered(&roots.proc).unwrap_or_default();
    let is_irqbalance = |pid: &u32| {
        let name = bytepath_sys::procfs::name(&roots.proc.join(pid.to_string()));
        name.as_deref() == Some("irqbalance")
    };
    Moment {
        load: load.and_then(|text| text.split_whitespace().next()?.parse().ok()),
        steal: read(&roots.proc.join("stat")).as_deref().and_then(steal),
        packet_sockets: packet.lines().skip(1).count(),
        irqbalance: daemons.iter().any(is_irqbalance),
    }
}

/// Returns the share of steal. The fields: user nice system idle iowait irq softirq steal
/// (proc_stat(5)).
fn steal(stat: &str) -> Option<f64> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let ticks: Vec<f64> = all.split_whitespace().take(8).filter_map(|n| n.parse().ok()).collect();
    let total: f64 = ticks.iter().sum();
    (ticks.len() == 8 && total > 0.0).then(|| ticks[7] / total)
}

/// Exit latency in microseconds from which on an idle state is slow: about the gap between two
/// bursts of packets.
const SLOW_WAKE: u64 = 50;

/// Returns all findings, those that prevent a study first. Facts that the host does not report are
/// not judged.
pub fn examine(facts: &Facts, moment: &Moment) -> Vec<Finding> {
    let mut all = Findings::default();
    forbids(facts, &mut all);
    cpus(facts, &mut all);
    groups(facts, &mut all);
    kernel(facts, &mut all);
    network(facts, moment, &mut all);
    others(facts, moment, &mut all);
    all.0.sort_by_key(|finding| finding.severity);
    all.0
}

fn forbids(facts: &Facts, all: &mut Findings) {
    let root = facts.privileges.euid == 0 && !facts.privileges.user_namespace;
    match facts.number::<i64>("kernel.io_uring_disabled") {
        Some(2) => all.blocks(
            "io_uring is disabled (kernel.io_uring_disabled = 2)",
            "the paths uring, uring-zc and zcrx cannot run",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        Some(1) if !root => all.blocks(
            "io_uring is for administrators only (kernel.io_uring_disabled = 1)",
            "the paths uring, uring-zc and zcrx cannot run for this user",
            "sysctl -w kernel.io_uring_disabled=0",
        ),
        _ => {}
    }
    let may_profile = root || facts.privileges.capabilities.iter().any(|name| name == "PERFMON");
    let paranoid = facts.number::<i64>("kernel.perf_event_paranoid");
    if let Some(paranoid) = paranoid.filter(|paranoid| *paranoid > 0 && !may_profile) {
        all.blocks(
            format!("kernel.perf_event_paranoid is {paranoid}"),
            "the whole machine cannot be profiled, so there is no explanation",
            "sysctl -w kernel.perf_event_paranoid=0",
        );
    }
}

/// Needs of a study whose testbed is in one machine: memory of agents and rings, and threads.
const STUDY_MEMORY: u64 = 1 << 30;
const STUDY_PIDS: u64 = 256;

/// Limits of the control groups, as containers and service managers set them.
fn groups(facts: &Facts, all: &mut Findings) {
    if let Some(cpus) = facts.setting("cgroup.cpu") {
        all.distorts(
            format!("the control group has a CPU quota: {cpus}"),
            "its threads stop when it is used up; trials that lose 10% of a CPU to it are rejected",
            "run outside of the container or slice, or lift the quota: cpu.max (systemd: CPUQuota=)",
        );
    }
    if let Some(bytes) = facts.number("cgroup.memory").filter(|bytes: &u64| *bytes < STUDY_MEMORY) {
        all.distorts(
            format!("the control group may have {} MiB of memory", bytes >> 20),
            "socket buffers and rings count, and what does not fit is killed or reclaimed during trials",
            "raise the limit: memory.max (systemd: MemoryMax=)",
        );
    }
    if let Some(pids) = facts.number("cgroup.pids").filter(|pids: &u64| *pids < STUDY_PIDS) {
        all.distorts(
            format!("the control group may have {pids} processes and threads"),
            "each flow has a thread at both ends, and an agent may fail to start",
            "raise the limit: pids.max (systemd: TasksMax=)",
        );
    }
    let machine = facts.setting("cpu.online").map(attribute::list).unwrap_or_default();
    if facts.cpus.len() < machine.len() {
        all.note(
            format!("this process may run on {} of {} CPUs", facts.cpus.len(), machine.len()),
            "others may share them, and interrupts may come on the rest",
            "taskset and the cpuset of the control group decide: cpuset.cpus",
        );
    }
}

fn cpus(facts: &Facts, all: &mut Findings) {
    if let Some(governor) = facts.setting("cpufreq.governor").filter(|g| *g != "performance") {
        all.distorts(
            format!("the CPUs' frequency governor is {governor}"),
            "the clock follows the load, so a path that waits more also runs slower",
            "cpupower frequency-set -g performance",
        );
    }
    if let Some(preference) = facts.setting("cpufreq.preference").filter(|p| *p != "performance") {
        all.distorts(
            format!("the energy preference of the CPUs is {preference}"),
            "the hardware lowers the clock when a CPU is not wholly busy",
            "cpupower set --epp performance",
        );
    }
    if facts.setting("cpufreq.no_turbo") == Some("0") || facts.setting("cpufreq.boost") == Some("1")
    {
        let intel = facts.setting("cpufreq.no_turbo").is_some();
        all.note(
            "turbo is on",
            "the clock depends on temperature and on other cores",
            if intel {
                "echo 1 > /sys/devices/system/cpu/intel_pstate/no_turbo"
            } else {
                "echo 0 > /sys/devices/system/cpu/cpufreq/boost"
            },
        );
    }
    let slow = |state: &&str| {
        let latency = state.rsplit(' ').next().and_then(|text| text.strip_suffix("us"));
        latency.and_then(|text| text.parse::<u64>().ok()).is_some_and(|us| us >= SLOW_WAKE)
    };
    let states = facts.setting("cpuidle.states").unwrap_or_default();
    let slow = joined(states.split(", ").filter(slow), ", ");
    if !slow.is_empty() {
        all.distorts(
            format!("idle states with long exit latency are enabled: {slow}"),
            "a path that sleeps between reads pays for the wake-up",
            "cpupower idle-set -D 10",
        );
    }
    if facts.setting("cpu.smt") == Some("on") {
        all.note(
            "SMT is on",
            "two roles on one core's threads share its execution units; pin roles to different cores",
            "echo off > /sys/devices/system/cpu/smt/control",
        );
    }
    let nodes = facts.setting("numa.nodes").is_some_and(|nodes| nodes.contains(['-', ',']));
    if nodes && facts.setting("kernel.numa_balancing").is_some_and(|on| on != "0") {
        all.distorts(
            "NUMA balancing is on",
            "the kernel unmaps pages to see who uses them, and moves them during trials",
            "sysctl -w kernel.numa_balancing=0",
        );
    }
}

/// Kernel options for checks at run time, with their cost.
const DEBUG: &[(&str, &str)] = &[
    ("KASAN", "every memory access is checked: several times slower"),
    ("PROVE_LOCKING", "every lock is checked: several times slower"),
    ("DEBUG_PREEMPT", "every per-CPU access is checked"),
    ("SLUB_DEBUG_ON", "every allocation is checked"),
];

/// Mitigations with a known cost on packet paths, by the file that reports them.
const MITIGATIONS: &[(&str, &str)] = &[
    (
        "spec_rstack_overflow",
        "SRSO: every return is protected; costs about a third of tap packets per \
         second on a published Ryzen",
    ),
    ("retbleed", "retbleed: every return or every system call is protected"),
    ("spectre_v2", "spectre v2: every indirect call is protected"),
    ("mds", "MDS: buffers are cleared at every return to user space"),
    ("gather_data_sampling", "GDS: gathers are slower"),
    ("its", "ITS: indirect branches go through thunks"),
];

/// Clock sources that can be read without a system call.
const FAST_CLOCKS: [&str; 4] =
    ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];

fn kernel(facts: &Facts, all: &mut Findings) {
    let option = |name: &str| facts.setting(&format!("config.{name}"));
    for (name, effect) in DEBUG {
        if option(name) == Some("y") {
            let what = format!("the kernel was built with CONFIG_{name}");
            all.distorts(what, effect, "boot a kernel without it");
        }
    }
    if option("HARDENED_USERCOPY") == Some("y") {
        all.note(
            "hardened usercopy is on",
            "every copy to or from user space checks its bounds, which hides the cost of small packets",
            "boot with hardened_usercopy=off (on a lab machine only)",
        );
    }
    if option("IRQ_TIME_ACCOUNTING") == Some("n") && option("VIRT_CPU_ACCOUNTING_GEN") != Some("y")
    {
        all.note(
            "the kernel does not time interrupts (no IRQ_TIME_ACCOUNTING)",
            "softirq shares are sampled by the tick: accurate over seconds, not over milliseconds",
            "boot a kernel with CONFIG_IRQ_TIME_ACCOUNTING=y",
        );
    }
    for (name, effect) in MITIGATIONS {
        let state = facts.setting(&format!("vulnerability.{name}"));
        if let Some(state) = state.and_then(|state| state.strip_prefix("Mitigation: ")) {
            let what = format!("mitigation in force: {state}");
            let command = "boot with mitigations=off (on a lab machine only), as a variant";
            all.note(what, effect, command);
        }
    }
    if let Some(mode) = facts.setting("lockdown").filter(|mode| *mode != "none") {
        all.note(
            format!("the kernel is in lockdown mode ({mode})"),
            "BPF may not attach to kernel functions, so copied bytes are estimated, not counted",
            "boot without lockdown= and without secure boot",
        );
    }
    if let Some(clock) = facts.setting("clocksource").filter(|clock| !FAST_CLOCKS.contains(clock)) {
        all.distorts(
            format!("the clock source is {clock}"),
            "reading the time requires a system call or a device access, and every call is timed",
            "boot with tsc=reliable, if the machine's clock is sound",
        );
    }
    if facts.setting("kernel.nmi_watchdog") == Some("1") {
        all.note(
            "the NMI watchdog is on",
            "it occupies a hardware counter that profiles need",
            "sysctl -w kernel.nmi_watchdog=0",
        );
    }
}

fn network(facts: &Facts, moment: &Moment, all: &mut Findings) {
    if moment.packet_sockets > 0 {
        let count = moment.packet_sockets;
        all.note(
            format!("packet sockets listening here: {count}"),
            "each sees every packet of a real link, which forces zero-copy senders to copy",
            "ss -0 -p names them: stop tcpdump, DHCP clients and similar programs on the link under test",
        );
    }
    let optmem = facts.number::<u64>("net.core.optmem_max");
    if let Some(optmem) = optmem.filter(|bytes| *bytes < 128 << 10) {
        all.distorts(
            format!("net.core.optmem_max is {optmem}"),
            "MSG_ZEROCOPY runs out of room for its notifications (ENOBUFS)",
            "sysctl -w net.core.optmem_max=1048576",
        );
    }
    for (name, value) in &facts.settings {
        let name = name.strip_prefix("nic.").and_then(|name| name.rsplit_once('.'));
        let Some((card, what)) = name else { continue };
        let other = |what: &str| facts.settings.get(&format!("nic.{card}.{what}"));
        match what {
            "pcie_width" | "pcie_speed" => {
                let most = other(&format!("{what}_max"));
                // A NIC that is asleep reports less than its maximum.
                if let Some(most) = most.filter(|most| *most != value && other("speed").is_some()) {
                    all.distorts(
                        format!(
                            "{card}: {} is {value} and could be {most}",
                            what.replace('_', " ")
                        ),
                        "the bus may be the bottleneck instead of the path",
                        "use another slot; see `lspci -vv`, LnkSta",
                    );
                }
            }
            "rps" => all.note(
                format!("{card}: RPS is on for {value}"),
                "packets are handed to other CPUs before TCP sees them",
                "echo 0 > /sys/class/net/CARD/queues/rx-N/rps_cpus",
            ),
            "node" if facts.setting("numa.nodes").is_some_and(|n| n.contains(['-', ','])) => {
                all.note(
                    format!("{card} is on NUMA node {value}"),
                    "roles on another node move every byte across the interconnect",
                    "name the card with the testbed, so that CPUs of its node are preferred; or use --cores",
                );
            }
            _ => {}
        }
    }
    nic::examine(facts, all);
    if moment.irqbalance && facts.settings.keys().any(|name| name.starts_with("nic.")) {
        all.distorts(
            "irqbalance is running",
            "it moves a card's interrupts between CPUs while a trial runs",
            "systemctl stop irqbalance",
        );
    }
}

fn others(facts: &Facts, moment: &Moment, all: &mut Findings) {
    let cpus = facts.cpus.len().max(1) as f64;
    if let Some(load) = moment.load.filter(|load| *load > 0.2 * cpus) {
        all.distorts(
            format!("the machine is busy: load average {load:.1} on {cpus} CPUs"),
            "trials that lose 10% of a CPU to other processes are marked with ~",
            "stop them, or wait",
        );
    }
    if let Some(steal) = moment.steal.filter(|steal| *steal > 0.01) {
        all.distorts(
            format!("the hypervisor has taken {:.1}% of the CPUs since boot", steal * 100.0),
            "trials that lose 10% of a CPU to it are marked with ~",
            "use a dedicated machine, or another time",
        );
    }
    let devices = [
        ("udmabuf", "devmem needs a dmabuf: udmabuf makes one of host memory", "modprobe udmabuf"),
        ("vhost-net", "tap studies run without vhost", "modprobe vhost_net"),
        ("dsa", "copies cannot be offloaded to a DSA engine", "modprobe idxd, then accel-config"),
    ];
    for (device, effect, command) in devices {
        if !facts.settings.contains_key(&format!("device.{device}")) {
            all.note(format!("there is no {device}"), effect, command);
        }
    }
    if facts.setting("vm.nr_hugepages") == Some("0") {
        all.note(
            "no huge pages are reserved (vm.nr_hugepages = 0)",
            "what requires them cannot run (zcrx:memory=huge, devmem:memory=udmabuf-huge)",
            "sysctl -w vm.nr_hugepages=64",
        );
    }
}
