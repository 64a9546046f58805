//! Back-pressure of a tap, in a guest whose kernel has it: frames are lost without it, and none
//! with it.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::record::{Cell, Hops, TrialStatus};
use bytepath::study::load;

/// The shipped study on a small scale: a reader with a short ring that a generator overruns, past
/// the qdisc as pktgen goes, and through it. One thread, because several that go past it race for
/// the last place in the ring.
const EXPERIMENT: &str = r#"
testbed = "vm"
workload = "packets:count=20000"
baseline = { tx = "packet:bypass=on", backpressure = false }
blocks = 1
meters = "none"

[factors]
tx = ["packet:bypass=on", "packet"]
rx = "tap"
link = "tap"
qdisc = "fq_codel"
backpressure = [false, true]
queue-length = 32
cores = "unpinned"
"#;

#[test]
fn back_pressure_keeps_frames_from_being_lost() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("tap.toml"), folder.path().join("study"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let output = bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()]);
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{}: {text}", trial.cell);
        let hops = trial.hops.unwrap();
        assert_eq!((hops.unaccounted(), hops.sent()), (0, 20_000), "{}: {hops:?}", trial.cell);
    }
    let hops = |bypass: bool, backpressure: bool| -> Hops {
        let is = |cell: &&Cell| {
            let is_on = cell.link.tap.unwrap().backpressure;
            !cell.null && (cell.tx.options.flag("bypass"), is_on) == (bypass, backpressure)
        };
        let id = &study.header.cells.iter().find(is).expect("a cell of the experiment").id;
        study.trials.iter().find(|trial| trial.cell == *id).unwrap().hops.unwrap()
    };
    let (off, on) = (hops(true, false), hops(true, true));
    assert!(off.device_dropped > 0 && off.returned() == 0, "{off:?}");
    assert!(on.lost() == 0 && on.returned() > 0, "{on:?}");
    assert_eq!(on.received, 20_000, "{on:?}");
    let (off, on) = (hops(false, false), hops(false, true));
    assert!(off.device_dropped > 0, "{off:?}");
    // The qdisc itself may drop packets that wait too long.
    assert_eq!(on.device_dropped, 0, "{on:?}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}
