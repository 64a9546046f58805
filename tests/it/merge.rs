//! `bytepath merge`: studies of one experiment on several pairs of hosts.

use crate::shared::{bytepath, render, words};
use crate::{made_up, rr};

use bytepath::record::{CellId, Load, Peak, ProfileRecord, Study, StudyHeader, TrialStatus};
use bytepath::report::{CATALOG, Style};
use bytepath::stats::{Metric, Rules, analyse, differences};
use bytepath::study::{StudyWriter, load};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

fn write(study: &Study, folder: &Path) -> String {
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    study.remarks.iter().for_each(|remark| writer.remark(remark).unwrap());
    let mut trials = study.trials.clone();
    for trial in &study.profiles {
        let mut trial = trial.clone();
        let profile = trial.profile.as_mut().unwrap();
        profile.file = writer.profile(&profile.file, profile.event.as_bytes()).unwrap();
        trials.push(trial);
    }
    writer.append(&trials).unwrap();
    folder.display().to_string()
}

/// The made-up study on another pair of hosts, with the rate of splice multiplied by `splice`.
fn shard(seed: u64, splice: f64) -> Study {
    let mut study = made_up::study();
    study.header.schedule.seed = seed;
    study.header.started_ms += seed;
    for trial in study.trials.iter_mut().filter(|trial| trial.cell.0 == "splice") {
        trial.count = (trial.count as f64 * splice) as u64;
    }
    study
}

#[test]
fn two_pairs_become_one_study_with_the_spread_between_them() {
    let folder = TempDir::new().unwrap();
    let path = |name: &str| folder.path().join(name);
    let (mut a, mut b) = (shard(1, 1.0), shard(2, 1.5));
    b.header.schedule.blocks = 4;
    b.trials.retain(|trial| trial.block < 4);
    b.header.facts[0].settings.insert("net.core.rmem_max".into(), "1".into());
    b.remarks.push("interrupted and resumed after 3 of 28 trials".into());
    for (study, said) in [(&mut a, "of a"), (&mut b, "of b")] {
        let mut profile = study.trials[0].clone();
        let (file, event) = ("socket-1.pb.gz".to_owned(), said.to_owned());
        let record = ProfileRecord { number: 1, file, event, rate: 99, samples: 1, lost: 0 };
        (profile.profile, profile.order) = (Some(record), study.trials.len() as u32);
        study.profiles.push(profile);
    }
    let (first, second) = (write(&a, &path("one")), write(&b, &path("two")));
    let out = path("all").display().to_string();
    let (code, _, errors) = bytepath(&["merge", &first, &second, "--study", &out]);
    assert_eq!(code, 0, "{errors}");

    let merged = load(&path("all")).unwrap();
    assert_eq!(merged.header.schedule.blocks, 9);
    assert_eq!(merged.header.facts, a.header.facts, "those of the first");
    assert_eq!(merged.trials.len(), a.trials.len() + b.trials.len());
    assert_eq!(merged.trials[0].order, 0);
    for trial in &merged.trials {
        let unavailable = matches!(trial.status, TrialStatus::Unavailable { .. });
        let expected = if trial.order < 38 { "one" } else { "two" };
        assert_eq!(trial.pair.as_deref(), Some(expected), "{}", trial.order);
        assert!(unavailable || (trial.block < 5) == (expected == "one"));
    }
    let profiles: Vec<_> = merged.profiles.iter().map(|t| t.profile.as_ref().unwrap()).collect();
    assert_eq!(profiles.iter().map(|p| p.number).collect::<Vec<_>>(), [1, 2]);
    for profile in profiles {
        assert_eq!(fs::read_to_string(path("all").join(&profile.file)).unwrap(), profile.event);
    }
    for remark in [
        "merged from one, two",
        "two has net.core.rmem_max 1, one has not there",
        "two: interrupted and resumed after 3 of 28 trials",
    ] {
        assert!(merged.remarks.iter().any(|r| r == remark), "{remark}: {:?}", merged.remarks);
    }

    // The ratio of splice is 1.2 on one pair and 1.8 on the other; that of sendfile is equal on
    // both.
    let analysis = analyse(&merged, &Rules::of(&merged.header));
    let row = |name: &str| analysis.rows.iter().find(|row| row.cell.0 == name).unwrap();
    let spread = |name| row(name).comparison(Metric::Rate).unwrap().pairs.unwrap();
    let expected = 1.5f64.ln() / 2f64.sqrt();
    assert_eq!((spread("splice").pairs, spread("splice").blocks), (2, 9));
    assert!((spread("splice").log_between - expected).abs() < 0.02, "{:?}", spread("splice"));
    assert!(spread("sendfile").log_between < 0.01, "{:?}", spread("sendfile"));
    let alone = analyse(&a, &Rules::of(&a.header));
    assert!(alone.rows.iter().flat_map(|row| &row.comparisons).all(|c| c.pairs.is_none()));

    // The result is a study for every report, and is named as merged.
    for format in CATALOG {
        assert!(!render(format.name, &merged, &Style::default()).is_empty(), "{}", format.name);
    }
    let csv = String::from_utf8(render("csv", &merged, &Style::default())).unwrap();
    let ends = |pair: &str| csv.lines().filter(|line| line.ends_with(pair)).count();
    assert!(csv.lines().next().unwrap().ends_with(",pair") && ends(",one") > 100);
    assert_eq!(1 + ends(",one") + ends(",two"), csv.lines().count());
    let details = Style { details: true, ..Style::default() };
    let text = words(&String::from_utf8(render("text", &merged, &details)).unwrap());
    assert!(text.contains("Pairs of hosts: how the ratio"), "{text}");
    assert!(text.contains("splice rate 2 33%"), "{text}");
    let json = render("json", &merged, &details);
    let json: serde_json::Value = serde_json::from_slice(&json).unwrap();
    let rows = json["analysis"]["rows"].as_array().unwrap();
    let splice = rows.iter().find(|row| row["cell"] == "splice").unwrap();
    assert_eq!(splice["comparisons"][0]["pairs"]["pairs"], 2);

    // A merged study can be neither merged again nor resumed.
    let (code, _, errors) = bytepath(&["merge", &out, &first, "--study", &format!("{out}2")]);
    assert!(code == 2 && errors.contains("was merged already"), "{errors}");
    let (code, _, errors) = bytepath(&["resume", &out]);
    assert!(code == 2 && errors.contains("was merged from several"), "{errors}");
    let (code, _, errors) = bytepath(&["merge", &first, &second, "--study", &out]);
    assert!(code == 6 && errors.contains("is not empty"), "{errors}");
}

