//! Reports, on studies made up here: what they print (snapshots; INSTA_UPDATE=always accepts
//! changes), and what they never print whatever the study is.

use crate::anything;
use crate::made_up;
use crate::profiles;
use crate::shared::{self, words};

use anything::any_study;
use bytepath::record::{
    Aggregation, CellId, Latency, Ledger, Manner, Placement, ProfileRecord, Reading, Role, Scope,
    SoftirqCpu, Study, ThreadCalls, Trial, TrialStatus, Unit,
};
use bytepath::report::{self, Style};
use bytepath::stats::{Analysis, End, Metric, PooledCall, Row, Rules, Verdict, analyse};
use bytepath::study::StudyWriter;
use made_up::{PATHS, cell, header, study, trial};
use proptest::prelude::*;
use serde_json::Value;

pub fn render(name: &str, study: &Study, style: &Style) -> String {
    String::from_utf8(shared::render(name, study, style)).unwrap()
}

fn text(study: &Study, width: usize) -> String {
    render("text", study, &Style { width, ..Style::default() })
}

pub fn row<'a>(analysis: &'a Analysis, name: &str) -> &'a Row {
    analysis.rows.iter().find(|r| r.cell.0 == name).unwrap()
}

#[test]
fn text_at_usual_widths() {
    for width in [80, 100, 120] {
        insta::assert_snapshot!(format!("text_{width}"), text(&study(), width));
    }
}

/// The same note from many cells is one warning.
#[test]
fn the_same_note_of_many_ends_is_one_warning() {
    let mut study = study();
    for record in study.trials.iter_mut().flat_map(|trial| &mut trial.roles) {
        record.notes = vec!["TCP_INFO is of 256 of the 4096 connections".into()];
    }
    let text = words(&text(&study, 100));
    assert_eq!(text.matches("TCP_INFO is of 256").count(), 1, "{text}");
    assert!(text.contains("socket sender and ") && text.contains(" more: TCP_INFO is"), "{text}");
}

