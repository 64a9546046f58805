//! Counters of threads, and why packet rates differ, in every format, on the made-up study of
//! frames with made-up readings.

use crate::frames::study;
use crate::profiles;
use crate::report::render;
use crate::shared::words;

use bytepath::profile::import::{Content, ReadOptions, Times, open};
use bytepath::profile::subsystem::Rules as Subsystems;
use bytepath::profile::waterfall::Trials;
use bytepath::profile::{Ends, WorkUnit};
use bytepath::record::{CellId, Reading, Role, Scope, Study, Trial, Unit};
use bytepath::report::{self, Style};
use bytepath::stats::{Row, Rules, analyse};
use std::collections::BTreeSet;

/// The study with more readings in each trial.
fn with(readings: impl Fn(&Trial, &mut dyn FnMut(&str, Unit, f64, Scope))) -> Study {
    let mut study = study();
    for trial in &mut study.trials {
        let mut more = Vec::new();
        readings(trial, &mut |metric: &str, unit: Unit, value: f64, scope: Scope| {
            more.push(Reading::sum(metric, unit, value, scope));
        });
        trial.readings.extend(more);
    }
    study
}

fn threads(role: Role, group: &str) -> Scope {
    Scope::Threads(role, group.to_owned())
}

/// 2 s of a generator, and of a vhost worker whose turn on the counters never came.
fn counted() -> Study {
    with(|_, add| {
        let generator = threads(Role::Sender, "flows");
        add("counters.wall", Unit::Seconds, 2.0, Scope::Role(Role::Sender));
        add("counters.wall", Unit::Seconds, 2.0, Scope::Role(Role::Receiver));
        add("counters.threads", Unit::Count, 1.0, generator.clone());
        add("counters.task-clock", Unit::Seconds, 1.6, generator.clone());
        for (event, count) in [
            ("context-switches", 800.0),
            ("cpu-migrations", 16.0),
            ("cycles", 4.8e9),
            ("instructions", 9.6e9),
            ("branches", 1.6e9),
            ("branch-misses", 1.6e7),
            ("stalled-cycles-frontend", 1.2e9),
        ] {
            add(&format!("counters.{event}"), Unit::Count, count, generator.clone());
        }
        add("counters.cycles.counted", Unit::Ratio, 0.8333, generator);
        let worker = threads(Role::Receiver, "vhost");
        add("counters.threads", Unit::Count, 1.0, worker.clone());
        add("counters.task-clock", Unit::Seconds, 1.9, worker);
    })
}

#[test]
fn a_mail_has_what_perf_stat_prints_and_it_is_read_back() {
    let mail = render("netdev", &counted(), &Style::default());
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
    // Two trials of 2 s: sums, and figures derived from them.
    for line in [
        "      3200.00 msec task-clock              # 0.800 CPUs used",
        "         1600      context-switches        # 500 /s",
        "   9600000000      cycles                  # 3.00 GHz         (83.33%)",
        "  19200000000      instructions            # 2.00 per cycle",
        "   3200000000      branches                # 1000 M/s",
        "     32000000      branch-misses           # 1.00 %",
        "   2400000000      stalled-cycles-frontend # 25.0 % of cycles",
        "     4.000000 seconds time elapsed",
        "Not counted on this machine: page-faults, stalled-cycles-backend.",
    ] {
        assert!(mail.lines().any(|found| found == line), "{line} is not in {mail}");
    }
    // 2.66 M packets in each trial.
    assert!(words(&mail).contains("# each packet: task-clock 602 ns, "), "{mail}");
    let wanted = ReadOptions {
        format: Some("perf-stat"),
        table: Some(1),
        times: Times::LeftOut,
        symbols: false,
    };
    let Content::Counts(counts) = open("mail", wanted, &mut mail.as_bytes()).unwrap() else {
        panic!("{mail}");
    };
    let cycles = counts.rows.iter().find(|row| row.name == "cycles").unwrap();
    let counted = cycles.counted.map(|part| format!("{part:.4}"));
    assert_eq!((cycles.value, counted.as_deref()), (Some(9.6e9), Some("0.8333")));
    assert_eq!(counts.rows.len(), 9, "{counts:?}");
}

