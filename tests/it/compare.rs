//! `bytepath compare` and `bytepath history`, as a user or a build server meets them: on study
//! folders written here.

use crate::shared::{bytepath, words};
use crate::{made_up, rr};

use bytepath::record::{CellId, Study, Trial};
use bytepath::study::StudyWriter;
use serde_json::Value;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn write(study: &Study, folder: &Path) -> String {
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    for trial in &study.trials {
        writer.append(std::slice::from_ref(trial)).unwrap();
    }
    folder.display().to_string()
}

/// The made-up study with the throughput of a cell multiplied by `factor` in every trial.
fn scaled(cell: &str, factor: f64) -> Study {
    let mut study = made_up::study();
    let of_cell = |t: &&mut Trial| t.cell.0 == cell;
    for t in study.trials.iter_mut().filter(of_cell) {
        t.count = (t.count as f64 * factor) as u64;
    }
    study
}

#[test]
fn a_slower_patch_fails_its_limit_with_a_code_of_its_own() {
    let folder = TempDir::new().unwrap();
    let before = write(&made_up::study(), &folder.path().join("before"));
    let after = write(&scaled("splice", 0.9), &folder.path().join("after"));
    let limit = ["--fail-if", "splice.throughput slower 2%"];
    let run = |arguments: &[&str]| bytepath(&[&["compare"], arguments].concat());
    let (code, text, errors) = run(&[&[&before[..], &after], &limit[..]].concat());
    assert_eq!(code, 7, "{text}{errors}");
    let said = words(&text);
    assert!(said.contains("FAILED splice.throughput slower 2%: splice is [0.8"), "{said}");
    assert!(said.contains("SLOWER"), "{said}");
    assert!(said.contains("no recorded difference"), "{said}");
    // The same study twice passes; what the interval cannot decide is reported as such.
    let (code, text, _) = run(&[&before, &before, "--fail-if", "splice.throughput slower 5%"]);
    assert_eq!(code, 0, "{text}");
    assert!(words(&text).contains("passed splice.throughput slower 5%"), "{text}");
    let undecided = [&before[..], &before, "--fail-if", "msg-zerocopy.throughput slower 1%"];
    let (code, text, _) = run(&undecided);
    assert_eq!(code, 125, "git bisect run takes it for a revision that cannot be tested");
    assert!(text.contains("UNDECIDED"), "{text}");
    assert_eq!(run(&[&undecided[..], &["--strict"]].concat()).0, 7);
    // The same as JSON.
    let (code, json, _) = run(&[&[&before[..], &after, "--json"], &limit[..]].concat());
    assert_eq!(code, 7);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["format"], "bytepath-comparison");
    assert_eq!(json["failed"], true);
    assert_eq!(json["thresholds"][0]["outcome"], "failed");
    let pairings = json["between"]["pairings"].as_array().unwrap();
    let splice = pairings.iter().find(|p| p["cell"] == "splice").unwrap();
    assert!((splice["ratio"].as_f64().unwrap() - 0.9).abs() < 1e-6);
}

/// A machine on which all cells are equally slower is no regression of any of them.
#[test]
fn ratios_to_the_baselines_leave_the_machine_out() {
    let folder = TempDir::new().unwrap();
    let before = write(&made_up::study(), &folder.path().join("before"));
    let mut slower = made_up::study();
    for trial in &mut slower.trials {
        trial.count = (trial.count as f64 * 0.8) as u64;
    }
    let slower = write(&slower, &folder.path().join("slower"));
    let limit = ["--fail-if", "splice.rate slower 5%"];
    let run = |arguments: &[&str]| bytepath(&[&["compare", &before], arguments, &limit].concat());
    assert_eq!(run(&[&slower]).0, 7);
    let (code, text, errors) = run(&[&slower, "--relative"]);
    assert_eq!(code, 0, "{text}{errors}");
    assert!(words(&text).contains("Ratios are ratios of ratios"), "{text}");
    let (code, _, errors) = bytepath(&[
        "compare",
        &before,
        &slower,
        "--relative",
        "--fail-if",
        "socket.rate slower 5%",
    ]);
    assert_eq!(code, 2, "the baseline is one in both: {errors}");
    let patched = write(&scaled("splice", 0.9), &folder.path().join("patched"));
    assert_eq!(run(&[&patched, "--relative"]).0, 7);
}

