//! Copy engines of a study: the size from which each is worth it, in a made-up study whose truth is
//! known, and how reports present it.

use crate::made_up::{self, cell, header};
use crate::shared::{render, words};

use bytepath::record::{OptionValue, Reading, Role, Scope, Study, Trial, Unit};
use bytepath::report::Style;
use bytepath::stats::{Analysis, Benefit, Offloading, Rules, analyse};
use serde_json::Value;

const SIZES: [u64; 3] = [4096, 65536, 1 << 20];

/// The CPU sends 10 Gbit/s at any size; an engine sends 8 with small messages and 13 with large
/// ones, and its sender is busy for half of the time.
fn study(writers: &[&str]) -> Study {
    let (mut cells, mut trials) = (Vec::new(), Vec::<Trial>::new());
    for writer in writers {
        for engine in ["cpu", "dsa-model:latency=9"] {
            for size in SIZES {
                let mut cell = cell(&format!("{engine} {size} {writer}"), "socket", "socket");
                let word = |text: &str| OptionValue::Word(text.into());
                let options = [("copy", word(engine)), ("writer", word(writer))];
                cell.tx.options.0.extend(options.map(|(k, v)| (k.to_owned(), v)));
                cell.stream.message_size = size;
                let tx = format!("x:copy={engine},writer={writer}");
                let levels = [("tx", tx), ("message-size", size.to_string())];
                cell.levels = levels.map(|(k, v)| (k.to_owned(), v)).into();
                let (gbit, busy) = match engine {
                    "cpu" => (10.0, 1.0),
                    _ => (8.0 + (size >> 16) as f64 / 3.2, 0.5),
                };
                let trials_of = made_up::steady_trials(&cell, [gbit, busy], trials.len());
                trials.extend(trials_of);
                cells.push(cell);
            }
        }
    }
    let mut header = header(cells);
    header.baseline = header.cells[0].id.clone();
    header.ceiling = None;
    Study { header, trials, profiles: Vec::new(), remarks: Vec::new() }
}

#[test]
fn what_copies_were_like_is_in_the_report_beside_packets() {
    let mut study = study(&["thread"]);
    for trial in &mut study.trials {
        let scope = || Scope::Flow(Role::Sender, 0);
        for (metric, value) in [
            ("copy.attempts", 561_574.0),
            ("copy.refused", 552_655.0),
            ("copy.busy", 12.0),
            ("copy.made", 8919.0),
            ("copy.cycles", 162_826.0),
            ("copy.time", 77e-6),
            ("copy.polls", 3.5),
        ] {
            trial.readings.push(Reading::mean(metric, Unit::Count, value, scope()));
        }
        let link = Scope::Link(Role::Receiver, "byte1".into());
        let packets = 571_324.0 * trial.window;
        trial.readings.push(Reading::sum("link.rx_packets", Unit::Count, packets, link));
    }
    let details = Style { details: true, width: 140, ..Style::default() };
    let text = words(&String::from_utf8(render("text", &study, &details)).unwrap());
    assert!(text.contains("Copies by an engine"), "{text}");
    assert!(text.contains("562k 553k 12 8.9k 163k 77000 3.5"), "{text}");
    assert!(!text.contains("Kpps"), "a stack of the kernel makes packets of its own size: {text}");
    study.header.cells[0].tx.path = "userspace".into();
    let text = words(&String::from_utf8(render("text", &study, &details)).unwrap());
    assert_eq!(text.matches(" 571 ").count(), 1, "none of the kernel's stack: {text}");
    for cell in &mut study.header.cells {
        cell.tx.path = "userspace".into();
    }
    for format in ["text", "netdev", "html"] {
        let brief = words(&String::from_utf8(render(format, &study, &Style::default())).unwrap());
        assert!(brief.contains("Copies by an engine") && brief.contains("Kpps"), "{brief}");
    }
    let brief = words(&String::from_utf8(render("text", &study, &Style::default())).unwrap());
    assert!(brief.contains("562k 553k 8.9k 163k 77000 3.5"), "{brief}");
    assert!(brief.contains(" 10.02 571 "), "beside the rate: {brief}");
    let (answer, table) = (brief.find("is faster from"), brief.find("Copies by an engine"));
    assert!(answer.unwrap() < 100 && answer < table, "{brief}");
}

