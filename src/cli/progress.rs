//! Progress on standard error: on a terminal a bar, and below it the measurements so far; otherwise
//! plain lines.

use super::output::{PAGE_WIDTH, colours, say, size};
use bytepath_record::{
    CellId, Design, Restoration, RestorationRow, SettingRecord, Study, StudyHeader, Trial,
    TrialStatus, visible,
};
use bytepath_report::{self as report, Overview, Style};
use bytepath_study::{Observer, time_of_profiles, time_of_trial};
use clap::Args;
use indicatif::{ProgressBar, ProgressState, ProgressStyle};
use std::collections::{HashMap, HashSet};
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Options for the amount of progress output.
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
    /// Whether a line is printed for each trial.
    lines: bool,
    trials: usize,
    profiles: usize,
    blocks: u32,
    /// Whether the cells of a block take turns in slices.
    interleaved: bool,
    /// Whether the study ends once it is sure.
    until_sure: bool,
    /// Estimated end of the study, if known.
    end: Arc<Mutex<Option<Instant>>>,
    /// Seconds for the profiles that remain, and for each of them.
    time_of_profiles: f64,
    time_of_a_profile: f64,
    /// Time of the profiles to be taken after later blocks.
    time_of_later_profiles: Duration,
    /// Results up to the last block.
    overview: Option<Overview>,
    /// Current rates: those of this block, and of the last block for cells that are in this one,
    /// too.
    rates: HashMap<CellId, f64>,
    /// Cells already measured in this block.
    measured: HashSet<CellId>,
    /// When the table was last drawn.
    drawn: Option<Instant>,
    /// Whether a message about waiting for other programs was printed.
    waits: bool,
}

impl Progress {
    pub(super) fn new(arguments: &ProgressArgs) -> Self {
        let quiet = arguments.quiet;
        let is_shown = !quiet && io::stderr().is_terminal();
        let bar = if is_shown { ProgressBar::new(0) } else { ProgressBar::hidden() };
        let end = Arc::default();
        bar.set_style(style(BAR, &end));
        if is_shown {
            bar.set_message("examining the hosts");
            // It starts a thread, and panics if that fails.
            if std::thread::Builder::new().spawn(|| ()).is_ok() {
                bar.enable_steady_tick(TICK);
            }
        }
        let lines = !quiet && (arguments.verbose || !is_shown);
        Progress {
            bar,
            quiet,
            lines,
            trials: 0,
            profiles: 0,
            blocks: 0,
            interleaved: false,
            until_sure: false,
            end,
            time_of_profiles: 0.0,
            time_of_a_profile: 0.0,
            time_of_later_profiles: Duration::ZERO,
            overview: None,
            rates: HashMap::new(),
            measured: HashSet::new(),
            drawn: None,
            waits: false,
        }
    }

    /// Prints a line that a quiet run omits.
    pub(super) fn remark(&self, line: &str) {
        if !self.quiet {
            self.say(line);
        }
    }

    /// Prints the line of a trial.
    fn line(&self, line: &str) {
        if self.lines {
            self.say(line);
        }
    }

    /// Prints a line, above the bar if there is one.
    fn say(&self, line: &str) {
        if self.bar.is_hidden() { say(line) } else { self.bar.println(visible(line)) }
    }

    /// Shows the current activity next to the bar.
    fn show(&self, what: &str) {
        self.bar.set_message(visible(what).into_owned());
    }

    /// Sets the time left.
    fn set_left(&self, left: Duration) {
        let mut end = self.end.lock().unwrap_or_else(PoisonError::into_inner);
        *end = Some(Instant::now() + left);
    }

    /// Draws the table of results, with the current rates.
    fn draw(&mut self) {
        let Some(overview) = self.overview.as_ref().filter(|_| !self.bar.is_hidden()) else {
            return;
        };
        self.drawn = Some(Instant::now());
        if let Some(text) = fitted(&overview.with_rates(&self.rates)) {
            self.bar.set_style(style(BAR_AND_TABLE, &self.end));
            self.bar.set_prefix(text);
        }
    }

    /// Counts one more trial as ended, with its outcome.
    fn advance(&mut self, left: Duration, outcome: &str) {
        self.set_left(left);
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
        let schedule = &header.schedule;
        self.blocks = schedule.blocks;
        self.until_sure = schedule.until_sure;
        self.interleaved = matches!(schedule.design, Design::Slices { .. });
        self.time_of_profiles = time_of_profiles(header);
        let all = trials as f64 * time_of_trial(schedule) + self.time_of_profiles;
        let budget = schedule.budget.filter(|_| schedule.until_sure);
        let all = Duration::from_secs_f64(budget.map_or(all, |budget| budget.seconds));
        self.set_left(all);
        self.bar.set_position(0);
        self.bar.set_length(trials as u64);
        let kept = "Ctrl-C keeps what was measured";
        self.remark(&match schedule.until_sure {
            true => format!("runs until sure, at most {}; {kept}", clock(all)),
            false => format!("{trials} trials, about {} with profiles; {kept}", clock(all)),
        });
    }

