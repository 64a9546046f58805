//! Experiment files: the shipped ones load and run, the documentation lists everything that they
//! may contain, and an interrupted study ends as an uninterrupted one does.

use crate::isolated::isolated;
use crate::running::{Running, said};
use bytepath::record::{Cell, Study, Trial, TrialStatus};
use bytepath::spec::{
    Catalogues, Experiment, experiment_schema, factor_names, order, parse_experiment,
};
use bytepath::study::{load, path_spec, testbed_spec};
use bytepath::{meter, path, testbed};
use bytepath_testing::{shared, skip};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Trials so short that they prove only that a file runs.
const TINY: &[&str] = &["--blocks", "1", "--warm-up", "100ms", "--window", "300ms"];

#[test]
fn shipped_experiments_load_and_state_their_question() {
    let files = shipped();
    assert!(files.len() >= 6, "{files:?}");
    for file in files {
        let text = std::fs::read_to_string(&file).unwrap();
        let name = file.display().to_string();
        let experiment = parse_experiment(&name, &text, &catalogues()).unwrap();
        assert!(!experiment.title.is_empty(), "{name} has no title");
        let head: Vec<&str> = text.lines().take_while(|line| line.starts_with('#')).collect();
        assert!(head.iter().any(|line| line.ends_with('?')), "{name}: what does it answer?");
        assert!(head.iter().any(|line| line.starts_with("# Takes ")), "{name}: how long?");
        assert!(experiment.cells.iter().filter(|cell| cell.null).count() == 1, "{name}");
        assert!(text.lines().all(|line| line.chars().count() <= 140), "{name}");
    }
}

/// The minutes in the head comment are within a third of the time that the cells which need no NIC
/// take.
#[test]
fn the_time_that_an_experiment_says_it_takes_is_true() {
    // Seconds to bring up a testbed and to drain a stream.
    const EACH: f64 = 0.4;
    for file in shipped() {
        let text = std::fs::read_to_string(&file).unwrap();
        let x: Experiment = parse_experiment("x", &text, &catalogues()).unwrap();
        let needs_nic = |path: &str| ["zcrx", "devmem"].contains(&path);
        let runs = x.cells.iter().filter(|c| !c.link.hw_gro && !needs_nic(&c.rx.path)).count();
        let each = x.layout.warm_up.as_secs_f64() + x.layout.window.as_secs_f64() + EACH;
        let minutes = runs as f64 * f64::from(x.layout.blocks.unwrap_or(10)) * each / 60.0;
        let Some(said) = text.split("# Takes about ").nth(1) else {
            // A guest whose clock counts instructions is as slow as this host emulates it, and if
            // all cells need a NIC, no time can be estimated here. A cell that ends by a count
            // takes as long as its packets.
            let counts = |c: &Cell| c.workload.options.number("count").is_some();
            let slow = x.testbed.text.contains("count=instructions") || x.cells.iter().all(counts);
            assert!(slow || runs == 0, "{} says none", file.display());
            continue;
        };
        let said = match said.split_whitespace().next().unwrap() {
            "a" => 1.0,
            number => number.parse::<f64>().unwrap(),
        };
        let name = file.display();
        assert!((said / minutes).ln().abs() < 0.3, "{name}: says {said}, takes {minutes:.1} min");
    }
}

#[test]
fn the_documentation_names_every_key_and_factor_and_its_example_loads() {
    let text = std::fs::read_to_string(root().join("docs/guide/experiments.md")).unwrap();
    let schema = experiment_schema(&catalogues());
    let keys = schema["properties"].as_object().unwrap().keys().map(String::as_str);
    for name in keys.chain(factor_names()) {
        let named =
            [format!("| `{name}` |"), format!("| `[{name}]` |"), format!("| `[[{name}]]` |")];
        assert!(
            named.iter().any(|row| text.contains(row)),
            "docs/guide/experiments.md lacks a row of {name}"
        );
    }
    let example = text.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let experiment = parse_experiment("docs", example, &catalogues()).unwrap();
    assert_eq!(experiment.cells.len(), 6, "the text says five, and the second copy");
}

