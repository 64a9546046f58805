//! Studies with a budget of time: what it holds, what the second pass is made of, and, on
//! made-up studies whose truth is known, that choosing what goes on tells no lies.

use crate::made_up;
use crate::shared::render;

use bytepath::math::Random;
use bytepath::record::{Budget, CellId, Study, Trial};
use bytepath::report::Style;
use bytepath::stats::{Metric, Row, Rules, allot, analyse, second_pass};
use made_up::{cell, header};

/// Seconds from one made-up trial to the next.
const EACH: f64 = 3.0;

/// A study of two passes: the baseline, its second copy and these cells, whose rates are off
/// the baseline's by so much. Trials scatter by 3 %, and blocks drift.
fn study(effects: &[f64], budget: f64, chance: &mut Random) -> Study {
    let names: Vec<String> = (0..effects.len() + 2).map(|at| format!("cell-{at}")).collect();
    let mut header = header(names.iter().map(|name| cell(name, "socket", "socket")).collect());
    header.cells[1].null = true;
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    header.schedule.blocks = 20;
    (header.schedule.warm_up, header.schedule.window) = (0.5, 1.5);
    header.schedule.budget = Some(Budget { seconds: budget + 7.0, profiles: 7.0, first: 3 });
    let mut study = Study { header, trials: Vec::new(), profiles: Vec::new(), remarks: Vec::new() };
    let all: Vec<CellId> = study.header.cells.iter().map(|cell| cell.id.clone()).collect();
    run(&mut study, effects, &all, 0, 3, chance);
    if let Some(second) = second_pass(&study) {
        run(&mut study, effects, &second.cells, 3, second.blocks, chance);
    }
    study
}

/// Runs blocks of these cells.
fn run(
    study: &mut Study,
    effects: &[f64],
    cells: &[CellId],
    from: u32,
    blocks: u32,
    chance: &mut Random,
) {
    let blank = made_up::trial(&made_up::PATHS[0], 0, 0);
    for block in from..from + blocks {
        let drift = 0.2 * chance.normal();
        for id in cells {
            let at = study.header.cells.iter().position(|cell| cell.id == *id).unwrap();
            let effect = if at < 2 { 0.0 } else { effects[at - 2] };
            let rate = (3.0 + drift + effect + 0.03 * chance.normal()).exp() * 1e9 / 8.0;
            let order = study.trials.len() as u32;
            study.trials.push(Trial {
                cell: id.clone(),
                block,
                order,
                started_ms: u64::from(order) * (EACH * 1000.0) as u64,
                count: (rate * blank.window) as u64,
                roles: Vec::new(),
                readings: Vec::new(),
                series: Vec::new(),
                warnings: Vec::new(),
                ..blank.clone()
            });
        }
    }
}

fn rows(study: &Study) -> Vec<Row> {
    analyse(study, &Rules::of(&study.header)).rows
}

#[test]
fn a_budget_holds_all_blocks_or_some_or_two_passes() {
    let of = |seconds: f64, cells: usize| allot(seconds, 2.0, cells, 5);
    assert_eq!(of(1000.0, 10), Some((5, 5)), "all of it");
    assert_eq!(of(99.0, 10), Some((5, 3)), "three blocks, and the rest for what matters");
    assert_eq!(of(60.0, 10), Some((3, 3)), "three, and nothing left");
    assert_eq!(of(45.0, 10), Some((2, 2)));
    assert_eq!(of(39.0, 10), None, "one block compares nothing");
    assert_eq!(of(26.0, 3), Some((4, 4)), "of one comparison there is nothing to choose");
    assert_eq!(allot(20.0, 2.0, 10, 1), Some((1, 1)), "one was asked for");
}

#[test]
fn the_leader_and_what_is_open_go_on_and_are_judged_by_new_blocks_alone() {
    let mut chance = Random::new(5);
    // One leads, one is hopeless, two are so close to the baseline that three blocks cannot tell.
    let effects = [0.4, -0.9, 0.02, -0.01];
    let mut study = study(&effects, 6.0 * 3.0 * EACH + 100.0 * EACH, &mut chance);
    let second = second_pass(&study).unwrap();
    assert_eq!(second.chosen[0].0, "cell-2", "the leader");
    assert!(!second.chosen.contains(&CellId("cell-3".into())), "{:?}", second.chosen);
    assert_eq!(second.blocks, 20, "100 trials in blocks of five");
    let shown = rows(&study);
    for row in &shown[1..] {
        let new = second.chosen.contains(&row.cell);
        let blocks = row.comparison(Metric::Rate).unwrap().effect.as_ref().unwrap().blocks;
        assert_eq!((blocks, row.status.measured), if new { (20, 20) } else { (3, 3) });
    }
    let word = |at: usize| shown[at].comparison(Metric::Rate).unwrap().verdict.word();
    assert_eq!([word(1), word(2)], ["FASTER", "SLOWER"]);
    // It follows from the first pass, whatever has been run since.
    study.trials.truncate(20);
    assert_eq!(second_pass(&study).as_ref(), Some(&second));
    study.trials.truncate(17);
    assert_eq!(second_pass(&study), None, "the first pass is not whole");
}

