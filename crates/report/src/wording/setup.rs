//! What was run, where, and under which contract: the facts at the head of a report.

use super::figures::{NONE, bytes, number, plural};
use super::names;
use crate::report::Subject;
use bytepath_record::TrialStatus::Unavailable;
use bytepath_record::unit;
use bytepath_record::{
    Activity, Cell, CopyCeiling, Design, Facts, Kernel, KernelHosts, LinkSettings, Netem,
    Placement, Protocol, Role, SettingRecord, SoftirqCpu, Stream, Study, Tls, Touch, Trial,
    TrialStatus, Work, grouped, joined,
};
use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;
use time::OffsetDateTime;
use time::macros::format_description;

/// Returns the facts as (name, text), in reading order.
pub(crate) fn facts(subject: &Subject) -> Vec<(&'static str, String)> {
    let study = subject.study;
    let header = &study.header;
    let mut facts = match header.kernels.as_slice() {
        [] => hosts(&header.facts),
        named => kernels(named, &header.facts),
    };
    let cells: Vec<&Cell> = header.cells.iter().collect();
    let link = common(&cells, |c| &c.link).map_or_else(varies, link);
    if let Some(because) = &header.functional {
        let what = match header.instructions_per_second {
            None => "functional, not performance",
            Some(_) => "instructions, not time",
        };
        facts.push(("evidence", format!("{what}: {because}")));
    }
    facts.push(("testbed", format!("{}; {link}", header.testbed)));
    facts.extend(header.facts.first().and_then(wire).map(|wire| ("wire", wire)));
    facts.extend(route(&header.facts).map(|way| ("way", way)));
    facts.extend(workload(&cells));
    facts.push(("placement", common(&cells, |c| &c.placement).map_or_else(varies, placement)));
    facts.push(("varied", varied(&cells)));
    facts.push(("in all", names::left_out(subject.recorded, header).join(", ")));
    facts.push(("schedule", schedule(study)));
    if let Design::Slices { slice } = header.schedule.design {
        let slice = seconds(slice);
        let text = format!("all cells of a block are open at once and take turns of {slice}");
        facts.push(("design", text));
    }
    facts.extend(settings(&header.settings));
    facts.extend(prepared(study));
    facts.extend(header.ceiling.as_ref().map(|c| ("ceiling", ceiling(c))));
    facts.retain(|(_, text)| !text.is_empty());
    facts
}

/// Returns blocks, order, times, and the number of lost trials.
fn schedule(study: &Study) -> String {
    let s = &study.header.schedule;
    let cells = &study.header.cells;
    let which = match (cells.iter().any(|cell| cell.null), cells.len()) {
        (false, _) => "every cell once",
        (true, ..3) => "the baseline twice",
        (true, _) => "the baseline twice and every other cell once",
    };
    let mut text = format!(
        "{}, {}{which}, in random order (seed {}); {} warm-up, {} window",
        plural(s.blocks.into(), "block"),
        if s.blocks == 1 { "" } else { "each with " },
        s.seed,
        seconds(s.warm_up),
        seconds(s.window),
    );
    let ran = || study.trials.iter().filter(|t| !matches!(t.status, Unavailable { .. }));
    let lost = ran().filter(|trial| trial.status != TrialStatus::Measured).count();
    if lost > 0 {
        text += &format!("; left out: {lost} of {} trials", ran().count());
    }
    text
}

/// Formats a time as `2026-11-18 11:06 UTC`; `None` if it is out of range.
pub(crate) fn date(ms: u64) -> Option<String> {
    let at = OffsetDateTime::from_unix_timestamp(i64::try_from(ms / 1000).ok()?).ok()?;
    at.format(format_description!("[year]-[month]-[day] [hour]:[minute] UTC")).ok()
}