#[test]
fn small_experiments_run_for_real() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    for name in ["battle-quick", "gro", "one-core-two-cores", "null"] {
        let file = root().join("experiments").join(format!("{name}.toml"));
        let out = folder.path().join(name);
        let (code, _, stderr) =
            bytepath(&[&["run", text(&file), "--study", text(&out)], TINY].concat());
        assert_eq!(code, 0, "{name}: {stderr}");
        let study = load(&out).unwrap();
        assert_eq!(study.header.schedule.blocks, 1, "what flags say is recorded as resolved");
        for trial in &study.trials {
            let cell = study.header.cells.iter().find(|cell| cell.id == trial.cell).unwrap();
            let needs_nic = cell.link.hw_gro || ["zcrx", "devmem"].contains(&cell.rx.path.as_str());
            match &trial.status {
                // It ran; a busy machine may reject it.
                TrialStatus::Measured | TrialStatus::Rejected { .. } => {
                    assert!(!needs_nic, "{name}: {}", trial.cell);
                }
                TrialStatus::Unavailable { reason, remedy } => {
                    assert!(
                        needs_nic && !reason.is_empty() && !remedy.is_empty(),
                        "{name}: {reason}"
                    );
                }
                other => panic!("{name}: {}: {other:?}", trial.cell),
            }
        }
        assert_eq!(study.trials.len(), study.header.cells.len(), "{name}: a row for every cell");
    }
}

#[test]
fn unavailable_cells_are_rows_with_a_reason() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(
        folder.path(),
        "[factors]\npath = ['socket', 'zcrx']\nhw-gro = [false, true]\ncongestion = ['reno', 'nonsense']\ncores = ['none', '0,4095']\n",
    );
    let out = folder.path().join("study");
    let (code, _, stderr) =
        bytepath(&[&["run", text(&file), "--study", text(&out)], TINY].concat());
    assert_eq!(code, 0, "{stderr}");
    let study = load(&out).unwrap();
    assert_eq!(study.trials.len(), 17);
    let reason = |levels: &[&str]| {
        let has = |id: &str| levels.iter().all(|level| id.contains(level));
        let cell = study.header.cells.iter().find(|c| has(&c.id.0)).unwrap();
        let trial = study.trials.iter().find(|t| t.cell == cell.id).unwrap();
        match &trial.status {
            TrialStatus::Unavailable { reason, .. } => reason.clone(),
            other => panic!("{}: {other:?}", trial.cell),
        }
    };
    assert!(reason(&["cores=0/4095"]).contains("CPU 4095 does not exist"));
    assert!(reason(&["hw-gro=on"]).contains("no hardware GRO"));
    assert!(reason(&["socket congestion=nonsense"]).contains("'nonsense'"));
    assert!(reason(&["zcrx"]).contains("queue"), "{}", reason(&["zcrx"]));
    let unable = |t: &&Trial| matches!(t.status, TrialStatus::Unavailable { .. });
    let able = study.trials.len() - study.trials.iter().filter(unable).count();
    assert_eq!(able, 2, "the baseline and its second copy");
}

#[test]
fn a_baseline_that_cannot_run_is_an_error() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    for factors in [
        "path = 'zcrx'",
        "path = 'socket'\nhw-gro = true",
        "path = 'socket'\ncongestion = 'nonsense'",
    ] {
        let file = write(folder.path(), &format!("[factors]\n{factors}\n"));
        let (code, _, stderr) = bytepath(&["run", text(&file), "--study", text(&out)]);
        assert!([2, 3].contains(&code), "{factors}: {code} {stderr}");
        assert!(!out.exists(), "{factors}");
    }
}

const LONG: &str = "design = 'trials'\nblocks = 3\nseed = 5\nwarm-up = '50ms'\nwindow = '200ms'\nmeters = 'none'\n\
                    [factors]\npath = ['socket', 'uring', 'zcrx']\n";