/// Readings by function from made-up meters are reported per GiB by every format.
#[test]
fn functions_that_waited_or_handed_work_over_are_ranked_per_unit() {
    let mut study = study();
    let gib = f64::from(1 << 30);
    for (index, trial) in study.trials.iter_mut().enumerate() {
        let units = trial.count as f64 / gib;
        let mut add = |metric: &str, unit, value: f64, scope| {
            trial.readings.push(Reading::sum(metric, unit, value * units, scope));
        };
        let of = |name: &str| Scope::Function(name.into());
        add("locks.spin", Unit::Seconds, 0.004, Scope::Machine);
        add("locks.spin.waits", Unit::Count, 700.0, Scope::Machine);
        add("locks.spin.lock", Unit::Seconds, 0.001, of("tcp_v4_rcv"));
        add("locks.spin.lock.waits", Unit::Count, 600.0, of("tcp_v4_rcv"));
        add("locks.spin.mutex", Unit::Seconds, 0.003, of("pipe_write (net_lock)"));
        add("handoffs.wakeups", Unit::Count, 320.0, Scope::MachineOf(Role::Sender));
        let name = if index % 2 == 0 { "sock_def_readable" } else { "pollwake" };
        add("handoffs.wakeups", Unit::Count, 160.0, Scope::FunctionOf(Role::Sender, name.into()));
    }
    let details = Style { width: 100, colour: false, details: true };
    let text = words(&render("text", &study, &details));
    for line in [
        "socket all 4.0k 700 GiB",
        "socket pipe_write (net_lock), mutex 3.0k 0 GiB",
        "socket tcp_v4_rcv, lock 1.0k 600 GiB",
        "Threads woken on another CPU",
        "socket all 320 GiB",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    let html = render("html", &study, &details);
    assert!(html.contains("Spinning for locks") && html.contains("pipe_write (net_lock), mutex"));
    let csv = render("csv", &study, &details);
    assert!(csv.contains("locks.spin.lock,s,function,,,tcp_v4_rcv,"), "{csv}");
    assert!(csv.contains("handoffs.wakeups,1,function,sender,,pollwake,"));
    // They are absent if not requested.
    let without = render("text", &made_up::study(), &details);
    assert!(!without.contains("Spinning") && !without.contains("woken"));
}

/// Trials that took profiles change no figure; one line explains them.
#[test]
fn profiles_are_one_line_and_no_figure() {
    let mut study = study();
    let without = text(&study, 100);
    let record = |number: u32| ProfileRecord {
        number,
        file: format!("profiles/socket-{number}.pb.gz"),
        event: "cpu-clock".into(),
        rate: 499,
        samples: 1996,
        lost: 0,
    };
    for number in 1..=3 {
        let mut sampled = trial(&PATHS[0], number - 1, 100 + number);
        sampled.count = sampled.count / 100 * 98;
        sampled.profile = Some(record(number));
        study.profiles.push(sampled);
    }
    study.profiles[2].status = TrialStatus::Rejected { events: vec!["7 samples were lost".into()] };
    let with = text(&study, 100);
    let more: Vec<&str> = with.lines().filter(|line| !without.contains(line)).collect();
    let more = words(&more.join(" "));
    assert!(
        more.starts_with("Why Not known. 1 of 3 profiles does not count. Profiles: 2 of socket, "),
        "{more}"
    );
    let spoiled = "; 1 more do not count, the first: socket: 7 samples were lost";
    assert!(more.ends_with(spoiled), "{more}");
    let csv = |study: &Study| render("csv", study, &Style::default());
    let mut plain = study.clone();
    plain.profiles.clear();
    assert_eq!(csv(&study), csv(&plain));
}

#[test]
fn text_with_details() {
    let style = Style { width: 100, colour: false, details: true };
    insta::assert_snapshot!("text_details", render("text", &study(), &style));
}

/// Columns of a table of `perf trace -s`.
const OF_PERF_TRACE: [&str; 8] =
    ["call", "calls", "errors", "total", "min", "avg", "max", "stddev"];

/// The tables of system calls in a text, each from its heading to the next, by thread.
fn tables_of_calls(text: &str) -> Vec<(String, String)> {
    let (_, calls) = text.split_once("System calls of the engines").expect(text);
    let mut tables: Vec<(String, String)> = Vec::new();
    for line in calls.lines().take_while(|line| !line.starts_with("Transfer sizes")) {
        match line.split_once(" calls in ").filter(|_| !line.starts_with(' ')) {
            Some((head, _)) => tables.push((head.to_owned(), String::new())),
            None => {
                tables.iter_mut().last().into_iter().for_each(|(_, t)| *t += &format!("{line}\n"))
            }
        }
    }
    tables
}

#[test]
fn no_column_is_dropped_at_any_width() {
    for width in [60, 72, 100] {
        let text = render("text", &study(), &Style { width, colour: false, details: true });
        let (_, result) = text.split_once("\nResult\n").expect(&text);
        let (result, _) = result.split_once("(*) Within").expect(&text);
        for column in ["n", "sd", "tx", "rx", "interval", "verdict", "label"] {
            let is_there = result.split_whitespace().any(|word| word == column);
            assert!(is_there, "{width}: no {column} in\n{result}");
        }
    }
}

#[test]
fn no_column_of_the_calls_is_dropped_at_any_width() {
    for width in [60, 72, 80, 120] {
        let text = render("text", &study(), &Style { width, colour: false, details: true });
        assert!(text.lines().all(|line| line.len() <= width), "{width}:\n{text}");
        let tables = tables_of_calls(&text);
        assert_eq!(tables.len(), 2 * (PATHS.len() - 1), "{width}: {tables:?}");
        for (head, table) in tables {
            for column in OF_PERF_TRACE {
                let is_there = table.split_whitespace().any(|word| word == column);
                assert!(is_there, "{width}, {head}: no {column} in\n{table}");
            }
        }
    }
}

#[test]
fn a_pipe_has_every_column_of_the_calls() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = StudyWriter::create(&folder.path().join("s"), &study().header).unwrap();
    writer.append(&study().trials).unwrap();
    let path = folder.path().join("s").to_string_lossy().into_owned();
    let (code, text, error) = shared::bytepath(&["show", &path, "--details"]);
    assert_eq!(code, 0, "{error}");
    for (head, table) in tables_of_calls(&text) {
        let missing = OF_PERF_TRACE.iter().find(|c| !table.split_whitespace().any(|w| w == **c));
        assert_eq!(missing, None, "{head}:\n{table}");
    }
}

#[test]
fn threads_have_tables_of_their_own() {
    let mut study = study();
    for record in study.trials.iter_mut().flat_map(|trial| &mut trial.roles) {
        let [mut first, mut second] = [record.calls.clone(), record.calls.clone()];
        first.iter_mut().for_each(|call| call.calls = 7);
        second.iter_mut().for_each(|call| call.calls = 11);
        let tables = [first, second].into_iter().enumerate();
        let of = |(index, calls)| ThreadCalls { thread: format!("{}/{index}", record.role), calls };
        record.calls_by_thread = tables.map(of).collect();
    }
    let text = render("text", &study, &Style { width: 100, colour: false, details: true });
    let heads: Vec<String> = tables_of_calls(&text).into_iter().map(|(head, _)| head).collect();
    for head in ["socket, sender/0: 35", "socket, sender/1: 55", "socket, receiver/1: 55"] {
        assert!(heads.iter().any(|h| h == head), "{head} in {heads:?}");
    }
    let page = crate::html::page(&study);
    assert!(page.contains("sender/1") && page.contains("receiver/0"));
}