#[test]
fn limits_within_one_study_are_against_its_baseline() {
    let folder = TempDir::new().unwrap();
    let study = write(&made_up::study(), &folder.path().join("study"));
    let run = |limit: &str| bytepath(&["compare", &study, "--fail-if", limit]).0;
    assert_eq!(run("splice.throughput slower 2%"), 0);
    assert_eq!(run("uring-zc.throughput slower 2%"), 7);
    assert_eq!(run("splice.cpu more 0%"), 0);
    assert_eq!(run("uring-zc.cpu more 2%"), 7);
    assert_eq!(run("*.throughput slower 2%"), 7);
    assert_eq!(run("socket.throughput slower 2%"), 2, "the baseline is compared with nothing");
    assert_eq!(run("socket.throughput slwer 2%"), 2);
    // Reports leave out the levels that all cells share, and a limit may do so, too.
    let mut long = made_up::study();
    let lengthen = |id: &mut CellId| id.0.push_str(" mtu=9000");
    long.header.cells.iter_mut().for_each(|cell| lengthen(&mut cell.id));
    long.trials.iter_mut().for_each(|trial| lengthen(&mut trial.cell));
    lengthen(&mut long.header.baseline);
    let long = write(&long, &folder.path().join("long"));
    let run = |limit: &str| bytepath(&["compare", &long, "--fail-if", limit]).0;
    assert_eq!(run("splice mtu=9000.throughput slower 2%"), 0);
    assert_eq!(run("splice.throughput slower 2%"), 0);
    assert_eq!(run("uring-zc.throughput slower 2%"), 7);
}

/// A limit does not fail on what the report itself considers noise.
#[test]
fn a_limit_within_the_noise_of_the_study_is_undecided() {
    let folder = TempDir::new().unwrap();
    let noisy = write(&scaled("socket (again)", 0.1), &folder.path().join("noisy"));
    let limit = ["compare", &noisy, "--fail-if", "uring-zc.throughput slower 2%"];
    let (code, text, errors) = bytepath(&limit);
    assert_eq!(code, 125, "{text}{errors}");
    let said = words(&text);
    assert!(said.contains("NOISE TOO HIGH") && said.contains("UNDECIDED uring-zc"), "{said}");
    assert_eq!(bytepath(&[&limit[..], &["--strict"]].concat()).0, 7);
    // Without the noise the same trials fail the limit.
    let quiet = write(&made_up::study(), &folder.path().join("quiet"));
    assert_eq!(bytepath(&["compare", &quiet, "--fail-if", limit[3]]).0, 7);
}

#[test]
fn a_percentile_has_limits_a_comparison_and_a_history() {
    let folder = TempDir::new().unwrap();
    let before = rr::study();
    let mut after = rr::study();
    after.header.started_ms += 1000;
    for trial in after.trials.iter_mut().filter(|t| t.cell.0 == "socket") {
        // One exchange in a hundred takes 2 ms, which the median does not show.
        let latency = trial.latency.as_mut().unwrap();
        (0..latency.count() / 90).for_each(|_| latency.record(std::time::Duration::from_millis(2)));
    }
    let before = write(&before, &folder.path().join("before"));
    let after = write(&after, &folder.path().join("after"));
    let run = |limit: &str| bytepath(&["compare", &before, "--fail-if", limit]).0;
    assert_eq!(run("socket busy-poll=50.p99 higher 10%"), 0);
    assert_eq!(run("socket busy-poll=50.p99.9 higher 10%"), 7);
    assert_eq!(run("socket busy-poll=50.rate lower 2%"), 0);
    assert_eq!(run("*.p99.99 higher 10%"), 2, "six exchanges of a block lie above it");
    let limit = ["--fail-if", "socket.p99 higher 10%", "--fail-if", "socket.p50 higher 2%"];
    let (code, text, _) = bytepath(&[&["compare", &before, &after], &limit[..]].concat());
    let said = words(&text);
    assert_eq!(code, 7, "{text}");
    assert!(said.contains("Transaction rate, transactions/s"), "{said}");
    assert!(said.contains("Latency, p99, us") && said.contains("HIGHER LATENCY"), "{said}");
    assert!(said.contains("FAILED socket.p99") && said.contains("passed socket.p50"), "{said}");
    let path = folder.path().display().to_string();
    let (code, text, errors) = bytepath(&["history", &path, "socket.p99"]);
    assert_eq!((code, errors.as_str()), (0, ""));
    assert!(text.starts_with("socket: latency, p99, 2 studies") && text.contains(" us "), "{text}");
}

#[test]
fn another_baseline_is_said_to_be_one() {
    let folder = TempDir::new().unwrap();
    let study = write(&made_up::study(), &folder.path().join("study"));
    let (code, text, _) = bytepath(&["compare", &study, "--baseline", "splice"]);
    assert_eq!(code, 0);
    let said = words(&text);
    assert!(said.contains("Verdicts on throughput, against splice"), "{said}");
    assert!(said.contains("which had declared 'socket'"), "{said}");
    assert!(said.contains("Noise: socket against itself"), "{said}");
    let (code, _, errors) = bytepath(&["compare", &study, "--baseline", "splcie"]);
    assert_eq!(code, 2);
    assert!(errors.contains("did you mean 'splice'?"), "{errors}");
}