#[test]
fn a_study_that_was_killed_continues_to_the_same_set_of_trials() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), LONG);
    let out = folder.path().join("study");
    let mut running = Running::start(&mut command(&["run", text(&file), "--study", text(&out)]));
    running.wait_for("[  3/9]");
    // Only one process may write to a study.
    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert!(code == 6 && stderr.contains("run by another process"), "{code} {stderr}");
    running.kill();
    let trials = out.join("trials.jsonl");
    let mut before = std::fs::read_to_string(&trials).unwrap();
    let finished = load(&out).unwrap().trials.len();
    assert!((3..8).contains(&finished), "{finished} rows");
    // Also after a crash in the middle of a line.
    before.truncate(before.rfind('\n').unwrap() + 1);
    std::fs::write(&trials, format!("{before}{{\"schema\":1,\"cell\":\"soc")).unwrap();

    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert_ended(code, &stderr);
    assert!(std::fs::read_to_string(&trials).unwrap().starts_with(&before), "only appended to");
    let study = load(&out).unwrap();
    assert_whole(&study);
    assert_eq!(study.remarks.len(), 1, "{:?}", study.remarks);
    assert!(study.remarks[0].contains("resumed after"), "{:?}", study.remarks);

    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert!(code == 2 && stderr.contains("is complete: all 9 trials"), "{code} {stderr}");
}

/// A sliced block is all or nothing.
#[test]
fn a_sliced_study_continues_with_the_block_that_was_lost() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), &LONG.replace("'trials'", "'slices:100ms'"));
    let out = folder.path().join("study");
    let mut running = Running::start(&mut command(&["run", text(&file), "--study", text(&out)]));
    running.wait_for("[  3/9]");
    running.kill();
    let finished = load(&out).unwrap().trials.len();
    assert!([4, 7].contains(&finished), "one or two blocks, and the row of zcrx: {finished}");
    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert_ended(code, &stderr);
    assert_whole(&load(&out).unwrap());
}

#[test]
fn ctrl_c_prints_how_to_resume() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), LONG);
    let out = folder.path().join("study");
    let mut running = Running::start(&mut command(&["run", text(&file), "--study", text(&out)]));
    running.wait_for("[  1/9]");
    running.signal(libc::SIGINT);
    running.wait_for("bytepath resume");
    assert_eq!(running.0.wait().unwrap().code(), Some(130));
    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert_ended(code, &stderr);
    assert_whole(&load(&out).unwrap());
}

#[test]
fn a_study_continues_only_where_it_was_begun() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), LONG);
    let out = folder.path().join("study");
    let (code, _, stderr) = bytepath(&["run", text(&file), "--study", text(&out)]);
    assert_ended(code, &stderr);
    let trials = out.join("trials.jsonl");
    let whole = std::fs::read_to_string(&trials).unwrap();
    let lines: Vec<&str> = whole.split_inclusive('\n').collect();
    std::fs::write(&trials, lines[..lines.len() - 1].concat()).unwrap();
    let (hosts, experiment) = (out.join("hosts.json"), out.join("experiment.toml"));
    let (facts, asked) =
        (std::fs::read_to_string(&hosts).unwrap(), std::fs::read_to_string(&experiment).unwrap());
    let header = load(&out).unwrap().header;
    let build = format!("bytepath = \"{}\"", header.bytepath);
    let changes = [
        (
            &hosts,
            &facts,
            header.facts[0].kernel_release.as_str(),
            "1.2.3",
            "kernel was '1.2.3' and is",
        ),
        (&hosts, &facts, header.facts[0].cpu_model.as_str(), "Z80", "CPU model was 'Z80' and is"),
        (&experiment, &asked, build.as_str(), "bytepath = \"0.0.1\"", "bytepath was 0.0.1 and is"),
    ];
    for (path, content, old, new, words) in changes {
        assert!(content.contains(old), "{old}");
        std::fs::write(path, content.replace(old, new)).unwrap();
        let (code, _, stderr) = bytepath(&["resume", text(&out)]);
        assert!(code == 3 && stderr.contains(words), "{code} {stderr}");
        std::fs::write(path, content).unwrap();
    }
    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert_ended(code, &stderr);
    assert_whole(&load(&out).unwrap());
}

