//! Truth tests: made-up studies whose truth is known, judged by the same code as real ones. Seeds
//! are fixed, so a run either always passes or never does; every bound states how far chance alone
//! may move the result.

use crate::made_up;

use bytepath::math::Random;
use bytepath::record::{Judgement, Role, Scope, Stopping, Study, ThreadTime, Trial, TrialStatus};
use bytepath::stats::{Metric, Row, Rules, Verdict, analyse, between, should_stop};
use made_up::{cell, header};

/// A machine that hiccups: most trials are quiet, one in ten loses a fifth.
fn hiccup(chance: &mut Random) -> f64 {
    let lost = if chance.uniform() < 0.1 { -0.2 } else { 0.0 };
    lost + 0.02 * chance.normal()
}

/// A measured trial of a throughput, with nothing but that.
fn trial(name: &str, block: u32, gbit: f64) -> Trial {
    let blank = made_up::trial(&made_up::PATHS[0], 0, 0);
    Trial {
        cell: bytepath::record::CellId(name.into()),
        block,
        order: block,
        count: (gbit * 1e9 / 8.0 * blank.window) as u64,
        roles: Vec::new(),
        readings: Vec::new(),
        series: Vec::new(),
        warnings: Vec::new(),
        ..blank
    }
}

/// A study of these cells, the first of them the baseline; `log_gbit` returns the logarithm of each
/// trial's rate. It includes a drift that affects all of a block alike.
fn study(
    cells: &[&str],
    blocks: u32,
    chance: &mut Random,
    log_gbit: &mut dyn FnMut(usize, &mut Random) -> f64,
) -> Study {
    let mut header = header(cells.iter().map(|c| cell(c, "socket", "socket")).collect());
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    header.schedule.blocks = blocks;
    let mut trials = Vec::new();
    for block in 0..blocks {
        let drift = 0.2 * chance.normal();
        for (at, name) in cells.iter().enumerate() {
            trials.push(trial(name, block, (3.0 + drift + log_gbit(at, chance)).exp()));
        }
    }
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

/// Gives every trial threads at either end that ran for this share of its window.
fn busy(study: &mut Study, share: &mut dyn FnMut(&str) -> f64) {
    for cell in &mut study.header.cells {
        cell.placement = Default::default();
    }
    for trial in &mut study.trials {
        let run = share(&trial.cell.0) * trial.window;
        trial.roles = made_up::trial(&made_up::PATHS[0], 0, 0).roles;
        for role in &mut trial.roles {
            role.window = trial.window;
            role.threads = vec![ThreadTime {
                name: "engine".to_owned(),
                tid: 1,
                run,
                wait: 0.0,
                user: 0.1 * run,
                system: 0.9 * run,
                voluntary: 0,
                involuntary: 0,
            }];
        }
    }
}

fn rows(study: &Study) -> Vec<Row> {
    let rows = analyse(study, &Rules::of(&study.header)).rows;
    rows.into_iter().filter(|row| !row.baseline).collect()
}

fn claims(row: &Row) -> bool {
    differs(row.comparison(Metric::Rate).unwrap().verdict)
}

/// Whether a verdict claims a difference in rate or CPU time.
fn differs(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower | Verdict::LessCpu | Verdict::MoreCpu)
}

#[test]
fn shuffled_labels_hit_at_the_declared_rate() {
    // One set of trials with real differences between cells; a test that shuffles the labels within
    // blocks has removed them. Of 1200 comparisons by themselves, 5 % have p below 0.05; three
    // standard errors are 1.9 %.
    let mut chance = Random::new(1);
    let (mut hits, mut all) = (0, 0);
    for _ in 0..1200 {
        let truth = [0.0, 0.3];
        let mut study =
            study(&["a", "b"], 8, &mut chance, &mut |at, c| truth[at] + 0.05 * c.normal());
        for pair in study.trials.chunks_mut(2) {
            if chance.uniform() < 0.5 {
                let (a, b) = pair.split_at_mut(1);
                std::mem::swap(&mut a[0].count, &mut b[0].count);
            }
        }
        let comparison = rows(&study).remove(0).comparison(Metric::Rate).cloned().unwrap();
        hits += u32::from(comparison.effect.unwrap().permutation.unwrap() <= 0.05);
        all += 1;
    }
    let rate = f64::from(hits) / f64::from(all);
    // 256 sign patterns come in pairs: the largest p below 5 % is 12/256 = 0.0469.
    assert!((rate - 0.0469).abs() < 0.019, "{rate}");
}

