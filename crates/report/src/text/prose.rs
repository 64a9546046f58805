//! The parts of the report that are words.

use crate::page::{Page, plain};
use crate::words::{self, evidence};
use crate::{Subject, answer, offload, placement, verdicts};
use bytepath_record::Role;
use bytepath_stats::{Analysis, Question, Row};

/// From which size on copy engines pay, where the study asks that.
pub(crate) fn break_even(page: &mut Page, analysis: &Analysis) {
    for line in offload::sentences(analysis) {
        page.text("", &line);
    }
    page.gap();
}

/// Which cell to use, why, and what is undecided; where nothing is recommended, because one
/// cell was measured or no speed, what leads in what.
pub(crate) fn answer(page: &mut Page, subject: &Subject) {
    let paragraphs = answer::answer(subject.analysis, subject.explanation);
    let leads = paragraphs.into_iter().map(|paragraph| (paragraph.lead.to_owned(), paragraph.text));
    let mut leads: Vec<(String, String)> = leads.collect();
    if leads.is_empty() {
        leads = words::answer(subject.analysis);
    }
    let widest = leads.iter().map(|(lead, _)| lead.len()).max().unwrap_or(0);
    for (lead, text) in leads {
        let lead = if lead.is_empty() { lead } else { format!("{lead:<widest$}  ") };
        page.text(&lead, &text);
    }
    page.gap();
}

/// Every comparison in a sentence, and what the words rest on.
pub(crate) fn verdicts(page: &mut Page, analysis: &Analysis) {
    // Why nothing was measured is the answer.
    if analysis.rows.iter().all(|row| row.status.measured == 0) {
        return;
    }
    let mut any = false;
    for question in Question::MAIN {
        let compared = verdicts::compared(analysis, question);
        let what = verdicts::subject(question, analysis.work());
        if compared.is_empty() {
            // A cell against itself has nothing but its noise to report.
            if analysis.noise(question).is_some() {
                page.heading(&format!("Noise of {what}"));
                page.text("  ", &verdicts::noise(analysis, question));
            }
            continue;
        }
        any = true;
        page.heading(&format!("Verdicts on {what}, against {}", analysis.baseline));
        let leads = Leads::of(compared.iter().map(|(r, _)| *r));
        for (row, comparison) in compared {
            page.text(&leads.lead(&row.cell.0), &verdicts::sentence(comparison, analysis));
        }
        page.text("  ", &verdicts::noise(analysis, question));
    }
    if any {
        page.gap();
        page.text("  ", &verdicts::rule(analysis));
        page.text("  ", &verdicts::events_rule());
        if let Some(text) = verdicts::stopping(analysis) {
            page.text("  ", &text);
        }
    }
}

/// Where the kernel's receive work ran, and which parts of the work collided.
pub(crate) fn placement(page: &mut Page, analysis: &Analysis) {
    let lines = placement::lines(analysis);
    if lines.is_empty() {
        return;
    }
    page.heading("Where it ran");
    let widest = lines.iter().map(|line| plain(&line.cells).len()).filter(|n| *n <= 24).max();
    let leads = Leads(widest.unwrap_or(0));
    for line in &lines {
        page.text(&leads.lead(&line.cells), &line.text);
    }
    if analysis.rows.iter().any(|row| row.receive_work.is_some()) {
        page.text("  ", placement::RULE);
    }
}

/// Which profiles there are, and what it cost to take them.
pub(crate) fn profiles(page: &mut Page, analysis: &Analysis) {
    if let Some(line) = words::profiles(analysis) {
        page.gap();
        page.text("Profiles: ", &line);
    }
}

/// What each label rests on.
pub(crate) fn zero_copy(page: &mut Page, analysis: &Analysis) {
    let proven: Vec<&Row> = analysis
        .rows
        .iter()
        .filter(|r| Role::ALL.iter().any(|role| r.end(*role).ledger.is_some()))
        .collect();
    if proven.is_empty() {
        return;
    }
    page.heading("Evidence for the labels (whole trials, with warm-up)");
    let leads = Leads::of(proven.iter().copied());
    for row in proven {
        let ends = format!(
            "tx {} {}; rx {} {}",
            row.tx,
            evidence(&row.sender),
            row.rx,
            evidence(&row.receiver)
        );
        page.text(&leads.lead(&row.cell.0), &ends);
    }
}

/// Cells that cannot run here, that failed, that have no trial.
pub(crate) fn not_measured(page: &mut Page, analysis: &Analysis) {
    for (title, list) in [
        ("Not available here", words::unavailable(analysis)),
        ("Trials that do not count", words::not_counted(analysis)),
    ] {
        if list.is_empty() {
            continue;
        }
        page.heading(title);
        let leads = Leads::of(list.iter().map(|u| u.row));
        for unmeasured in &list {
            page.text(&leads.lead(&unmeasured.row.cell.0), &unmeasured.reason);
            if !unmeasured.remedy.is_empty() {
                page.text(&leads.lead(""), &format!("-> {}", unmeasured.remedy));
            }
        }
    }
    let never = words::never_run(analysis);
    if !never.is_empty() {
        page.gap();
        page.text("Not run: ", &never.join(", "));
    }
}

pub(crate) fn warnings(page: &mut Page, analysis: &Analysis) {
    let lines = words::cautions(analysis);
    if lines.is_empty() {
        return;
    }
    page.heading("Warnings");
    for line in lines {
        page.text("  - ", &line);
    }
}

/// Leads of equal width for a list of rows.
pub(crate) struct Leads(usize);

impl Leads {
    /// As wide as the longest name, but for very long ones, which must not push
    /// all others aside.
    pub(crate) fn of<'a>(rows: impl Iterator<Item = &'a Row>) -> Leads {
        let widths = rows.map(|row| plain(&row.cell.0).len());
        Leads(widths.filter(|n| *n <= 24).max().unwrap_or(0))
    }

    /// The lead of one row; the one without a name is below the others.
    pub(crate) fn lead(&self, name: &str) -> String {
        format!("  {:<width$}  ", plain(name), width = self.0)
    }
}
