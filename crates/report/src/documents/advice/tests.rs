//! Advice for a server: an observed epoll loop, compared with a study of such servers.

use super::{Advice, advice, advice_or_hint, advise, measurement};
use crate::Style;
use bytepath_record::{
    CallRow, Cell, CellId, Facts, Half, Judgement, Observation, ObservedCall, ObservedSocket,
    OptionValue, Role, RoleRecord, SCHEMA_VERSION, Schedule, Study, StudyHeader, ThreadTime, Trial,
    TrialStatus, Work,
};

const SEEN: &str = include_str!("../../../../../tests/data/observations/made-up.json");

#[test]
fn server_is_answered_by_the_loops_of_the_study_however_few_bytes_it_moved() {
    let (seen, study) = (server(64, 64), study(64, 64));
    let answer = advise(&seen, &study);
    let server = answer.server.as_ref().unwrap_or_else(|| panic!("{answer:#?}"));
    assert_eq!((server.path.as_str(), server.cell.as_str()), ("epoll", "epoll"));
    assert_eq!((server.transactions, server.flows), (6400, 64));
    let cells: Vec<&str> = server.loops.iter().map(|row| row.cell.as_str()).collect();
    assert_eq!(cells, ["socket", "uring-loop"]);

    // 120,000 and 100,000 per second, at 0.6 and 0.8 CPU s per second.
    let ring = &server.loops[1];
    assert_eq!(ring.rate.verdict.word(), "FASTER");
    assert!((ring.rate.effect.as_ref().unwrap().ratio - 1.2).abs() < 1e-3, "{ring:?}");
    let [before, after] = ring.server_cpu.unwrap();
    assert!((before * 1e6 - 8.0).abs() < 0.05 && (after * 1e6 - 5.0).abs() < 0.05, "{ring:?}");
    assert!((ring.server_effect.as_ref().unwrap().ratio - 5.0 / 8.0).abs() < 1e-3, "{ring:?}");
    assert!(answer.first.starts_with("'uring-loop' instead of 'epoll': 120"), "{}", answer.first);
    assert!(answer.first.contains("FASTER 1.20"), "{}", answer.first);
    assert_eq!(server.loops[0].rate.verdict.word(), "SLOWER");

    // The study is the one that the command makes, so the command is not printed, and a missing
    // stream is not reported.
    assert!(answer.measurement.is_empty() && answer.refused.is_empty(), "{answer:#?}");
    let page = text(&answer);
    assert!(!page.contains("bytepath run") && !page.contains("No answer"), "{page}");
    assert!(page.contains("served by epoll: 64 connections, 64 B a request and 64 B a response"));
    let end = page_of(advice_or_hint(Some(&answer), &seen));
    assert!(
        end.contains("'uring-loop' instead of 'epoll'") && !end.contains("bytepath run"),
        "{end}"
    );
}

#[test]
fn loop_is_judged_against_the_programs_whatever_the_study_compared_with() {
    let mut study = study(64, 64);
    study.header.baseline = CellId("socket".into());
    assert_eq!(advise(&server(64, 64), &study), advise(&server(64, 64), &self::study(64, 64)));
}

#[test]
fn connections_and_sizes_are_those_of_a_cell_within_a_factor_of_two() {
    let answers = |seen: &Observation, study: &Study| advise(seen, study).server.is_some();
    assert!(answers(&server(100, 64), &study(64, 64)) && answers(&server(64, 100), &study(64, 64)));
    for (seen, reason) in [
        (server(200, 64), "200 connections carried messages, and the study has measured"),
        (server(64, 4096), "messages were 4 KiB a request and 4 KiB a response on average, and"),
    ] {
        let answer = advise(&seen, &study(64, 64));
        assert!(answer.first.contains(reason), "{}\nshould be\n{reason}", answer.first);
        assert_one_command(&answer, &seen);
    }
    // Among several, the nearest; among equals, the plain one.
    let mut both = study(128, 64);
    for cell in study(64, 64).header.cells {
        let id = CellId(format!("{} flows=64", cell.id));
        let of_cell = study(64, 64).trials.into_iter().filter(|trial| trial.cell == cell.id);
        both.trials.extend(of_cell.map(|trial| Trial { cell: id.clone(), ..trial }));
        both.header.cells.push(Cell { id, ..cell });
    }
    let cell = |flows| advise(&server(flows, 64), &both).server.map(|server| server.cell);
    assert_eq!(cell(70).as_deref(), Some("epoll flows=64"));
    assert_eq!(cell(120).as_deref(), Some("epoll"));
}