/// Returns kernel and machine; for each role if the two hosts are different machines.
fn hosts(facts: &[Facts]) -> Vec<(&'static str, String)> {
    let lines = |lead: &str, f: &Facts| {
        let kernel = format!("{lead}{}", kernel(f));
        let memory = bytes(f.memory as f64);
        let cpus = plural(f.cpus.len() as u64, "CPU");
        let user = match (f.privileges.user_namespace, f.privileges.euid) {
            (true, _) => ", in a user namespace",
            (false, 0) => ", as root",
            (false, _) => ", not as root",
        };
        [("kernel", kernel), ("machine", format!("{lead}{}, {cpus}, {memory}{user}", f.cpu_model))]
    };
    match facts {
        [one] => lines("", one).to_vec(),
        [tx, rx] if tx.shares_machine(rx) => lines("", tx).to_vec(),
        // Two machines without a name, of which the same is shown.
        [tx, rx] if tx.machine == rx.machine && lines("", tx) == lines("", rx) => {
            lines("", tx).to_vec()
        }
        [tx, rx] => [lines("sender: ", tx), lines("receiver: ", rx)].concat(),
        _ => Vec::new(),
    }
}

/// Returns a kernel, with its boot time if it was booted for the study.
fn kernel(facts: &Facts) -> String {
    let booted = facts.booted.map(|time| format!(", up after {} s", number(time, 1)));
    format!("{} {}{}", facts.kernel_release, facts.architecture, booted.unwrap_or_default())
}

/// Returns each kernel of the study, then the machine, which is the same for all.
fn kernels(named: &[KernelHosts], facts: &[Facts]) -> Vec<(&'static str, String)> {
    let line = |hosts: &KernelHosts| {
        let Kernel { name, cmdline, .. } = &hosts.kernel;
        let is = match hosts.facts.as_slice() {
            [tx, rx] if tx.kernel_release != rx.kernel_release => {
                format!("sender on {}, receiver on {}", kernel(tx), kernel(rx))
            }
            facts => facts.first().map_or_else(String::new, kernel),
        };
        let added = if cmdline.is_empty() { String::new() } else { format!(", with {cmdline}") };
        ("kernel", format!("{name}: {is}{added}"))
    };
    let machine = hosts(facts).into_iter().filter(|(name, _)| *name == "machine");
    named.iter().map(line).chain(machine).collect()
}

/// Returns the link between the hosts, if the testbed reports it: "taps, 2 queues, vhost on".
fn wire(facts: &Facts) -> Option<String> {
    let wire = of_link(facts, "wire")?;
    let queues = of_link(facts, "queues").and_then(|queues| queues.parse().ok());
    let queues = queues.map(|queues| format!(", {}", plural(queues, "queue")));
    let vhost = of_link(facts, "vhost").map(|vhost| format!(", vhost {vhost}"));
    Some(format!("{wire}{}{}", queues.unwrap_or_default(), vhost.unwrap_or_default()))
}

fn of_link<'a>(facts: &'a Facts, name: &str) -> Option<&'a str> {
    facts.setting(&format!("link.{name}"))
}

/// Returns the route between separate hosts: "sender by eth0, packets up to 1500; receiver by ...".
fn route(facts: &[Facts]) -> Option<String> {
    let end = |(role, facts): (Role, &Facts)| {
        let (route, mtu) = (of_link(facts, "route")?, of_link(facts, "mtu.path")?);
        Some(format!("{role} by {route}, packets of up to {mtu} bytes"))
    };
    let ends: Option<Vec<String>> = Role::ALL.into_iter().zip(facts).map(end).collect();
    Some(ends?.join("; ")).filter(|text| !text.is_empty())
}

/// Returns the value that all cells share; `None` if they differ.
pub(crate) fn common<'a, T: PartialEq>(
    cells: &[&'a Cell],
    part: impl Fn(&'a Cell) -> &'a T,
) -> Option<&'a T> {
    let first = part(cells.first()?);
    cells.iter().all(|c| part(c) == first).then_some(first)
}

