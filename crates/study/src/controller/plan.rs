//! What a study runs, and who observes it.

use bytepath_engine::path::{DataPath, Pair};
use bytepath_engine::workload::{self, Workload};
use bytepath_host::testbed::{self, Site, Testbed};
use bytepath_meter::Meter;
use bytepath_record::wire::MeterRequest;
use bytepath_record::{
    Cell, CellId, Judgement, Profiling, RestorationRow, Schedule, SettingRecord, Source, Study,
    StudyHeader, Trial, WantedSetting,
};
use bytepath_spec::{
    PairDeclaration, PathDeclaration, PathSpec, TestbedDeclaration, WorkloadDeclaration,
};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};
use std::time::Duration;

#[derive(Clone, Debug, Default)]
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
    /// Which profiles are taken after the last block; `None` if none are.
    pub profiling: Option<Profiling>,
    /// Settings of the host that are made before the first testbed is raised, and
    /// restored after the last trial.
    pub settings: Vec<WantedSetting>,
    /// True if every cell was requested by name: a cell that cannot run here is then an error, not
    /// a row with a reason.
    pub mandatory: bool,
    /// The testbed as typed on the command line, to find it again.
    pub testbed: String,
    /// Folder for the study.
    pub folder: PathBuf,
    /// The blocks left for this study and those of other pairs of hosts, if they share them;
    /// otherwise the study runs all of its own.
    pub shared: Option<Arc<Blocks>>,
    /// How long to wait for other programs to leave the CPUs alone.
    pub wait_idle: Option<Duration>,
}

/// Blocks shared by several pairs of hosts: each takes the next one when it has ended one.
#[derive(Debug)]
pub struct Blocks(AtomicU32);

impl Blocks {
    pub fn new(count: u32) -> Blocks {
        Blocks(AtomicU32::new(count))
    }

    /// Takes a block; false if none is left.
    pub(super) fn take(&self) -> bool {
        self.0.fetch_update(Relaxed, Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

impl Plan {
    /// Returns a plan that runs these cells on the embedded testbed for their throughput alone,
    /// without meters, profiles or settings. Every cell must be able to run.
    pub fn bare(
        cells: Vec<Cell>,
        baseline: CellId,
        schedule: Schedule,
        folder: impl Into<PathBuf>,
    ) -> Plan {
        let (testbed, folder) = (testbed::CATALOG[0].name().to_owned(), folder.into());
        let mandatory = true;
        Plan { cells, baseline, schedule, mandatory, testbed, folder, ..Plan::default() }
    }
}

/// Receives the events of a study.
pub trait Observer {
    /// The hosts' settings are made. The rows list what a crashed earlier run had left behind,
    /// which was restored first.
    fn settings(&mut self, _records: &[SettingRecord], _left_behind: &[RestorationRow]) {}
    /// The hosts' settings were restored, the last one first.
    fn put_back(&mut self, _rows: &[RestorationRow]) {}
    /// A sentence on what happens: other programs use the CPUs, a second pass follows, the study
    /// stops early.
    fn remark(&mut self, _text: &str) {}
    /// Other programs use the CPUs; the study waits for them, at most for `left`.
    fn waits(&mut self, _programs: &str, _left: Duration) {}
    /// Another program changed settings of the host while trials ran.
    fn host_changed(&mut self, _remark: &str) {}
    /// The hosts are known; `trials` will be run.
    fn begins(&mut self, _header: &StudyHeader, _trials: usize) {}
    /// This many pilots come before the first block, each of this length.
    fn pilots_begin(&mut self, _trials: usize, _each: Duration) {}
    /// A pilot starts: its number (from 1), the total (which grows if rejected ones are replaced),
    /// cell.
    fn pilot_begins(&mut self, _number: usize, _total: usize, _cell: &CellId) {}
    /// A pilot has ended; it does not count.
    fn pilot_ends(&mut self, _number: usize, _total: usize, _pilot: &Trial) {}
    /// A trial starts: its number (from 1), cell, block (from 1).
    fn trial_begins(&mut self, _number: usize, _cell: &CellId, _block: u32) {}
    /// A slice of a cell has ended, at this rate in work per second.
    fn slice_ends(&mut self, _cell: &CellId, _rate: f64) {}
    /// A trial has ended; `left` is an estimate for the rest.
    fn trial_ends(&mut self, number: usize, trial: &Trial, left: Duration);
    /// The study as it is on disk, before the first block and after each.
    fn progressed(&mut self, _study: &Study) {}
    /// This many profile trials follow, each of this length; after them, the trials that count
    /// still take `left`.
    fn profiles_begin(&mut self, _trials: usize, _each: Duration, _left: Duration) {}
    /// A profile trial starts: its number (from 1), the total (which grows if rejected ones are
    /// replaced), cell.
    fn profile_begins(&mut self, _number: usize, _total: usize, _cell: &CellId) {}
    /// A profile trial has ended; `left` is an estimate for the rest.
    fn profile_ends(&mut self, _number: usize, _trial: &Trial, _left: Duration) {}
}

/// The environment of a study: the catalogues (or a test's fakes) and the flag that cancels it.
pub struct Laboratory<'a> {
    /// Data paths that cells may name.
    pub paths: &'static [&'static DataPath],
    /// Meters that can be requested.
    pub meters: &'static [&'static Meter],
    /// Where the roles run.
    pub testbed: &'a dyn Testbed,
    /// The binary that agents are started from.
    pub program: PathBuf,
    /// Set by a signal handler: the trial ends at once, and what was measured is kept.
    pub stop: &'a AtomicBool,
}