/// Each pair of hosts has its own peaks, and so its own rates.
#[test]
fn rates_that_are_parts_of_a_peak_are_those_of_their_pair() {
    let folder = TempDir::new().unwrap();
    let part = |name: &str, peak: f64| {
        let mut study = shard(1, 1.0);
        let cell = study.header.cells[0].id.clone();
        let peaks = vec![Peak { cell: cell.clone(), pilots: vec![peak] }];
        study.header.loads.extend(Load::new(70, vec![cell], peaks));
        write(&study, &folder.path().join(name))
    };
    let parts = [part("one", 1000.0), part("two", 500.0)];
    let out = folder.path().join("out").display().to_string();
    let (code, _, errors) = bytepath(&["merge", &parts[0], &parts[1], "--study", &out]);
    assert_eq!(code, 0, "{errors}");
    let merged = load(Path::new(&out)).unwrap();
    let rates: Vec<_> =
        merged.header.loads.iter().map(|load| (load.pair.as_deref(), load.rate)).collect();
    assert_eq!(rates, [(Some("one"), 700), (Some("two"), 350)]);
    let remark = "two has load of socket 350/s, one has 700/s";
    assert!(merged.remarks.iter().any(|one| one == remark), "{:?}", merged.remarks);
    // A pair is compared with itself, over the cells that both studies have.
    let differing = |other: &StudyHeader| {
        let all = differences(&merged.header, other);
        all.into_iter().filter(|one| one.what.starts_with("load of")).count()
    };
    assert_eq!(differing(&merged.header), 0);
    let mut other = merged.header.clone();
    other.loads[1].cells.push(CellId("one more".into()));
    other.loads[1].rate = 900;
    assert_eq!(differing(&other), 1);
}

#[test]
fn what_is_another_experiment_or_another_machine_is_refused() {
    let folder = TempDir::new().unwrap();
    let first = write(&shard(1, 1.0), &folder.path().join("first"));
    let out = folder.path().join("out");
    let merge = |name: &str, change: &dyn Fn(&mut Study), more: &[&str]| {
        let mut study = shard(2, 1.0);
        change(&mut study);
        let second = write(&study, &folder.path().join(name));
        let words = ["merge", &first, &second, "--study", out.to_str().unwrap()];
        let (code, _, errors) = bytepath(&[&words[..], more].concat());
        assert!(more.is_empty() || code == 0, "{errors}");
        assert!(!more.is_empty() || (code == 2 && !out.exists()), "{name}: {code} {errors}");
        errors
    };
    let window = merge("window", &|s| s.header.schedule.window = 1.0, &[]);
    assert!(window.contains("window has a different window (3 s and 1 s) than first"), "{window}");
    let cells = merge("cells", &|s| s.header.cells = rr::study().header.cells, &[]);
    assert!(cells.contains("different cells"), "{cells}");
    let version = merge("version", &|s| s.header.bytepath = "0.0.9".into(), &[]);
    assert!(version.contains("a different bytepath"), "{version}");
    let empty = merge("empty", &|s| s.trials.clear(), &[]);
    assert!(empty.contains("has no trials"), "{empty}");
    let other = |s: &mut Study| s.header.facts[1].cpu_model = "another".into();
    let cpu = merge("cpu", &other, &[]);
    assert!(cpu.contains("--different-hosts") && cpu.contains("CPU (AMD"), "{cpu}");
    let kernel = |s: &mut Study| s.header.facts[0].kernel_version = "another".into();
    assert!(merge("kernel", &kernel, &[]).contains("kernel build"));
    let names = merge("same/first", &|_| {}, &[]);
    assert!(names.contains("the same name"), "{names}");
    // Nothing half-written is left, and with the option it succeeds.
    let left: Vec<_> =
        fs::read_dir(folder.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert!(left.iter().all(|name| !name.to_string_lossy().starts_with('.')), "{left:?}");
    merge("other", &other, &["--different-hosts"]);
    assert!(load(&out).unwrap().remarks.iter().any(|r| r.contains("other has CPU another")));
}
