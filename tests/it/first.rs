//! What a user reads first: the table while a study runs, the screen when it has ended, and the
//! answer above the report.

use crate::made_up::study;
use crate::report;

use bytepath::record::{CellId, Study, TrialStatus};
use bytepath::report::{Overview, Style, Subject, screen};
use bytepath::stats::{Rules, analyse};
use std::collections::HashMap;

/// The table of a running study: the cells so far, with verdicts only if the study may be judged
/// after each block; the reason, if no trial counts.
#[test]
fn estimates_while_it_runs() {
    let print = |study: &Study| {
        let mut out = Vec::new();
        let style = Style { width: 90, ..Style::default() };
        let rates =
            [("uring", 3.5e9), ("splice", 4.2e9)].map(|(id, rate)| (CellId(id.into()), rate));
        let rates: HashMap<CellId, f64> = rates.into_iter().collect();
        Overview::of(study).with_rates(&rates).write(&style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut study = study();
    study.trials.retain(|trial| trial.block < 3);
    insta::assert_snapshot!("estimates", print(&study));
    study.header.schedule.until_sure = true;
    insta::assert_snapshot!("estimates_until_sure", print(&study));
    study.header.schedule.until_sure = false;
    study.trials.retain(|trial| trial.block < 1);
    insta::assert_snapshot!("estimates_of_one_block", print(&study));
    for trial in &mut study.trials {
        let events = vec!["other processes used 91% of CPU 0 (limit 10%)".to_owned()];
        trial.status = TrialStatus::Rejected { events };
    }
    insta::assert_snapshot!("estimates_of_nothing", print(&study));
    let text = report::render("text", &study, &Style::default());
    assert!(!text.contains("NOT COMPARABLE"), "the answer says why: {text}");
}

/// At the end, on a terminal: one screen, with the answer last.
#[test]
fn the_screen_that_ends_a_study() {
    let study = study();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let mut out = Vec::new();
    let style = Style { width: 80, ..Style::default() };
    screen(&Subject::of(&study, &analysis, None), "studies/one").write(&style, &mut out).unwrap();
    let text = String::from_utf8(out).unwrap();
    assert!(text.lines().count() <= 24, "{text}");
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    insta::assert_snapshot!("screen", text);
}

/// If all cells are worse, the baseline is recommended, with its advantage over them.
#[test]
fn the_baseline_may_be_the_answer() {
    let mut study = study();
    let worse = ["socket", "msg-zerocopy", "uring-zc"];
    study.header.cells.retain(|cell| worse.contains(&&*cell.id.0));
    study.trials.retain(|trial| worse.contains(&&*trial.cell.0));
    let text = report::render("text", &study, &Style::default());
    let answer: String = text.lines().take_while(|line| !line.is_empty()).collect();
    insta::assert_snapshot!("baseline", answer);
}
