//! How long each format takes for a study of 1000 trials, from trials to bytes, how long it takes
//! to read such a study, as resuming does, and how long to plan a matrix of 10,000 cells. Each must
//! stay below a second.
//!
//! `cargo bench --bench reports`; needs nothing.

#[path = "../tests/data/studies/made_up.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod made_up;

use bytepath::report::{CATALOG, Style, Subject};
use bytepath::stats::{Rules, analyse};
use bytepath::study::{StudyWriter, load};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LIMIT: Duration = Duration::from_secs(1);

fn main() {
    let study = made_up::large(20, 50);
    println!("{} trials in {} cells", study.trials.len(), study.header.cells.len());
    let start = Instant::now();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let analysed = start.elapsed();
    println!("{:<9} {:>8.1} ms", "analysis", analysed.as_secs_f64() * 1e3);
    let mut slow = Vec::new();
    for report in CATALOG {
        let style = Style { details: true, ..Style::default() };
        let mut out = Vec::new();
        let start = Instant::now();
        let subject = Subject::of(&study, &analysis, None);
        report.render(&subject, &style, &mut out).expect("memory takes everything");
        let took = start.elapsed();
        let (ms, kib) = (took.as_secs_f64() * 1e3, out.len() >> 10);
        println!("{:<9} {ms:>8.1} ms {kib:>8} KiB", report.name);
        if analysed + took > LIMIT {
            slow.push(report.name);
        }
    }
    let folder = tempfile::tempdir().expect("a temporary folder");
    let path = folder.path().join("study");
    let mut writer = StudyWriter::create(&path, &study.header).expect("a study folder");
    writer.append(&study.trials).expect("room for the trials");
    let start = Instant::now();
    let read = load(&path).expect("what was just written");
    let took = start.elapsed();
    println!("{:<9} {:>8.1} ms", "load", took.as_secs_f64() * 1e3);
    assert_eq!(read.trials.len(), study.trials.len());
    if took > LIMIT {
        slow.push("load");
    }
    let took = plan_ten_thousand(folder.path());
    println!("{:<9} {:>8.1} ms", "plan", took.as_secs_f64() * 1e3);
    if took > LIMIT {
        slow.push("plan");
    }
    if !slow.is_empty() {
        eprintln!("above {LIMIT:?} with the analysis: {}", slow.join(", "));
        std::process::exit(1);
    }
}

/// The whole command for a matrix of 10,000 cells, as a user runs it.
fn plan_ten_thousand(folder: &Path) -> Duration {
    let sizes: Vec<String> = (0..100).map(|n| (4096 + n).to_string()).collect();
    let sizes = sizes.join(",");
    let file = folder.join("matrix.toml");
    let text = format!("[factors]\npath='socket'\nread-size=[{sizes}]\nmessage-size=[{sizes}]\n");
    std::fs::write(&file, text).expect("room for a file");
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    let start = Instant::now();
    let output = command.args(["run", "--dry-run"]).arg(&file).output().expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    start.elapsed()
}
