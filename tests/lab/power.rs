//! Power of two hosts from the logs of two meters, each with its own clock; the wall clock of one
//! host is also five minutes ahead. The logs are made up; the study is real.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath, join, ran};
use bytepath::record::{Role, Scope, Study, Trial, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Seconds by which the receiver's wall clock is ahead.
const AHEAD: f64 = 300.0;

/// Watts that a machine draws at rest, and the additional watts of each role while a stream flows.
const REST: f64 = 100.0;
const DRAWN: [f64; 2] = [60.0, 90.0];

/// A library with a wall clock that is ahead, and a monotonic one that is not.
const CLOCK: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <time.h>
int clock_gettime(clockid_t id, struct timespec *time) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(id, time);
    if (id == CLOCK_REALTIME) time->tv_sec += AHEAD;
    return code;
}
"#;

#[test]
fn two_meters_with_two_clocks_give_three_columns() {
    isolated(module_path!(), "inside_two_meters");
}

#[test]
#[ignore = "started in a namespace by two_meters_with_two_clocks_give_three_columns"]
fn inside_two_meters() {
    let dir = tempfile::tempdir().unwrap();
    let Some(clock) = clock_ahead(dir.path()) else { return };
    let hosts = ["sender", "receiver"].map(|name| Place::new(dir.path(), name));
    join(&hosts[0], &hosts[1], "10.9.0");
    let host = |place: &Place, preload: &Path| {
        let (pid, state, preload) = (place.pid(), place.state.display(), preload.display());
        let namespaces = format!("nsenter --target={pid} --net --mount");
        format!("\"exec:{namespaces} env BYTEPATH_STATE={state} LD_PRELOAD={preload}\"")
    };
    let [sender, receiver] = [host(&hosts[0], Path::new("")), host(&hosts[1], &clock)];
    let out = dir.path().join("study");
    let early = dir.path().join("early.csv");
    fs::write(&early, "0,5\n1,6\n2,7\n").unwrap();
    let early = early.display();
    let power = format!("sender=csv={early},rest=3,receiver=csv={early}");
    let testbed = format!("hosts:sender={sender},receiver={receiver}");
    let mut run = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--power", &power]);
    run.args(["--cores", "unpinned", "--blocks", "3", "--warm-up", "200ms", "--window", "600ms"]);
    let run = run.args(["--design", "trials", "--profile", "none", "--study"]).arg(&out);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    // A wrong wall clock is remarked on, but changes no figure.
    let study = load(&out).unwrap();
    assert!(study.trials.iter().all(ran), "{}", text(&output));
    for trial in &study.trials {
        let clocks = trial.clocks.as_ref().unwrap();
        assert!((clocks.receiver.wall - AHEAD).abs() < 1.0, "{clocks:?}");
        assert!(clocks.receiver.offset.abs() <= clocks.receiver.error, "{clocks:?}");
        // On a busy machine a window opens late, but not by minutes.
        assert!((trial.window - 0.6).abs() < 2.0 && clocks.out_of_step() < 2.0, "{clocks:?}");
    }
    let said = |words: &str| study.remarks.iter().filter(|r| r.contains(words)).count();
    assert_eq!(said("the wall clock of the receiver's host is 300 s ahead"), 1);
    // Logs of another time yield no figures, but the study stays valid.
    assert_eq!(said("no power figures"), 2, "{:?}", study.remarks);
    assert!(study.trials[0].reading("power.watts", &Scope::MachineOf(Role::Sender)).is_none());

    // The sender's meter is an hour and some seconds behind; the receiver's shares its host's
    // clock.
    for (role, ahead) in [(Role::Sender, -3602.5), (Role::Receiver, AHEAD)] {
        let log = log(&study, dir.path(), role, ahead);
        let (study, log, role_name) = (out.display(), log.display(), role.to_string());
        let words = [&format!("{study}"), &format!("{log}"), "--role", &*role_name];
        let output = bytepath(&["attach", "--rest", "measure"]).args(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let file = fs::read_to_string(out.join(format!("power-{role}.json"))).unwrap();
        let kept: serde_json::Value = serde_json::from_str(&file).unwrap();
        let offset = kept["offset"].as_f64().unwrap();
        assert!((offset + ahead).abs() < 0.1, "{role}: {offset}");
    }
    let study = load(&out).unwrap();
    for trial in &study.trials {
        for (role, drawn) in Role::ALL.into_iter().zip(DRAWN) {
            let watts = trial.reading("power.watts", &Scope::MachineOf(role));
            let watts = watts.unwrap_or_else(|| panic!("{trial:?}: {:?}", study.remarks));
            assert!((watts - drawn).abs() < 0.15 * drawn, "{role}: {watts}");
        }
        assert!(trial.reading("power.watts", &Scope::Machine).is_none(), "they share none");
    }
    columns_are_in_reports(&out, &study);

    // A log of both hosts replaces the two logs.
    let both = log(&study, dir.path(), Role::Sender, 7.0);
    let words = [out.as_os_str(), both.as_os_str()];
    let output = bytepath(&["attach", "--rest", "measure"]).args(words).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let trial = &load(&out).unwrap().trials[0];
    assert!(trial.reading("power.watts", &Scope::Machine).is_some());
    assert!(trial.reading("power.watts", &Scope::MachineOf(Role::Sender)).is_none());
}

/// Watts, joules and the return by power are given for the sender, the receiver and both.
fn columns_are_in_reports(out: &Path, study: &Study) {
    let show = |format: &str| {
        let words = ["show", out.to_str().unwrap(), "--details", "--format", format];
        text(&bytepath(&words).env("COLUMNS", "160").output().unwrap())
    };
    let table = csv_of(&show("csv"));
    let cell = &study.header.baseline;
    let measured = |t: &&Trial| t.cell == *cell && t.status == TrialStatus::Measured;
    let measured = study.trials.iter().filter(measured).count();
    if measured == 0 {
        return skip!("the machine is so busy that every trial was rejected");
    }
    for metric in ["energy.watts", "energy.joules_per_unit", "energy.roi"] {
        let mean = |role: &str| {
            let of = |row: &&Vec<String>| row[0] == cell.0 && row[1] == metric && row[2] == role;
            let all = table.iter().filter(of).map(|row| row[3].parse().unwrap());
            let all: Vec<f64> = all.collect();
            assert_eq!(all.len(), measured, "{metric} {role}");
            all.iter().sum::<f64>() / measured as f64
        };
        let [sender, receiver, both] = ["sender", "receiver", ""].map(mean);
        match metric {
            "energy.roi" => assert!(sender > receiver && receiver > both && both > 0.0),
            _ => assert!(((sender + receiver) / both - 1.0).abs() < 1e-6 && sender < receiver),
        }
        let shown = |decimals: usize, value: f64| format!("{value:.decimals$}");
        if metric == "energy.watts" {
            for format in ["text", "netdev", "html"] {
                let report = show(format);
                for value in [sender, receiver, both] {
                    assert!(report.contains(&shown(1, value)), "{format}: {value}: {report}");
                }
            }
        }
    }
    let netdev = show("netdev");
    assert!(netdev.contains("Energy") && netdev.contains("J/GiB"), "{netdev}");
    assert!(netdev.contains("T^n / P^m"), "{netdev}");
}

/// Cell, metric, role and value of each row.
fn csv_of(text: &str) -> Vec<Vec<String>> {
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let names = lines.next().unwrap();
    let at = ["cell", "metric", "role", "value"]
        .map(|name| names.iter().position(|found| *found == name).unwrap());
    lines.map(|row| at.iter().map(|at| row[*at].to_owned()).collect()).collect()
}

/// Writes a log of what the machine of a role drew during the streams of a study, by a clock that
/// is `ahead` seconds ahead.
fn log(study: &Study, folder: &Path, role: Role, ahead: f64) -> PathBuf {
    let flowed: Vec<(f64, f64)> = study
        .trials
        .iter()
        .map(|trial| (trial.spans[0].begin - 0.2, trial.spans[0].begin + trial.spans[0].length))
        .collect();
    let (first, last) = (flowed[0].0 - 10.0, flowed[flowed.len() - 1].1 + 10.0);
    let mut text = String::from("Time,Power (W)\n");
    for step in 0..((last - first) / 0.05) as u64 {
        let now = first + step as f64 * 0.05;
        let flows = flowed.iter().any(|(begin, end)| (*begin..*end).contains(&now));
        let drawn = if flows { DRAWN[role as usize] } else { 0.0 };
        let noise = f64::from((step * 7919 % 13) as u32) / 6.0 - 1.0;
        text += &format!("{:.3},{:.2}\n", now + ahead, REST + drawn + noise);
    }
    let file = folder.join(format!("{role}-{ahead}.csv"));
    fs::write(&file, text).unwrap();
    file
}

/// Builds the library that is preloaded to put a program's wall clock ahead. Returns `None`, with a
/// report, without a compiler.
fn clock_ahead(folder: &Path) -> Option<PathBuf> {
    let [source, library] = ["clock.c", "clock.so"].map(|name| folder.join(name));
    fs::write(&source, CLOCK).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-O2", &format!("-DAHEAD={AHEAD}"), "-o"]).arg(&library);
    match cc.arg(&source).output() {
        Ok(made) => {
            assert!(made.status.success(), "{}", text(&made));
            Some(library)
        }
        Err(e) => {
            skip!("no cc ({e})");
            None
        }
    }
}
