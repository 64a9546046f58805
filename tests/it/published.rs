//! Published works: the shipped files are sound, and a made-up study is compared with one.

use crate::made_up::{self, cell, header};
use crate::shared::{bytepath, words};

use bytepath::math::Random;
use bytepath::path::{CATALOG, PAIRS};
use bytepath::record::{
    Cell, CellId, OptionValue, Published, PublishedFactor, Reading, Role, Scope, SoftirqCpu, Study,
    Trial, Unit,
};
use bytepath::report::{self, Style};
use bytepath::spec::{find_published, published_names};
use bytepath::stats::{
    Agreement, NumberComparison, PUBLISHED_FACTORS, PublishedComparison, Rules, compare_published,
};
use bytepath::study::StudyWriter;
use serde_json::Value;
use std::collections::BTreeSet;

#[test]
fn every_row_of_a_work_names_what_is_known_or_said_to_be_nothing() {
    for name in published_names() {
        let work = find_published(name).unwrap();
        let mut ids = BTreeSet::new();
        for figure in &work.figures {
            let id = &figure.id;
            assert!(ids.insert(id.clone()), "{name}: {id} is there twice");
            let rows = figure.rows.iter().map(|row| &row.at);
            for at in rows.clone().chain([&figure.at]).chain(&figure.baseline) {
                for (factor, level) in at {
                    known(name, &work, factor, level);
                }
            }
            let distinct: BTreeSet<String> = rows.map(|at| format!("{at:?}")).collect();
            assert_eq!(distinct.len(), figure.rows.len(), "{name}, {id}: a row is there twice");
            assert!(figure.rows.iter().all(|row| row.values.len() == figure.columns.len()), "{id}");
            assert!(
                figure.rows.iter().flat_map(|row| &row.values).all(|value| value.is_finite()),
                "{id}"
            );
            if let Some(base) = &figure.baseline {
                assert!(figure.rows.iter().any(|row| row.at == *base), "{name}, {id}: baseline");
            }
        }
    }
}

/// The published sizing, 64 MiB, from the commands in the texts.
#[test]
fn the_commands_of_the_texts_compute_the_published_size() {
    let root = env!("CARGO_MANIFEST_DIR");
    for file in ["docs/guide/battle.md", "crates/spec/src/settings/battle-of-zcs.toml"] {
        let text = std::fs::read_to_string(format!("{root}/{file}")).unwrap();
        let text = words(&text.replace("\n#", "\n"));
        let command = text.split('`').find(|words| words.starts_with("bytepath size --rate 200G"));
        let arguments: Vec<&str> = command.expect(file).split(' ').skip(1).collect();
        let (code, out, error) = bytepath(&arguments);
        assert_eq!(code, 0, "{error}");
        let area = out.lines().find(|line| line.trim_start().starts_with("area ")).expect(&out);
        assert!(area.contains("64 MiB"), "{file}: {out}");
    }
}

/// Checks that a level is one of ours with the work's name for it, or that its factor is marked as
/// none.
fn known(name: &str, work: &Published, factor: &str, level: &str) {
    let Some(known) = work.factors.get(factor) else { panic!("{name}: what is {factor}?") };
    let PublishedFactor::Levels(levels) = known else { return };
    assert!(
        PUBLISHED_FACTORS.iter().any(|(known, _)| *known == factor),
        "{name}: {factor} is not a factor here"
    );
    assert!(levels.contains_key(level), "{name}: what does the work call {factor}={level}?");
    if factor == "path" {
        let (path, option) = level.split_once(':').unwrap_or((level, ""));
        let pair = PAIRS.iter().find(|pair| pair.name == path).expect(level);
        let takes = |path: &str, option: &str| {
            let path = CATALOG.iter().find(|one| one.name == path).unwrap();
            let mut halves = Role::ALL.into_iter().filter_map(|role| path.half(role));
            halves.any(|half| half.options.iter().any(|spec| spec.name == option))
        };
        let option = option.split_once('=').map(|(option, _)| option);
        assert!(option.is_none_or(|o| takes(pair.tx, o) || takes(pair.rx, o)), "{level}");
    }
}

