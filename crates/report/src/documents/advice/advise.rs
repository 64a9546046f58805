//! Estimates what an observed program would spend if it moved its bytes in other ways, from a study
//! of the same host. Nothing is extrapolated: if the study has not measured what the program does,
//! the answer is a refusal with its reason.

use super::loops::{ServerAdvice, loops};
use super::server::Server;
use crate::wording::figures::{bytes, level, plural, three};
use bytepath_record::unit::GIB;
use bytepath_record::{
    Cell, Observation, ObservedSocket, Role, Study, Traffic, Trial, TrialStatus, Way, joined,
};
use bytepath_stats::{Costs, Difference, Summary, Weight, host_differences};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::{BTreeMap, BTreeSet};

/// Largest factor between the bytes per call of the program and those of a cell.
pub(super) const NEAR: f64 = 2.0;
/// Least bytes in one direction for advice.
pub(super) const LEAST: u64 = 64 << 20;
/// A direction with less than this share of the other direction's bytes is left out.
const BESIDES: f64 = 0.01;
/// Least share of a direction's bytes that one kind of call must move to represent it.
const MOST_BYTES: f64 = 0.9;
/// The flows of a direction are the connections that carry this share of its bytes.
const FLOWS: f64 = 0.95;
/// Share of the time that a thread must be on a CPU for CPU time to be what limits it.
const CPU_BOUND: f64 = 0.9;

/// What the figures of a study of servers do not include.
const OWN_WORK: &str = "The study's server does nothing but receive and answer: what the program \
                        itself does for a request comes on top, by any loop.";

/// Advice for each direction, or refusals.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Advice {
    /// `bytepath-advice`.
    pub format: &'static str,
    pub command: Vec<String>,
    /// The answer in one sentence.
    pub first: String,
    /// The directions in which the program moved bytes over TCP.
    pub directions: Vec<DirectionAdvice>,
    /// Other event loops, if it is a server with many connections.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server: Option<ServerAdvice>,
    /// Why there is no advice, or none for a direction.
    pub refused: Vec<Refusal>,
    /// If there is no advice, the arguments of the `bytepath` command that would measure it: `run`,
    /// `-l`, `128K`; empty if none would.
    pub measurement: Vec<String>,
    /// Remarks for the reader of the figures.
    pub remarks: Vec<String>,
}

/// A part of the question without advice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// The subject: a direction, the server's work, a cell of the study, or everything.
    pub what: String,
    pub reason: String,
}

/// Bytes in one direction, and alternatives for them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DirectionAdvice {
    /// The program's role in this direction.
    pub role: Role,
    /// The calls it makes.
    pub calls: &'static str,
    /// The bytepath path that makes the same calls.
    pub path: String,
    /// Bytes moved.
    pub bytes: u64,
    /// Average bytes per call.
    pub bytes_per_call: f64,
    /// Connections that carried 95 % of the bytes.
    pub flows: usize,
    /// The cell of the study that represents the program.
    pub cell: String,
    /// Average bytes per call in that cell.
    pub cell_bytes_per_call: f64,
    /// Flows in that cell.
    pub cell_flows: u32,
    /// Alternatives, those that save most first.
    pub options: Vec<Alternative>,
    /// Cells that cannot be compared.
    pub refused: Vec<Refusal>,
}

/// An alternative for the same bytes.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Alternative {
    /// The cell of the study that measured it.
    pub cell: String,
    pub path: String,
    /// The calls it makes.
    pub calls: &'static str,
    /// CPU seconds per GiB of the program's role, as means: now, and with this alternative.
    pub cpu_per_gib: [f64; 2],
    /// CPU seconds saved per GiB: mean and interval of the block-by-block differences.
    pub saved_per_gib: MeanRange,
    /// CPU seconds saved over all of the program's bytes in this direction.
    pub saved: MeanRange,
    /// Whether the interval excludes zero.
    pub shown: bool,
    /// Seconds saved over all of the bytes; `None` if the program was not limited by CPU time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_saved: Option<MeanRange>,
    /// The basis of the figures.
    pub basis: String,
}

/// A mean and its interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct MeanRange {
    pub mean: f64,
    pub low: f64,
    pub high: f64,
}

