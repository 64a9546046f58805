//! A long link, in a guest whose kernel has the qdisc netem.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::record::{Cell, Role, Scope, Trial};
use bytepath::stats::{Goal, Row, Rules, Sizing, analyse};
use bytepath::study::load;
use bytepath_testing::skip;

const EXPERIMENT: &str = r#"
testbed = "vm"
workload = "rr:response=100K"
baseline = { delay = 0, rate = "none", loss = 0, reorder = 0 }
blocks = 1
warm-up = "200ms"
# A response whose tail is lost more than once may take over a second.
window = "3s"
meters = ["tcp-info", "tcp-stack"]
profile = "none"

[factors]
path = "socket"
link = "nic"
delay = [0, 20000]
rate = ["none", 20]
loss = [0, 50000]
reorder = [0, 300000]

[[exclude]]
delay = 20000
rate = 20

[[exclude]]
delay = 20000
loss = 50000

[[exclude]]
rate = 20
loss = 50000

[[exclude]]
delay = 0
reorder = 300000

[[exclude]]
rate = 20
reorder = 300000

[[exclude]]
loss = 50000
reorder = 300000
"#;

#[test]
fn what_a_link_does_to_packets_is_in_round_trips_and_counters_of_tcp() {
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
        let found = analysis.rows.iter().filter(|row| row.cell.0.contains(level));
        // The cell with the fewest other levels.
        let plainest = found.min_by_key(|row| row.cell.0.len());
        plainest.unwrap_or_else(|| panic!("no cell {level}: {text}"))
    };
    let mean = |row: &Row| row.latency.as_ref().and_then(|latency| latency.mean).expect(&text);
    let plain = mean(&analysis.rows[0]);
    assert!(plain < 0.04, "{plain}: {text}");
    // A response is delayed by 20 ms each way, or takes 40 ms: 800 kbit at 20 Mbit/s.
    for level in ["delay=20000", "rate=20"] {
        assert!(mean(row(level)) >= 0.04, "{level}: {}: {text}", mean(row(level)));
    }
    let sum = |row: &Row, metric: &str, scope: Scope| {
        let trials = study.trials.iter().filter(|trial| trial.cell == row.cell);
        let count = |trial: &Trial| trial.reading(metric, &scope).expect(&text);
        trials.map(count).sum::<f64>()
    };
    // Responses come from the server, which is the receiver.
    let retransmits = |row: &Row| sum(row, "tcp.retransmits", Scope::Flow(Role::Receiver, 0));
    // A guest may be so slow that it retransmits what was not lost.
    let [lossy, plain] = [row("loss=50000"), &analysis.rows[0]].map(retransmits);
    assert!(lossy > plain, "{lossy} retransmissions with loss, {plain} without: {text}");
    // Packets do not overtake each other on a veth pair without netem.
    let overtaken = |row: &Row| sum(row, "tcp-stack.TCPOFOQueue", Scope::Role(Role::Sender));
    let [reordered, delayed] = ["reorder=300000", "delay=20000"].map(|level| overtaken(row(level)));
    assert_eq!(delayed, 0.0, "{text}");
    assert!(reordered > 0.0, "{text}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}

/// Runs the shipped experiment with one block, and compares it with `bytepath size`.
#[test]
fn a_window_below_the_bdp_holds_the_sender_and_one_above_fills_the_link() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/sizing.toml");
    let arguments = ["run", shipped, "--testbed", "vm", "--blocks", "1"];
    let output = bytepath(&[&arguments[..], &["--study", out.to_str().unwrap()]].concat());
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    let (rate, rtt) = (40e6, 0.02);
    let goal = Goal { rate, rtt, mtu: 4148, hold: 0, queues: 1, ring: None, buffer: 4096 };
    let bdp = Sizing::of(&goal).delay_product;
    let of = |size: &str| {
        let cell = study.header.cells.iter().find(|cell| cell.levels["receive-buffer"] == size);
        let trial = study.trials.iter().find(|trial| trial.cell == cell.unwrap().id).unwrap();
        let of_sender = |metric| trial.reading(metric, &Scope::Flow(Role::Sender, 0)).unwrap();
        let waited = of_sender("tcp.rwnd_limited") / of_sender("tcp.busy");
        (trial.rate().expect(&text) * 8.0 / rate, waited)
    };
    for (size, bytes) in [("12K", 12288.0), ("25K", 25600.0)] {
        // The kernel doubles the size and counts the memory of packets, so the window is at most
        // that.
        let most = 2.0 * bytes / bdp;
        let (share, waited) = of(size);
        assert!(share < 1.1 * most, "{size}: {share} of the link's rate, at most {most}: {text}");
        assert!(waited > 0.5, "{size}: waited for the window for {waited} of the time: {text}");
    }
    let (share, _) = of("200K");
    // An emulated guest on a busy host adds to the round trip.
    assert!(share > 0.5 && share <= 1.0, "{share} of the link's rate: {text}");
    let (below, _) = of("12K");
    assert!(share > 2.0 * below, "{share} and {below} of the link's rate: {text}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}

/// Bytes that waited for a lost packet are delivered at once. That exhausts an area below the BDP,
/// but never one larger than what may be in flight.
#[test]
fn an_area_below_the_bdp_runs_dry_and_a_large_one_does_not() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("study");
    let shipped = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/sizing-area.toml");
    let arguments = ["run", shipped, "--window", "1s", "--study", out.to_str().unwrap()];
    let output = bytepath(&arguments);
    let text = shown(&output);
    let Ok(study) = load(&out) else {
        assert_eq!(output.status.code(), Some(3), "{text}");
        assert!(text.contains("7.1"), "{text}");
        return skip!("the guest's kernel has no queues without a device");
    };
    assert!(output.status.success(), "{text}");
    let of = |area: &str, loss: &str| {
        let path = format!("socket+zcrx:area={area}");
        let has = |cell: &&Cell| cell.levels["path"] == path && cell.levels["loss"] == loss;
        let cell = study.header.cells.iter().find(has).unwrap();
        study.trials.iter().find(|trial| trial.cell == cell.id).unwrap()
    };
    for loss in ["0", "2000"] {
        let dry = |area| {
            let trial = of(area, loss);
            trial.reading("zcrx.no_buffer", &Scope::Flow(Role::Receiver, 0)).expect(&text)
        };
        // Without losses, only a slow reader exhausts it.
        assert!(dry("16K") > 0.0 || loss == "0", "four buffers: {text}");
        assert_eq!(dry("1M"), 0.0, "{text}");
    }
    let warnings = &of("16K", "2000").warnings;
    assert!(warnings.iter().any(|warning| warning.contains("larger area")), "{warnings:?}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}
