//! `bytepath diff` and the reports of a study on disk: whose profiles count, what else the study
//! contributes, and the cost of a packet.

use crate::made_up;
use crate::profiles;
use crate::shared::{bytepath, words};

use bytepath::profile::export::PPROF;
use bytepath::profile::import;
use bytepath::record::{
    CellId, ProfileRecord, RX_PACKETS, Reading, Role, Scope, Study, TrialStatus, Unit,
};
use bytepath::study::StudyWriter;
use serde_json::Value;
use std::path::Path;

/// The two cells that have profiles.
const CELLS: [&str; 2] = ["socket", "splice"];

/// Bytes of a packet: 64 KiB.
const PACKET: f64 = 65536.0;

/// A study with four profile trials of each of two cells, the last of which does not count; every
/// trial has a count of its packets if `packets` is set.
fn study(folder: &Path, packets: bool) -> Study {
    study_of(folder, packets, "")
}

/// Like [`study`], with `level` added to every cell.
fn study_of(folder: &Path, packets: bool, level: &str) -> Study {
    let mut study = made_up::study();
    let with_level = |CellId(id): &mut CellId| {
        let end = id.find(' ').unwrap_or(id.len());
        id.insert_str(end, level);
    };
    study.header.cells.iter_mut().for_each(|cell| with_level(&mut cell.id));
    study.trials.iter_mut().for_each(|trial| with_level(&mut trial.cell));
    with_level(&mut study.header.baseline);
    let count = |bytes: u64| {
        let scope = Scope::Link(Role::Receiver, "byte1".into());
        Reading::sum(RX_PACKETS, Unit::Count, bytes as f64 / PACKET, scope)
    };
    if packets {
        for trial in &mut study.trials {
            trial.readings.push(count(trial.count));
        }
    }
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    for number in 1..=4 {
        for cell in CELLS {
            let taken = study.trials.iter().find(|t| t.cell.0 == format!("{cell}{level}"));
            let mut trial = taken.unwrap().clone();
            let mut profile = profiles::trial(
                &format!("{cell} ({number})"),
                cell == "splice",
                [0.0, 0.03, -0.02, 0.9][number as usize - 1],
                "",
            );
            // Earlier profiles recorded no packets; their trials do.
            profile.header.work.packets = None;
            if number == 4 {
                trial.status = TrialStatus::Rejected { events: vec!["7 samples were lost".into()] };
            }
            let mut packed = Vec::new();
            PPROF.write(&profile, &mut packed).unwrap();
            let file = writer.profile(&format!("{cell}-{number}.pb.gz"), &packed).unwrap();
            let (event, rate) = ("cpu-clock".to_owned(), 499);
            trial.count = 4 << 30;
            trial.readings.retain(|reading| reading.metric != RX_PACKETS);
            trial.readings.extend(packets.then(|| count(4 << 30)));
            trial.profile =
                Some(ProfileRecord { number, file, event, rate, samples: 700, lost: 0 });
            study.profiles.push(trial);
        }
    }
    writer.append(&study.trials).unwrap();
    writer.append(&study.profiles).unwrap();
    study
}

fn printed(arguments: &[&str]) -> String {
    let (code, out, error) = bytepath(arguments);
    assert_eq!(code, 0, "{error}");
    out
}

#[test]
fn a_cell_is_its_profiles_that_count_and_what_the_meter_says() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    let study = study(&path, true);
    let side = |cell: &str| format!("{}#{cell}", path.display());
    let (a, b) = (side("socket"), side("splice"));

    let json: Value = serde_json::from_str(&printed(&["diff", &a, &b, "--json"])).unwrap();
    let titles = ["socket (1)", "socket (2)", "socket (3)"];
    assert_eq!(json["without"]["profiles"], serde_json::json!(titles), "the fourth was spoiled");
    assert_eq!(json["unit"], "CPU-s/GiB");
    assert_eq!(json["with"]["packets"].as_f64().unwrap(), 3.0 * 65536.0);
    // The samples of one CPU are compared with all of the work, and a note names the CPU.
    for format in ["text", "json"] {
        let said = printed(&["diff", &a, &b, "--cpu", "1", "--format", format]);
        assert!(said.contains("only what ran on CPUs 1"), "{said}");
    }

    // The cost of the cells is that of the same trials by the CPU meter.
    let splice = study.header.cells.iter().find(|cell| cell.id.0 == "splice").unwrap();
    let of_splice = study.profiles.iter().filter(|t| t.cell.0 == "splice");
    let measured: Vec<_> = of_splice.filter(|t| t.status == TrialStatus::Measured).collect();
    let costs: Vec<_> = measured.iter().map(|t| bytepath::stats::costs(splice, t)).collect();
    let mean = |at: usize| costs.iter().map(|c| c[at].unwrap()).sum::<f64>() / costs.len() as f64;
    let explained = |per: &str| -> Value {
        let said = printed(&["diff", &a, &b, "--explain", "json", "--per", per]);
        serde_json::from_str(&said).unwrap()
    };
    for (per, expected, factor) in [("gib", mean(0), 1e-9), ("packet", mean(1), 1.0)] {
        let json = explained(per);
        let fall = &json["waterfalls"][0];
        let number = |value: &Value| value.as_f64().unwrap();
        let metered = number(&fall["after"]["metered"]["mean"]);
        assert!((metered / expected - 1.0).abs() < 1e-6, "{per}: {metered}, not {expected}");
        assert_eq!(number(&fall["after"]["packet"]), PACKET);
        assert_eq!(fall["after"]["trials"], 3);
        // The parts and the rest add up to what the meter measured.
        let parts: f64 =
            fall["parts"].as_array().unwrap().iter().map(|p| number(&p["change"]["mean"])).sum();
        let check = &fall["check"];
        let metered = number(&check["metered"]["mean"]);
        let difference = parts + number(&check["rest"]) - metered;
        assert!(difference.abs() < 1e-9 / factor, "{per}: off by {difference}");
    }
    let said = words(&printed(&["diff", &a, &b, "--explain", "text", "--per", "packet"]));
    assert!(said.contains("CPU-ns/packet") && !said.contains("by the samples"), "{said}");
}

