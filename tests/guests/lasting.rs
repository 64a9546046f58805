//! A guest carries nothing from trial to trial: after many trials it holds as much as after a few.
//! Without qemu or a kernel these tests are skipped and reported.

use crate::command::{self, CommandRunner, DOUBLE};
use crate::guests::able;
use bytepath::guest::in_one_guest;
use bytepath::record::{Cell, CellId, Fault, Half, Schedule, Study, StudyHeader, Support, Trial};
use bytepath::study::{Laboratory, Observer, Plan, run_study};
use bytepath::testbed::{Deployment, Site, Testbed, beside};
use bytepath::{meter, path};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// Trials after which nothing may be added.
const FIRST: u32 = 5;

/// KiB of free memory that a trial may cost on average. When agents did not yet end with their
/// trial, it was 2,800. Free memory varies by up to 3.7 MiB between readings, which is 250 KiB per
/// trial over 15 trials.
const KIB_OF_A_TRIAL: f64 = 400.0;

/// Part of a test in `command.rs`.
pub(crate) fn nothing_is_carried_from_trial_to_trial(guest: &CommandRunner) {
    lasts(guest, 15);
}

/// Runs a few trials in a guest, then `more`, and compares what it holds.
fn lasts(guest: &CommandRunner, more: u32) {
    let program = Path::new(env!("CARGO_BIN_EXE_bytepath"));
    let before = settled(guest);
    let began = Instant::now();
    study(guest, program, FIRST);
    let first = settled(guest);
    study(guest, program, more);
    let last = settled(guest);
    let took = began.elapsed().as_secs_f64();
    println!("a guest that has booted: {before:?}");
    println!("after {FIRST} trials: {first:?}");
    println!("after {more} more, and {took:.0} s: {last:?}");
    let counts = |census: &Census| (census.tasks, census.namespaces, census.polling);
    assert_eq!(counts(&first), counts(&before));
    assert_eq!(counts(&last), counts(&before));
    let each = (first.free as f64 - last.free as f64) / f64::from(more);
    println!("{each:.1} KiB a trial");
    assert!(each < KIB_OF_A_TRIAL, "{each:.1} KiB of memory a trial");
}

/// Runs a study of this many very short trials.
fn study(guest: &CommandRunner, program: &Path, trials: u32) {
    let folder = tempfile::tempdir().unwrap();
    let cell = Cell::new("socket", Half::plain("socket"), Half::plain("socket"));
    let schedule = Schedule::trials(trials, 0.0, 0.05);
    let plan = Plan::bare(vec![cell], CellId("socket".into()), schedule, folder.path());
    let stop = AtomicBool::new(false);
    let laboratory = Laboratory {
        paths: path::CATALOG,
        meters: meter::CATALOG,
        testbed: &InGuest(guest),
        program: program.to_owned(),
        stop: &stop,
    };
    let (study, result) = run_study(&laboratory, &plan, &mut Unheard);
    result.unwrap();
    let Study { trials: ended, .. } = study.unwrap();
    assert_eq!(ended.len(), trials as usize);
    // On a busy machine a window may end before anything has moved.
    let ran = ended.iter().filter(|trial| trial.count > 0).count();
    assert!(2 * ran > ended.len(), "{ran} of {trials}: {:?}", ended[0].status);
}

/// What a guest holds.
#[derive(Debug)]
struct Census {
    tasks: u64,
    namespaces: u64,
    polling: u64,
    free: u64,
}

/// Counts once no more processes end: namespaces are freed a while after their last process.
fn settled(guest: &CommandRunner) -> Census {
    let mut before = census(guest);
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = census(guest);
        if now.tasks == before.tasks {
            return now;
        }
        before = now;
    }
}

fn census(guest: &CommandRunner) -> Census {
    let text = guest.output_of(&format!("{DOUBLE} census"));
    let numbers: Vec<u64> = text.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let [tasks, namespaces, polling, free] = numbers[..] else { panic!("{text}") };
    Census { tasks, namespaces, polling, free }
}

/// A testbed with both hosts in a guest that also runs commands.
struct InGuest<'a>(&'a CommandRunner);

impl Testbed for InGuest<'_> {
    fn name(&self) -> &'static str {
        "in-guest"
    }
    fn summary(&self) -> &'static str {
        "both hosts in a guest of the test"
    }
    fn probe(&self) -> Support {
        Support::Yes
    }
    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        Ok(Deployment::of(in_one_guest(self.0.machine(), None, site.stop, beside)?))
    }
}

/// An observer that prints nothing.
struct Unheard;

impl Observer for Unheard {
    fn begins(&mut self, _: &StudyHeader, _: usize) {}
    fn trial_begins(&mut self, _: usize, _: &CellId, _: u32) {}
    fn trial_ends(&mut self, _: usize, _: &Trial, _: Duration) {}
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "timing"]
    fn a_guest_lasts_for_three_hundred_trials() {
        let Some(_machine) = able() else { return };
        lasts(&command::booted("debian:newest").expect("a kernel"), 300 - FIRST);
    }
}