/// Returns the factors of the experiment with more than one level: `mtu: 1500, 9000`.
fn varied(cells: &[&Cell]) -> String {
    let mut factors: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (factor, level) in cells.iter().flat_map(|cell| &cell.levels) {
        let levels = factors.entry(factor).or_default();
        if !levels.contains(&level.as_str()) {
            levels.push(level);
        }
    }
    let several = factors.iter().filter(|(_, levels)| levels.len() > 1);
    joined(several.map(|(f, levels)| format!("{f}: {}", levels.join(", "))), "; ")
}

fn varies() -> String {
    "differs between rows".into()
}

fn link(l: &LinkSettings) -> String {
    let flag = |on: bool| if on { "on" } else { "off" };
    if let Some(requested) = &l.asked {
        return match requested.is_empty() {
            true => "the link as found".into(),
            false => format!("the link as found, but for {}", pairs(requested)),
        };
    }
    let cut =
        if l.tso || l.descriptors().is_some() { "" } else { " (no packet larger than the MTU)" };
    let mut text =
        format!("link {}: MTU {}, TSO {}{cut}, GRO {}", l.preset, l.mtu, flag(l.tso), flag(l.gro));
    if l.adapters > 1 {
        text += &format!(", {} adapters", l.adapters);
    }
    let qdisc = if l.qdisc == "none" { "noqueue" } else { &l.qdisc };
    let parts = [
        l.gso_max.map(|size| format!(", largest GSO packet {size}")),
        l.gro_max.map(|size| format!(", largest GRO packet {size}")),
        l.descriptors().map(|tap| format!(", {}", plural(tap.queues.into(), "queue"))),
        l.tap.map(|tap| format!(", back-pressure {}", flag(tap.backpressure))),
        l.tap.filter(|tap| tap.guest).map(|tap| format!(", vhost-net {}", flag(tap.vhost))),
        l.tap.filter(|tap| tap.vnet_header).map(|_| ", virtio-net header".into()),
        l.tap.filter(|tap| tap.uso).map(|_| ", messages uncut".into()),
        l.netem.map(on_its_way),
        (l.tap.is_some() || l.queue_length.is_some()).then(|| format!(", qdisc {qdisc}")),
        l.queue_length.map(|packets| format!(", queue length {packets}")),
        l.wmem.map(|most| format!(", send buffers grow to {} at most", bytes(most.into()))),
        l.threaded_napi.then(|| ", threaded NAPI (a kernel thread receives)".into()),
        l.rps.map(|cpu| format!(", RPS to CPU {cpu}")),
    ];
    text.extend(parts.into_iter().flatten());
    text
}

fn on_its_way(Netem { delay, rate, loss, reorder }: Netem) -> String {
    let parts = [
        (delay > 0).then(|| format!(", {delay} us each way")),
        rate.map(|rate| format!(", {rate} Mbit/s")),
        (loss > 0).then(|| format!(", {loss} of a million packets lost")),
        (reorder > 0).then(|| format!(", {reorder} of a million overtake others")),
    ];
    parts.into_iter().flatten().collect()
}

/// Returns the workload, and the contract of its connections.
fn workload(cells: &[&Cell]) -> Vec<(&'static str, String)> {
    let stream = |c: &Cell| c.workload.name == Activity::default().name;
    let frames = |c: &Cell| c.workload.name == "packets";
    let contract = |all| match common(cells, |c| &c.stream) {
        // Frames have no connections.
        Some(s) if cells.iter().all(|c| frames(c)) => {
            format!("{}, {}", plural(s.flows.into(), "generating thread"), touch(s.touch))
        }
        Some(s) => connections(s, all),
        None => varies(),
    };
    if cells.iter().all(|c| stream(c)) {
        return vec![("stream", contract(true))];
    }
    let done = common(cells, |c| &c.workload).map_or_else(varies, |activity| {
        format!("{}: {}", activity.name, pairs(&activity.options.0))
    });
    vec![("workload", done), ("contract", contract(cells.iter().any(|c| stream(c))))]
}