/// Names that agree in their first 72 columns.
#[test]
fn blocks_of_counters_have_titles_that_differ() {
    let mut study = counted();
    let long = |id: &CellId| {
        let name = "pktgen:burst=1,clone=64+vhost link=tap,backpressure=on,qdisc=fq_codel,queues=4";
        CellId(format!("{name} {}", id.0.rsplit('+').next().unwrap()))
    };
    study.header.cells.iter_mut().for_each(|cell| cell.id = long(&cell.id));
    study.header.baseline = study.header.cells[0].id.clone();
    study.trials.iter_mut().for_each(|trial| trial.cell = long(&trial.cell));
    let mail = render("netdev", &study, &Style::default());
    let heads = mail.split("Performance counter stats for '").skip(1);
    let titles: Vec<String> = heads.map(|head| words(head.split("):").next().unwrap())).collect();
    assert_eq!(titles.len(), 6, "{mail}");
    let names: BTreeSet<&String> = titles.iter().collect();
    assert_eq!(names.len(), titles.len(), "{titles:#?}");
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
    for number in 1..=6 {
        let one = ReadOptions {
            format: Some("perf-stat"),
            table: Some(number),
            times: Times::LeftOut,
            symbols: false,
        };
        open("mail", one, &mut mail.as_bytes()).unwrap();
    }
}

#[test]
fn every_format_has_the_counters_and_a_hole_is_not_a_zero() {
    let study = counted();
    let text = words(&render("text", &study, &Style { width: 200, ..Style::default() }));
    assert!(
        text.contains("packet+tap stock generator 1 0.800 3.00 2.00 1.00 1000 25.0 "),
        "{text}"
    );
    assert!(text.contains("packet+tap stock vhost workers 1 0.950 - - - - - "), "{text}");
    assert!(!text.contains("back idle"), "a column that holds nothing");
    let html = render("html", &study, &Style::default());
    assert!(html.contains("Counters of each group of threads") && html.contains("vhost workers"));
    let csv = render("csv", &study, &Style::default());
    assert!(csv.contains("counters.cycles,1,threads,sender,,flows,,4800000000"), "{csv}");
    let without = render("text", &crate::frames::study(), &Style::default());
    assert!(!without.contains("Counters of each group"), "{without}");
}

/// The receiver in a guest of the sender's host, where the guest's own agent counts the receiver's
/// thread by a clock of its own.
fn behind_a_tap() -> Study {
    with(|trial, add| {
        let own = threads(Role::Receiver, "flows");
        add("counters.wall", Unit::Seconds, 1.5, Scope::Role(Role::Receiver));
        add("counters.threads", Unit::Count, 1.0, own.clone());
        add("counters.task-clock", Unit::Seconds, 0.6, own);
        for (group, run) in [("vCPU", 1.6), ("qemu", 0.8), ("vhost", 0.4)] {
            let scope = threads(Role::Receiver, group);
            add("counters.wall", Unit::Seconds, 2.0, scope.clone());
            add("counters.threads", Unit::Count, 1.0, scope.clone());
            add("counters.task-clock", Unit::Seconds, run, scope.clone());
            // The same by the meter `threads`.
            let run = run / 2.0 * trial.window;
            add("guest.run", Unit::Seconds, run, scope.clone());
            add("guest.user", Unit::Seconds, 0.0, scope.clone());
            add("guest.system", Unit::Seconds, run, scope);
        }
        add("threads.wall", Unit::Seconds, trial.window, Scope::Role(Role::Sender));
    })
}

#[test]
fn threads_of_a_guest_are_counted_over_the_time_of_their_host() {
    let text = render("text", &behind_a_tap(), &Style { width: 200, ..Style::default() });
    let text = words(&text);
    for (group, cpus) in [
        ("sink", "0.400"),
        ("virtual CPUs", "0.800"),
        ("qemu", "0.400"),
        ("vhost workers", "0.200"),
    ] {
        let line = format!("packet+tap stock {group} 1 {cpus} ");
        assert!(text.contains(&line), "{line} is not in {text}");
    }
    let mail = render("netdev", &behind_a_tap(), &Style::default());
    for group in ["sink", "virtual CPUs", "qemu", "vhost workers"] {
        let head = format!("{group} (1 thread)");
        assert!(words(&mail).contains(&head), "{head} is not in {mail}");
    }
    assert!(mail.lines().any(|line| line == "     4.000000 seconds time elapsed"), "{mail}");
    assert!(mail.lines().any(|line| line == "     3.000000 seconds time elapsed"), "{mail}");
}

#[test]
fn a_mail_has_what_a_guest_takes_of_its_host() {
    let mail = render("netdev", &behind_a_tap(), &Style::default());
    assert!(mail.contains("What a guest takes of the host that runs it"), "{mail}");
    assert!(words(&mail).contains(" sink 80.0 40.0 20.0 140.0 2.80 100.0 "), "{mail}");
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
    let without = render("netdev", &study(), &Style::default());
    assert!(!without.contains("What a guest takes"), "{without}");
}

