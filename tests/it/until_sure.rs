//! Studies that end once they are sure: which cells continue, when it is over, and, on made-up
//! studies whose truth is known, that stopping as soon as the answer pleases makes no false claims.

use crate::made_up;
use crate::shared::render;

use bytepath::math::Random;
use bytepath::record::{Budget, Study, Trial};
use bytepath::report::Style;
use bytepath::stats::{LEAST_BLOCKS, Metric, Row, Rules, analyse, cells_to_run};
use made_up::{cell, header};

/// How the figures of made-up trials scatter, in standard deviations.
type Noise = fn(&mut Random) -> f64;

/// A study of at most 20 blocks until it is sure: the baseline, its second copy and these cells,
/// whose rates differ from the baseline's by `effects`. Blocks drift.
fn study(effects: &[f64], stddev: f64, noise: Noise, chance: &mut Random) -> Study {
    run(true, effects, stddev, noise, chance)
}

/// The same with all of its 20 blocks.
fn fixed(effects: &[f64], stddev: f64, chance: &mut Random) -> Study {
    run(false, effects, stddev, Random::normal, chance)
}

fn run(until_sure: bool, effects: &[f64], stddev: f64, noise: Noise, chance: &mut Random) -> Study {
    let names: Vec<String> = (0..effects.len() + 2).map(|at| format!("cell-{at}")).collect();
    let mut header = header(names.iter().map(|name| cell(name, "socket", "socket")).collect());
    header.cells[1].null = true;
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    header.schedule.blocks = 20;
    header.schedule.until_sure = until_sure;
    header.schedule.budget = Some(Budget { seconds: 223.0, profiles: 7.0, first: 20 });
    let mut study = Study { header, trials: Vec::new(), profiles: Vec::new(), remarks: Vec::new() };
    let blank = made_up::trial(&made_up::PATHS[0], 0, 0);
    for block in 0..20 {
        let run = match until_sure {
            true => cells_to_run(&study),
            false => study.header.cells.iter().map(|cell| cell.id.clone()).collect(),
        };
        if run.is_empty() {
            break;
        }
        let drift = 0.2 * chance.normal();
        for at in 0..study.header.cells.len() {
            let id = study.header.cells[at].id.clone();
            if !run.contains(&id) {
                continue;
            }
            let effect = if at < 2 { 0.0 } else { effects[at - 2] };
            let rate = (3.0 + drift + effect + stddev * noise(chance)).exp() * 1e9 / 8.0;
            study.trials.push(Trial {
                cell: id,
                block,
                order: study.trials.len() as u32,
                count: (rate * blank.window) as u64,
                roles: Vec::new(),
                readings: Vec::new(),
                series: Vec::new(),
                warnings: Vec::new(),
                ..blank.clone()
            });
        }
    }
    study
}

fn rows(study: &Study) -> Vec<Row> {
    analyse(study, &Rules::of(&study.header)).rows
}

fn word(row: &Row) -> &'static str {
    row.comparison(Metric::Rate).unwrap().verdict.word()
}

fn blocks(study: &Study, cell: &str) -> usize {
    study.trials.iter().filter(|trial| trial.cell.0 == cell).count()
}

#[test]
fn what_is_decided_leaves_and_its_time_goes_to_what_is_open() {
    let mut chance = Random::new(5);
    // One leads, one is far behind, one is a few percent off.
    let study = study(&[0.4, -0.9, 0.05], 0.03, Random::normal, &mut chance);
    let rows = rows(&study);
    assert_eq!([word(&rows[1]), word(&rows[2]), word(&rows[3])], ["FASTER", "SLOWER", "FASTER"]);
    let [leader, behind, near] = ["cell-2", "cell-3", "cell-4"].map(|cell| blocks(&study, cell));
    assert_eq!(behind, LEAST_BLOCKS as usize, "decided at the first look");
    assert!(near > behind && near < 20, "{near}");
    assert_eq!(leader, near, "what is recommended is measured on");
    assert_eq!(cells_to_run(&study).len(), 0, "all is decided: it is over");
    assert_eq!(blocks(&study, "cell-0"), near);
}

#[test]
fn what_is_beyond_reach_ends_early_and_claims_nothing() {
    let mut chance = Random::new(6);
    let study = study(&[0.0, 0.01], 0.2, Random::normal, &mut chance);
    let analysis = analyse(&study, &Rules::of(&study.header));
    assert!(blocks(&study, "cell-0") < 17, "{}", blocks(&study, "cell-0"));
    assert_eq!([word(&analysis.rows[1]), word(&analysis.rows[2])], ["INCONCLUSIVE"; 2]);
    assert!(cells_to_run(&study).is_empty());
}

#[test]
fn the_last_block_counts_by_students_t() {
    // An effect that the sequence alone would rarely find in 20 blocks, but the planned end does.
    const STUDIES: u32 = 200;
    let mut chance = Random::new(9);
    let (mut found, mut found_fixed) = (0, 0);
    for _ in 0..STUDIES {
        let study = study(&[0.045], 0.045, Random::normal, &mut chance);
        found += u32::from(word(&rows(&study)[1]) == "FASTER");
        let fixed = fixed(&[0.045], 0.045, &mut chance);
        found_fixed += u32::from(word(&rows(&fixed)[1]) == "FASTER");
    }
    println!(
        "found in {found} of {STUDIES} studies, with a fixed number of blocks in {found_fixed}"
    );
    assert!(
        (130..=175).contains(&found) && (155..=190).contains(&found_fixed),
        "{found} {found_fixed}"
    );
}