/// Five blocks of a made-up study on two machines: io_uring is 1.67 times as fast as plain sockets,
/// and 1.4 times with hardware GRO; devmem is missing. Each trial has an error of 1 %.
fn study() -> Study {
    let mut cells: Vec<Cell> = Vec::new();
    for gro in [false, true] {
        for (path, tx, rx) in [("socket", "socket", "socket"), ("zcrx", "uring-zc", "zcrx")] {
            let mut one = cell(&format!("{path} hw-gro={gro}"), tx, rx);
            one.levels = [("path", path.to_owned()), ("hw-gro", gro.to_string())]
                .map(|(k, v)| (k.to_owned(), v))
                .into();
            one.link.hw_gro = gro;
            (one.stream.message_size, one.stream.read_size) = (64 << 20, 64 << 20);
            one.placement.sender_softirq = SoftirqCpu::Cpu(2);
            one.placement.softirq = SoftirqCpu::Cpu(3);
            cells.push(one);
        }
    }
    let mut header = header(cells);
    header.baseline = header.cells[0].id.clone();
    let blank = made_up::trial(&made_up::PATHS[0], 0, 0);
    let mut chance = Random::new(5);
    let mut trials: Vec<Trial> = Vec::new();
    for block in 0..5 {
        let drift = (0.2 * chance.normal()).exp();
        for (cell, ratio) in header.cells.iter().zip([1.0, 1.67, 1.0, 1.4]) {
            let gbit = 80.0 * drift * ratio * (0.01 * chance.normal()).exp();
            trials.push(Trial {
                cell: CellId(cell.id.0.clone()),
                block,
                order: trials.len() as u32,
                count: (gbit * 1e9 / 8.0 * blank.window) as u64,
                ..blank.clone()
            });
        }
    }
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

fn compared(study: &Study) -> PublishedComparison {
    compare_published(&find_published("battle").unwrap(), study, &Rules::of(&study.header))
}

#[test]
fn ratios_agree_where_they_lie_in_our_interval_and_disagree_outside() {
    let found = compared(&study());
    let figure = found.figures.iter().find(|f| f.id == "throughput-two-cpus").unwrap();
    let row = |path: &str, gro: &str| {
        let is =
            |r: &&bytepath::stats::RowComparison| r.at["path"] == path && r.at["hw-gro"] == gro;
        figure.rows.iter().find(is).unwrap()
    };
    let (same, other, gone) = (row("zcrx", "false"), row("zcrx", "true"), row("devmem", "true"));
    assert!((same.their_ratio - 139.46 / 83.85).abs() < 1e-12);
    assert_eq!((same.outcome.clone(), same.pairs), (Agreement::Agrees, 1));
    assert_eq!(other.outcome, Agreement::Disagrees);
    let ours = other.ours.as_ref().unwrap();
    assert!((ours.ratio / 1.4).ln().abs() < 0.02, "hardware GRO is in both levels: {ours:?}");
    assert_eq!(gone.outcome, Agreement::NotMeasured("no cell has path=devmem".into()));
    let one = found.figures.iter().find(|f| f.id == "throughput-one-cpu").unwrap();
    let why = Agreement::NotMeasured("no cell has cores=together".into());
    assert!(one.rows.iter().any(|row| row.outcome == why), "{:?}", one.rows);
    assert!(found.not_compared.contains(&"fragments".to_owned()));
}

/// A made-up study at 2 Gbit/s whose sender was refused 90 of 100 writes a second.
#[test]
fn numbers_without_their_own_ratio_are_shown_with_ours() {
    let mut study = study();
    for cell in &mut study.header.cells {
        let word = |text: &str| OptionValue::Word(text.into());
        cell.tx.options.0.insert("copy".into(), word("cpu:method=rep-movsb"));
        cell.tx.options.0.insert("writer".into(), word("thread"));
        cell.workload.options.0.insert("load".into(), word("trickle"));
        cell.stream.message_size = 1 << 20;
    }
    for trial in &mut study.trials {
        trial.count = (0.25e9 * trial.window) as u64;
        for (name, value) in [("copy.attempts", 100.0), ("copy.refused", 90.0)] {
            let scope = Scope::Flow(Role::Sender, 0);
            trial.readings.push(Reading::mean(name, Unit::PerSecond, value, scope));
        }
    }
    // A cell with another writer is not averaged in.
    let other = study.header.cells.last_mut().unwrap();
    other.tx.options.0.insert("writer".into(), OptionValue::Word("same".into()));
    let other = other.id.clone();
    for trial in study.trials.iter_mut().filter(|trial| trial.cell == other) {
        trial.readings.iter_mut().for_each(|reading| reading.value *= 1e6);
    }
    let work = find_published("mtcp-dsa").unwrap();
    let found = compare_published(&work, &study, &Rules::of(&study.header));
    let number = |figure: &str, quantity: &str| {
        let is = |n: &&NumberComparison| n.figure == figure && n.quantity == quantity;
        found.numbers.iter().find(is).unwrap()
    };
    let bits = number("packets", "bits");
    assert_eq!((bits.theirs, bits.at["load"].as_str()), (37563.0, "trickle"));
    assert!((bits.ours.unwrap().mean - 2000.0).abs() < 1.0, "{bits:?}");
    assert_eq!(number("writes", "refused").ours.unwrap().mean, 90.0);
    let gone = number("dsa-bandwidth", "bytes");
    assert_eq!((gone.ours, gone.not_measured.as_deref()), (None, Some("no cell has copy=dsa")));
    assert_eq!(found.counts(), [0; 3], "the work has no ratios");
    let mut out = Vec::new();
    let document = report::published_comparison(&work, "made up", &found);
    document.write(&Style::default(), &mut out).unwrap();
    let text = words(&String::from_utf8(out).unwrap());
    assert!(text.contains("37563 2.0k 0.05x"), "{text}");
    assert!(text.contains("not measured here: no cell has copy=dsa"), "{text}");
    assert!(!text.contains("published ratio"), "{text}");
}

#[test]
fn what_is_not_known_of_a_study_is_not_said() {
    let mut emulated = study();
    emulated.header.functional = Some("made up".into());
    let [agree, disagree, not] = compared(&emulated).counts();
    assert!(agree + disagree == 0 && not > 0);
    let mut one_block = study();
    one_block.trials.retain(|trial| trial.block == 0);
    assert_eq!(compared(&one_block).counts()[..2], [0, 0]);
    // Ends that share a CPU match neither of the work's two placements.
    let mut shared = study();
    for cell in &mut shared.header.cells {
        cell.placement.sender = cell.placement.receiver;
    }
    assert_eq!(compared(&shared).counts()[..2], [0, 0]);
}

#[test]
fn the_text_stays_as_it_is() {
    let (work, study) = (find_published("battle").unwrap(), study());
    let mut out = Vec::new();
    let found = compared(&study);
    let document = report::published_comparison(&work, "a made-up study", &found);
    document.write(&Style::default(), &mut out).unwrap();
    insta::assert_snapshot!("beside", String::from_utf8(out).unwrap());
    for width in [40, 72, 120] {
        let mut out = Vec::new();
        let style = Style { width, ..Style::default() };
        report::published(&work).write(&style, &mut out).unwrap();
        report::published_comparison(&work, "x", &found).write(&style, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.is_ascii() && text.lines().all(|line| line.len() <= width), "{text}");
    }
}

#[test]
fn works_are_listed_shown_and_compared_by_the_command() {
    let folder = tempfile::TempDir::new().unwrap();
    let (path, study) = (folder.path().join("study"), study());
    let mut writer = StudyWriter::create(&path, &study.header).unwrap();
    for trial in &study.trials {
        writer.append(std::slice::from_ref(trial)).unwrap();
    }
    let path = path.display().to_string();
    let (code, list, _) = bytepath(&["compare", "published:"]);
    assert!(code == 0 && published_names().iter().all(|name| list.contains(name)), "{list}");
    let (code, text, _) = bytepath(&["compare", "published:affinity-2002"]);
    assert!(code == 0 && text.contains("poll_idle"), "{text}");
    let (code, text, errors) = bytepath(&["compare", "published:battle", &path]);
    assert_eq!(code, 0, "{errors}");
    assert!(words(&text).contains("path=zcrx: published 2.27x, here 1.4"), "{text}");
    let (_, json, _) = bytepath(&["compare", "published:battle", &path, "--json"]);
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["format"], "bytepath-published");
    assert_eq!(json["beside"]["figures"][0]["rows"][0]["read"], "chart");
    for (arguments, said) in [
        (&["compare", "published:batle"][..], "battle"),
        (&["compare", "published:battle", &path, "--relative"], "--relative does not apply"),
        (&["compare", "published:battle", "/nowhere"], "/nowhere"),
    ] {
        let (code, _, errors) = bytepath(arguments);
        assert!(code != 0 && errors.contains(said), "{errors}");
    }
}

