//! A long link, in a guest whose kernel has the discipline netem.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::record::{Role, Scope, Trial};
use bytepath::stats::{Row, Rules, analyse};
use bytepath::study::load;

const EXPERIMENT: &str = r#"
testbed = "vm"
workload = "rr:response=100K"
baseline = { delay = 0, rate = "none", loss = 0 }
blocks = 1
warm-up = "200ms"
window = "1s"
meters = ["tcp-info"]
profile = "none"

[factors]
path = "socket"
link = "nic"
delay = [0, 20000]
rate = ["none", 20]
loss = [0, 50000]

[[exclude]]
delay = 20000
rate = 20

[[exclude]]
delay = 20000
loss = 50000

[[exclude]]
rate = 20
loss = 50000
"#;

#[test]
fn delay_rate_and_loss_of_a_link_are_in_its_round_trips() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("far.toml"), folder.path().join("study"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let output = bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()]);
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let row = |level: &str| {
        let found = analysis.rows.iter().find(|row| row.cell.0.contains(level));
        found.unwrap_or_else(|| panic!("no cell {level}: {text}"))
    };
    let mean = |row: &Row| row.latency.as_ref().and_then(|latency| latency.mean).expect(&text);
    let plain = mean(&analysis.rows[0]);
    assert!(plain < 0.04, "{plain}: {text}");
    // Twice in a round trip; 800 kbit by 20 Mbit/s.
    for level in ["delay=20000", "rate=20"] {
        assert!(mean(row(level)) >= 0.04, "{level}: {}: {text}", mean(row(level)));
    }
    let retransmits = |row: &Row| {
        let trials = study.trials.iter().filter(|trial| trial.cell == row.cell);
        let count =
            |trial: &Trial| trial.reading("tcp.retransmits", &Scope::Flow(Role::Receiver, 0));
        trials.map(|trial| count(trial).expect(&text)).sum::<f64>()
    };
    // An emulated guest may be so slow that it sends again what was not lost.
    let [lossy, plain] = [row("loss=50000"), &analysis.rows[0]].map(retransmits);
    assert!(lossy > plain, "{lossy} retransmissions with loss, {plain} without: {text}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}