#[test]
fn hosts_that_differ_are_named_and_other_machines_refused() {
    let folder = TempDir::new().unwrap();
    let before = write(&made_up::study(), &folder.path().join("before"));
    let mut patched = made_up::study();
    for facts in &mut patched.header.facts {
        facts.kernel_release = "6.18.1-patched".into();
        facts.settings.insert("net.core.busy_poll".into(), "50".into());
    }
    let after = write(&patched, &folder.path().join("after"));
    let (code, text, _) = bytepath(&["compare", &before, &after]);
    assert_eq!(code, 0);
    let said = words(&text);
    assert!(said.contains("kernel 6.18.0 -> 6.18.1-patched"), "{said}");
    assert!(said.contains("net.core.busy_poll not there -> 50"), "{said}");
    assert_eq!(said.matches("6.18.0 -> 6.18.1-patched").count(), 1, "once for both hosts");
    let mut other = made_up::study();
    other.header.facts.iter_mut().for_each(|f| f.cpu_model = "Ryzen 5600X".into());
    let other = write(&other, &folder.path().join("other"));
    let (code, _, errors) = bytepath(&["compare", &before, &other]);
    assert_eq!(code, 2);
    assert!(errors.contains("CPU (AMD EPYC 9B14 and Ryzen 5600X)"), "{errors}");
    let (code, text, _) = bytepath(&["compare", &before, &other, "--different-hosts"]);
    assert_eq!(code, 0);
    assert!(text.contains("Another machine"), "{text}");
}

#[test]
fn the_same_name_with_another_contract_is_not_comparable() {
    let folder = TempDir::new().unwrap();
    let before = write(&made_up::study(), &folder.path().join("before"));
    let mut changed = made_up::study();
    for cell in &mut changed.header.cells {
        cell.stream.read_size = 4096;
    }
    let after = write(&changed, &folder.path().join("after"));
    let (_, text, _) = bytepath(&["compare", &before, &after]);
    assert_eq!(text.matches("NOT COMPARABLE").count(), 12, "six cells, two tables: {text}");
    assert_eq!(text.matches("EQUIVALENT").count(), 1, "in the rule: {text}");
    let reason = "read-size is 1048576 in the first study and 4096 here";
    assert!(words(&text).contains(reason), "{text}");
}

/// Writes twenty studies of three blocks; from the thirteenth on splice is 8 % slower, under
/// another kernel.
fn twenty(folder: &Path) {
    for i in 0..20u64 {
        let level = if i < 12 { 1.0 } else { 0.92 } * (1.0 + 0.002 * (i % 5) as f64);
        let mut study = scaled("splice", level);
        study.trials.retain(|t| t.block < 3);
        study.header.started_ms += i * 86_400_000;
        if i >= 12 {
            study.header.facts.iter_mut().for_each(|f| f.kernel_release = "6.18.1".into());
        }
        write(&study, &folder.join(format!("s{:02}", 19 - i)));
    }
}

#[test]
fn a_history_shows_where_it_changed_and_writes_nothing() {
    let folder = TempDir::new().unwrap();
    twenty(folder.path());
    fs::create_dir(folder.path().join("not-a-study")).unwrap();
    let path = folder.path().display().to_string();
    let splice =
        |extra: &[&str]| bytepath(&[&["history", &path, "splice.throughput"], extra].concat());
    let (code, text, errors) = splice(&[]);
    assert_eq!((code, errors.as_str()), (0, ""), "{text}");
    let change: Vec<&str> = text.lines().filter(|l| l.contains("CHANGE")).collect();
    assert_eq!(change.len(), 1, "{text}");
    assert!(change[0].contains("s07") && change[0].contains("CHANGE 0.92x"), "{text}");
    assert!(text.contains("kernel: 6.18.0 -> 6.18.1"), "{text}");
    // A study that changed is read again, and one that is gone is dropped from the index.
    let trials = folder.path().join("s00/trials.jsonl");
    let lines = fs::read_to_string(&trials).unwrap();
    fs::write(&trials, lines.lines().take(7).map(|l| format!("{l}\n")).collect::<String>())
        .unwrap();
    fs::remove_dir_all(folder.path().join("s19")).unwrap();
    let (_, json, _) = splice(&["--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    let entries = json["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 19);
    assert_eq!((&entries[18]["study"], &entries[18]["n"]), (&"s00".into(), &1.into()));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 20, "19 studies and not-a-study");
}

#[test]
fn a_history_of_nothing_says_what_there_is() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().display().to_string();
    let (code, _, errors) = bytepath(&["history", &path]);
    assert_eq!(code, 2);
    assert!(errors.contains("there is no study in"), "{errors}");
    write(&made_up::study(), &folder.path().join("one"));
    let damaged = write(&made_up::study(), &folder.path().join("two"));
    fs::write(Path::new(&damaged).join("experiment.toml"), "schema = \"x\"").unwrap();
    let (code, text, errors) = bytepath(&["history", &path]);
    assert_eq!(code, 0);
    assert!(text.starts_with("socket: throughput, 1 study"), "{text}");
    assert!(errors.contains("left out: two:") && errors.lines().count() == 1, "{errors}");
    let (code, _, errors) = bytepath(&["history", &path, "sockte.cpu"]);
    assert_eq!(code, 2);
    assert!(errors.contains("did you mean 'socket.cpu'?"), "{errors}");
    assert_eq!(bytepath(&["history", "/nowhere"]).0, 6);
}
