//! What a study is to run, and who watches it.

use crate::record::wire::MeterRequest;
use crate::record::{
    Cell, CellId, Judgement, Profiling, RestorationRow, Schedule, SettingRecord, Source,
    StudyHeader, Trial, WantedSetting,
};
use std::path::PathBuf;
use std::time::Duration;

/// What to run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What the study is about; may be empty.
    pub title: String,
    /// The cells, in the order in which reports show them.
    pub cells: Vec<Cell>,
    /// The cell all others are compared with.
    pub baseline: CellId,
    /// Blocks, window, seed.
    pub schedule: Schedule,
    /// Margin, confidence, exponents.
    pub judgement: Judgement,
    /// The meters and their options.
    pub meters: Vec<MeterRequest>,
    /// The experiment file, if there is one.
    pub source: Option<Source>,
    /// Which profiles are taken after the last block; none if none are.
    pub profiling: Option<Profiling>,
    /// Settings of the host that are made before the first testbed is raised, and
    /// put back after the last trial.
    pub settings: Vec<WantedSetting>,
    /// True if every cell was asked for by name: one that cannot run here is
    /// an error then, and not a row with a reason.
    pub mandatory: bool,
    /// The testbed as one would type it, to find it again.
    pub testbed: String,
    /// Folder for the study.
    pub folder: PathBuf,
}

impl Plan {
    /// These cells on the embedded testbed, each of which must run, and nothing beside
    /// their throughput: no meters, no profiles, no settings.
    pub fn bare(
        cells: Vec<Cell>,
        baseline: CellId,
        schedule: Schedule,
        folder: impl Into<PathBuf>,
    ) -> Plan {
        Plan {
            title: String::new(),
            cells,
            baseline,
            schedule,
            judgement: Judgement::default(),
            meters: Vec::new(),
            source: None,
            profiling: None,
            settings: Vec::new(),
            mandatory: true,
            testbed: "netns".into(),
            folder: folder.into(),
        }
    }
}

/// Who watches a study.
pub trait Observer {
    /// The host is set; the rows tell what an earlier run that died had left
    /// behind and was put back first.
    fn settings(&mut self, records: &[SettingRecord], left_behind: &[RestorationRow]) {
        let _ = (records, left_behind);
    }
    /// The host's settings were put back, the last one first.
    fn put_back(&mut self, rows: &[RestorationRow]) {
        let _ = rows;
    }
    /// Somebody else changed settings of the host while trials ran.
    fn host_changed(&mut self, remark: &str) {
        let _ = remark;
    }
    /// The hosts are known; `trials` will be run.
    fn begins(&mut self, header: &StudyHeader, trials: usize);
    /// A trial starts: its number (from 1), cell, block (from 1).
    fn trial_begins(&mut self, number: usize, cell: &CellId, block: u32);
    /// A trial has ended; so much time the rest will take.
    fn trial_ends(&mut self, number: usize, trial: &Trial, left: Duration);
    /// The trials that count have ended; so many profile trials follow, each of
    /// this length.
    fn profiles_begin(&mut self, trials: usize, each: Duration) {
        let _ = (trials, each);
    }
    /// A profile trial starts: its number among them (from 1), cell.
    fn profile_begins(&mut self, number: usize, cell: &CellId) {
        let _ = (number, cell);
    }
    /// A profile trial has ended; so much time the rest will take.
    fn profile_ends(&mut self, number: usize, trial: &Trial, left: Duration) {
        let _ = (number, trial, left);
    }
    /// The stopping rule ended the study; the text says why, and what it saved.
    fn stops_early(&mut self, why: &str) {
        let _ = why;
    }
}