/// The study with the cells of another task before its own: identical except for one change.
fn beside(change: fn(&mut Cell)) -> Study {
    let mut both = study(64, 64);
    let of_both = both.clone();
    for (at, mut cell) in of_both.header.cells.into_iter().enumerate() {
        let plain = cell.id.clone();
        change(&mut cell);
        let trials = of_both.trials.iter().filter(|trial| trial.cell == plain);
        both.trials.extend(trials.map(|trial| Trial { cell: cell.id.clone(), ..trial.clone() }));
        both.header.cells.insert(at, cell);
    }
    both
}

#[test]
fn cell_with_another_task_or_loop_does_not_stand_in_for_the_plain_one() {
    let changes: [fn(&mut Cell); 5] = [
        |cell| asked(cell, "think", OptionValue::Number(100)),
        |cell| asked(cell, "idle", OptionValue::Number(32)),
        |cell| asked(cell, "incast", OptionValue::Flag(true)),
        |cell| asked(cell, "rate", OptionValue::Word("70%".into())),
        |cell| {
            cell.rx.options.0.insert("sqpoll".into(), OptionValue::Flag(true));
            cell.id = CellId(format!("{}:sqpoll=on", cell.id));
        },
    ];
    for change in changes {
        let both = beside(change);
        let answer = advise(&server(64, 64), &both).server.unwrap();
        assert_eq!(answer.cell, "epoll", "not {}", both.header.cells[0].id);
    }
}

fn asked(cell: &mut Cell, name: &str, value: OptionValue) {
    cell.workload.options.0.insert(name.into(), value);
    // The id does not mention it, as if all cells of a study had it.
    cell.id = CellId(format!("{} asked", cell.id));
}

#[test]
fn noise_is_the_studys_where_it_was_measured_with_another_task() {
    let mut study = beside(|cell| {
        cell.workload.options.0.insert("outstanding".into(), OptionValue::Number(16));
        cell.id = CellId(format!("{} rr:outstanding=16", cell.id));
    });
    let first = study.header.cells[0].clone();
    assert_eq!(first.id.0, "epoll rr:outstanding=16");
    study.header.baseline = first.id.clone();
    // A second copy that is 30 % off: no smaller difference is resolved.
    let again = CellId(format!("{} (again)", first.id));
    let copies = study.trials.iter().filter(|trial| trial.cell == first.id).cloned();
    let off = |trial: Trial| Trial {
        count: trial.count * if trial.block.is_multiple_of(2) { 13 } else { 7 } / 10,
        cell: again.clone(),
        ..trial
    };
    let copies: Vec<Trial> = copies.map(off).collect();
    study.trials.extend(copies);
    study.header.cells.push(Cell { id: again, null: true, ..first });
    let answer = advise(&server(64, 64), &study).server.unwrap();
    assert_eq!(answer.cell, "epoll");
    let names: Vec<&str> = answer.loops.iter().map(|row| row.cell.as_str()).collect();
    assert_eq!(names, ["socket", "uring-loop"]);
    let ring = &answer.loops[1].rate;
    assert!((ring.effect.as_ref().unwrap().ratio - 1.2).abs() < 1e-3, "{ring:?}");
    assert_ne!(ring.verdict.word(), "FASTER", "1.2 is within the noise: {ring:?}");
}

