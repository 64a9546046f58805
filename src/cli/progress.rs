//! Progress on standard error: on a terminal a bar, and below it what was measured so far;
//! plain lines elsewhere.

use super::output::{PAGE_WIDTH, colours, say, size};
use bytepath_record::{
    CellId, Design, Restoration, RestorationRow, SettingRecord, Study, StudyHeader, Trial,
    TrialStatus, visible,
};
use bytepath_report::{self as report, Style};
use bytepath_study::{Observer, time_of_trial};
use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// How much is printed about the progress of a study.
#[derive(Debug, Default, Args)]
pub(super) struct ProgressArgs {
    /// No progress: print only the report, warnings and errors
    #[arg(short, long)]
    pub quiet: bool,
    /// Print a line for each trial above the progress bar
    ///
    /// Without a terminal there is no bar, and they are printed anyway.
    #[arg(short, long, conflicts_with = "quiet")]
    verbose: bool,
}

/// Shows the progress of a study.
pub(super) struct Progress {
    /// Hidden if there is no terminal, or if the run is quiet.
    bar: ProgressBar,
    quiet: bool,
    /// Whether each trial has a line.
    lines: bool,
    trials: usize,
    profiles: usize,
    blocks: u32,
    /// Whether the cells of a block take turns in slices.
    interleaved: bool,
    /// Time that is left, before what goes on; empty if it is not known yet.
    left: String,
    /// Whether it was printed that other programs are waited for.
    waits: bool,
}

impl Progress {
    pub(super) fn new(arguments: &ProgressArgs) -> Self {
        let quiet = arguments.quiet;
        let is_shown = !quiet && io::stderr().is_terminal();
        let bar = if is_shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
        bar.set_style(style(BAR));
        let lines = !quiet && (arguments.verbose || !is_shown);
        Progress {
            bar,
            quiet,
            lines,
            trials: 0,
            profiles: 0,
            blocks: 0,
            interleaved: false,
            left: String::new(),
            waits: false,
        }
    }

    /// One line that a quiet run leaves out.
    pub(super) fn remark(&self, line: &str) {
        if !self.quiet {
            self.say(line);
        }
    }

    /// The line of a trial.
    fn line(&self, line: &str) {
        if self.lines {
            self.say(line);
        }
    }

    /// One line, above the bar if there is one.
    fn say(&self, line: &str) {
        if self.bar.is_hidden() { say(line) } else { self.bar.println(visible(line)) }
    }

    /// Shows what goes on, next to the bar.
    fn show(&self, what: &str) {
        self.bar.set_message(visible(&format!("{}{what}", self.left)).into_owned());
    }

    /// One more has ended, this way.
    fn advance(&mut self, left: &str, outcome: &str) {
        self.left = format!("{left} left  ");
        self.bar.inc(1);
        self.show(outcome);
    }

