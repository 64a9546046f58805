//! The effect of each level of a factor, and which factors depend on each other: made-up studies
//! whose truth is known, and how reports present it.

use crate::made_up;
use crate::shared::{render, words};

use bytepath::math::Random;
use bytepath::record::{Cell, CellId, Study, Trial, TrialStatus};
use bytepath::report::{Style, Subject, find};
use bytepath::stats::{Analysis, LevelEffect, Metric, Rules, Verdict, analyse};
use made_up::{cell, header};

const PATHS: [&str; 3] = ["socket", "splice", "zcrx"];

/// Cells of paths, hardware GRO and cores; the first is the baseline.
fn cells() -> Vec<Cell> {
    let mut cells = Vec::new();
    for cores in ["two", "one"] {
        for gro in ["false", "true"] {
            for path in PATHS {
                let mut one = cell(&format!("{path} hw-gro={gro} cores={cores}"), path, path);
                let levels = [("path", path), ("hw-gro", gro), ("cores", cores)];
                one.levels = levels.map(|(k, v)| (k.into(), v.into())).into();
                cells.push(one);
            }
        }
    }
    cells
}

/// A study of five blocks; `log` returns the logarithm of a cell's rate, or `None` if it was not
/// measured. Blocks drift, and each trial has an error of 3 %.
fn study(chance: &mut Random, log: impl Fn(&Cell, u32, &mut Random) -> Option<f64>) -> Study {
    let mut header = header(cells());
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    let blank = made_up::trial(&made_up::PATHS[0], 0, 0);
    let mut trials: Vec<Trial> = Vec::new();
    for block in 0..5 {
        let drift = 0.2 * chance.normal();
        for cell in &header.cells {
            let rate = log(cell, block, chance).map(|log| log + drift + 0.03 * chance.normal());
            let bytes = rate.map(|rate| ((3.0 + rate).exp() * 1e9 / 8.0 * blank.window) as u64);
            let status = match bytes {
                Some(_) => TrialStatus::Measured,
                None => TrialStatus::Rejected { events: vec!["made up".into()] },
            };
            trials.push(Trial {
                cell: CellId(cell.id.0.clone()),
                block,
                order: trials.len() as u32,
                count: bytes.unwrap_or(0),
                status,
                roles: Vec::new(),
                readings: Vec::new(),
                series: Vec::new(),
                warnings: Vec::new(),
                ..blank.clone()
            });
        }
    }
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

fn level(cell: &Cell, factor: &str) -> String {
    cell.levels[factor].clone()
}

/// Hardware GRO makes everything 1.3 times as fast, and zcrx another 1.2 times.
fn truth(cell: &Cell) -> f64 {
    let gro = level(cell, "hw-gro") == "true";
    let zcrx = level(cell, "path") == "zcrx";
    let path = if zcrx { 0.1 } else { 0.0 };
    path + if gro { 1.3f64.ln() } else { 0.0 } + if gro && zcrx { 1.2f64.ln() } else { 0.0 }
}

fn analysed(study: &Study) -> Analysis {
    analyse(study, &Rules::of(&study.header))
}

fn effect<'a>(analysis: &'a Analysis, factor: &str, level: &str) -> &'a LevelEffect {
    let view = analysis.factors.as_ref().unwrap();
    let is =
        |e: &&LevelEffect| e.question == Metric::Rate && e.factor == factor && e.level == level;
    view.effects.iter().find(is).unwrap()
}

#[test]
fn a_made_up_effect_and_a_made_up_interaction_are_found() {
    let analysis = analysed(&study(&mut Random::new(3), |cell, _, _| Some(truth(cell))));
    let gro = effect(&analysis, "hw-gro", "true");
    assert_eq!((gro.verdict.word(), gro.contexts, gro.against.as_str()), ("FASTER", 6, "false"));
    // Over three paths the mean of 1.3, 1.3 and 1.56, by their logarithms.
    let expected = 1.3 * 1.2f64.powf(1.0 / 3.0);
    let interval = gro.effect.interval.unwrap();
    assert!(interval.low < expected && expected < interval.high, "{interval:?}");
    assert!((gro.effect.ratio / expected).ln().abs() < 0.03, "{}", gro.effect.ratio);
    let cores = effect(&analysis, "cores", "one");
    assert!(!matches!(cores.verdict, Verdict::Faster | Verdict::Slower), "{cores:?}");
    assert_eq!(effect(&analysis, "path", "zcrx").against, "the rest");
    let view = analysis.factors.as_ref().unwrap();
    let [pair, ..] = &view.interactions[..] else { panic!("{view:?}") };
    assert_eq!(pair.factors, ["hw-gro", "path"]);
    assert_eq!(pair.levels, ["true", "zcrx"]);
    assert!((pair.effect.ratio / 1.2).ln().abs() < 0.05, "{}", pair.effect.ratio);
    assert!(view.interactions.iter().all(|pair| !pair.factors.contains(&"cores".to_owned())));
}

