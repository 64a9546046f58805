//! Paths over numbers of connections: the number from which each is better, in a made-up study
//! whose truth is known, and how reports present it.

use crate::made_up::{self, cell, header};
use crate::shared::{render, words};

use bytepath::record::{Study, Trial, TrialStatus};
use bytepath::report::Style;
use bytepath::stats::{Metric, Rules, Scaling, analyse};
use serde_json::Value;

const CONNECTIONS: [u32; 4] = [1, 16, 256, 4096];

/// A path's rate, and how busy it keeps either end.
type Truth = fn(&str, u32) -> (f64, f64);

/// With `uring-loop` a server is slower at one connection and faster at more, for less CPU time;
/// `poll` keeps up until there are many.
fn crossing(path: &str, connections: u32) -> (f64, f64) {
    match (path, connections) {
        ("uring-loop", 1) => (9.0, 0.9),
        ("uring-loop", _) => (12.0, 0.9),
        ("poll", 4096) => (5.0, 1.0),
        _ => (10.0, 1.0),
    }
}

fn study(truth: Truth, workloads: &[&str]) -> Study {
    let (mut cells, mut trials) = (Vec::new(), Vec::<Trial>::new());
    let all = workloads.iter().flat_map(|workload| CONNECTIONS.map(|n| (*workload, n)));
    let all = all.flat_map(|(w, n)| ["epoll", "uring-loop", "poll"].map(|path| (w, n, path)));
    for (workload, connections, path) in all {
        let mut cell = cell(&format!("{path} {connections} {workload}"), path, path);
        cell.stream.flows = connections;
        let levels = [("rx", path), ("flows", &connections.to_string()), ("workload", workload)];
        cell.levels = levels.map(|(k, v)| (k.to_owned(), v.to_owned())).into();
        let (gbit, busy) = truth(path, connections);
        let trials_of = made_up::steady_trials(&cell, [gbit, busy], trials.len());
        trials.extend(trials_of);
        cells.push(cell);
    }
    let mut header = header(cells);
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

fn found(study: &Study) -> Option<Scaling> {
    analyse(study, &Rules::of(&study.header)).scaling
}

fn text(format: &str, study: &Study, details: bool) -> String {
    let style = Style { details, ..Style::default() };
    words(&String::from_utf8(render(format, study, &style)).unwrap())
}

#[test]
fn a_path_is_better_from_where_it_is_at_every_larger_number() {
    let scaling = found(&study(crossing, &["rr"])).unwrap();
    assert_eq!((scaling.first.as_str(), scaling.courses.len()), ("epoll", 3));
    let [epoll, uring, poll] = scaling.courses.as_slice() else { panic!("{scaling:?}") };
    assert!(epoll.points.iter().all(|point| point.comparisons.is_empty()));
    let numbers: Vec<u32> = uring.points.iter().map(|point| point.connections).collect();
    assert_eq!(numbers, CONNECTIONS);
    let (from, there) = uring.from(Metric::Rate, true).unwrap();
    assert_eq!(from, 16);
    assert!((there.effect.as_ref().unwrap().ratio - 1.2).abs() < 1e-3, "{there:?}");
    assert_eq!(uring.from(Metric::Rate, false), None);
    // Nine tenths of the time for twelve tenths of the work.
    let (from, there) = uring.from(Metric::Cpu, true).unwrap();
    assert_eq!(from, 16);
    assert!((there.effect.as_ref().unwrap().ratio - 0.75).abs() < 1e-3, "{there:?}");
    assert_eq!(poll.from(Metric::Rate, false).unwrap().0, 4096);
    assert_eq!(poll.from(Metric::Rate, true), None);
}

#[test]
fn what_was_not_measured_at_a_larger_number_is_not_claimed() {
    let mut study = study(crossing, &["rr"]);
    for trial in study.trials.iter_mut().filter(|t| t.cell.0.starts_with("uring-loop 4096")) {
        trial.status = TrialStatus::Rejected { events: vec!["made up".into()] };
    }
    let scaling = found(&study).unwrap();
    assert_eq!(scaling.courses[1].from(Metric::Rate, true), None);
    assert!(text("text", &study, false).contains("in throughput: uring-loop."));
}

#[test]
fn two_numbers_of_connections_or_one_path_make_no_course() {
    let keep = |keep: &dyn Fn(&str, u32) -> bool| {
        let mut study = study(crossing, &["rr"]);
        study.header.cells.retain(|c| keep(&c.levels["rx"], c.stream.flows));
        found(&study)
    };
    assert_eq!(keep(&|_, connections| connections <= 16), None);
    assert_eq!(keep(&|path, _| path == "epoll"), None);
    assert!(keep(&|_, connections| connections <= 256).is_some());
}

#[test]
fn reports_name_the_crossing_with_its_interval() {
    let one = study(crossing, &["rr"]);
    let brief = text("text", &one, false);
    for sentence in [
        "uring-loop has a higher throughput than epoll from 16 connections on: 1.20x [1.200, 1.200] at \
         16; below, it has a lower throughput.",
        "uring-loop costs less CPU per GiB than epoll from 16 connections on: 0.75x [0.750, 0.750] at 16.",
        "poll has a lower throughput than epoll from 4096 connections on: 0.50x [0.500, 0.500] at 4096.",
    ] {
        assert!(brief.contains(sentence), "{sentence}: {brief}");
    }
    assert!(!brief.contains("Rate and cost by number"), "details alone have the tables: {brief}");
    let details = text("text", &one, true);
    assert!(details.contains("uring-loop 16 12.03 1.20x [1.200, 1.200] FASTER"), "{details}");
    let page = text("html", &one, false);
    assert!(page.contains("polyline class=\"course user\""), "{page}");
    assert!(page.contains("id=\"connections\"") && page.contains("from 16 connections on"));
    let json: Value = serde_json::from_str(&text("json", &one, false)).unwrap();
    assert_eq!(json["analysis"]["scaling"]["courses"][1]["points"][3]["connections"], 4096);
}

#[test]
fn no_crossing_is_shown_where_the_paths_are_alike() {
    let alike = study(|_, _| (10.0, 1.0), &["rr"]);
    let brief = text("text", &alike, false);
    let none = "No crossing with epoll is shown in throughput: uring-loop, poll.";
    assert!(brief.contains(none), "{brief}");
    assert!(!brief.contains("connections on:"), "{brief}");
}

#[test]
fn other_factors_make_courses_of_their_own() {
    let two = study(crossing, &["rr", "rr:request=16K"]);
    assert_eq!(found(&two).unwrap().courses.len(), 6);
    let brief = text("text", &two, false);
    assert!(brief.contains("uring-loop with workload=rr:request=16K has a higher"), "{brief}");
}