/// One of two threads is idle in some trials; then some trials have only their role's table.
#[test]
fn tables_of_threads_add_up_to_that_of_their_role() {
    let mut study = study();
    for (at, record) in study.trials.iter_mut().flat_map(|trial| &mut trial.roles).enumerate() {
        let calls = record.calls.clone();
        let idle = if at % 3 == 0 { calls.clone() } else { Vec::new() };
        record.calls.extend(idle.clone());
        let tables = [calls, idle].into_iter().enumerate();
        let of = |(index, calls)| ThreadCalls { thread: format!("{}/{index}", record.role), calls };
        record.calls_by_thread = ThreadCalls::select_tables(tables.map(of).collect());
    }
    let sums = |study: &Study| -> Vec<(u64, u64)> {
        let sum = |calls: &[PooledCall]| calls.iter().map(|call| call.row.calls).sum();
        let analysis = analyse(study, &Rules::default());
        let ends = analysis.rows.iter().flat_map(|row| [&row.sender, &row.receiver]);
        let of_threads = |end: &End| end.calls_by_thread.iter().map(|of| sum(&of.calls)).sum();
        ends.map(|end| (sum(&end.calls), of_threads(end))).collect()
    };
    let all = sums(&study);
    assert!(all.iter().all(|(role, threads)| role == threads), "{all:?}");
    assert!(all.iter().any(|(_, threads)| *threads > 0));
    for record in study.trials.iter_mut().step_by(2).flat_map(|trial| &mut trial.roles) {
        record.calls_by_thread.clear();
    }
    let mixed = sums(&study);
    assert!(mixed.iter().all(|(role, threads)| *threads == 0 || role == threads), "{mixed:?}");
}

#[test]
fn the_table_of_a_role_says_of_how_many_threads_it_is() {
    let mut study = study();
    study.header.cells.iter_mut().for_each(|cell| cell.stream.flows = 17);
    let text = render("text", &study, &Style { width: 100, colour: false, details: true });
    let heads: Vec<String> = tables_of_calls(&text).into_iter().map(|(head, _)| head).collect();
    assert!(heads[0].starts_with("socket, sender (17 threads): "), "{heads:?}");
}

/// Its losses are all that is known about a cell.
#[test]
fn a_cell_that_lost_every_exchange_has_its_row() {
    let mut study = crate::rr::study();
    let cell = study.header.cells.last().unwrap().id.clone();
    for trial in study.trials.iter_mut().filter(|trial| trial.cell == cell) {
        trial.latency = Some(Latency::default().with_unanswered(40));
    }
    let text = words(&text(&study, 120));
    let lost = format!("of {cell} brought no response");
    assert!(text.contains(&lost), "{lost} in {text}");
    let trials = study.trials.iter().filter(|trial| trial.cell == cell).count();
    assert!(text.contains(&format!("{0} of {0} exchanges of {cell}", 40 * trials)), "{text}");
    let (_, latency) = text.split_once("Latency in microseconds").expect(&text);
    assert!(latency.contains(&format!("{cell} - - - - - - - 0")), "{latency}");
}

#[test]
fn json_of_a_small_study() {
    let mut small = study();
    small
        .header
        .cells
        .retain(|c| ["socket", "socket (again)", "splice"].contains(&c.id.0.as_str()));
    small.trials.retain(|t| t.block < 2 && small.header.cells.iter().any(|c| c.id == t.cell));
    let json = render("json", &small, &Style::default());
    let mut value: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["format"], "bytepath-analysis");
    assert_eq!(value["analysis"]["schema"], 3);
    round(&mut value);
    insta::assert_json_snapshot!("json", value);
}

/// Rounds to nine significant digits: the last bits of a logarithm differ between libraries.
fn round(value: &mut Value) {
    match value {
        Value::Number(n) if n.is_f64() => {
            let short: f64 = format!("{:.8e}", n.as_f64().unwrap()).parse().unwrap();
            *value = short.into();
        }
        Value::Array(all) => all.iter_mut().for_each(round),
        Value::Object(all) => all.values_mut().for_each(round),
        _ => {}
    }
}

