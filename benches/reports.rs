//! How long each format takes for a study of 1000 trials: all of it, from trials to
//! bytes, must take less than a second.
//!
//! `cargo bench --bench reports`; needs nothing.

#[path = "../tests/data/studies/made_up.rs"]
#[allow(dead_code, reason = "tests use more of it")]
mod made_up;

use bytepath::report::{CATALOG, Style};
use bytepath::stats::{Rules, analyse};
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
        report.render(&study, &analysis, &style, &mut out).expect("memory takes everything");
        let took = start.elapsed();
        let (ms, kib) = (took.as_secs_f64() * 1e3, out.len() >> 10);
        println!("{:<9} {ms:>8.1} ms {kib:>8} KiB", report.name());
        if analysed + took > LIMIT {
            slow.push(report.name());
        }
    }
    if !slow.is_empty() {
        eprintln!("above {LIMIT:?} with the analysis: {}", slow.join(", "));
        std::process::exit(1);
    }
}