/// Counts claims, about a level and about a pair, in 200 studies without any effect: with every
/// trial measured, and with one in twenty rejected.
#[test]
fn where_nothing_differs_at_most_one_study_in_twenty_says_so() {
    let mut chance = Random::new(11);
    for lost in [0.0, 0.05] {
        let (mut levels, mut pairs) = (0, 0);
        for _ in 0..200 {
            let none = |_: &Cell, _, chance: &mut Random| (chance.uniform() >= lost).then_some(0.0);
            let view = analysed(&study(&mut chance, none)).factors.unwrap();
            let claims = |e: &LevelEffect| e.verdict.better().is_some();
            levels += u32::from(view.effects.iter().any(claims));
            pairs += u32::from(!view.interactions.is_empty());
        }
        // 5 % of 200 are 10, with a standard deviation of 3.1: 19 is three of them above.
        assert!(levels <= 19 && pairs <= 19, "{lost}: {levels} and {pairs} of 200");
        assert!(pairs > 0, "a rule that never errs is too strict: {levels} and {pairs}");
    }
}

#[test]
fn one_factor_alone_has_no_view() {
    assert_eq!(analysed(&made_up::study()).factors, None);
    let mut one = study(&mut Random::new(1), |_, _, _| Some(0.0));
    for cell in &mut one.header.cells {
        cell.levels.retain(|factor, _| factor == "path");
    }
    assert_eq!(analysed(&one).factors, None);
}

/// Under emulation the chart shows that all cells ran; no effects are reported.
#[test]
fn without_speed_there_is_a_chart_and_no_effect() {
    let mut study = study(&mut Random::new(3), |cell, _, _| Some(truth(cell)));
    study.header.functional = Some("an emulated processor, made up".into());
    let said = |format: &str| String::from_utf8(render(format, &study, &Style::default())).unwrap();
    for text in [said("text"), said("netdev")] {
        let part = text.split_once("What each factor does").expect("the section").1;
        assert!(part.contains("How the bytes were moved; no speed was measured."), "{part}");
        assert!(part.contains("hw-gro") && !part.contains("##"), "{part}");
        assert!(!part.contains("Each level relative to"), "{part}");
    }
    let page = said("html");
    let chart = page.split_once("id=\"factors\"").expect("the section").1;
    assert!(chart.contains("<h3>cores=one</h3>") && !chart.contains("Each level relative to"));
}

#[test]
fn reports_tell_it_and_draw_it() {
    let study = study(&mut Random::new(3), |cell, _, _| Some(truth(cell)));
    let said = |format: &str| String::from_utf8(render(format, &study, &Style::default())).unwrap();
    for text in [said("text"), said("netdev")] {
        let part = text.split_once("What each factor does").expect("the section").1;
        let text = words(part);
        assert!(text.contains("hw-gro=true false 1.") && text.contains(" FASTER"), "{part}");
        assert!(text.contains("hw-gro=true with path=zcrx: throughput is 1.2"), "{part}");
        // The chart: two panels with two bars for each of three paths.
        let chart = part.split_once("Each level relative to").unwrap().0;
        assert_eq!(chart.lines().filter(|line| line.ends_with("##")).count(), 12, "{chart}");
        assert!(text.contains("hw-gro Gbit/s cores=two"), "{chart}");
    }
    assert!(said("netdev").lines().all(|line| line.len() <= 72));
    let mut many = analysed(&study);
    let view = many.factors.as_mut().unwrap();
    let pair = view.interactions[0].clone();
    view.interactions = vec![pair; 15];
    let mut out = Vec::new();
    let subject = Subject::of(&study, &many, None);
    find("text").unwrap().render(&subject, &Style::default(), &mut out).unwrap();
    let text = words(&String::from_utf8(out).unwrap());
    assert!(text.contains("and 3 pairs with weaker interactions"), "{text}");
    let page = said("html");
    let chart = page.split_once("id=\"factors\"").expect("the section").1;
    for part in ["<h3>cores=two</h3>", "<h3>cores=one</h3>", "hw-gro=true", "class=\"user\""] {
        assert!(chart.contains(part), "{part}");
    }
    // One bar for each cell, in two panels altogether.
    let figure = chart.split_once("</section>").unwrap().0;
    let bars = figure.matches("<rect class=\"system\" x=").count();
    assert_eq!((bars, figure.matches("<rect class=\"user\" x=").count()), (6, 6));
    let json: serde_json::Value = serde_json::from_str(&said("json")).unwrap();
    assert_eq!(json["analysis"]["factors"]["factors"][2]["levels"].as_array().unwrap().len(), 3);
}