#[test]
fn lines_of_version_1_stay_readable() {
    let lines = include_str!("../data/studies/v1/trials.jsonl");
    let mut trials = Vec::new();
    for line in lines.lines() {
        let trial: Trial = serde_json::from_str(line).unwrap();
        let before: Value = serde_json::from_str(line).unwrap();
        let mut after = serde_json::to_value(&trial).unwrap();
        to_version_1(&mut after);
        assert_eq!(after, before, "nothing is lost in reading");
        trials.push(trial);
    }
    let cells = vec![
        cell("socket", "socket", "socket"),
        cell("splice", "splice", "tcp-zerocopy-receive"),
        cell("zcrx", "uring-zc", "zcrx"),
    ];
    let old = Study { header: header(cells), trials, profiles: Vec::new(), remarks: Vec::new() };
    insta::assert_snapshot!("text_v1", text(&old, 100));
}

/// Removes from a trial in the present format what version 1 did not have.
fn to_version_1(trial: &mut Value) {
    let rename = |record: &mut Value| {
        let count = record.as_object_mut().unwrap().remove("count").unwrap();
        record["window_bytes"] = count;
    };
    rename(trial);
    assert_eq!(trial.as_object_mut().unwrap().remove("work").unwrap(), "bytes");
    trial["roles"].as_array_mut().unwrap().iter_mut().for_each(rename);
    for reading in trial["readings"].as_array_mut().unwrap() {
        assert!(reading.as_object_mut().unwrap().remove("aggregation").unwrap().is_string());
    }
}

/// A real study written by the first edition: every format renders it, with the figures of its own
/// trials.
#[test]
fn a_study_of_the_first_edition_renders_for_ever() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/studies/first-edition");
    let study = bytepath::study::load(std::path::Path::new(folder)).unwrap();
    let lines = include_str!("../data/studies/first-edition/trials.jsonl").lines();
    let mut by_cell: std::collections::BTreeMap<String, Vec<f64>> = Default::default();
    for line in lines {
        let trial: Value = serde_json::from_str(line).unwrap();
        assert_eq!(trial["schema"], 1);
        let [bytes, window] = ["window_bytes", "window"].map(|name| trial[name].as_f64().unwrap());
        let cell = trial["cell"].as_str().unwrap().to_owned();
        by_cell.entry(cell).or_default().push(bytes * 8.0 / window / 1e9);
    }
    let shown = ["socket", "splice"].map(|cell| {
        let rates = &by_cell[cell];
        assert_eq!(rates.len(), 2);
        format!("{:.2}", rates.iter().sum::<f64>() / 2.0)
    });
    let analysis = analyse(&study, &Rules::of(&study.header));
    for report in report::CATALOG {
        let mut out = Vec::new();
        let subject = report::Subject::of(&study, &analysis, None);
        report.render(&subject, &Style { details: true, ..Style::default() }, &mut out).unwrap();
        assert!(!out.is_empty());
        if ["text", "netdev", "html"].contains(&report.name) {
            let said = String::from_utf8(out).unwrap();
            assert!(said.contains("Gbit/s") && said.contains("GiB"), "{}", report.name);
            for figure in &shown {
                assert!(said.contains(figure), "{} lacks {figure}: {said}", report.name);
            }
        } else if report.name == "csv" {
            let said = String::from_utf8(out).unwrap();
            assert_eq!(said.matches(",throughput,bit/s,trial,").count(), by_cell.len() * 2);
        }
    }
    // Readings are added up as then, though their records do not contain the rule.
    let reading = |metric: &str| {
        let mut all = study.trials.iter().flat_map(|t| &t.readings);
        all.find(|r| r.metric == metric).unwrap().aggregation
    };
    assert_eq!((reading("tcp.cwnd"), reading("cpu.busy")), (Aggregation::Mean, Aggregation::Sum));
}

#[test]
fn a_newer_study_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let study = study();
    bytepath::study::StudyWriter::create(folder.path(), &study.header).unwrap();
    let mut newer = serde_json::to_value(&study.trials[0]).unwrap();
    newer["schema"] = 3.into();
    std::fs::write(folder.path().join("trials.jsonl"), format!("{newer}\n")).unwrap();
    let fault = bytepath::study::load(folder.path()).unwrap_err();
    assert!(fault.to_string().contains("has schema 3; this bytepath reads up to 2"), "{fault}");
}