/// Formats names and values in one line: `writer=thread, mtu=9000`.
pub(crate) fn pairs<'a, K: Display + 'a, V: Display + 'a>(
    pairs: impl IntoIterator<Item = (&'a K, &'a V)>,
) -> String {
    joined(pairs.into_iter().map(|(name, value)| format!("{name}={value}")), ", ")
}

/// Returns the contract; with message and read size if `sizes`.
fn connections(s: &Stream, sizes: bool) -> String {
    let size = |b: u64| bytes(b as f64);
    let buffers = match (s.send_buffer, s.receive_buffer) {
        (None, None) => "socket buffers autotuned".to_owned(),
        (tx, rx) => {
            let one = |b: Option<u64>| b.map_or("auto".to_owned(), size);
            format!("socket buffers {} / {}", one(tx), one(rx))
        }
    };
    let touch = touch(s.touch);
    let congestion = match s.protocol {
        Protocol::Tcp => format!(" ({})", s.congestion),
        Protocol::Udp | Protocol::Frames => String::new(),
    };
    let [message, read, memory] = [s.message_size, s.read_size, s.read_memory()].map(size);
    let messages = match sizes {
        true => format!("messages of {message}, reads of {read} into {memory} of memory, "),
        false => String::new(),
    };
    let tls = match s.tls {
        Tls::None => "",
        Tls::User => ", TLS 1.3 by the program (AES-128-GCM)",
        Tls::Kernel => ", TLS 1.3 by the kernel (AES-128-GCM)",
    };
    format!(
        "{} of {}{congestion}{tls}, {messages}{buffers}, {touch}",
        plural(s.flows.into(), "flow"),
        s.protocol,
    )
}

fn touch(touch: Touch) -> &'static str {
    match touch {
        Touch::None => "receiver does not read the payload",
        Touch::Read => "every byte read",
        Touch::Verify => "every byte verified",
    }
}

fn placement(p: &Placement) -> String {
    let place = |role| match &p.cpus(role)[..] {
        [] => "left to the scheduler".to_owned(),
        [cpu] => format!("CPU {cpu}"),
        several => format!("threads on CPUs {} in turn", joined(several, ", ")),
    };
    let mut text = match Role::ALL.map(place) {
        [tx, rx] if tx == rx && p.cpus(Role::Sender).is_empty() => tx,
        [tx, rx] => format!("sender {tx}, receiver {rx}"),
    };
    for (part, softirq) in [("sender's softirq", p.sender_softirq), ("softirq", p.softirq)] {
        text += &match softirq {
            SoftirqCpu::Link => String::new(),
            SoftirqCpu::Free => format!(", {part} left to the scheduler"),
            SoftirqCpu::Cpu(cpu) => format!(", {part} CPU {cpu}"),
            SoftirqCpu::Turns(cpus) => {
                format!(", {part} of adapters on CPUs {} in turn", joined(cpus.cpus(), ", "))
            }
        };
    }
    for (part, cpu) in [("io-wq", p.io_wq), ("vhost", p.vhost)] {
        text += &cpu.map(|cpu| format!(", {part} CPU {cpu}")).unwrap_or_default();
    }
    text
}

/// Returns the settings made on the host for the study, and those that could not be made.
fn settings(records: &[SettingRecord]) -> Vec<(&'static str, String)> {
    let (skipped, made): (Vec<_>, Vec<_>) = records.iter().partition(|r| r.skipped.is_some());
    let (so, set): (Vec<_>, Vec<_>) = made.into_iter().partition(|r| r.before == r.after);
    let line = |name, lead: &str, records: Vec<&SettingRecord>| {
        (!records.is_empty()).then(|| (name, format!("{lead}{}", joined(records, "; "))))
    };
    let lines = [
        line("settings", "made for the study and restored: ", set),
        line("found so", "", so),
        line("not set", "", skipped),
    ];
    lines.into_iter().flatten().collect()
}