#[test]
fn a_known_factor_is_found_within_its_interval() {
    // How often the interval covers the factor that was put in: 95 %, with three standard errors of
    // 600 studies being 2.7 %.
    for (factor, seed) in [(1.03, 2), (1.05, 3), (1.10, 4)] {
        let mut chance = Random::new(seed);
        let (mut covered, mut found, mut wrong) = (0, 0, 0);
        for _ in 0..600 {
            let truth = [0.0, f64::ln(factor)];
            let study =
                study(&["a", "b"], 10, &mut chance, &mut |at, c| truth[at] + 0.02 * c.normal());
            let row = rows(&study).remove(0);
            let comparison = row.comparison(Metric::Rate).cloned().unwrap();
            let interval = comparison.effect.unwrap().interval.unwrap();
            covered += u32::from(interval.low <= factor && factor <= interval.high);
            found += u32::from(comparison.verdict == Verdict::Faster);
            wrong += u32::from(matches!(comparison.verdict, Verdict::Slower | Verdict::Equivalent));
        }
        assert!((553..=587).contains(&covered), "{factor}: covered in {covered} of 600");
        assert!(found > if factor < 1.04 { 450 } else { 595 }, "{factor}: found in {found}");
        assert!(wrong <= 3, "{factor}: {wrong} wrong words");
    }
}