/// A receiver that discards bytes is not compared, and never called zero-copy.
#[test]
fn bytes_that_were_discarded_are_named_in_every_report() {
    let mut study = study();
    for trial in study.trials.iter_mut().filter(|t| t.cell.0 == "splice") {
        let bytes = trial.roles[1].ledger.delivered;
        let mut ledger = Ledger::default();
        ledger.enter(Manner::Discarded, bytes, 1000, "recv(2) with MSG_TRUNC");
        trial.roles[1].ledger = ledger;
        let [tx, rx] = [&trial.roles[0].ledger, &trial.roles[1].ledger];
        trial.label = bytepath::workload::label(trial.work, tx, rx);
    }
    let analysis = analyse(&study, &Rules::default());
    let splice = row(&analysis, "splice");
    assert_eq!(splice.labels[0].text, "send zero-copy, receive discarded");
    for question in [Metric::Rate, Metric::Cpu] {
        let comparison = splice.comparison(question).unwrap();
        assert_eq!(comparison.verdict, Verdict::NotComparable);
        let why = "the receiver delivers the bytes in socket and discards them here";
        assert_eq!(comparison.reasons, [why]);
    }
    for report in ["text", "netdev", "html", "csv", "json"] {
        assert!(render(report, &study, &Style::default()).contains("discarded"), "{report}");
    }
    assert!(words(&text(&study, 100)).contains("100% discarded (recv(2) with MSG_TRUNC:"));
}

#[test]
fn the_numbers_are_those_of_the_trials() {
    let analysis = analyse(&study(), &Rules::default());
    let socket = row(&analysis, "socket");
    // 28.1, 27.6, 28.4, 27.9, 28.2 Gbit/s: mean 28.04, s 0.30496; a ceiling of 11.9 GB/s.
    let rate = socket.rate.unwrap();
    assert!((rate.mean * 8e-9 - 28.04).abs() < 1e-6);
    assert!((rate.stddev.unwrap() * 8e-9 - 0.304_959).abs() < 1e-5);
    assert!((socket.ceiling_share.unwrap() - 28.04 / 8.0 / 11.9).abs() < 1e-6);
    // The sender's CPU is busy for 0.91 of the time, and a GiB takes 8.5899 / 28.04 s.
    let cost = socket.sender.cpu.as_ref().unwrap();
    assert!((cost.total.mean - 0.91 * 8.589_935 / 28.04).abs() < 1e-4, "{cost:?}");
    let parts = cost.user + cost.system + cost.softirq + cost.unsplit;
    assert!((parts - cost.total.mean).abs() < 1e-12);
    assert!((cost.user / cost.total.mean - 0.010 / 0.91).abs() < 1e-9);
    assert!((socket.roi.sender.unwrap().mean - 28.04 * 28.04 / 0.91).abs() < 0.2);
    assert!((socket.roi.total.unwrap().mean - 28.04 * 28.04 / (0.91 + 0.891)).abs() < 0.1);
    // 10120 calls in 3 s at 28.04 Gbit/s, or 9.793 GiB.
    let calls = socket.receiver.calls_per_unit.unwrap().mean;
    assert!((calls - 10_120.0 / (28.04 / 8.0 * 3.0 / 1.073_741_824)).abs() < 0.3, "{calls}");
    assert_eq!(socket.retransmits, Some(0.0));
    let splice = row(&analysis, "splice");
    assert!((splice.receiver.ledger.as_ref().unwrap().not_copied - 0.973).abs() < 1e-6);
    assert!((splice.receiver.cpu.as_ref().unwrap().other - 0.091 / 0.891).abs() < 1e-6);
}

#[test]
fn each_row_has_the_word_it_earned() {
    let analysis = analyse(&study(), &Rules::default());
    let words: Vec<_> = analysis
        .rows
        .iter()
        .map(|r| (r.cell.0.as_str(), r.comparison(Metric::Rate).map_or("", |c| c.verdict.word())))
        .collect();
    assert_eq!(
        words,
        [
            ("socket", ""),
            ("sendfile", "EQUIVALENT"),
            ("splice", "FASTER"),
            ("msg-zerocopy", "SLOWER"),
            ("uring", "INCONCLUSIVE"),
            ("uring-zc", "SLOWER"),
            ("zcrx", ""),
            ("devmem", ""),
        ]
    );
    let noise = analysis.noise(Metric::Rate).unwrap().clone();
    assert!(noise.effect.blocks == 5 && noise.floor < 0.02);
    assert_eq!(analysis.null.unwrap().cell.0, "socket (again)");
    let failed = row(&analyse(&study(), &Rules::default()), "uring-zc").status.clone();
    assert_eq!((failed.measured, failed.failed[0].count), (4, 1));
}