/// The bound, an interval up to fifty times the ratio, is one that even the noisiest machine meets;
/// an experiment may not request it.
#[test]
fn a_stopping_rule_ends_a_study_and_says_what_it_saved() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let first = "design = 'slices:100ms'\nblocks = 1\nseed = 5\nwarm-up = '50ms'\n\
                 window = '300ms'\nmeters = 'none'\n[factors]\npath = ['socket', 'uring']\n";
    let file = write(folder.path(), first);
    let out = folder.path().join("study");
    let (code, _, stderr) = bytepath(&["run", text(&file), "--study", text(&out)]);
    assert_ended(code, &stderr);
    more_blocks(&out, 1, 16, "within = 50.0\nat-least = 4");
    let (code, stdout, stderr) = bytepath(&["resume", text(&out)]);
    assert_ended(code, &stderr);
    let study = load(&out).unwrap();
    let blocks = study.trials.iter().map(|t| t.block).max().unwrap() + 1;
    assert_eq!(study.trials.len(), 3 * blocks as usize, "whole blocks");
    // The study continued until the rule was met, and no longer.
    let after = |blocks: u32| {
        let trials = study.trials.iter().filter(|t| t.block < blocks).cloned().collect();
        bytepath::stats::should_stop(&Study { trials, ..study.clone() })
    };
    for earlier in 1..blocks {
        assert_eq!(after(earlier), None, "after {earlier} of {blocks}");
    }
    assert!((4..16).contains(&blocks) && after(blocks).is_some(), "{blocks} blocks");
    let [resumed, remark] = study.remarks.as_slice() else { panic!("{:?}", study.remarks) };
    assert!(resumed.contains("resumed after "), "{resumed}");
    assert!(remark.starts_with("stopped early: ") && remark.ends_with(" saved"), "{remark}");
    assert!(stderr.contains(remark.as_str()), "{stderr}");
    let words: Vec<&str> = remark.split_whitespace().take(3).collect();
    assert!(stdout.contains(&words.join(" ")), "the report says so: {stdout}");
    let (code, _, stderr) = bytepath(&["resume", text(&out)]);
    assert!(code == 2 && stderr.contains("is complete: after"), "{code} {stderr}");
    assert_eq!(load(&out).unwrap().remarks.len(), 2);
}

/// Rewrites a study to have more blocks and a stopping rule.
fn more_blocks(study: &Path, from: u32, to: u32, rule: &str) {
    let experiment = study.join("experiment.toml");
    let asked = std::fs::read_to_string(&experiment).unwrap();
    let (had, wanted) = (format!("blocks = {from}\n"), format!("blocks = {to}\n"));
    assert!(asked.contains(&had), "{asked}");
    let asked = asked.replace(&had, &wanted);
    std::fs::write(&experiment, format!("{asked}\n[schedule.stopping]\n{rule}\n")).unwrap();
}