#[test]
fn equal_cells_are_seldom_called_different_however_many() {
    // Ten cells that are all equal: without Holm's rule about 30 % of such studies make a false
    // claim (the ten share their baseline); with it at most 5 %. Three standard errors of 500
    // studies are 2.9 %.
    let names: Vec<String> = (0..11).map(|i| format!("c{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut chance = Random::new(5);
    let (mut with, mut without) = (0, 0);
    for _ in 0..500 {
        let study = study(&names, 5, &mut chance, &mut |_, c| 0.05 * c.normal());
        let rows = rows(&study);
        with += u32::from(rows.iter().any(claims));
        let alone = |row: &Row| {
            let test = row.comparison(Metric::Rate).unwrap().test.unwrap();
            test.different.p <= 0.05
        };
        without += u32::from(rows.iter().any(alone));
    }
    println!("{with} with the rule, {without} without, of 500");
    assert!(with <= 39, "{with} of 500 studies");
    assert!(
        without > 80,
        "{without} of 500 without the rule: the test must have something to stop"
    );
}

/// Each metric has its own 5 %, so a study that judges two errs in up to 10 of 100.
#[test]
fn rate_and_cpu_have_an_error_rate_each() {
    let mut chance = Random::new(51);
    let (mut rate, mut cpu, mut either) = (0, 0, 0);
    for _ in 0..500 {
        let mut study = study(&["a", "b", "c", "d"], 6, &mut chance, &mut |_, c| 0.01 * c.normal());
        busy(&mut study, &mut |_| 0.8 * (0.05 * chance.normal()).exp());
        let rows = rows(&study);
        let claimed =
            |question| rows.iter().any(|row| differs(row.comparison(question).unwrap().verdict));
        let of = (claimed(Metric::Rate), claimed(Metric::Cpu));
        rate += u32::from(of.0);
        cpu += u32::from(of.1);
        either += u32::from(of.0 || of.1);
    }
    println!("rate {rate}, CPU {cpu}, either {either} of 500");
    // 25 each and 50 together; three standard errors are 15 and 20.
    assert!(rate <= 40 && cpu <= 40 && either <= 70, "{rate} {cpu} {either} of 500");
    assert!(either > rate.max(cpu) && either > 15, "there is something to count: {either}");
}

/// The results of pairs of studies of three cells, the second of which becomes `truth` times as
/// fast.
#[derive(Debug, Default)]
struct Compared {
    covered: u32,
    claims: u32,
}

/// Compares 600 pairs of studies that differ in length and in spread, as before and after an
/// update.
fn two_studies(truth: f64, relative: bool, seed: u64) -> Compared {
    let mut chance = Random::new(seed);
    let mut sum = Compared::default();
    for _ in 0..600 {
        let cells = ["a", "b", "c"];
        let before = study(&cells, 6, &mut chance, &mut |_, c| 0.02 * c.normal());
        let after = study(&cells, 10, &mut chance, &mut |at, c| {
            // All cells ran equally slower, which only ratios of ratios cancel.
            let machine = if relative { -0.3 } else { 0.0 };
            let patch = if at == 1 { truth.ln() } else { 0.0 };
            machine + patch + 0.06 * c.normal()
        });
        let found = between(&before, &after, relative);
        let rates = || found.pairings.iter().filter(|p| p.question == Metric::Rate);
        let interval = rates().find(|p| p.cell.0 == "b").unwrap().interval.unwrap();
        sum.covered += u32::from(interval.low <= truth && truth <= interval.high);
        sum.claims += u32::from(rates().any(|p| differs(p.verdict)));
    }
    sum
}

#[test]
fn two_studies_are_compared_with_the_declared_error_rates() {
    for (relative, seed) in [(false, 61), (true, 62)] {
        // 95 % of 600 are 570, 5 % are 30; three standard errors are 16.
        let equal = two_studies(1.0, relative, seed);
        println!("relative {relative}: {equal:?} of 600 equals");
        assert!((554..=586).contains(&equal.covered), "{relative}: {equal:?}");
        assert!((5..=46).contains(&equal.claims), "{relative}: {equal:?}");
        let faster = two_studies(1.3, relative, seed + 10);
        assert!((554..=586).contains(&faster.covered), "{relative}: {faster:?}");
        assert!(faster.claims > 3 * equal.claims, "{relative}: {faster:?}, {equal:?}");
    }
}

#[test]
fn cells_at_the_margin_are_seldom_called_equivalent() {
    // Five cells that all differ by exactly the margin. The declared rate is 5 % for the whole
    // study.
    let names = ["a", "b", "c", "d", "e", "f"];
    let mut chance = Random::new(6);
    let mut wrong = 0;
    for _ in 0..500 {
        let study = study(&names, 8, &mut chance, &mut |at, c| {
            let shift = if at == 0 { 0.0 } else { 0.02f64.ln_1p() };
            shift + 0.004 * c.normal()
        });
        let equivalent =
            |r: &Row| r.comparison(Metric::Rate).unwrap().verdict == Verdict::Equivalent;
        wrong += u32::from(rows(&study).iter().any(equivalent));
    }
    assert!(wrong <= 39, "{wrong} of 500 studies");
}

/// The results of studies that may stop early.
#[derive(Default)]
struct Stopped {
    claims: u32,
    missed: u32,
    early: u32,
    blocks: u32,
}

/// Runs `studies` studies of two equal cells under the rule "within, at most 20".
fn under_the_rule(
    studies: u32,
    within: f64,
    at_least: u32,
    seed: u64,
    noise: &mut dyn FnMut(&mut Random) -> f64,
) -> Stopped {
    let mut chance = Random::new(seed);
    let mut sum = Stopped::default();
    for _ in 0..studies {
        let mut whole = study(&["a", "b"], 20, &mut chance, &mut |_, c| noise(c));
        whole.header.judgement = Judgement { margin: 0.0, ..Judgement::default() };
        whole.header.schedule.stopping = Some(Stopping { within, at_least });
        let mut study = whole.clone();
        let stop = (1..=20).find(|blocks| {
            study.trials = whole.trials[..2 * *blocks].to_vec();
            should_stop(&study).is_some()
        });
        sum.early += u32::from(stop.is_some_and(|b| b < 20));
        sum.blocks += stop.unwrap_or(20) as u32;
        let row = rows(&study).remove(0);
        sum.claims += u32::from(claims(&row));
        let interval =
            row.comparison(Metric::Rate).cloned().unwrap().effect.unwrap().interval.unwrap();
        sum.missed += u32::from(interval.low > 1.0 || interval.high < 1.0);
    }
    sum
}

#[test]
fn stopping_early_keeps_the_error_rate() {
    // The rule is checked after every block. Widths are chosen so that it stops anywhere from the
    // first check to never. 5 % of 400 are 20; three standard errors are 13.
    for (within, seed) in [(0.02, 11), (0.03, 12), (0.04, 13), (0.06, 14)] {
        let s = under_the_rule(400, within, 5, seed, &mut |c| 0.03 * c.normal());
        assert!(s.claims <= 33, "within {within}: {} false claims of 400", s.claims);
        assert!(s.missed <= 33, "within {within}: {} intervals miss", s.missed);
        if within > 0.025 {
            assert!(s.early > 100, "within {within}: stopped early in {} only", s.early);
            assert!(s.blocks < 19 * 400, "within {within}: {} blocks", s.blocks);
        }
    }
}

#[test]
fn who_looks_at_the_effect_is_wrong_far_more_often() {
    // Why a plain interval must not be the rule: two equal cells, checked after every block from
    // the fifth to the twentieth, stopping at the first such interval without 1.
    let mut chance = Random::new(15);
    let mut wrong = 0;
    for _ in 0..150 {
        let mut whole = study(&["a", "b"], 20, &mut chance, &mut |_, c| 0.03 * c.normal());
        whole.header.judgement.margin = 0.0;
        wrong += u32::from((5..=20).rev().any(|blocks| {
            whole.trials.truncate(2 * blocks);
            claims(&rows(&whole)[0])
        }));
    }
    assert!(wrong > 19, "{wrong} of 150: 5 % would be 8, and 19 is four errors above");
}

#[test]
fn stopping_early_keeps_the_error_rate_on_a_machine_that_hiccups() {
    // The argument holds for normal noise; trials that occasionally lose a fifth are far from it.
    // Both cells hiccup alike, so equal cells stay equal.
    let s = under_the_rule(400, 0.05, 5, 21, &mut hiccup);
    assert!(s.claims <= 33 && s.early > 100, "{} claims, {} early", s.claims, s.early);
}

#[test]
fn a_rejected_trial_does_not_count_and_its_events_are_kept() {
    let mut chance = Random::new(31);
    let mut study = study(&["a", "b"], 6, &mut chance, &mut |_, c| 0.01 * c.normal());
    let before = rows(&study).remove(0).comparison(Metric::Rate).cloned().unwrap().effect.unwrap();
    // Even the oddest value counts; an event rejects even an ordinary one.
    let events = vec!["CPU 1 lost 12% to the hypervisor (limit 2%)".to_owned()];
    let at = study.trials.iter().position(|t| t.cell.0 == "b" && t.block == 2).unwrap();
    study.trials[at].status = TrialStatus::Rejected { events: events.clone() };
    let row = rows(&study).remove(0);
    assert_eq!(row.status.rejected, events);
    assert_eq!(before.blocks, 6);
    assert_eq!(row.comparison(Metric::Rate).cloned().unwrap().effect.unwrap().blocks, 5);
}

/// Ratios that depend on their predecessors cause a warning, and change no verdict.
#[test]
fn blocks_that_depend_on_their_order_are_a_warning() {
    let warned = |seed: u64, follow: f64| {
        let mut chance = Random::new(seed);
        let mut last = 0.0;
        let study = study(&["a", "b", "c"], 20, &mut chance, &mut |at, c| {
            last = if at == 1 { follow * last + 0.02 * c.normal() } else { last };
            if at == 1 { last } else { 0.002 * c.normal() }
        });
        let analysis = analyse(&study, &Rules::of(&study.header));
        let about = "b, rate: the ratios depend on the order of the blocks";
        let of_order = |r: &String| r.contains("depend on the order");
        let lines: Vec<&String> = analysis.remarks.iter().filter(|r| of_order(r)).collect();
        assert!(lines.iter().all(|l| l.starts_with(about) || l.starts_with("c, ")), "{lines:?}");
        lines.iter().any(|l| l.starts_with(about))
    };
    // One comparison of two uses half of 1 %.
    let independent = (0..400).filter(|seed| warned(*seed, 0.0)).count();
    let dependent = (0..100).filter(|seed| warned(*seed, 0.95)).count();
    assert!(independent <= 7 && dependent > 60, "{independent} of 400, {dependent} of 100");
}

#[test]
fn cpu_is_judged_like_throughput() {
    // Equal throughput; one cell uses 10 % less CPU time at both ends.
    let mut chance = Random::new(41);
    let mut study = study(&["a", "b"], 6, &mut chance, &mut |_, c| 0.001 * c.normal());
    let truth = |cell: &str| if cell == "a" { 0.8 } else { 0.72 };
    busy(&mut study, &mut |cell| truth(cell) * (0.002 * chance.normal()).exp());
    let row = rows(&study).remove(0);
    let cpu = row.comparison(Metric::Cpu).cloned().unwrap();
    assert_eq!(cpu.verdict, Verdict::LessCpu);
    let interval = cpu.effect.unwrap().interval.unwrap();
    assert!(interval.low < 0.9 && 0.9 < interval.high, "{interval:?}");
    assert_eq!(row.comparison(Metric::Rate).cloned().unwrap().verdict, Verdict::Equivalent);
    assert!(study.trials[0].reading("cpu.busy", &Scope::Cpu(0)).is_none());
    assert!(row.service_demand.total.is_some() && study.trials[0].role(Role::Sender).is_some());
}