#[test]
fn what_was_not_shown_is_not_claimed() {
    let said = words(&text(&study(), 100));
    assert!(!said.contains("no difference") && !said.contains("not significant"));
    assert!(said.contains("Use splice") && !said.contains("fastest"), "{said}");
    assert!(
        !said.to_lowercase().contains("permutation"),
        "five blocks cannot bring their p below 0.05"
    );
    // A noisy null withdraws the claim of a small effect.
    let mut noisy = study();
    for t in noisy.trials.iter_mut().filter(|t| t.cell.0 == "socket (again)") {
        t.count = t.count / 10 * if t.block % 2 == 0 { 13 } else { 7 };
    }
    let analysis = analyse(&noisy, &Rules::default());
    for name in ["sendfile", "splice"] {
        let verdict = row(&analysis, name).comparison(Metric::Rate).unwrap().verdict;
        assert!(matches!(verdict, Verdict::NoiseTooHigh { .. }), "{name}: {verdict:?}");
    }
    assert!(words(&text(&noisy, 100)).contains("within the noise of this study"));
    // A single block permits only one verdict.
    let mut one = study();
    one.trials.retain(|t| t.block == 0);
    let said = words(&text(&one, 100));
    assert!(
        said.contains("TOO FEW BLOCKS") && !said.contains("FASTER") && !said.contains("INCONCL")
    );
}

#[test]
fn rows_that_did_not_run_say_why() {
    let said = words(&text(&study(), 80));
    assert!(said.contains("zcrx io_uring.zcrx: Operation not supported -> needs a device"));
    assert!(said.contains("devmem /dev/udmabuf is missing -> needs a kernel with CONFIG_UDMABUF"));
    assert!(said.contains("uring-zc 1 of 5: receiver: killed by signal 9 (SIGKILL) -> look for"));
    let mut cut = study();
    cut.trials.truncate(3);
    assert!(
        words(&text(&cut, 80)).contains("Not run: splice, msg-zerocopy, uring, uring-zc, zcrx")
    );
}

#[test]
fn trials_that_disagree_are_reported() {
    let mut split = study();
    let odd = split.trials.iter_mut().find(|t| t.cell.0 == "splice").unwrap();
    odd.label = "zero-copy send, receive copied".into();
    odd.roles[0].witness = Some(bytepath::record::ProvenWitness::Copied);
    let said = words(&text(&split, 300));
    assert!(said.contains("trials disagree: 1x zero-copy send, receive copied; 4x zero-copy"));
    assert!(said.contains("witness page shared in 4, copied in 1 trials"));
}

#[test]
fn a_throughput_of_zero_is_left_out_of_the_ratio_and_reported() {
    let mut dead = study();
    let t = dead.trials.iter_mut().find(|t| t.cell.0 == "splice" && t.block == 2).unwrap();
    t.count = 0;
    assert!(words(&text(&dead, 120)).contains("1 block left out, where a figure was zero"));
}

#[test]
fn without_pinned_cpus_the_report_says_what_it_cannot_see() {
    let mut free = study();
    for c in &mut free.header.cells {
        c.placement = Placement::default();
    }
    let said = words(&text(&free, 100));
    assert!(said.contains("placement left to the scheduler"));
    assert!(
        said.contains("softirq that interrupts them is in sys, softirq on an idle CPU is not seen")
    );
    assert!(!said.contains("busy time of the role's own CPU"));
}

#[test]
fn the_report_says_by_which_method_cpu_time_was_found() {
    let said = words(&text(&study(), 100));
    assert!(said.contains("split by ticks") && !said.contains("CPU, exact"), "{said}");
    let mut exact = study();
    for trial in &mut exact.trials {
        for (cpu, role) in (0..).zip(Role::ALL) {
            let kinds = ["user", "system", "uring"].map(|kind| format!("cpu.{role}.{kind}"));
            for metric in kinds.into_iter().chain(["cpu.foreign".to_owned()]) {
                trial.readings.push(Reading::sum(metric, Unit::Seconds, 0.1, Scope::Cpu(cpu)));
            }
        }
    }
    let said = words(&text(&exact, 100));
    assert!(said.contains("CPU, exact") && !said.contains("split by ticks"), "{said}");
}

/// The study with the meter `softirqs`: these shares of the receive work on either CPU.
fn with_receive_work(parts: impl Fn(&str) -> [f64; 2]) -> Study {
    let mut study = study();
    for trial in &mut study.trials {
        let parts = parts(&trial.cell.0);
        trial.readings.retain(|r| r.metric != "cpu.softirq");
        for (cpu, part) in (0..).zip(parts) {
            for (metric, value) in [("cpu.softirq", part), ("softirqs.net_rx", 1000.0 * part)] {
                trial.readings.push(Reading::sum(metric, Unit::Seconds, value, Scope::Cpu(cpu)));
            }
        }
    }
    study
}