/// Resuming applies the rule to the study as it is, and finds it met.
#[test]
fn a_study_that_its_rule_had_ended_is_complete() {
    let _shared = shared();
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), &LONG.replace("'200ms'", "'100ms'"));
    let out = folder.path().join("study");
    let (code, _, stderr) = bytepath(&["run", text(&file), "--study", text(&out)]);
    assert_ended(code, &stderr);
    more_blocks(&out, 3, 40, "within = 0.01\nat-least = 3");
    // Three blocks that agree within a tenth of a percent.
    let lines = load(&out).unwrap().trials.into_iter().map(|mut trial| {
        if !matches!(trial.status, TrialStatus::Unavailable { .. }) {
            trial.status = TrialStatus::Measured;
            (trial.window, trial.count) = (1.0, 1_000_000_000 + u64::from(trial.block) * 1_000_000);
        }
        serde_json::to_string(&trial).unwrap() + "\n"
    });
    std::fs::write(out.join("trials.jsonl"), lines.collect::<String>()).unwrap();
    for _ in 0..2 {
        let (code, _, stderr) = bytepath(&["resume", text(&out)]);
        assert!(code == 2 && stderr.contains("is complete: after 3 of at most 40"), "{stderr}");
        let remarks = load(&out).unwrap().remarks;
        assert!(
            remarks.len() == 1 && remarks[0].starts_with("stopped early: after 3"),
            "{remarks:?}"
        );
    }
}

/// Checks that a study ended and was recorded. On a busy machine a stream may stall for so long
/// that its trial fails.
fn assert_ended(code: i32, stderr: &str) {
    assert!([0, 5].contains(&code), "{code}: {stderr}");
}

/// Every cell that can run has one trial of every block, in the order of the seed.
fn assert_whole(study: &Study) {
    let header = &study.header;
    let unable = |t: &TrialStatus| matches!(t, TrialStatus::Unavailable { .. });
    let ran: Vec<(u32, &str)> = study
        .trials
        .iter()
        .filter(|t| !unable(&t.status))
        .map(|t| (t.block, t.cell.0.as_str()))
        .collect();
    let planned: Vec<(u32, &str)> =
        order(header.cells.len(), header.schedule.blocks, header.schedule.seed)
            .into_iter()
            .map(|(block, index)| (block, header.cells[index].id.0.as_str()))
            .filter(|(_, id)| *id != "zcrx")
            .collect();
    assert_eq!(ran, planned);
    let orders: Vec<u32> = study.trials.iter().map(|t| t.order).collect();
    assert_eq!(orders, (0..study.trials.len() as u32).collect::<Vec<_>>());
}

fn shipped() -> Vec<PathBuf> {
    let folder = std::fs::read_dir(root().join("experiments")).unwrap();
    let paths = folder.map(|entry| entry.unwrap().path());
    let mut files: Vec<PathBuf> = paths.filter(|path| path.is_file()).collect();
    files.sort();
    files
}

