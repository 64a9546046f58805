//! What is read first: the estimates while a study runs, and the answer above the report.

use crate::made_up::study;
use crate::report;

use bytepath::record::{Study, TrialStatus};
use bytepath::report::{Style, estimates};

/// For who watches: the cells so far and no verdict; why, where no trial counts.
#[test]
fn estimates_while_it_runs() {
    let print = |study: &Study| {
        let mut out = Vec::new();
        let style = Style { width: 90, ..Style::default() };
        estimates(study).write(&style, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let mut study = study();
    study.trials.retain(|trial| trial.block < 3);
    insta::assert_snapshot!("estimates", print(&study));
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

/// Of cells that are all worse, the baseline is recommended, with what it has over them.
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
