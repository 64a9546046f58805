//! A long link, in a guest whose kernel has the discipline netem.

use crate::guests::{able, bytepath, leftovers, shown};
use bytepath::stats::{Row, Rules, analyse};
use bytepath::study::load;

const EXPERIMENT: &str = r#"
testbed = "vm"
workload = "rr"
baseline = { delay = 0 }
blocks = 1
warm-up = "200ms"
window = "1s"
meters = "none"
profile = "none"

[factors]
path = "socket"
link = "nic"
delay = [0, 20000]
"#;

#[test]
fn a_delay_of_the_link_is_twice_in_a_round_trip() {
    let Some(_machine) = able() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, out) = (folder.path().join("far.toml"), folder.path().join("study"));
    std::fs::write(&file, EXPERIMENT).unwrap();
    let output = bytepath(&["run", file.to_str().unwrap(), "--study", out.to_str().unwrap()]);
    let text = shown(&output);
    assert!(output.status.success(), "{text}");
    let study = load(&out).unwrap();
    let analysis = analyse(&study, &Rules::of(&study.header));
    let mean = |row: &Row| row.latency.as_ref().and_then(|latency| latency.mean).expect(&text);
    let means: Vec<f64> = analysis.rows.iter().map(mean).collect();
    assert!(means[0] < 0.04 && means[1] >= 0.04, "{means:?}: {text}");
    assert_eq!(leftovers(), [], "no guest outlives its study");
}