/// Compares what a program did with a study.
pub fn advise(observed: &Observation, study: &Study) -> Advice {
    let (mut directions, mut refused) = (Vec::new(), Vec::new());
    let server = Server::of(observed);
    let mut answer = None;
    let remarks = same_host(observed, study).map(|mut remarks| {
        for role in Role::ALL {
            match direction(observed, study, role) {
                Ok(direction) => directions.extend(direction),
                // A server's messages are not a stream: loops are compared instead.
                Err(_) if server.is_some() => {}
                Err(reason) => refused.push(Refusal { what: role_words(role).into(), reason }),
            }
        }
        match server.as_ref().map(|server| loops(observed, study, server)) {
            Some(Ok(loops)) => {
                remarks.push(OWN_WORK.into());
                answer = Some(loops);
            }
            Some(Err(reason)) => refused.push(Refusal { what: "served".into(), reason }),
            None => {}
        }
        let mut options =
            directions.iter().flat_map(|direction: &DirectionAdvice| &direction.options);
        if options.any(|option| option.time_saved.is_none()) {
            remarks.push(
                "No time is predicted, only CPU time: no thread of the program was on a CPU for \
                 90 % of the time: it waited, for a CPU or for something else."
                    .into(),
            );
        }
        remarks
    });
    let mut remarks = remarks.unwrap_or_else(|reason| {
        refused.push(Refusal { what: "all".into(), reason });
        Vec::new()
    });
    let unanswered = server.as_ref().filter(|_| answer.is_none());
    remarks.extend(unanswered.map(Server::note));
    let is_open = unanswered.is_some() || directions.is_empty() && answer.is_none();
    let measurement = if is_open { measurement(observed) } else { Vec::new() };
    Advice {
        format: "bytepath-advice",
        command: observed.command.clone(),
        first: answer.as_ref().map_or_else(|| first(&directions, &refused), ServerAdvice::first),
        directions,
        server: answer,
        refused,
        measurement,
        remarks,
    }
}

/// Returns the arguments of a `bytepath run` whose study would have the program's calls, bytes per
/// call and number of flows, or for a server its connections and messages; empty if there is none.
pub fn measurement(observed: &Observation) -> Vec<String> {
    if let Some(server) = Server::of(observed) {
        return server.measurement();
    }
    let of = |role: Role| {
        let traffic = traffic(observed, role);
        let moved = moved(traffic);
        let way = main_way(traffic, moved).ok().filter(|_| moved >= LEAST)?;
        let known =
            words(role, &way.path) != OTHER && !["discard", "userspace"].contains(&&*way.path);
        known.then_some((role, way))
    };
    let ways: Vec<(Role, &Way)> = Role::ALL.into_iter().filter_map(of).collect();
    let Some(most) = ways.iter().max_by_key(|(_, way)| way.bytes) else { return Vec::new() };
    let (flows, loopback) = flows(observed, most.0);
    let mut words = vec!["run".to_owned()];
    let mut add = |option: &str, value: String| words.extend([option.to_owned(), value]);
    if flows > 1 {
        add("-P", flows.to_string());
    }
    for (role, way) in ways {
        let size = kibibytes(way);
        match role {
            Role::Sender => add("-l", size),
            Role::Receiver => add("--stream", format!("read-size={size}")),
        }
    }
    if loopback.is_some() {
        add("--link", NEAR_LOOPBACK.into());
    }
    words
}

/// Returns the bytes per call, rounded to the nearest power of two, at least 1 KiB and at most 16
/// MiB.
fn kibibytes(way: &Way) -> String {
    let per_call = way.bytes as f64 / way.calls.max(1) as f64;
    let exponent = (per_call / 1024.0).log2().round().clamp(0.0, 14.0) as u32;
    format!("{}K", 1u64 << exponent)
}

/// The link preset most like the loopback device: packets of 64 KiB cross without being split.
const NEAR_LOOPBACK: &str = "offload";

fn traffic(observed: &Observation, role: Role) -> &Traffic {
    match role {
        Role::Sender => &observed.sent,
        Role::Receiver => &observed.received,
    }
}