/// Returns the settings made on NICs for each cell's trials. Every trial has its own record; the
/// first represents all.
fn prepared(study: &Study) -> Option<(&'static str, String)> {
    let of = |cell: &Cell| {
        let ran = |t: &&Trial| t.cell == cell.id && !matches!(t.status, Unavailable { .. });
        let mut trials = study.trials.iter().chain(&study.profiles).filter(ran).peekable();
        trials.peek()?;
        let first = trials.find(|trial| !trial.prepared.is_empty());
        let made = first.into_iter().flat_map(|trial| &trial.prepared).map(ToString::to_string);
        Some((cell.id.to_string(), made.collect()))
    };
    let cells: Vec<(String, Vec<String>)> = study.header.cells.iter().filter_map(of).collect();
    if cells.iter().all(|(_, made)| made.is_empty()) {
        return None;
    }
    let (everywhere, specific) = by_cells(&cells);
    let specific = specific.iter();
    let specific =
        specific.map(|(cells, all)| format!("for {}: {}", cells.join(", "), all.join("; ")));
    let parts = (!everywhere.is_empty()).then(|| everywhere.join("; ")).into_iter().chain(specific);
    let text = joined(parts, ". ");
    Some(("prepared", format!("made before each trial and restored after it: {text}")))
}

/// Texts that only some cells have: the cells' names, and the texts.
type Specific<'a> = (Vec<&'a str>, Vec<&'a str>);

/// Splits texts into those that all cells have, and those of some, grouped by cells with the same.
pub fn by_cells(cells: &[(String, Vec<String>)]) -> (Vec<&str>, Vec<Specific<'_>>) {
    let everywhere = |text: &&str| cells.iter().all(|(_, all)| all.iter().any(|t| t == text));
    let first = cells.first().into_iter().flat_map(|(_, all)| all.iter().map(String::as_str));
    let common: Vec<&str> = first.filter(everywhere).collect();
    let specific = cells.iter().map(|(cell, all)| {
        let specific = all.iter().map(String::as_str).filter(|text| !common.contains(text));
        (specific.collect::<Vec<_>>(), cell.as_str())
    });
    let groups = grouped(specific.filter(|(texts, _)| !texts.is_empty())).into_iter();
    let groups = groups.map(|(texts, cells)| (cells, texts)).collect();
    (common, groups)
}

fn ceiling(c: &CopyCeiling) -> String {
    let terms = Work::Bytes.terms();
    let rate = |r: f64| format!("{} {}", number(r * terms.rate_scale, 0), terms.rate_unit);
    format!(
        "one core copies {} with buffers of {} (the table's ceiling), {} with {}",
        rate(c.workload),
        bytes(c.workload_size as f64),
        rate(c.memory),
        bytes(c.memory_size as f64),
    )
}

/// Formats seconds for people: `3 s`, `0.5 s`.
pub(crate) fn seconds(s: f64) -> String {
    Duration::try_from_secs_f64(s).map_or_else(|_| NONE.into(), unit::seconds).replace('s', " s")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_without_a_name_are_shown_as_two_where_they_differ() {
        let host = |machine: &str, kernel: &str| Facts {
            machine: machine.into(),
            kernel_release: kernel.into(),
            ..Facts::default()
        };
        let shown = |tx: Facts, rx: Facts| hosts(&[tx, rx]).len();
        assert_eq!(shown(host("", "6.1"), host("", "7.0")), 4);
        assert_eq!(shown(host("", "6.1"), host("", "6.1")), 2);
        assert_eq!(shown(host("a", "6.1"), host("b", "6.1")), 4);
        assert_eq!(shown(host("a", "6.1"), host("a", "6.1")), 2);
    }
}