#[test]
fn study_without_such_a_loop_is_named_with_the_one_command_that_has_it() {
    let seen = server(64, 4096);
    let mut without = study(64, 4096);
    without.trials.retain(|trial| trial.cell.0 != "epoll");
    let answer = advise(&seen, &without);
    let reason = "the study has no valid trial of requests and responses (workload rr) served by \
                  path 'epoll'";
    assert_eq!(answer.first, format!("No answer: {reason}"));
    assert_one_command(&answer, &seen);
    let command = "run --workload rr:request=4096,response=4096 --stream flows=64 --path \
                   epoll+epoll --path epoll+uring-loop";
    assert_eq!(measurement(&seen).join(" "), command);
    let hint = page_of(advice_or_hint(None, &seen));
    assert_eq!(hint.matches("bytepath run").count(), 1, "{hint}");

    let mut failed = study(64, 4096);
    failed.trials.retain(|trial| trial.cell.0 == "epoll");
    let answer = advise(&seen, &failed);
    let reason =
        "nothing compares with 'epoll': 'socket': no trial of it was measured; 'uring-loop'";
    assert!(answer.first.contains(reason), "{}", answer.first);
    assert_one_command(&answer, &seen);

    let mut alone = study(64, 4096);
    alone.header.cells.retain(|cell| cell.rx.path == "epoll");
    let answer = advise(&seen, &alone);
    assert!(answer.first.ends_with("the study has nothing else to compare 'epoll' with"));
    assert_one_command(&answer, &seen);
}

#[test]
fn server_of_threads_and_one_by_a_ring_have_their_own_path() {
    let of = |change: fn(&mut Observation)| {
        let mut seen = server(64, 64);
        seen.calls.clear();
        change(&mut seen);
        seen
    };
    let threads = of(|seen| seen.threads[0].joined = 64);
    let answer = advise(&threads, &study(64, 64)).server.unwrap();
    assert_eq!((answer.path.as_str(), answer.loops.len()), ("socket", 2));
    assert!(measurement(&threads).join(" ").contains("--path epoll+socket --path epoll+epoll"));
    let ring = of(|seen| seen.received.ways[0].path = "uring".into());
    assert_eq!(advise(&ring, &study(64, 64)).server.unwrap().cell, "uring-loop");
    assert!(advise(&of(|_| ()), &study(64, 64)).server.is_none(), "one thread, nothing waits");
    let mut client = server(64, 64);
    for (port, socket) in (40_000..).zip(&mut client.sockets) {
        socket.local = Some(format!("127.0.0.1:{port}"));
    }
    assert!(advise(&client, &study(64, 64)).server.is_none(), "each connection has its own port");
    let mut uploads = server(64, 64);
    uploads.sockets.iter_mut().for_each(|socket| socket.receive_calls *= 3);
    assert!(advise(&uploads, &study(64, 64)).server.is_none(), "streams that epoll waits for");
    let upload = of(|seen| {
        seen.threads[0].joined = 64;
        seen.sockets.iter_mut().for_each(|socket| socket.receive_calls *= 3);
    });
    assert!(advise(&upload, &study(64, 64)).server.is_none(), "a stream with a few answers");
}

/// Checks that the printed command, the note and what `--run` runs are the same.
fn assert_one_command(answer: &Advice, seen: &Observation) {
    assert!(answer.server.is_none() && !answer.measurement.is_empty(), "{answer:#?}");
    assert_eq!(answer.measurement, measurement(seen));
    let page = text(answer);
    let command = format!("bytepath {}", answer.measurement.join(" "));
    assert_eq!(page.matches("bytepath run").count(), page.matches(&command).count(), "{page}");
    assert_eq!(page.matches(&command).count(), 2, "{page}");
}

fn text(answer: &Advice) -> String {
    page_of(Some(advice(answer)))
}