/// Checks that both were made on the same machine and kernel; returns remarks on other differences.
fn same_host(observed: &Observation, study: &Study) -> Result<Vec<String>, String> {
    let host = observed.host.as_ref();
    let host = host.ok_or("the observation does not record its host; observe again")?;
    let other = study.header.facts.first();
    let other = other.ok_or("the study does not record its host; run it again")?;
    if study.header.functional.is_some() {
        return Err("the study is functional: its figures are of no real machine".into());
    }
    let mut differences = host_differences(host, other);
    // The user, and the program's CPUs, do not characterise the host.
    differences.retain(|d| !matches!(d.what.as_str(), "user" | "CPUs"));
    // The host's devices do not exist in the study's own namespaces.
    let is_absent = |d: &&Difference| [&d.first, &d.second].into_iter().any(|v| v == "not there");
    let (fatal, mild): (Vec<_>, Vec<_>) = differences.iter().partition(|d| {
        let kernel = matches!(d.what.as_str(), "kernel" | "kernel build" | "page size");
        d.weight == Weight::Machine || kernel
    });
    let listed = |differences: Vec<&Difference>| {
        let texts =
            differences.iter().map(|d| format!("{} ({} and {})", d.what, d.first, d.second));
        joined(texts, ", ")
    };
    if !fatal.is_empty() {
        return Err(format!(
            "observation and study are of different hosts or kernels: {}; run the study here",
            listed(fatal)
        ));
    }
    let mut remarks = Vec::new();
    let mild: Vec<&Difference> = mild.into_iter().filter(|d| !is_absent(d)).collect();
    if !mild.is_empty() {
        remarks.push(format!("Settings differ between observation and study: {}.", listed(mild)));
    }
    remarks.push(format!(
        "The study's connections ran over its own link (testbed {}); a link with another MTU or \
         other offloads has other costs (the loopback device a little less), and zero-copy sends \
         are copied on the way to a program on the same host.",
        study.header.testbed
    ));
    Ok(remarks)
}

/// Returns the advice for one direction; `None` if nothing, or hardly anything, was moved that way.
fn direction(
    observed: &Observation,
    study: &Study,
    role: Role,
) -> Result<Option<DirectionAdvice>, String> {
    let traffic = traffic(observed, role);
    let [moved, larger] = [moved(traffic), moved(&observed.sent).max(moved(&observed.received))];
    // For example requests, if the responses matter.
    if (moved as f64) < BESIDES * larger as f64 || moved == 0 {
        return Ok(None);
    }
    if moved < LEAST {
        return Err(format!(
            "only {} were moved; below {} setting up connections counts for more",
            bytes(moved as f64),
            bytes(LEAST as f64)
        ));
    }
    let way = main_way(traffic, moved)?;
    let (flows, loopback) = flows(observed, role);
    if let Some(remote) = loopback.filter(|_| !study.header.cells.iter().all(is_near_loopback)) {
        return Err(format!(
            "the bytes went over the loopback device (to {remote}), which the study's link is not: \
             --link {NEAR_LOOPBACK} is nearest"
        ));
    }
    let per_call = way.bytes as f64 / way.calls.max(1) as f64;
    let now = nearest(study, role, way, per_call, flows)?;
    let mut direction = DirectionAdvice {
        role,
        calls: words(role, &way.path),
        path: way.path.clone(),
        bytes: way.bytes,
        bytes_per_call: per_call,
        flows,
        cell: now.cell.id.0.clone(),
        cell_bytes_per_call: now.per_call,
        cell_flows: now.cell.flows(role),
        options: Vec::new(),
        refused: Vec::new(),
    };
    let others: Vec<&Cell> =
        study.header.cells.iter().filter(|cell| is_alternative(now.cell, cell, role)).collect();
    // Bonferroni: all intervals together hold at the study's confidence.
    let error = (1.0 - study.header.judgement.confidence) / others.len().max(1) as f64;
    for cell in others {
        match alternative(observed, study, &direction, now.cell, cell, 1.0 - error) {
            Ok(option) => direction.options.push(option),
            Err(reason) => direction.refused.push(Refusal { what: cell.id.0.clone(), reason }),
        }
    }
    direction.options.sort_by(|a, b| b.saved.mean.total_cmp(&a.saved.mean));
    if direction.options.is_empty() && direction.refused.is_empty() {
        return Err(format!("the study has nothing else to compare '{}' with", direction.cell));
    }
    Ok(Some(direction))
}