/// The binary's catalogues, on a machine with two CPUs.
fn catalogues() -> Catalogues {
    Catalogues {
        paths: path_spec(path::CATALOG, path::PAIRS),
        testbeds: testbed_spec(testbed::CATALOG),
        meters: meter::selectable().map(|meter| meter.name).collect(),
        usual_meters: meter::regular().map(|meter| meter.name).collect(),
        cpus: [0, 1].into(),
        testbed: None,
        cores: None,
        workload: String::new(),
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn write(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("experiment.toml");
    std::fs::write(&file, text).unwrap();
    file
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(arguments);
    command
}

fn bytepath(arguments: &[&str]) -> (i32, String, String) {
    said(&mut command(arguments))
}

/// The doctor, a dry run and the study itself name the same cells that cannot run, for the same
/// reasons, and the dry run has the exit code of the study.
#[test]
fn what_cannot_run_is_known_before_it_is_run() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let (file, out) = (dir.path().join("x.toml"), dir.path().join("study"));
    let experiment = "
        baseline = { path = 'socket', cores = '0,0', hw-gro = false }
        blocks = 1
        design = 'trials'
        warm-up = '0'
        window = '100ms'
        profile = 'none'
        [factors]
        path = ['socket', 'sendfile']
        hw-gro = [false, true]
        cores = ['0,0', '0,4000', 'none,vhost=0']
    ";
    std::fs::write(&file, experiment).unwrap();
    let (code, _, errors) = bytepath(&["run", text(&file), "--study", text(&out), "--quiet"]);
    assert_eq!(code, 0, "{errors}");
    // Its folder exists by now.
    let again = ["run", text(&file), "--study", text(&out), "--quiet"];
    let [(code, _, errors), (dry, _, said)] =
        [&[][..], &["--dry-run"]].map(|more| bytepath(&[&again[..], more].concat()));
    assert_eq!((code, dry), (6, 6), "{errors}");
    assert_eq!(said, errors);
    let study = load(&out).unwrap();
    let refused = study.trials.iter().filter_map(|trial| match &trial.status {
        TrialStatus::Unavailable { reason, .. } => Some((trial.cell.0.clone(), reason.clone())),
        _ => None,
    });
    let refused: Vec<(String, String)> = refused.collect();
    assert_eq!(refused.len(), 10, "two of twelve can run: {refused:#?}");

    let (code, json, _) = bytepath(&["doctor", "--experiment", text(&file), "--json"]);
    let doctor: serde_json::Value = serde_json::from_str(&json).unwrap();
    let words = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let listed = doctor["cells"].as_array().unwrap().iter();
    let listed: Vec<_> = listed.map(|one| (words(&one["name"]), words(&one["reason"]))).collect();
    assert_eq!((code, listed), (0, refused.clone()), "the study runs without those");

    let (code, json, errors) = bytepath(&["run", text(&file), "--dry-run", "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&json).unwrap();
    let listed = plan["unable"].as_array().unwrap().iter();
    let listed: Vec<_> =
        listed.map(|one| (words(&one["cell"]), words(&one["fault"]["message"]))).collect();
    let refused_count = refused.len();
    assert_eq!((code, listed), (0, refused), "{errors}");
    let ran = study.trials.len() - refused_count;
    assert_eq!(plan["order"][0].as_array().unwrap().len(), ran, "the baseline again is one");
    let seconds = |name: &str| plan[name].as_f64().unwrap();
    assert_eq!(seconds("seconds"), seconds("seconds_per_trial") * ran as f64);

    // What is requested by name must run.
    let named = ["run", "--path", "socket", "--link", "wire:hw-gro=on", "--blocks", "1", "--quiet"];
    let (code, _, errors) =
        bytepath(&[&named[..], &["--study", text(&dir.path().join("no"))]].concat());
    assert!(code != 0 && errors.contains("no hardware GRO"), "{errors}");
    let (dry, plan, said) = bytepath(&[&named[..], &["--dry-run"]].concat());
    assert_eq!((dry, said), (code, errors));
    assert!(plan.contains("(cannot run)") && plan.contains("0 trials"), "{plan}");
    assert!(!plan.contains("block"), "none has a cell: {plan}");
}

/// Kernels may lack the module netem: a cell that needs it is a row with a reason and a remedy,
/// which a dry run and the doctor also print.
#[test]
fn a_discipline_that_is_not_there_is_a_reason_with_a_remedy() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    let file = write(
        dir.path(),
        "baseline = { delay = 0 }\n[factors]\npath = 'socket'\ndelay = [0, 1000]\n",
    );
    let arguments = [&["run", text(&file), "--study", text(&out)], TINY].concat();
    let (code, printed, errors) = bytepath(&arguments);
    assert_eq!(code, 0, "{errors}");
    let study = load(&out).unwrap();
    let far = study.trials.iter().find(|trial| trial.cell.0.contains("delay=1000")).unwrap();
    let TrialStatus::Unavailable { reason, remedy } = &far.status else {
        return skip!("this kernel has netem");
    };
    assert!(reason.contains("queueing discipline netem"), "{reason}");
    assert!(remedy.contains("modprobe sch_netem") && remedy.contains("--testbed vm"), "{remedy}");
    assert!(printed.contains("modprobe sch_netem"), "{printed}");
    let json = |arguments: &[&str]| {
        let (code, json, errors) = bytepath(arguments);
        assert_eq!(code, 0, "{arguments:?}: {errors}");
        serde_json::from_str::<serde_json::Value>(&json).unwrap()
    };
    let doctor = json(&["doctor", "--experiment", text(&file), "--json"]);
    assert_eq!(doctor["cells"][0]["reason"].as_str(), Some(reason.as_str()), "{doctor}");
    assert_eq!(doctor["cells"][0]["remedy"].as_str(), Some(remedy.as_str()), "{doctor}");
    let dry = json(&["run", text(&file), "--dry-run", "--json"]);
    assert_eq!(dry["unable"][0]["fault"]["message"].as_str(), Some(reason.as_str()), "{dry}");
    assert_eq!(dry["unable"][0]["fault"]["remedy"].as_str(), Some(remedy.as_str()), "{dry}");
    let named = ["run", "--path", "socket", "--link", "wire:delay=1000", "--study"];
    let (code, _, errors) = bytepath(&[&named[..], &[text(&dir.path().join("no"))]].concat());
    assert_eq!(code, 3, "{errors}");
}

/// Settings that a namespace does not permit are named, and the study runs.
#[test]
fn settings_that_a_namespace_does_not_have_are_left_out_and_named() {
    isolated(module_path!(), "inside_a_namespace_without_settings");
}

#[test]
#[ignore = "started in a namespace by settings_that_a_namespace_does_not_have_are_left_out_and_named"]
fn inside_a_namespace_without_settings() {
    let dir = tempfile::tempdir().unwrap();
    let out = dir.path().join("study");
    // A test must not change settings of the machine.
    mount_read_only("/proc/sys/vm");
    mount_read_only("/sys/kernel/mm");
    let arguments = [&["run", "--path", "socket", "--settings", "battle-of-zcs"], TINY].concat();
    let (code, _, errors) = bytepath(&[&arguments[..], &["--study", text(&out)]].concat());
    assert_eq!(code, 0, "{errors}");
    let study = load(&out).unwrap();
    // A busy machine may reject what ran.
    let ran = |status: &TrialStatus| {
        matches!(status, TrialStatus::Measured | TrialStatus::Rejected { .. })
    };
    assert!(study.trials.iter().all(|trial| ran(&trial.status)), "{errors}");
    let (left_out, made): (Vec<_>, Vec<_>) =
        study.header.settings.iter().partition(|record| record.skipped.is_some());
    let named = |name: &str| left_out.iter().any(|record| record.to_string().contains(name));
    assert!(named("net.core.rmem_max") && named("vm.max_map_count"), "{left_out:#?}");
    assert!(made.iter().any(|record| record.to_string().contains("net.ipv4.tcp_rmem")), "{made:?}");
    assert!(errors.contains("not set: sysctl net.core.rmem_max"), "{errors}");
}

fn mount_read_only(folder: &str) {
    for options in [&["--bind", folder, folder][..], &["-o", "remount,bind,ro", folder]] {
        assert!(Command::new("mount").args(options).status().unwrap().success(), "{folder}");
    }
}

/// A probe may be wrong about a host that it was not written for; then a trial shows what works.
#[test]
fn what_a_probe_refuses_is_tried_on_request() {
    let _shared = shared();
    let dir = tempfile::tempdir().unwrap();
    let run = |name: &str, flags: &[&str]| {
        let out = dir.path().join(name);
        let arguments =
            ["run", "--path", "socket", "--path", "devmem", "--quiet", "--study", text(&out)];
        let (code, _, errors) = bytepath(&[&arguments[..], TINY, flags].concat());
        (code, errors, load(&out).ok())
    };
    let (code, errors, _) = run("asked", &[]);
    assert!(code == 3 && errors.contains("devmem"), "{code} {errors}");
    let (code, errors, study) = run("forced", &["--force"]);
    let study = study.expect(&errors);
    assert!(code == 5 && study.header.schedule.force, "{code} {errors}");
    let failed = |trial: &&Trial| trial.cell.0 == "devmem";
    let devmem = study.trials.iter().find(failed).expect(&errors);
    assert!(matches!(devmem.status, TrialStatus::Failed { .. }), "{:?}", devmem.status);
}