#[test]
fn handshakes_of_an_end_are_shown_with_the_part_that_resumed() {
    let with = |made: &[(&str, f64)]| {
        let mut study = study();
        for trial in &mut study.trials {
            for role in Role::ALL {
                let counts = [("connections.fairness", 1.0)];
                for (metric, value) in counts.iter().chain(made) {
                    let reading = Reading::sum(*metric, Unit::Count, *value, Scope::Role(role));
                    trial.readings.push(reading);
                }
            }
        }
        study
    };
    let made = [("connections.handshakes", 2000.0), ("connections.resumed", 1992.0)];
    for format in ["text", "html"] {
        let said = words(&render(format, &with(&made), &Style::default()));
        assert!(said.contains("Connections of an end"), "{format}: {said}");
        assert!(said.contains("the part that resumed an earlier session"), "{format}: {said}");
        assert!(said.contains("2000") && said.contains("99.6%"), "{format}: {said}");
        let said = words(&render(format, &with(&[]), &Style::default()));
        assert!(said.contains("Connections of an end"), "{format}: {said}");
        assert!(!said.contains("handshakes") && !said.contains("resumed"), "{format}: {said}");
    }
}

#[test]
fn where_receive_work_ran_is_reported_and_a_cell_that_strayed_is_named() {
    let said = words(&text(&with_receive_work(|_| [0.05, 0.95]), 100));
    assert!(
        said.contains("all cells softirq ran on CPU 0: 5.0%, CPU 1: 95%; requested: CPU 1"),
        "{said}"
    );
    assert!(!said.contains("ran on a CPU other"), "{said}");
    let splice = |cell: &str| if cell == "splice" { [0.4, 0.6] } else { [0.05, 0.95] };
    let study = with_receive_work(splice);
    for format in ["text", "netdev"] {
        let said = words(&render(format, &study, &Style::default()));
        let stray = "splice: 40% of the receive work ran on a CPU other than 1";
        assert_eq!(said.matches(stray).count(), 1, "{format}: {said}");
    }
    let json: Value = serde_json::from_str(&render("json", &study, &Style::default())).unwrap();
    let rows = json["analysis"]["rows"].as_array().unwrap();
    let row = rows.iter().find(|row| row["cell"] == "splice").unwrap();
    assert_eq!(row["receive_work"]["asked"], serde_json::json!([1]));
    assert!((row["receive_work"]["cpus"][0]["part"].as_f64().unwrap() - 0.4).abs() < 1e-9);
    // Cells with another request are listed apart, with what collides.
    let mut apart = study.clone();
    let cell = apart.header.cells.iter_mut().find(|cell| cell.id.0 == "splice").unwrap();
    cell.placement = Placement { softirq: SoftirqCpu::Cpu(0), ..Placement::pinned(0, 0) };
    let said = words(&text(&apart, 100));
    let own = "splice softirq ran on CPU 0: 40%, CPU 1: 60%; requested: CPU 0; sender and receiver \
               share CPU 0; sender and softirq share CPU 0";
    assert!(said.contains(own), "{said}");
    assert!(!text(&made_up::study(), 100).contains("Where it ran"), "no meter, no line");
}

#[test]
fn the_functions_of_two_cells_are_ranked_by_what_is_saved() {
    let (study, mut explanation) = (study(), profiles::explanation(3, ""));
    // The first function is within the noise, the others are not.
    let ranked = &mut explanation.ranked[0];
    ranked.total.half_width = Some(0.0);
    for (at, row) in ranked.rows.iter_mut().enumerate() {
        row.amount.half_width = Some(if at == 0 { 9.0 } else { 0.0 });
    }
    let analysis = analyse(&study, &Rules::default());
    let mut out = Vec::new();
    let subject = report::Subject::of(&study, &analysis, Some(&explanation));
    report::find("text").unwrap().render(&subject, &Style::default(), &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    let (_, table) = text.split_once("Functions, the largest change first\n").expect("a ranking");
    let names: Vec<&str> = table
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("function"))
        .map_while(|line| line.split_whitespace().next())
        .take(5)
        .collect();
    assert_eq!(names, ["function", "all", "_copy_to_iter", "_copy_from_iter", "vm_insert_pages"]);
    let row = table.lines().find(|line| line.contains("vm_insert_pages")).unwrap();
    assert!(row.contains(" 0.0000 ") && row.contains(" +0.0") && row.contains(" new "), "{row}");
    let doubtful = table.lines().find(|line| line.contains("_copy_to_iter")).unwrap();
    assert!(doubtful.contains("9.0000?") && !row.contains('?'), "{doubtful}");
    // The parts add up to the whole.
    let ranked = &explanation.ranked[0];
    let rows: f64 = ranked.rows.iter().map(|row| row.amount.saved).sum();
    assert!((rows - ranked.total.saved).abs() < 1e-9, "{ranked:?}");
    assert!((ranked.without.as_str(), ranked.with.as_str()) == ("socket", "tcp-zerocopy-receive"));
}