/// Returns the bytes of one direction.
pub(super) fn moved(traffic: &Traffic) -> u64 {
    traffic.ways.iter().map(|way| way.bytes).fold(0, u64::saturating_add)
}

/// Returns the kind of call that represents all of a direction's bytes.
fn main_way(traffic: &Traffic, moved: u64) -> Result<&Way, String> {
    let main = traffic.ways.iter().max_by_key(|way| way.bytes);
    main.filter(|way| way.bytes as f64 >= MOST_BYTES * moved as f64).ok_or_else(|| {
        let ways = traffic.ways.iter();
        let ways = ways.map(|way| format!("{} by {}", bytes(way.bytes as f64), way.path));
        format!(
            "the program used several mechanisms ({}); a study cell covers exactly one",
            joined(ways, ", ")
        )
    })
}

/// Returns the number of connections that carried nearly all bytes, and the remote address of one
/// that used the loopback device, if any did.
fn flows(observed: &Observation, role: Role) -> (usize, Option<&str>) {
    let of = |socket: &ObservedSocket| match role {
        Role::Sender => socket.sent,
        Role::Receiver => socket.received,
    };
    let mut sockets: Vec<&ObservedSocket> =
        observed.sockets.iter().filter(|socket| socket.kind == "tcp").collect();
    sockets.sort_by_key(|socket| std::cmp::Reverse(of(socket)));
    let all: u64 = sockets.iter().map(|socket| of(socket)).fold(0, u64::saturating_add);
    let (mut sum, mut flows, mut loopback) = (0u64, 0, None);
    for socket in sockets {
        if sum as f64 >= FLOWS * all as f64 {
            break;
        }
        let remote = socket.remote.as_deref().unwrap_or_default();
        if remote.starts_with("127.") || remote.starts_with("[::1]") {
            loopback = Some(remote);
        }
        sum = sum.saturating_add(of(socket));
        flows += 1;
    }
    (flows, loopback)
}

fn is_near_loopback(cell: &Cell) -> bool {
    cell.link.preset == NEAR_LOOPBACK
}

/// A cell that represents the program.
#[derive(Clone, Copy)]
struct NearestCell<'a> {
    cell: &'a Cell,
    per_call: f64,
}

fn nearest<'a>(
    study: &'a Study,
    role: Role,
    way: &Way,
    per_call: f64,
    flows: usize,
) -> Result<NearestCell<'a>, String> {
    let calls = words(role, &way.path);
    let cells = study.header.cells.iter();
    let same = cells.filter(|cell| is_stream(cell) && cell.half(role).path == way.path);
    let same: Vec<NearestCell> = same
        .filter_map(|cell| Some(NearestCell { cell, per_call: per_call_of(study, cell, role)? }))
        .collect();
    if same.is_empty() {
        return Err(format!(
            "the study has no valid trial of {calls} (path '{}'), so there is nothing to compare \
             with",
            way.path
        ));
    }
    let listed = |all: BTreeSet<String>| joined(all, ", ");
    let with_flows = same.iter().filter(|now| now.cell.flows(role) as usize == flows);
    let with_flows: Vec<NearestCell> = with_flows.copied().collect();
    if with_flows.is_empty() {
        let measured = listed(same.iter().map(|now| now.cell.flows(role).to_string()).collect());
        return Err(format!(
            "{} carried the bytes, and the study has measured {calls} with {measured} only",
            plural(flows as u64, "connection")
        ));
    }
    let apart = |now: &NearestCell| (now.per_call / per_call).ln().abs();
    let nearest = with_flows.iter().copied().min_by(|a, b| {
        // Among equals, a cell without path options is more like a program.
        let options = |now: &NearestCell| now.cell.half(role).options != Default::default();
        apart(a).total_cmp(&apart(b)).then(options(a).cmp(&options(b)))
    });
    nearest.filter(|now| apart(now) <= NEAR.ln()).ok_or_else(|| {
        format!(
            "each call moved {} on average, and the study has measured {calls} with {} only",
            bytes(per_call.round()),
            listed(with_flows.iter().map(|now| bytes(now.per_call.round())).collect())
        )
    })
}