fn page_of(page: Option<crate::document::Document>) -> String {
    let mut text = Vec::new();
    let style = Style { width: 100, colour: false, details: false };
    page.expect("there is advice").write(&style, &mut text).unwrap();
    String::from_utf8(text).unwrap().split_whitespace().collect::<Vec<_>>().join(" ")
}

/// An epoll server that answered at least 6400 requests.
fn server(flows: usize, size: u64) -> Observation {
    let mut seen: Observation = serde_json::from_str(SEEN).unwrap();
    let socket = ObservedSocket {
        sent: 100 * size,
        received: 100 * size,
        send_calls: 100,
        receive_calls: 100,
        ..seen.sockets[0].clone()
    };
    for traffic in [&mut seen.sent, &mut seen.received] {
        traffic.ways[0].bytes = flows as u64 * 100 * size;
        traffic.ways[0].calls = flows as u64 * 100;
    }
    seen.sockets = vec![socket; flows];
    let row = CallRow {
        name: "epoll_wait".into(),
        calls: 100,
        errors: 0,
        bytes: 0,
        total: 1.0,
        min: 0.0,
        avg: 0.01,
        max: 0.1,
        stddev_percent: 0.0,
    };
    seen.calls = vec![ObservedCall { tid: 7, number: 0, row, histogram: Vec::new() }];
    seen
}

/// Paths with their requests per second and CPU seconds per second at the server.
const LOOPS: [(&str, f64, f64); 3] =
    [("epoll", 100e3, 0.8), ("socket", 70e3, 0.9), ("uring-loop", 120e3, 0.6)];

fn study(flows: u32, size: u64) -> Study {
    let cells = LOOPS.map(|(path, ..)| {
        let mut cell = Cell::new(path, Half::plain("epoll"), Half::plain(path));
        cell.workload.name = "rr".into();
        let sizes = ["request", "response"].map(|name| (name.into(), OptionValue::Number(size)));
        cell.workload.options.0.extend(sizes);
        cell.stream.flows = flows;
        cell
    });
    let mut trials = Vec::new();
    for block in 0..6 {
        let order = 3 * block;
        trials.extend((order..).zip(LOOPS).map(|(order, of)| trial(of, block, order)));
    }
    let seen: Observation = serde_json::from_str(SEEN).unwrap();
    let header = header(cells.to_vec(), seen.host.unwrap());
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

fn trial((path, rate, busy): (&str, f64, f64), block: u32, order: u32) -> Trial {
    let noise = 1.0 + f64::from((block * 7 + order) % 5) * 1e-4;
    let record = |role: Role| RoleRecord {
        window: 1.0,
        threads: vec![thread(role, if role == Role::Receiver { busy } else { 0.5 })],
        ..RoleRecord::blank(role)
    };
    Trial {
        status: TrialStatus::Measured,
        work: Work::Exchanges,
        window: 1.0,
        count: (rate * noise) as u64,
        roles: Role::ALL.map(record).to_vec(),
        ..Trial::blank(CellId(path.into()), block, order)
    }
}

fn thread(role: Role, run: f64) -> ThreadTime {
    let name = format!("{role}/0");
    let (tid, wait, voluntary, involuntary) = (1, 0.0, 0, 0);
    ThreadTime { name, tid, run, wait, user: 0.1, system: run - 0.1, voluntary, involuntary }
}

fn header(cells: Vec<Cell>, host: Facts) -> StudyHeader {
    StudyHeader {
        schema: SCHEMA_VERSION,
        bytepath: "0.1.0".into(),
        started_ms: 0,
        title: String::new(),
        testbed: "netns".into(),
        functional: None,
        instructions_per_second: None,
        kernels: Vec::new(),
        baseline: cells[0].id.clone(),
        cells,
        schedule: Schedule::trials(6, 0.0, 1.0),
        judgement: Judgement::default(),
        meters: Vec::new(),
        loads: Vec::new(),
        source: None,
        profiling: None,
        power: Default::default(),
        facts: vec![host],
        ceiling: None,
        settings: Vec::new(),
        fingerprint: Default::default(),
    }
}
