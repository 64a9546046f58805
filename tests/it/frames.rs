//! Frames in every format of a report, on a study made up here: two links, one that loses frames
//! and one that does not, and two numbers of threads.

use crate::made_up::{self, PATHS, cell, header};
use crate::report::render;
use crate::shared;

use bytepath::record::{
    Cell, CellId, Hops, OptionValue, Placement, Reading, Role, Scope, Study, TapSettings, Trial,
    TrialStatus, Unit, Work,
};
use bytepath::report::{CATALOG, Style};
use bytepath::stats::{ENGINE_RUN, RateLimit, Rules, analyse};

/// Two blocks of 2 s windows: 1.33 M frames a second are read and another 3.895 M are lost, or with
/// back-pressure 1.033 M are read and none are lost.
pub fn study() -> Study {
    let one = |name: &str, backpressure: bool, flows: u32| {
        let mut one = cell(name, "packet", "tap");
        one.workload.name = "packets".into();
        one.link.preset = "tap".into();
        one.link.qdisc = if backpressure { "fq_codel" } else { "none" }.into();
        one.link.tap = Some(TapSettings { queues: 1, backpressure, ..TapSettings::default() });
        one.stream.flows = flows;
        let qdisc = one.link.qdisc.clone();
        let levels = [
            ("backpressure", backpressure.to_string()),
            ("qdisc", qdisc),
            ("flows", flows.to_string()),
        ];
        one.levels = levels.map(|(factor, level)| (factor.to_owned(), level)).into();
        one
    };
    let cells: Vec<Cell> = vec![
        one("packet+tap stock", false, 1),
        one("packet+tap patched", true, 1),
        one("packet+tap stock flows=4", false, 4),
    ];
    let mut header = header(cells);
    header.baseline = header.cells[0].id.clone();
    let mut trials = Vec::new();
    for block in 0..2 {
        for cell in &header.cells {
            trials.push(trial(cell, block, trials.len() as u32));
        }
    }
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

fn trial(cell: &Cell, block: u32, order: u32) -> Trial {
    let window = 2.0;
    let stock = cell.link.qdisc == "none";
    let (read, lost): (u64, u64) = if stock { (1_330_000, 3_895_000) } else { (1_033_000, 0) };
    let blank = made_up::trial(&PATHS[0], 0, 0);
    let mut roles = blank.roles.clone();
    roles.iter_mut().for_each(|role| role.window = window);
    let run = |role: Role| {
        let run = window * f64::from(cell.flows(role));
        Reading::sum(ENGINE_RUN.to_owned(), Unit::Seconds, run, Scope::Role(role))
    };
    Trial {
        cell: CellId(cell.id.0.clone()),
        block,
        order,
        work: Work::Packets,
        window,
        count: 2 * read,
        hops: Some(Hops {
            offered: 3 * (read + lost),
            refused: 3 * lost,
            device_dropped: 3 * lost,
            received: 3 * read,
            ..Hops::default()
        }),
        roles,
        readings: Role::ALL.map(run).to_vec(),
        series: Vec::new(),
        ..blank
    }
}

#[test]
fn the_analysis_knows_what_was_lost_and_what_bounds_the_rate() {
    let study = study();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let hops: Vec<_> = analysis.rows.iter().map(|row| row.hops.as_ref().unwrap()).collect();
    assert_eq!(hops[0].lost.unwrap().mean.round(), 3_895_000.0);
    assert_eq!((hops[0].bound, hops[1].bound), (RateLimit::Sink, RateLimit::Generator));
    assert_eq!(hops[2].threads, [4, 1]);
    assert!((hops[2].busy[0].unwrap().mean - 1.0).abs() < 1e-9, "of each of four threads");
}

#[test]
fn a_mail_has_the_block_of_such_threads() {
    let mail = render("netdev", &study(), &Style::default());
    let one: Vec<&str> = mail.lines().skip_while(|line| !line.starts_with('+')).collect();
    let block = [
        "+-------------------------+---------------+---------------+",
        "| AMD EPYC 9B14           | noqueue       | fq_codel      |",
        "| 1 generating thread     | stock         | backpressure  |",
        "| pinned                  |               |               |",
        "+-----------+-------------+---------------+---------------+",
        "| TAP       | Transmitted | 1330 Kpps     | 1033 Kpps     |",
        "|           | Lost        | 3895 Kpps     | 0 Kpps        |",
        "+-----------+-------------+---------------+---------------+",
    ];
    assert_eq!(&one[..block.len()], block, "{mail}");
    assert!(mail.contains("| 4 generating threads    |"), "{mail}");
    assert!(mail.contains("| a thread    | 332 Kpps"), "{mail}");
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
}

#[test]
fn other_ways_to_read_have_rows_of_their_own() {
    let mut study = study();
    let cell = &mut study.header.cells[1];
    cell.rx.options.0.insert("by".into(), OptionValue::Word("uring".into()));
    cell.link.tap.as_mut().unwrap().macvtap = true;
    let mail = render("netdev", &study, &Style::default());
    for row in
        ["| TAP       | Transmitted | 1330 Kpps", "| MACVTAP   | Transmitted |", "| uring     |"]
    {
        assert!(mail.contains(row), "{row}: {mail}");
    }
}

#[test]
fn where_no_speed_was_measured_a_mail_has_counts() {
    let mut study = study();
    study.header.functional = Some("made up".into());
    let mail = render("netdev", &study, &Style::default());
    assert!(mail.contains("| emulated: counts"), "{mail}");
    assert!(mail.contains("| Lost        | 23370000      | 0             |"), "{mail}");
    assert!(!mail.contains(" Kpps"), "{mail}");
}

#[test]
fn every_format_tells_where_frames_went() {
    let study = study();
    let text = render("text", &study, &Style::default());
    assert!(text.contains("Where the frames went") && text.contains("generator"), "{text}");
    assert!(text.contains("75%"), "lost at the device, of what was generated: {text}");
    assert!(render("html", &study, &Style::default()).contains("Where the frames went"));
    let csv = render("csv", &study, &Style::default());
    let dropped = csv.lines().find(|line| line.contains("hops.dropped.device")).unwrap();
    assert!(dropped.contains("11685000"), "{dropped}");
    let json: serde_json::Value =
        serde_json::from_str(&render("json", &study, &Style::default())).unwrap();
    let hops = &json["analysis"]["rows"][0]["hops"];
    assert_eq!((&hops["bound"], &hops["hops"]["received"]), (&"sink".into(), &7_980_000.into()));
}

/// Names of cells that differ in options for which a mail has no words of its own.
const VARIED: [&str; 6] = [
    "pktgen+vhost link=tap,backpressure=on,qdisc=fq_codel cores=none",
    "pktgen+vhost link=tap,backpressure=on,qdisc=fq_codel cores=none/vhost=0",
    "pktgen:burst=32+vhost link=tap,backpressure=on,qdisc=fq_codel cores=none",
    "pktgen+vhost packets:frame=1514 link=tap,backpressure=on,qdisc=fq_codel cores=none",
    "pktgen+vhost touch=read link=tap,backpressure=on,qdisc=fq_codel cores=none",
    "pktgen+vhost:batch=4 link=tap,backpressure=on,qdisc=fq_codel cores=none",
];

/// A study of [`VARIED`], which receive 1000, 1001, 1002 ... Kpps.
fn varied() -> Study {
    let mut study = study();
    let like = study.header.cells[1].clone();
    let one = |name: &&str| {
        let mut one = Cell { id: CellId((*name).into()), ..like.clone() };
        (one.tx.path, one.rx.path) = ("pktgen".into(), "vhost".into());
        one.placement = Placement::default();
        one.placement.vhost = name.contains("vhost=0").then_some(0);
        one
    };
    study.header.cells = VARIED.iter().map(one).collect();
    study.header.baseline = study.header.cells[0].id.clone();
    study.trials.clear();
    for (order, cell) in (0..).zip(&study.header.cells) {
        let rate = 1_000_000 + 1000 * u64::from(order);
        let hops = Hops { offered: 3 * rate, received: 3 * rate, ..Hops::default() };
        let of_cell = trial(cell, 0, order);
        study.trials.push(Trial { count: 2 * rate, hops: Some(hops), ..of_cell });
    }
    study
}

/// Parquet has the table of csv; `formats.rs` compares them.
#[test]
fn every_measured_cell_is_in_every_format() {
    for format in CATALOG.iter().filter(|format| !format.binary) {
        let printed = render(format.name, &varied(), &Style { width: 200, ..Style::default() });
        for (at, name) in VARIED.iter().enumerate() {
            let figure = (1000 + at).to_string();
            let has_figure = printed.split(|c: char| !c.is_ascii_digit()).any(|n| n == figure);
            let has_cell = if format.short_names { has_figure } else { printed.contains(name) };
            assert!(has_cell, "{name} ({figure} Kpps) is not in {}: {printed}", format.name);
        }
        let streams = made_up::study();
        let printed = render(format.name, &streams, &Style::default());
        let measured = |trial: &&Trial| trial.status == TrialStatus::Measured;
        for trial in streams.trials.iter().filter(measured) {
            // The second copy of the baseline is not listed as another cell.
            let name = trial.cell.0.trim_end_matches(" (again)");
            assert!(printed.contains(name), "{name} is not in {}: {printed}", format.name);
        }
    }
}

#[test]
fn columns_of_a_mail_are_told_apart_by_whatever_differs() {
    let mail = render("netdev", &varied(), &Style::default());
    let block = [
        "+-------------------------+--------------+--------------+--------------+",
        "| AMD EPYC 9B14           | fq_codel     | fq_codel     | fq_codel     |",
        "| 1 generating thread     | backpressure | backpressure | backpressure |",
        "| generator not pinned;   | cores=none   | cores=none/  | burst=32     |",
        "| sink pinned in some     |              | vhost=0      | cores=none   |",
        "+-----------+-------------+--------------+--------------+--------------+",
        "| TAP +     | Transmitted | 1000 Kpps    | 1001 Kpps    | 1002 Kpps    |",
    ];
    assert!(mail.contains(&block.join("\n")), "{mail}");
    for head in ["frame=1514", "touch=read", "batch=4"] {
        assert!(mail.contains(&format!("| {head}")), "{head}: {mail}");
    }
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
}

#[test]
fn the_head_of_a_block_says_of_both_ends_whether_they_are_pinned() {
    let mut study = study();
    let pinned = |study: &Study, words: &str| {
        let mail = shared::words(&render("netdev", study, &Style::default()));
        assert!(mail.contains(words), "{words}: {mail}");
    };
    pinned(&study, "| pinned |");
    study.header.cells.iter_mut().for_each(|cell| cell.placement.receiver = None);
    pinned(&study, "| generator pinned; sink | | | | not pinned |");
    study.header.cells.iter_mut().for_each(|cell| cell.placement.sender = None);
    pinned(&study, "| not pinned |");
    // The sink of vhost-net is its worker thread.
    for cell in &mut study.header.cells {
        (cell.rx.path, cell.placement) = ("vhost".into(), Placement::pinned(0, 1));
    }
    pinned(&study, "| generator pinned; sink | | | | not pinned |");
}