/// Without back-pressure the sink hardly ever sleeps; with it, it is woken for most packets.
fn woken() -> Study {
    let mut study = with(|trial, add| {
        let patched = trial.cell.0.contains("patched");
        let off = f64::from(trial.block) * 0.01;
        let each = |with: f64, without: f64| {
            (if patched { with } else { without } + off) * trial.count as f64
        };
        for cpu in 0..2 {
            add("ipis.reschedule", Unit::Count, each(0.4, 0.0), Scope::Cpu(cpu));
        }
        add("locks.spin", Unit::Seconds, 1e-9 * each(300.0, 301.0), Scope::Machine);
    });
    for block in 0..2 {
        let mut taken: Vec<Trial> =
            study.trials.iter().filter(|t| t.block == block).cloned().collect();
        for trial in &mut taken {
            let each = if trial.cell.0.contains("patched") { 0.77 } else { 0.01 };
            let value = (each + 0.001 * f64::from(block)) * trial.count as f64;
            let scope = threads(Role::Receiver, "flows");
            let metric = "handoffs.woken.sender.0-1";
            trial.readings.push(Reading::sum(metric, Unit::Count, value, scope));
        }
        study.profiles.extend(taken);
    }
    study
}

#[test]
fn why_rates_differ_is_reported_with_figure_and_interval() {
    let study = woken();
    let text = render("text", &study, &Style::default());
    let said = words(&text);
    for sentence in [
        "Why the packet rate differs: packet+tap patched (after) against packet+tap stock (before)",
        "- The rate is bound by the sink before and by the generator after.",
        "- The sink takes in 1330 Kpps before and 1033 Kpps after (-297 Kpps; 95% interval -297 Kpps \
         to -297 Kpps).",
        "- Lost, of the generated packets: 75% before and 0% after (-74.5 points; ",
        "- Rescheduling interrupts, for each packet: 0.0100 before and 0.810 after \
         (+0.800; 95% interval +0.739 to +0.861).",
        "- In the profile trials the sink is woken by the generator, from CPU 0 to run on CPU 1, for \
         each packet: 0.0105 before and 0.770 after",
        "Not resolved, or too small to matter: the generator's share of its CPU, ",
    ] {
        assert!(said.contains(sentence), "{sentence}\nis not in\n{text}");
    }
    assert!(said.contains("spinning for locks"), "300 ns and 301 ns are alike: {text}");
    let mail = render("netdev", &study, &Style::default());
    assert!(words(&mail).contains("is woken by the generator"), "{mail}");
    assert!(mail.lines().all(|line| line.len() <= 72), "{mail}");
    assert!(render("html", &study, &Style::default()).contains("is woken by the generator"));
    let details = render("text", &study, &Style { width: 200, details: true, ..Style::default() });
    assert!(words(&details).contains("Rescheduling interrupts 0.0100 0.810"), "{details}");
    let json: serde_json::Value =
        serde_json::from_str(&render("json", &study, &Style::default())).unwrap();
    let facts = json["analysis"]["rows"][1]["facts"].as_array().unwrap();
    assert!(facts.iter().any(|fact| fact["fact"] == "reschedules"), "{facts:?}");
}

#[test]
fn one_trial_has_no_interval_and_an_emulated_processor_no_speed() {
    let mut study = woken();
    study.trials.retain(|trial| trial.block == 0);
    study.profiles.clear();
    let said = words(&render("text", &study, &Style::default()));
    let sentence = "0.800 after (+0.800; one trial of a cell has no interval)";
    assert!(said.contains(sentence), "{said}");
    study.header.functional = Some("made up".into());
    let said = words(&render("text", &study, &Style::default()));
    assert!(said.contains("no figure shows how fast anything is: these are counts."), "{said}");
    assert!(said.contains("Lost, of the generated packets"), "{said}");
    assert!(
        !said.contains("The sink takes in")
            && !said.contains("The rate is bound by the sink before"),
        "{said}"
    );
}

#[test]
fn the_steps_of_each_end_s_own_profile_are_reported() {
    let study = woken();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let [before, after]: [&Row; 2] = [&analysis.rows[0], &analysis.rows[1]];
    let noise = [0.0, 0.03, -0.02];
    let of = |maps| noise.map(|noise| profiles::trial("made up", maps, noise, ""));
    let (copies, maps) = (of(false), of(true));
    let trials = |row: &'static str, profiles| Trials { cell: row, profiles, metered: &[] };
    let pair = [trials("packet+tap stock", &copies), trials("packet+tap patched", &maps)];
    let ends = Ends::of(&pair, Subsystems::built_in(), WorkUnit::Packet).unwrap();
    let why = report::why([before, after], Some(&ends), false, 0.95).unwrap();
    let line = why.lines.iter().find(|line| line.starts_with("By its profile, the sink")).unwrap();
    // 0.14 and 0.01 CPU-s/GiB over 16384 packets per GiB.
    assert!(line.contains("in CPU-ns/packet: copying -79"), "{line}");
    assert!(line.contains("most _copy_to_iter, 85") && line.contains("page mapping +36"), "{line}");
    let elsewhere = report::why([after, before], Some(&ends), false, 0.95).unwrap();
    assert!(!elsewhere.lines.iter().any(|line| line.starts_with("By its profile")));
}