/// Returns the average bytes per call of this end; `None` if no trial counts.
fn per_call_of(study: &Study, cell: &Cell, role: Role) -> Option<f64> {
    let (mut calls, mut moved) = (0u64, 0u64);
    let mut trials = measured(study, cell).peekable();
    trials.peek()?;
    for row in trials.filter_map(|trial| trial.role(role)).flat_map(|record| &record.calls) {
        if row.bytes > 0 {
            calls = calls.saturating_add(row.calls);
            moved = moved.saturating_add(row.bytes);
        }
    }
    let requested = match role {
        Role::Sender => cell.stream.message_size,
        Role::Receiver => cell.stream.read_size,
    };
    Some(if calls > 0 { moved as f64 / calls as f64 } else { requested as f64 })
}

pub(super) fn measured<'a>(study: &'a Study, cell: &'a Cell) -> impl Iterator<Item = &'a Trial> {
    let of_cell = study.trials.iter().filter(|trial| trial.cell == cell.id);
    of_cell.filter(|trial| trial.status == TrialStatus::Measured)
}

fn is_stream(cell: &Cell) -> bool {
    cell.workload.name == "stream" && !cell.null
}

/// Returns whether a cell differs from another only in its path. A receiver that discards what
/// arrives is not an alternative for a program that needs the data.
fn is_alternative(now: &Cell, cell: &Cell, role: Role) -> bool {
    let same_task = (&cell.stream, &cell.link, cell.placement, &cell.kernel, &cell.settings)
        == (&now.stream, &now.link, now.placement, &now.kernel, &now.settings);
    is_stream(cell) && same_task && cell.half(role) != now.half(role) && cell.rx.path != "discard"
}

fn alternative(
    observed: &Observation,
    study: &Study,
    direction: &DirectionAdvice,
    now: &Cell,
    cell: &Cell,
    confidence: f64,
) -> Result<Alternative, String> {
    let role = direction.role;
    let gib = direction.bytes as f64 / GIB;
    let [before, after] = [now, cell].map(|cell| by_block(study, cell));
    if after.is_empty() {
        return Err("no trial of it was measured".into());
    }
    let pairs: Vec<(&Costs, &Costs)> =
        before.iter().filter_map(|(block, costs)| Some((costs, after.get(block)?))).collect();
    if pairs.iter().any(|(a, b)| a.rules() != b.rules()) {
        return Err("its CPU time was obtained by a different rule".into());
    }
    let of = |costs: &Costs| costs.role_per_unit(role);
    let cpu: Vec<(f64, f64)> = pairs.iter().filter_map(|(a, b)| Some((of(a)?, of(b)?))).collect();
    let range = |values: Vec<f64>, scale: f64| {
        let summary = Summary::of(values)?.at(confidence);
        let (low, high) = summary.interval?;
        Some(MeanRange { mean: summary.mean * scale, low: low * scale, high: high * scale })
    };
    let saved = |scale| range(cpu.iter().map(|(a, b)| a - b).collect(), scale);
    let too_few = || "fewer than two blocks have its CPU time and that of the other".to_owned();
    let saved_per_gib = saved(1.0).ok_or_else(too_few)?;
    let time = |costs: &Costs| 1.0 / costs.units_per_second();
    let times = pairs.iter().map(|(a, b)| time(a) - time(b)).collect();
    let mean = |values: Vec<f64>| Summary::of(values).map_or(0.0, |summary| summary.mean);
    let (mine, others): (Vec<f64>, Vec<f64>) = cpu.iter().copied().unzip();
    let cpu_per_gib = [mine, others].map(mean);
    let peer = |cell: &Cell| cell.half(role.peer()).path.clone();
    let mut basis = format!(
        "from cells '{}' and '{}', {}, {} confidence for all rows together; mean {} and {} CPU s \
         per GiB by the {}",
        now.id,
        cell.id,
        plural(cpu.len() as u64, "block"),
        level(study.header.judgement.confidence),
        three(cpu_per_gib[0]),
        three(cpu_per_gib[1]),
        role
    );
    if peer(now) != peer(cell) {
        basis += &format!("; the other end differed, too: '{}' and '{}'", peer(now), peer(cell));
    }
    Ok(Alternative {
        cell: cell.id.0.clone(),
        path: cell.half(role).path.clone(),
        calls: words(role, &cell.half(role).path),
        cpu_per_gib,
        saved_per_gib,
        saved: saved(gib).ok_or_else(too_few)?,
        shown: saved_per_gib.low > 0.0 || saved_per_gib.high < 0.0,
        time_saved: is_cpu_bound(observed).then(|| range(times, gib)).flatten(),
        basis,
    })
}

