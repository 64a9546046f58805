//! A study of any bytes, and an observation: what is read is rendered in every format, compared
//! with itself and used for advice, or it is an error; there is no panic, and no text controls a
//! terminal. The files are those of a study's folder, a NUL after each, then the observation.

use bytepath::profile::WorkUnit;
use bytepath::record::{Observation, Published, Study, is_unsafe_to_display};
use bytepath::report::{self, Report, Style, Subject};
use bytepath::{spec, stats, study};
use std::path::Path;
use std::sync::LazyLock;

static PUBLISHED: LazyLock<Vec<Published>> = LazyLock::new(|| {
    let names = spec::published_names().into_iter();
    names.map(|name| spec::find_published(name).expect("it is listed")).collect()
});

const LOG: &str = "power.json";
const FILES: [&str; 5] = ["experiment.toml", "hosts.json", "trials.jsonl", "remarks.txt", LOG];

pub(super) const STYLE: Style = Style { width: 80, colour: false, details: true };

pub fn check(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut parts = data.splitn(FILES.len() + 1, |byte| *byte == 0);
    for (name, bytes) in FILES.into_iter().zip(&mut parts) {
        // Not every study has one.
        if name != LOG || !bytes.is_empty() {
            std::fs::write(folder.path().join(name), bytes).expect("a file");
        }
    }
    let Ok(study) = study::load(folder.path()) else { return };
    let trials = &study.trials;
    assert!(trials.iter().all(|trial| study.header.cells.iter().any(|c| c.id == trial.cell)));
    reports(folder.path(), &study);
    comparisons(&study);
    if let Some(Ok(seen)) = parts.next().map(serde_json::from_slice::<Observation>) {
        let advice = report::advise(&seen, &study);
        text(|out| report::advice(&advice).write(&STYLE, out));
        text(|out| report::observation(&seen, true).write(&STYLE, out));
    }
}

fn reports(folder: &Path, study: &Study) {
    type Reports = Vec<&'static Report>;
    let (short, long): (Reports, Reports) = report::CATALOG.iter().partition(|f| f.short_names);
    for formats in [short, long] {
        let named = formats[0].named(study);
        let analysis = stats::analyse(&named, &stats::Rules::of(&named.header));
        let explanation = study::explanation(folder, &named, &analysis, WorkUnit::Gib);
        let subject = Subject::of(&named, &analysis, explanation.as_ref());
        let subject = Subject { recorded: &study.header, ..subject };
        formats.into_iter().for_each(|format| report(format, &subject));
    }
}

fn report(format: &Report, subject: &Subject) {
    if format.binary {
        return format.render(subject, &STYLE, &mut Vec::new()).expect("memory takes everything");
    }
    let written = text(|out| format.render(subject, &STYLE, out));
    if format.name == "json" {
        serde_json::from_str::<serde_json::Value>(&written).expect("JSON");
    }
}

fn comparisons(study: &Study) {
    let between = stats::between(study, study, false);
    text(|out| report::between(["a", "b"], [study, study], &between).write(&STYLE, out));
    for work in PUBLISHED.iter() {
        let found = stats::compare_published(work, study, &stats::Rules::of(&study.header));
        text(|out| report::published_comparison(work, "a", &found).write(&STYLE, out));
    }
    let studies = [("a".to_owned(), stats::points(study))];
    for cell in &study.header.cells {
        let history = stats::history(&studies, &cell.id.0, stats::Metric::Rate);
        text(|out| report::history(&history).write(&STYLE, out));
    }
}

/// Returns the text that was written, and checks that it controls no terminal.
pub(super) fn text(write: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) -> String {
    let mut out = Vec::new();
    write(&mut out).expect("memory takes everything");
    let text = String::from_utf8(out).expect("text");
    assert_eq!(text.chars().find(|c| *c != '\n' && is_unsafe_to_display(*c)), None);
    text
}