    /// Removes the bar.
    pub(super) fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for Progress {
    fn begins(&mut self, header: &StudyHeader, trials: usize) {
        self.trials = trials;
        self.blocks = header.schedule.blocks;
        self.interleaved = matches!(header.schedule.design, Design::Slices { .. });
        let each = Duration::from_secs_f64(time_of_trial(&header.schedule));
        let left = clock(each * trials as u32);
        self.bar.set_position(0);
        self.bar.set_length(trials as u64);
        self.line(&format!("{trials} trials, about {left}"));
    }

    fn trial_begins(&mut self, _number: usize, cell: &CellId, block: u32) {
        let what = if self.interleaved { "all cells interleaved" } else { &cell.0 };
        self.show(&format!("block {block} of {}: {what}", self.blocks));
    }

    fn trial_ends(&mut self, number: usize, trial: &Trial, left: Duration) {
        let (left, result) = (clock(left), outcome(trial));
        let (cell, total) = (&trial.cell, self.trials);
        self.advance(&left, &format!("{cell}: {result}"));
        self.line(&format!("[{number:>3}/{total}] {cell:<32} {result:<24} {left} left"));
    }

    fn block_ends(&mut self, study: &Study) {
        if !self.bar.is_hidden()
            && let Some(text) = estimates(study)
        {
            self.bar.set_style(style(BAR_AND_ESTIMATES));
            self.bar.set_prefix(text);
        }
    }

    fn profiles_begin(&mut self, trials: usize, each: Duration) {
        self.profiles = trials;
        self.bar.inc_length(trials as u64);
        self.line(&format!("{trials} profiles, about {}", clock(each * trials as u32)));
    }

    fn profile_begins(&mut self, number: usize, total: usize, cell: &CellId) {
        self.bar.inc_length(total.saturating_sub(self.profiles) as u64);
        self.profiles = total;
        self.show(&format!("profile {number} of {}: {cell}", self.profiles));
    }

    fn profile_ends(&mut self, number: usize, trial: &Trial, left: Duration) {
        let samples = trial.profile.as_ref().map_or(0, |profile| profile.samples);
        let result = match &trial.status {
            TrialStatus::Measured => format!("{samples} samples, {}", outcome(trial)),
            _ => outcome(trial),
        };
        let left = clock(left);
        let (cell, total) = (&trial.cell, self.profiles);
        self.advance(&left, &format!("profile of {cell}: {result}"));
        self.line(&format!("[profile {number}/{total}] {cell:<28} {result:<24} {left} left"));
    }

    fn remark(&mut self, text: &str) {
        Progress::remark(self, text);
    }

    fn settings(&mut self, records: &[SettingRecord], left_behind: &[RestorationRow]) {
        for row in left_behind {
            self.say(&format!("left behind by an earlier run: {row}"));
        }
        for record in records.iter().filter(|record| record.before != record.after) {
            self.remark(&format!("set: {record}"));
        }
        for record in records.iter().filter(|record| record.skipped.is_some()) {
            self.say(&format!("not set: {record}"));
        }
    }

    fn put_back(&mut self, rows: &[RestorationRow]) {
        let back = |row: &&RestorationRow| {
            matches!(row.outcome, Restoration::Restored | Restoration::AlreadyBack)
        };
        let count = rows.iter().filter(back).count();
        if count > 0 {
            let what = if count == 1 { "setting" } else { "settings" };
            self.remark(&format!("restored: {count} {what} of the host"));
        }
        for row in rows.iter().filter(|row| !back(row)) {
            self.say(&row.to_string());
        }
    }

    fn host_changed(&mut self, remark: &str) {
        self.say(remark);
    }

    fn waits(&mut self, programs: &str, left: Duration) {
        let text = format!("waiting, at most {}: {programs}", clock(left));
        self.show(&text);
        if !std::mem::replace(&mut self.waits, true) {
            self.line(&text);
        }
    }
}

/// Prints which pair of hosts ran what.
pub(super) struct PairProgress<'a> {
    pub pair: String,
    /// Trials of all pairs that have ended.
    pub ended: &'a AtomicUsize,
    pub trials: usize,
    pub quiet: bool,
}

impl Observer for PairProgress<'_> {
    fn trial_ends(&mut self, _: usize, trial: &Trial, _: Duration) {
        let number = self.ended.fetch_add(1, Ordering::Relaxed) + 1;
        let (pair, total, cell) = (&self.pair, self.trials, &trial.cell);
        if !self.quiet {
            say(format!("[{number:>3}/{total}] {pair:<12} {cell:<28} {}", outcome(trial)));
        }
    }

    fn host_changed(&mut self, remark: &str) {
        say(format!("{}: {remark}", self.pair));
    }
}

/// The bar alone, and with a text of several lines below it.
const BAR: &str = "{bar:24} {pos}/{len}  {wide_msg}";
const BAR_AND_ESTIMATES: &str = "{bar:24} {pos}/{len}  {wide_msg}\n{prefix}";

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Estimates as far as the terminal has lines for them; `None` if nothing was measured.
fn estimates(study: &Study) -> Option<String> {
    let (width, height) = size(io::stderr()).unwrap_or((PAGE_WIDTH, 24));
    let look = Style { width, colour: colours(&io::stderr()), details: false };
    let mut table = Vec::new();
    report::estimates(study).write(&look, &mut table).ok()?;
    let table = String::from_utf8_lossy(&table);
    let lines: Vec<&str> = table.lines().collect();
    // The bar, the line below, the line of what is left out, and the cursor's.
    let room = height.saturating_sub(4);
    if lines.is_empty() || room < 3 {
        return None;
    }
    let percent = study.header.judgement.confidence * 100.0;
    let mut text = format!("Running estimates, {percent}% intervals; verdicts come at the end\n");
    text.extend(lines.iter().take(room).map(|line| format!("{line}\n")));
    if lines.len() > room {
        text.push_str(&format!("  ... {} more lines\n", lines.len() - room));
    }
    text.pop();
    Some(text)
}

fn outcome(trial: &Trial) -> String {
    match (&trial.status, trial.rate()) {
        (TrialStatus::Rejected { events }, _) => format!("rejected: {}", events.join("; ")),
        (TrialStatus::Failed { fault }, _) => format!("failed: {fault}"),
        (_, Some(rate)) => {
            let terms = trial.work.terms();
            let rate = format!("{:.1} {}", rate * terms.rate_scale, terms.rate_unit);
            match trial.disturbances.is_empty() {
                true => rate,
                false => format!("{rate} ~ {}", trial.disturbances.join("; ")),
            }
        }
        _ => "unavailable".to_owned(),
    }
}

fn clock(time: Duration) -> String {
    let seconds = time.as_secs_f64().round() as u64;
    format!("{}:{:02}", seconds / 60, seconds % 60)
}