/// The parts of the published design that a shipped file contains, as its cells and requests.
#[test]
fn the_shipped_experiments_are_the_published_designs() {
    let of = |file: &str, list: &str, name: &str| -> Vec<String> {
        let path = format!("{}/experiments/{file}.toml", env!("CARGO_MANIFEST_DIR"));
        let table: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        let value = match list {
            "" => &table[name],
            list => &table[list][name],
        };
        let words = |value: &toml::Value| value.as_str().map_or(value.to_string(), str::to_owned);
        value.as_array().map_or_else(|| vec![words(value)], |all| all.iter().map(words).collect())
    };
    for (file, list, name, published) in [
        ("copy-offload", "factors", "tx", "userspace:copy=cpu,rotate=128M,writer=thread"),
        ("copy-offload", "factors", "tx", "userspace:copy=dsa,rotate=128M,writer=thread"),
        ("copy-offload", "factors", "message-size", "4K"),
        ("copy-offload", "factors", "message-size", "1M"),
        ("copy-offload", "factors", "mtu", "9000"),
        ("copy-offload", "", "workload", "stream:load=trickle"),
        ("copy-offload", "", "meters", "idxd"),
        ("copy-offload", "", "profile", "all:trials=1,window=1s"),
        ("tap-backpressure", "", "workload", "packets:count=100000000"),
        ("tap-backpressure", "", "meters", "counters"),
        ("tap-backpressure", "", "profile", "all:trials=1"),
        ("tap-backpressure", "factors", "tx", "pktgen"),
        ("tap-backpressure", "factors", "rx", "vhost"),
        ("tap-backpressure", "factors", "flows", "1"),
        ("tap-backpressure", "factors", "flows", "4"),
        ("tap-backpressure", "factors", "cores", "unpinned,vhost=0"),
        ("tap-backpressure", "factors", "qdisc", "fq_codel"),
        ("tap-backpressure", "factors", "backpressure", "true"),
        ("battle-read-size", "factors", "cores", "apart"),
        ("battle-read-size", "factors", "path", "devmem:recycle-batch=1024"),
        ("battle-read-size", "factors", "read-size", "512K"),
        ("battle-read-size", "factors", "read-size", "64M"),
        ("battle-iowait", "factors", "path", "zcrx:iowait=on"),
        ("battle-iowait", "factors", "path", "zcrx:iowait=off"),
        ("battle-iowait", "", "meters", "cstates"),
        ("battle-big-tcp", "factors", "cores", "apart"),
        ("affinity", "factors", "cores", "unpinned,softirq=1"),
        ("affinity", "factors", "cores", "two-cores,softirq=free"),
    ] {
        let found = of(file, list, name);
        assert!(found.iter().any(|level| level == published), "{file}: {name}: {found:?}");
    }
}