/// A name may be copied from a report, which leaves out levels that all cells share.
#[test]
fn cells_are_named_in_full_and_as_reports_shorten_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    study_of(&path, true, " mtu=9000");
    let side = |cell: &str| format!("{}#{cell}", path.display());
    let full = printed(&["diff", &side("socket mtu=9000"), &side("splice mtu=9000")]);
    assert_eq!(printed(&["diff", &side("socket"), &side("splice")]), full);
    let study = path.to_str().unwrap();
    let chosen = |name: &str| printed(&["compare", study, "--baseline", name]);
    assert_eq!(chosen("splice"), chosen("splice mtu=9000"));
}

#[test]
fn reports_of_the_study_give_costs_per_packet_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    study(&path, true);
    let path = path.to_str().unwrap();
    for (format, extra) in [("text", "amount"), ("netdev", "amount"), ("html", "<svg")] {
        let per_gib = printed(&["show", path, "--format", format]);
        assert!(!per_gib.contains("CPU-ns/packet"), "{format}");
        let per_packet = printed(&["show", path, "--format", format, "--per", "packet"]);
        assert!(per_packet.contains("CPU-ns/packet"), "{per_packet}");
        assert!(per_packet.contains(extra), "{per_packet}");
        assert!(words(&per_packet).contains("on average 64 KiB of the stream"), "{format}");
    }
    let json: Value =
        serde_json::from_str(&printed(&["show", path, "--json", "--per", "packet"])).unwrap();
    assert_eq!(json["explanation"]["per"], "packet");
    assert_eq!(json["explanation"]["ranked"][0]["unit"], "CPU-ns/packet");
    let json: Value =
        serde_json::from_str(&printed(&["compare", path, "--json", "--per", "packet"])).unwrap();
    assert_eq!(json["explanation"]["waterfalls"][0]["unit"], "CPU-ns/packet");
}

#[test]
fn what_a_study_does_not_tell_is_refused_with_a_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    study(&path, false);
    let side = |cell: &str| format!("{}#{cell}", path.display());
    let (a, b, study) = (side("socket"), side("splice"), path.to_str().unwrap());
    for (arguments, expected) in [
        (&["diff", &a, &b, "--explain", "text", "--per", "packet"][..], "how many packets"),
        (&["diff", &a, &b, "--per", "packet"], "how many packets"),
        (&["show", study, "--per", "packet"], "how many packets"),
        (&["compare", study, "--per", "packet"], "how many packets"),
        (&["diff", &a, &side("splise")], "has no cell 'splise' (did you mean 'splice'?)"),
        (&["diff", &a, &side("uring")], "no profile of 'uring' that counts (there are profiles of"),
    ] {
        let (code, _, said) = bytepath(arguments);
        assert!(code != 0 && said.contains(expected), "{arguments:?}: {said}");
    }
    // Packets were not requested, so nothing is missing.
    assert!(printed(&["show", study]).contains("CPU-s/GiB against"));
}

/// One cell cannot be compared with anything, but its symptoms still apply.
#[test]
fn symptoms_are_reported_for_one_cell_alone() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("study");
    let mut study = made_up::study();
    let mut writer = StudyWriter::create(&path, &study.header).unwrap();
    let taken = study.trials.iter().find(|trial| trial.cell.0 == "splice").unwrap();
    let mut made_up = "main;tcp_ack 3\nmain;mcount 1\n".as_bytes();
    let profile = import::read("made up", &mut made_up).unwrap();
    let mut packed = Vec::new();
    PPROF.write(&profile, &mut packed).unwrap();
    let file = writer.profile("splice-1.pb.gz", &packed).unwrap();
    let (event, rate) = ("cpu-clock".to_owned(), 499);
    let mut trial = taken.clone();
    trial.profile = Some(ProfileRecord { number: 1, file, event, rate, samples: 4, lost: 0 });
    study.profiles.push(trial);
    writer.append(&study.trials).unwrap();
    writer.append(&study.profiles).unwrap();
    let path = path.display().to_string();
    for format in ["text", "netdev"] {
        let said = words(&printed(&["show", &path, "--format", format]));
        assert!(said.contains("calls reported to a tracer: splice 25% (mcount)"), "{said}");
    }
    let page = printed(&["show", &path, "--format", "html"]);
    assert!(page.contains("calls reported to a tracer"));
}
