//! A link between two hosts that existed before: set as each cell requests, and put back as it was
//! found after each trial. Needs root, unshare(1) and nsenter(1); else it is skipped and reported.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath, join, ran};
use bytepath::record::Trial;
use bytepath::study::load;
use std::collections::BTreeSet;
use std::fs;

#[test]
fn sets_an_existing_link_for_each_cell() {
    isolated(module_path!(), "inside_each_cell_has_its_link");
}

#[test]
#[ignore = "started in a namespace by sets_an_existing_link_for_each_cell"]
fn inside_each_cell_has_its_link() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = [Place::new(dir.path(), "sender"), Place::new(dir.path(), "receiver")];
    join(&hosts[0], &hosts[1], "10.9.0");
    let testbed = format!(
        "hosts:sender=\"{}\",receiver=\"{}\",sender-device=to-receiver,receiver-device=to-sender",
        hosts[0].host(),
        hosts[1].host()
    );
    let file = dir.path().join("links.toml");
    let experiment = "
        baseline = { mtu = 1500, cores = \"0,0\" }
        blocks = 1
        warm-up = \"0\"
        window = \"200ms\"
        design = \"trials\"
        profile = \"none\"
        [factors]
        path = \"socket\"
        mtu = [1500, 4148]
        gro = true
        wmem = \"768K\"
        cores = [\"0,0\", \"0,0,sender-softirq=0,softirq=0\"]
    ";
    fs::write(&file, experiment).unwrap();
    // What would be set is shown before anything is set.
    let mut dry = bytepath(&["run", file.to_str().unwrap(), "--testbed", &testbed, "--dry-run"]);
    let dry = dry.output().unwrap();
    assert!(dry.status.success(), "{}", text(&dry));
    let shown = text(&dry);
    let common = shown.split("  for ").next().unwrap();
    for line in [
        "set before each trial and restored after it:",
        "sender: feature to-receiver rx-gro: off -> on",
        "receiver: feature to-sender rx-gro: off -> on",
    ] {
        assert!(common.contains(line), "{shown}");
    }
    assert!(shown.contains("    receiver: mtu to-sender: 1500 -> 4148"), "{shown}");
    assert_eq!(hosts[1].mtu("to-sender"), 1500, "nothing was set");

    let out = dir.path().join("study");
    let mut run = bytepath(&["run", file.to_str().unwrap(), "--testbed", &testbed, "--study"]);
    let output = run.arg(&out).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));

    let study = load(&out).unwrap();
    assert!(study.trials.iter().all(ran), "{}", text(&output));
    assert_eq!(study.trials.len(), 5, "four cells, and one of them again");
    let said = |trial: &Trial| -> BTreeSet<String> {
        trial.prepared.iter().map(ToString::to_string).collect()
    };
    for trial in &study.trials {
        let said = said(trial);
        let has = |text: &str| said.iter().any(|line| line.contains(text));
        let longer = trial.cell.0.contains("mtu=4148");
        let mtu = if longer { "1500 -> 4148" } else { "1500 already" };
        for (role, device) in [("sender", "to-receiver"), ("receiver", "to-sender")] {
            assert!(has(&format!("{role}: mtu {device}: {mtu}")), "{}: {said:?}", trial.cell);
            assert!(has(&format!("{role}: feature {device} rx-gro: off -> on")), "{said:?}");
            assert!(has(&format!("{role}: net.ipv4.tcp_wmem")), "{said:?}");
            let steered = trial.cell.0.contains("softirq=0");
            assert_eq!(has(&format!("{role}: rps {device}")), steered, "{}: {said:?}", trial.cell);
        }
        assert!(!has("tso") && !has("tx-tcp"), "it was not named: {said:?}");
    }
    for (host, device) in [(&hosts[0], "to-receiver"), (&hosts[1], "to-sender")] {
        assert_eq!(host.mtu(device), 1500);
        assert!(!host.state.join("journal").exists(), "there is nothing left to restore");
    }
    let shown = text(&output);
    assert!(shown.contains("mtu: 1500, 4148"), "{shown}");

    // A preset that makes a link does not fit an existing one, and vice versa.
    for (bed, link, said) in [
        (testbed.as_str(), "nic:mtu=9000", "takes its link, which is not 'nic'"),
        ("netns", "given:mtu=9000", "makes its link, which is not 'given'"),
    ] {
        let mut other = bytepath(&["run", "--path", "socket", "--link", link, "--testbed", bed]);
        let other = other.args(["--blocks", "1", "--study"]).arg(dir.path().join("no")).output();
        let other = other.unwrap();
        assert!(!other.status.success());
        assert!(text(&other).contains(said), "{}", text(&other));
    }
}