impl Laboratory<'_> {
    /// Returns what the testbed is set up with for a cell; if `None`, only its own defaults.
    pub(super) fn site<'s>(&'s self, cell: Option<&'s Cell>) -> Site<'s> {
        Site {
            program: &self.program,
            kernel: cell.and_then(|cell| cell.kernel.as_ref()),
            guest_tap: cell.and_then(|cell| cell.link.tap).filter(|tap| tap.guest),
            vhost: cell.and_then(|cell| cell.placement.vhost),
            adapters: cell.map_or(1, |cell| cell.link.adapters),
            stop: self.stop,
        }
    }
}

/// The catalogue of testbeds as a request sees it.
pub fn testbed_spec(testbeds: &[&'static dyn Testbed]) -> Vec<TestbedDeclaration> {
    let declare = |testbed: &&'static dyn Testbed| TestbedDeclaration {
        name: testbed.name(),
        options: testbed.options(),
        implied: testbed.implied(),
        boots_kernels: testbed.properties().boots_kernels,
        link: testbed.properties().usual_link,
    };
    testbeds.iter().map(declare).collect()
}

/// The catalogues of paths and workloads as a request sees them.
pub fn path_spec(paths: &[&'static DataPath], pairs: &[Pair]) -> PathSpec {
    let path = |path: &&'static DataPath| PathDeclaration {
        name: path.name,
        tx: path.tx.map(|tx| tx.options),
        rx: path.rx.map(|rx| rx.options),
    };
    let pair = |pair: &Pair| PairDeclaration { name: pair.name, tx: pair.tx, rx: pair.rx };
    let workload = |workload: &&'static Workload| WorkloadDeclaration {
        name: workload.name,
        options: workload.options,
        most_mtu: workload.most_mtu,
    };
    PathSpec {
        workloads: workload::CATALOG.iter().map(workload).collect(),
        paths: paths.iter().map(path).collect(),
        pairs: pairs.iter().map(pair).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_math::Random;

    /// Simulated: 1000 trials in blocks of 2, each of which takes 7 s to 13 s, on pairs one of
    /// which is slower than the others.
    #[test]
    fn pairs_that_share_blocks_are_busy_to_the_end() {
        const PAIRS: usize = 8;
        let (blocks, mut random) = (Blocks::new(500), Random::new(7));
        let (mut free, mut busy) = ([0.0; PAIRS], [0.0; PAIRS]);
        loop {
            let next = (0..PAIRS).min_by(|a, b| f64::total_cmp(&free[*a], &free[*b])).unwrap();
            if !blocks.take() {
                break;
            }
            let slow = if next == 0 { 1.7 } else { 1.0 };
            let block: f64 = (0..2).map(|_| slow * (7.0 + 6.0 * random.uniform())).sum();
            free[next] += block;
            busy[next] += block;
        }
        let end = free.iter().copied().fold(0.0, f64::max);
        for (pair, busy) in busy.iter().enumerate() {
            assert!(busy / end > 0.95, "pair {pair}: {busy} of {end}");
        }
    }
}
