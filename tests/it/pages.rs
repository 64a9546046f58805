//! The pages of `compare`, `history`, `observe` and `diff`: the answer first, and well formed
//! whatever the names are.

use crate::html::{Parsed, sound};
use crate::made_up::study;
use crate::profiles;
use crate::shared::{bytepath, words};
use bytepath::profile::export;
use bytepath::profile::flame;
use bytepath::profile::subsystem::Rules;
use bytepath::record::{CellId, Observation, Study};
use bytepath::report;
use bytepath::study::StudyWriter;
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// An element, an attribute or a change of direction, if it were not escaped.
const EVIL: &str = "</script><img src=x onerror=alert(1)>\"' onload=x &lt;\u{202e}";

fn written(study: &Study, folder: &Path) -> String {
    let mut writer = StudyWriter::create(folder, &study.header).unwrap();
    for trial in &study.trials {
        writer.append(std::slice::from_ref(trial)).unwrap();
    }
    folder.display().to_string()
}

/// The made-up study with `splice` renamed to `name` and its rate multiplied by `factor`.
fn other(name: &str, factor: f64) -> Study {
    let mut study = study();
    let renamed = |id: &mut CellId| id.0 = id.0.replace("splice", name);
    study.header.cells.iter_mut().for_each(|cell| renamed(&mut cell.id));
    for trial in &mut study.trials {
        if trial.cell.0 == "splice" {
            trial.count = (trial.count as f64 * factor) as u64;
        }
        renamed(&mut trial.cell);
    }
    study
}

/// The page that a command prints, and its text.
fn printed(arguments: &[&str], code: i32) -> (Parsed, String) {
    let (found, page, errors) = bytepath(&[arguments, &["--format", "html"]].concat());
    assert_eq!(found, code, "{errors}");
    let parsed = sound(&page);
    let text = words(&parsed.text);
    (parsed, text)
}

/// Checks that these parts appear in this order.
#[track_caller]
fn in_order(text: &str, parts: &[&str]) {
    let mut rest = text;
    for part in parts {
        let at =
            rest.find(part).unwrap_or_else(|| panic!("no '{part}' after the others in {text}"));
        rest = &rest[at..];
    }
}

#[test]
fn two_studies_have_a_page() {
    let folder = TempDir::new().unwrap();
    let name = format!("splice{EVIL}");
    let before = written(&other(&name, 1.0), &folder.path().join("before"));
    let after = written(&other(&name, 0.8), &folder.path().join("after"));
    let limit = ["--fail-if", "*.throughput slower 2%"];
    let (parsed, text) = printed(&[&["compare", &before, &after], &limit[..]].concat(), 7);
    in_order(&text, &["throughput: splice</script>", "0.80x (SLOWER)", "FAILED", "among all"]);
    let spans =
        parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "span"));
    assert!(spans.count() >= 6);
    let file = folder.path().join("page.html");
    let (code, ..) = bytepath(&["compare", &before, &after, "--out", &file.display().to_string()]);
    assert_eq!(code, 0);
    sound(&fs::read_to_string(file).unwrap());
}

#[test]
fn one_study_compared_has_its_page_with_the_limits() {
    let folder = TempDir::new().unwrap();
    let path = written(&study(), &folder.path().join("study"));
    let (_, text) = printed(&["compare", &path, "--fail-if", "splice.rate slower 2%"], 0);
    in_order(&text, &["Use splice", "Thresholds", "passed", "Each dot is one trial"]);
    let refused = bytepath(&["compare", "published:", "--format", "html"]);
    assert!(refused.0 == 2 && refused.2.contains("no page of this result"), "{refused:?}");
}

#[test]
fn a_history_has_a_page() {
    let folder = TempDir::new().unwrap();
    for at in 0..12u64 {
        let mut study = other("splice", if at < 6 { 1.0 } else { 0.8 });
        study.header.started_ms += at * 86_400_000;
        written(&study, &folder.path().join(format!("study-{at:02}{EVIL}").replace('/', "|")));
    }
    let path = folder.path().display().to_string();
    let (parsed, text) = printed(&["history", &path, "splice.rate"], 0);
    in_order(&text, &["Newest:", "CHANGE", "0.80x with the study study-06", "1 change found"]);
    let dots =
        parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "spot"));
    assert_eq!(dots.count(), 12);
}

#[test]
fn a_difference_has_a_page_with_flame_graphs() {
    let folder = TempDir::new().unwrap();
    let file = |name: &str, maps| {
        let file = folder.path().join(name);
        let mut content = Vec::new();
        let format = export::find_by_file_name(name).unwrap();
        format.write(&profiles::trial(name, maps, 0.0, EVIL), &mut content).unwrap();
        fs::write(&file, content).unwrap();
        file.display().to_string()
    };
    let (before, after) = (file("before.pb.gz", false), file("after.pb.gz", true));
    let (parsed, text) = printed(&["diff", &before, &after], 0);
    in_order(
        &text,
        &[
            "after.pb.gz against before.pb.gz",
            "one profile each, so without an interval",
            "_copy_to_iter",
            "Flame graph:",
            "change",
        ],
    );
    let graphs = parsed.data["flames"]["graphs"].as_array().unwrap();
    assert_eq!(graphs.len(), 4);
    assert!(parsed.data["flames"]["names"].to_string().contains("main</script>"));
}

#[test]
fn an_observation_has_a_page() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/observations/made-up.json");
    let mut seen: Observation = serde_json::from_slice(&fs::read(file).unwrap()).unwrap();
    seen.command.push(EVIL.into());
    seen.threads.iter_mut().for_each(|thread| thread.name += EVIL);
    seen.limits.push(EVIL.into());
    let chart = flame::chart(&profiles::trial("it", false, 0.0, EVIL), Rules::built_in());
    assert!(chart.total > 0.3 && chart.unit == "CPU-s", "{chart:?}");
    let mut out = Vec::new();
    report::observation_page(&seen, &[chart], None, &mut out).unwrap();
    let parsed = sound(&String::from_utf8(out).unwrap());
    let text = words(&parsed.text);
    in_order(&text, &[&seen.command[0], "Sent:", "Flame graph", "Ledger"]);
    assert!(!parsed.data["flames"]["graphs"][0]["boxes"].as_array().unwrap().is_empty());
}
