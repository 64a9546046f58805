//! A made-up study whose hosts counted instructions: how reports present that, what they leave out,
//! and limits.

use crate::made_up::study;
use crate::report::{render, row};
use crate::shared::words;
use bytepath::report::Style;
use bytepath::stats::{Metric, Row, Rules, Threshold, analyse, judge_thresholds, subjects};

/// If guests count instructions, CPU seconds become a number of instructions, and no time is
/// reported.
#[test]
fn instructions_are_shown_and_judged_in_the_place_of_cpu_time_and_speed() {
    let mut study = study();
    study.header.functional = Some("guests run on an emulated processor".into());
    study.header.instructions_per_second = Some(62.5e6);
    let analysis = analyse(&study, &Rules::default());
    let words_of = |question| -> Vec<&str> {
        let of = |row: &Row| row.comparison(question).map(|c| c.verdict.word());
        analysis.rows.iter().filter_map(of).collect()
    };
    assert!(words_of(Metric::Rate).iter().all(|word| *word == "FUNCTIONAL ONLY"));
    assert_eq!(words_of(Metric::Cpu), [""; 0]);
    let judged = words_of(Metric::Instructions);
    assert!(judged.contains(&"FEWER INSTRUCTIONS") && judged.contains(&"MORE INSTRUCTIONS"));
    let socket = row(&analysis, "socket");
    assert!(socket.roi.total.is_none() && socket.service_demand.total.is_none());
    // 1.801 CPUs busy at 28.04 Gbit/s: 0.5518 s per GiB, at 62.5 million instructions a second.
    let leads = words(&render("text", &study, &Style::default()));
    assert!(leads.contains("M instructions per GiB, both ends (socket 34.49)"), "{leads}");
    for report in ["text", "netdev", "html"] {
        let said = words(&render(report, &study, &Style::default()));
        for word in ["nstructions, not time:", "illion instructions", "FEWER INSTRUCTIONS"] {
            assert!(said.contains(word), "{report}: no {word} in {said}");
        }
        assert_eq!(said.matches("no cache and no branch predictor").count(), 1, "{report}: {said}");
        for word in ["FASTER", "SLOWER", "LESS CPU", "MORE CPU", "SATURATED", "CPU-s", "T^n"] {
            assert!(!said.contains(word), "{report}: {word} in {said}");
        }
    }
    let limits = |text: &str| {
        let threshold = Threshold::parse(text).unwrap();
        let results = judge_thresholds(&[threshold], &subjects(&analysis), &Rules::default());
        results.map(|results| results[0].outcome.word()).map_err(|fault| fault.message)
    };
    assert_eq!(limits("uring-zc.instructions more 3%"), Ok("FAILED"));
    assert_eq!(limits("splice.instructions more 3%"), Ok("passed"));
    assert!(limits("splice.cpu more 3%").unwrap_err().contains("no such cell is compared"));
}