pub(super) fn by_block(study: &Study, cell: &Cell) -> BTreeMap<u32, Costs> {
    measured(study, cell).map(|trial| (trial.block, Costs::of(cell, trial, None))).collect()
}

/// Returns whether a thread of the program was on a CPU nearly all of the time.
fn is_cpu_bound(observed: &Observation) -> bool {
    let alone = observed.threads.iter().filter(|thread| thread.joined == 0);
    let times = alone.filter_map(|thread| thread.time.as_ref());
    times.map(|time| time.run).fold(0.0, f64::max) >= CPU_BOUND * observed.seconds
}

pub(super) fn role_words(role: Role) -> &'static str {
    match role {
        Role::Sender => "sent",
        Role::Receiver => "received",
    }
}

/// Calls that no bytepath path makes.
const OTHER: &str = "another path";

/// Returns the calls of a path, in words.
fn words(role: Role, path: &str) -> &'static str {
    match (path, role) {
        ("socket", Role::Sender) => "write and send calls",
        ("socket", Role::Receiver) => "read and receive calls",
        ("sendfile", _) => "sendfile",
        ("splice", _) => "splice",
        ("msg-zerocopy", _) => "send calls with MSG_ZEROCOPY",
        ("tcp-zerocopy-receive", _) => "TCP_ZEROCOPY_RECEIVE",
        ("uring", _) => "io_uring",
        ("uring-zc", _) => "io_uring with zero-copy sends",
        ("zcrx", _) => "io_uring with zero-copy receive",
        ("discard", _) => "receive calls with MSG_TRUNC",
        ("devmem", _) => "devmem TCP",
        ("userspace", _) => "TCP in user space",
        _ => OTHER,
    }
}

/// Returns the answer in one sentence: the alternative that saves most, or why there is none.
fn first(directions: &[DirectionAdvice], refused: &[Refusal]) -> String {
    let best = directions.iter().filter_map(|direction| {
        let option = direction.options.iter().find(|o| o.shown && o.saved.mean > 0.0)?;
        Some((direction, option))
    });
    let best = best.max_by(|a, b| a.1.saved.mean.total_cmp(&b.1.saved.mean));
    match (best, directions.first(), refused.first()) {
        (Some((direction, option)), ..) => {
            format!("{} instead of {}: {}", option.calls, direction.calls, sentence(option))
        }
        (None, Some(_), _) => {
            "The study shows no other calls that would save CPU time, at as many \
                               bytes a call; more bytes a call were not tried."
                .into()
        }
        (None, None, Some(refusal)) => format!("No answer: {}", refusal.reason),
        (None, None, None) => "No answer: the program moved no bytes over TCP.".into(),
    }
}

pub(super) fn sentence(option: &Alternative) -> String {
    if !option.shown {
        let MeanRange { low, high, .. } = option.saved_per_gib;
        return format!(
            "no difference shown: between {} less and {} more CPU s per GiB.",
            three(high),
            three(-low)
        );
    }
    format!(
        "{} per GiB, {} over all of these bytes{}.",
        difference(option.saved_per_gib, "CPU s"),
        difference(option.saved, "CPU s"),
        match option.time_saved {
            Some(time) if time.low <= 0.0 && time.high >= 0.0 =>
                "; no difference in time shown".to_owned(),
            Some(time) => format!("; {} of time", difference(time, "s")),
            None => String::new(),
        }
    )
}

/// Formats what is saved or spent in addition: `1.8 s less (1.7 to 1.9)`.
fn difference(saved: MeanRange, unit: &str) -> String {
    let (word, sign) = if saved.mean > 0.0 { ("less", 1.0) } else { ("more", -1.0) };
    let (one, other) = (sign * saved.low, sign * saved.high);
    let (low, high) = (three(one.min(other)), three(one.max(other)));
    format!("{} {unit} {word} ({low} to {high})", three(sign * saved.mean))
}