#[test]
fn a_cell_alone_is_measured_too() {
    let study = study(&[], 0.05, Random::normal, &mut Random::new(10));
    assert_eq!(blocks(&study, "cell-0"), LEAST_BLOCKS as usize);
    assert_eq!(blocks(&study, "cell-1"), LEAST_BLOCKS as usize);
}

/// One of two values, each with a little noise: bimodal streams.
fn bimodal(chance: &mut Random) -> f64 {
    let mood = if chance.uniform() < 0.5 { 0.9 } else { -0.9 };
    mood + 0.43 * chance.normal()
}

/// Student's t with three degrees of freedom, scaled to a variance of one: occasional outliers.
fn heavy(chance: &mut Random) -> f64 {
    let squares: f64 = (0..3).map(|_| chance.normal().powi(2)).sum();
    chance.normal() / (squares / 3.0).sqrt() / 3f64.sqrt()
}

#[test]
fn stopping_when_it_pleases_claims_nothing_that_is_not_so() {
    const STUDIES: u32 = 200;
    for (name, noise) in
        [("normal", Random::normal as Noise), ("bimodal", bimodal), ("heavy tails", heavy)]
    {
        let mut chance = Random::new(7);
        let (mut claims, mut misses, mut equal) = (0, 0, 0);
        for _ in 0..STUDIES {
            let study = study(&[0.0; 4], 0.05, noise, &mut chance);
            let rows = rows(&study);
            claims += u32::from(
                rows[1..]
                    .iter()
                    .any(|row| row.comparison(Metric::Rate).unwrap().verdict.better().is_some()),
            );
            let interval = rows[1].effect(Metric::Rate).unwrap().interval;
            misses += u32::from(interval.is_some_and(|i| i.low > 1.0 || i.high < 1.0));
            equal += rows[1..].iter().filter(|row| word(row) == "EQUIVALENT").count();
        }
        // 5 % of 200 are 10, with a standard deviation of 3.1: 19 is three of them above.
        assert!(claims <= 19, "{name}: {claims} of {STUDIES} studies of equals claim something");
        assert!(misses <= 19, "{name}: {misses} of {STUDIES} intervals miss");
        // With noise of 5 %, 20 blocks cannot show equality within a margin of 2 %.
        assert!(equal < 20, "{name}: {equal}");
    }
}

#[test]
fn the_margin_is_not_claimed_either() {
    // Cells that differ by exactly the margin are not EQUIVALENT.
    let mut chance = Random::new(8);
    let wrong = (0..200).filter(|_| {
        let study = study(&[0.02f64.ln_1p(); 3], 0.01, Random::normal, &mut chance);
        rows(&study)[1..].iter().any(|row| word(row) == "EQUIVALENT")
    });
    let wrong = wrong.count();
    assert!(wrong <= 19, "{wrong} of 200");
}

#[test]
fn the_command_to_run_it_again_has_the_time() {
    let study = study(&[0.2, 0.0], 0.03, Random::normal, &mut Random::new(8));
    let text = String::from_utf8(render("netdev", &study, &Style::default())).unwrap();
    assert!(text.contains("--time 223s") && text.contains("--blocks 20"), "{text}");
}

/// Whole trials get shorter until as many blocks fit as a decision needs, and packets have paths.
#[test]
fn twenty_seconds_hold_blocks_enough_of_any_workload() {
    for (workload, cell) in [("rr", "socket rr"), ("packets", "af-xdp+af-xdp packets")] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.args(["run", "--workload", workload, "-t", "20s", "--json", "--dry-run"]);
        if workload == "rr" {
            let paths = ["socket", "sendfile", "splice", "msg-zerocopy", "uring", "uring-zc"];
            command.args(paths.map(|path| format!("--path={path}")));
        }
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let blocks = plan["order"].as_array().unwrap();
        assert!(blocks.len() >= 5, "{workload}: {} blocks", blocks.len());
        assert!(plan["cells"].as_array().unwrap().iter().any(|c| c["id"] == cell), "{plan}");
    }
}

#[test]
fn a_dry_run_prints_what_a_time_holds() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle-quick.toml");
    let run = |options: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.args(["run", file, "--design", "trials", "--dry-run"]).args(options);
        let output = command.output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    let (code, text) = run(&["--time", "100s"]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("ends as soon as every comparison is decided or out of reach"), "{text}");
    assert!(text.contains("at most 100s with profiles"), "{text}");
    let (code, text) = run(&[]);
    assert!(code == Some(0) && !text.contains("as soon as"), "a fixed number of blocks: {text}");
    assert!(run(&["-t", "soon"]).1.contains("'soon' is not a duration"));
    assert_eq!(run(&["--budget", "100s"]).0, Some(0), "the name of an earlier edition");
}