#[test]
fn hostile_names_neither_steer_nor_widen() {
    let mut hostile = study();
    let evil = "\x1b]0;owned\x07splice\u{202e}\n\u{1f4a9}";
    for c in hostile.header.cells.iter_mut().filter(|c| c.id.0 == "splice") {
        c.id = CellId(evil.into());
    }
    for t in hostile.trials.iter_mut().filter(|t| t.cell.0 == "splice") {
        t.cell = CellId(evil.into());
        t.warnings.push("x".repeat(300));
    }
    hostile.header.facts[0].cpu_model = evil.into();
    for style in [
        Style { width: 100, colour: false, details: true },
        Style { width: 41, colour: false, details: true },
    ] {
        tame(&render("text", &hostile, &style), style.width);
    }
}

#[test]
fn colour_only_when_asked_and_nothing_else_changes() {
    let style = Style { width: 100, colour: true, details: true };
    let coloured = render("text", &study(), &style);
    assert!(coloured.contains("\x1b[32mFASTER\x1b[0m"));
    let mut bare = coloured;
    for code in ["1", "2", "31", "32", "0"] {
        bare = bare.replace(&format!("\x1b[{code}m"), "");
    }
    assert_eq!(bare, render("text", &study(), &Style { colour: false, ..style }));
}

/// Checks that lines are plain and fit, and that no number is invalid.
fn tame(text: &str, width: usize) {
    for line in text.lines() {
        assert!(line.len() <= width.max(40), "{} > {width}: {line}", line.len());
        assert!(line.bytes().all(|b| (b' '..=b'~').contains(&b)), "{line:?}");
        assert!(!line.ends_with(' '), "{line:?}");
    }
    let mut tokens = text.split(|c: char| !c.is_ascii_alphanumeric());
    assert!(!tokens.any(|t| ["NaN", "inf", "Infinity"].contains(&t)), "{text}");
}

/// Fields of the analysis that are always numbers.
const NUMBERS: &str = "\
    mean median min max ratio low high log_half_width p least floor log_mean log_rms user \
    system softirq unsplit other copied not_copied unknown step stalled total avg \
    stddev_percent smallest";

fn numbers_are_numbers(value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields {
                // The total of a CPU cost is a summary, that of calls a number.
                assert!(
                    !(field.is_null()
                        && NUMBERS.split(' ').any(|known| known == name)
                        && name != "total"),
                    "{name} in {value}"
                );
                numbers_are_numbers(field);
            }
        }
        Value::Array(all) => all.iter().for_each(numbers_are_numbers),
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_study_renders(study in any_study(), width in 0..200usize, details in any::<bool>()) {
        let style = Style { width, colour: false, details };
        tame(&render("text", &study, &style), width);
        let json: Value = serde_json::from_str(&render("json", &study, &style)).unwrap();
        numbers_are_numbers(&json["analysis"]);
    }
}

#[test]
fn the_made_up_study_is_sound() {
    let study = study();
    for t in study.trials.iter().filter(|t| t.status == TrialStatus::Measured) {
        for role in Role::ALL {
            let ledger = &t.role(role).unwrap().ledger;
            let parts = ledger.copied + ledger.not_copied + ledger.discarded + ledger.unknown;
            assert_eq!(ledger.delivered, parts);
        }
        assert!(t.reading("cpu.wall", &Scope::Machine).is_some());
    }
    assert_eq!(trial(&PATHS[0], 0, 0), study.trials[0]);
}

#[test]
fn a_path_against_itself_tells_the_noise() {
    let mut study = study();
    study.header.cells.retain(|cell| cell.id == study.header.baseline || cell.null);
    let kept: Vec<_> = study.header.cells.iter().map(|cell| cell.id.clone()).collect();
    study.trials.retain(|trial| kept.contains(&trial.cell));
    let text = text(&study, 100);
    assert!(text.contains("Noise of throughput"), "{text}");
    assert!(text.contains("socket against itself came out between"), "{text}");
}