#[test]
fn idle_states_of_every_cpu_are_in_the_details() {
    let mut study = study(&["same"]);
    for trial in &mut study.trials {
        for cpu in (0..40).filter(|cpu| *cpu != 33) {
            let (scope, share) = (Scope::Cpu(cpu), if cpu < 32 { 0.0 } else { 0.5 });
            let share = if cpu == 7 { 1.0 } else { share };
            trial.readings.push(Reading::mean("cstate.C6", Unit::Ratio, share, scope.clone()));
            trial.readings.push(Reading::sum("cstate.C6.entries", Unit::Count, 9.0, scope));
        }
        let package = Scope::Cpu(0);
        trial.readings.push(Reading::mean("cstate.hw.package-c6", Unit::Ratio, 0.2, package));
    }
    let details = Style { details: true, width: 200, ..Style::default() };
    let text = words(&String::from_utf8(render("text", &study, &details)).unwrap());
    let first = "C6 requested (cpuidle) 0-31 3.1% 0% 100% _______@________________________";
    assert!(text.contains(first), "{text}");
    assert!(text.contains("32,34,35,36,37,38,39 50% 50% 50% +++++++"), "{text}");
    assert!(text.contains("package-c6 done by the hardware 0 20% 20% 20% :"), "{text}");
}

fn analysed(study: &Study) -> Analysis {
    analyse(study, &Rules::of(&study.header))
}

fn found(study: &Study) -> Option<Offloading> {
    analysed(study).offloading
}

#[test]
fn an_engine_is_compared_at_each_size_and_a_model_is_called_one() {
    let found = found(&study(&["same"])).unwrap();
    assert_eq!((found.first.as_str(), found.points.len()), ("cpu", 3));
    let sizes: Vec<u64> = found.points.iter().map(|point| point.cell.size).collect();
    assert_eq!(sizes, SIZES);
    let [rate, cpu] = found.break_even.as_slice() else { panic!("{found:?}") };
    assert_eq!((rate.pays, cpu.pays), (Benefit::Rate, Benefit::Cpu));
    assert!(rate.model && rate.at.is_empty(), "nothing else varies: {rate:?}");
    assert_eq!((rate.from.as_ref().unwrap().0, rate.largest), (1 << 20, 1 << 20));
    // Half the time for eight tenths of the work.
    let (size, effect) = cpu.from.as_ref().unwrap();
    assert_eq!(*size, 4096);
    assert!((effect.ratio - 0.625).abs() < 1e-3, "{effect:?}");
}

#[test]
fn what_else_varies_is_said_and_each_stands_for_itself() {
    let found = found(&study(&["same", "thread"])).unwrap();
    assert_eq!((found.points.len(), found.break_even.len()), (6, 4));
    assert_eq!(found.break_even[2].at["writer"], "thread");
}

#[test]
fn without_two_sizes_or_under_another_contract_nothing_is_said() {
    let mut one = study(&["same"]);
    one.header.cells.retain(|cell| cell.stream.message_size == 4096);
    assert_eq!(found(&one), None);
    let mut other = study(&["same"]);
    let engines = other.header.cells.iter_mut().filter(|cell| cell.id.0.starts_with("dsa"));
    engines.for_each(|cell| cell.stream.flows = 2);
    assert_eq!(found(&other), None);
}

#[test]
fn every_format_begins_with_the_break_even() {
    let study = study(&["same", "lock-free"]);
    let text = |format: &str| String::from_utf8(render(format, &study, &Style::default())).unwrap();
    let first = "dsa-model:latency=9 (model) is faster from 1 MiB on with writer=same: 1.30";
    for format in ["text", "netdev"] {
        assert!(words(&text(format)).starts_with(first), "{}", text(format));
    }
    let page = words(&text("html"));
    let (lede, rest) = (page.find(first).unwrap(), page.find("<strong>Use").unwrap());
    assert!(lede < rest);
    assert!(page.contains("id=\"engines\"") && page.contains("polyline class=\"course\""));
    let json: Value = serde_json::from_str(&text("json")).unwrap();
    let found = &json["analysis"]["offloading"];
    assert_eq!(found["break_even"][0]["from"][0], 1 << 20);
    assert_eq!(found["points"][0]["cell"]["model"], true);
}