#[test]
fn what_takes_longer_than_was_thought_leaves_less() {
    let mut chance = Random::new(6);
    let effects = [0.1, 0.0, 0.0, 0.0];
    let blocks = |budget: f64, chance: &mut Random| {
        second_pass(&study(&effects, budget, chance)).map(|second| second.cells.len())
    };
    let first = 6.0 * 3.0 * EACH;
    assert_eq!(blocks(first - 10.0, &mut chance), None);
    assert_eq!(blocks(first + 10.0 * EACH, &mut chance), Some(3), "one, for three blocks");
    assert_eq!(blocks(first + 20.0 * EACH, &mut chance), Some(4), "two, for five blocks");
    let mut emulated = study(&effects, first + 60.0 * EACH, &mut chance);
    emulated.header.functional = Some("made up".into());
    assert_eq!(second_pass(&emulated), None, "no speed, nothing to lead in");
}

#[test]
fn choosing_by_the_first_pass_claims_nothing_that_is_not_so() {
    const STUDIES: u32 = 200;
    let mut chance = Random::new(7);
    let (mut false_claims, mut misses, mut chosen) = (0, 0, 0);
    let (mut flattered, mut judged) = (0.0, 0.0);
    for _ in 0..STUDIES {
        let study = study(&[0.0; 6], 8.0 * 3.0 * EACH + 40.0 * EACH, &mut chance);
        let rows = rows(&study);
        let of = |row: &&Row| row.comparison(Metric::Rate).unwrap().verdict.better().is_some();
        false_claims += u32::from(rows[1..].iter().filter(of).count() > 0);
        let Some(leader) = second_pass(&study).map(|second| second.chosen[0].clone()) else {
            continue;
        };
        let found = |rows: &[Row]| {
            let row = rows.iter().find(|row| row.cell == leader).unwrap();
            row.comparison(Metric::Rate).unwrap().effect.clone().unwrap()
        };
        let mut first = study.clone();
        first.trials.retain(|trial| trial.block < 3);
        let (before, after) = (found(&self::rows(&first)), found(&rows));
        (flattered, judged) = (flattered + before.log_mean, judged + after.log_mean);
        let interval = after.interval.unwrap();
        misses += u32::from(interval.low > 1.0 || interval.high < 1.0);
        chosen += 1;
    }
    // 5 % are 10 of 200, with a standard deviation of 3.1: 19 is three of them above.
    assert!(false_claims <= 19, "{false_claims} of {STUDIES} studies of equals claim something");
    assert!(chosen > 190 && misses <= 19, "{misses} intervals of {chosen} leaders miss");
    let [flattered, judged] = [flattered, judged].map(|sum| sum / f64::from(chosen));
    assert!(flattered > 0.012, "the blocks that chose a leader flatter it: {flattered}");
    // A mean of 200 figures with a standard deviation of 2 % is off by 0.14 %.
    assert!(judged.abs() < 0.005, "the later ones do not: {judged}");
}

#[test]
fn the_command_to_run_it_again_has_the_budget() {
    let study = study(&[0.2, 0.0], 4.0 * 3.0 * EACH + 60.0 * EACH, &mut Random::new(8));
    let text = String::from_utf8(render("netdev", &study, &Style::default())).unwrap();
    assert!(text.contains("--budget 223s") && text.contains("--blocks 20"), "{text}");
}

#[test]
fn a_dry_run_says_what_a_budget_holds() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle-quick.toml");
    let run = |budget: &str| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.args(["run", file, "--design", "trials", "--dry-run", "--budget", budget]);
        let output = command.output().unwrap();
        let text = [&output.stdout[..], &output.stderr[..]].concat();
        (output.status.code(), String::from_utf8(text).unwrap())
    };
    // Nine cells of a second and a half, and one around each.
    let (code, text) = run("100s");
    assert_eq!(code, Some(0), "{text}");
    let said = "a budget of 100s leaves about 32s after these 3 blocks, at 2.5 s per trial: \
                for the leaders";
    assert!(text.contains(said) && text.contains("27 trials"), "{text}");
    let (code, text) = run("1h");
    let whole = "a budget of 3600s allows 5 blocks, at about 2.5 s per trial";
    assert!(code == Some(0) && text.contains(whole), "{text}");
    let (code, text) = run("40s");
    assert!(code == Some(2) && text.contains("is too short for two blocks of 9 cells"), "{text}");
    assert!(run("soon").1.contains("'soon' is not a duration"));
}