    fn pilots_begin(&mut self, trials: usize, each: Duration) {
        let all = each * trials as u32;
        self.set_left(all);
        self.bar.set_length(trials as u64);
        self.remark(&format!("{trials} pilots find the peaks, about {}", clock(all)));
    }

    fn pilot_begins(&mut self, number: usize, total: usize, cell: &CellId) {
        self.bar.set_length(total as u64);
        self.show(&format!("pilot {number} of {total}: {cell}"));
    }

    fn pilot_ends(&mut self, number: usize, total: usize, pilot: &Trial) {
        let (cell, result) = (&pilot.cell, outcome(pilot));
        self.bar.inc(1);
        self.line(&format!("[pilot {number}/{total}] {cell:<30} {result}"));
    }

    fn trial_begins(&mut self, _number: usize, cell: &CellId, block: u32) {
        // Cells that are left out of blocks have no rate one block later.
        let measured = std::mem::take(&mut self.measured);
        self.rates.retain(|cell, _| measured.contains(cell));
        let most = if self.until_sure { "at most " } else { "" };
        let what = if self.interleaved { String::new() } else { format!(": {cell}") };
        self.show(&format!("block {block} of {most}{}{what}", self.blocks));
    }

    fn slice_ends(&mut self, cell: &CellId, rate: f64) {
        let known = self.rates.entry(cell.clone()).or_insert(rate);
        *known += (rate - *known) / 2.0;
        self.measured.insert(cell.clone());
        if self.drawn.is_none_or(|drawn| drawn.elapsed() >= TICK) {
            self.draw();
        }
    }

    fn trial_ends(&mut self, number: usize, trial: &Trial, left: Duration) {
        let left = left + Duration::from_secs_f64(self.time_of_profiles);
        let result = outcome(trial);
        let (cell, total) = (&trial.cell, self.trials);
        self.advance(left, &format!("{cell}: {result}"));
        let left = clock(left);
        self.line(&format!("[{number:>3}/{total}] {cell:<32} {result:<24} {left} left"));
    }

    fn progressed(&mut self, study: &Study) {
        if !self.bar.is_hidden() {
            self.overview = Some(Overview::of(study));
            self.draw();
        }
    }

    fn profiles_begin(&mut self, trials: usize, each: Duration, left: Duration) {
        self.profiles = trials;
        self.time_of_a_profile = each.as_secs_f64();
        self.bar.inc_length(trials as u64);
        let all = each * trials as u32;
        let later = Duration::from_secs_f64(self.time_of_profiles).saturating_sub(all);
        // No blocks, and therefore no profiles, follow the last block.
        self.time_of_later_profiles = if left.is_zero() { Duration::ZERO } else { later };
        self.set_left(all + left + self.time_of_later_profiles);
        self.line(&format!("{trials} profiles, about {}", clock(all)));
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
        self.time_of_profiles = (self.time_of_profiles - self.time_of_a_profile).max(0.0);
        let left = left + self.time_of_later_profiles;
        let (cell, total) = (&trial.cell, self.profiles);
        self.advance(left, &format!("profile of {cell}: {result}"));
        let left = clock(left);
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

/// Prints the progress of a study on pairs of hosts.
pub(super) struct PairProgress<'a> {
    pub pair: String,
    /// Number of ended trials of all pairs.
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

/// The bar alone, and the bar with the table below it.
const BAR: &str = "{bar:24} {pos}/{len}  {left}{wide_msg}";
const BAR_AND_TABLE: &str = "{bar:24} {pos}/{len}  {left}{wide_msg}\n{prefix}";

/// Interval at which the time left and the table are redrawn.
const TICK: Duration = Duration::from_millis(250);

/// Returns a style whose time left counts down between the events that set it.
fn style(template: &str, end: &Arc<Mutex<Option<Instant>>>) -> ProgressStyle {
    let end = Arc::clone(end);
    let left = move |_: &ProgressState, out: &mut dyn std::fmt::Write| {
        let end = *end.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(end) = end {
            let left = clock(end.saturating_duration_since(Instant::now()));
            let _ = write!(out, "{left} left  ");
        }
    };
    let style = ProgressStyle::with_template(template);
    style.unwrap_or_else(|_| ProgressStyle::default_bar()).with_key("left", left)
}

/// Renders as much of a document as the terminal has lines for; `None` if it is empty.
fn fitted(document: &report::Document) -> Option<String> {
    let (width, height) = size(io::stderr()).unwrap_or((PAGE_WIDTH, 24));
    let look = Style { width, colour: colours(&io::stderr()), details: false };
    let mut table = Vec::new();
    document.write(&look, &mut table).ok()?;
    let table = String::from_utf8_lossy(&table);
    let lines: Vec<&str> = table.lines().collect();
    // Lines for the bar, for what is left out, and for the cursor.
    let room = height.saturating_sub(3);
    if lines.is_empty() || room < 3 {
        return None;
    }
    let mut text = lines[..lines.len().min(room)].join("\n");
    if lines.len() > room {
        text.push_str(&format!("\n  ... {} more lines", lines.len() - room));
    }
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
