//! One experiment on two pairs of hosts at once: four namespaces that the test makes. Needs root,
//! unshare(1) and nsenter(1); else it is skipped and reported.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath, join};
use bytepath::study::load;
use std::collections::BTreeMap;
use std::fs;

#[test]
fn blocks_are_shared_out_among_pairs() {
    isolated(module_path!(), "inside_blocks_are_shared_out");
}

#[test]
#[ignore = "started in a namespace by blocks_are_shared_out_among_pairs"]
fn inside_blocks_are_shared_out() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = ["a1", "a2", "b1", "b2"].map(|name| Place::new(dir.path(), name));
    join(&hosts[0], &hosts[1], "10.9.1");
    join(&hosts[2], &hosts[3], "10.9.2");
    let mut listed = String::new();
    for host in &hosts {
        listed.push_str(&format!("[hosts.{}]\nat = \"{}\"\n", host.name, host.host()));
    }
    listed.push_str("[pairs.a]\nsender = \"a1\"\nreceiver = \"a2\"\n");
    listed.push_str("[pairs.b]\nsender = \"b1\"\nreceiver = \"b2\"\n");
    let inventory = dir.path().join("hosts.toml");
    fs::write(&inventory, listed).unwrap();
    let out = dir.path().join("study");
    let run = |blocks, name, more: &[&str]| {
        let mut run = bytepath(&["run", "--path", "socket", "--pairs", "a,b", "--cores"]);
        run.args(["unpinned", "--warm-up", "0", "--window", "200ms", "--design", "trials"]);
        run.args(["--profile", "none", "--details", "--blocks", blocks]).args(more);
        run.arg("--inventory").arg(&inventory).arg("--study").arg(dir.path().join(name));
        let output = run.output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        output
    };
    let output = run("6", "study", &[]);

    let study = load(&out).unwrap();
    let mut of_pairs: BTreeMap<&str, Vec<u32>> = BTreeMap::new();
    for trial in &study.trials {
        of_pairs.entry(trial.pair.as_deref().unwrap()).or_default().push(trial.block);
    }
    assert_eq!(study.trials.len(), 12, "six blocks of the path and of itself again");
    assert_eq!(of_pairs.keys().copied().collect::<Vec<_>>(), ["a", "b"], "{of_pairs:?}");
    for block in 0..6 {
        let of_block: Vec<_> = study.trials.iter().filter(|trial| trial.block == block).collect();
        assert_eq!(of_block.len(), 2);
        assert_eq!(of_block[0].pair, of_block[1].pair, "a block is whole on one pair");
    }
    assert!(text(&output).contains("12/12"), "{}", text(&output));
    assert!(dir.path().join("study-pairs/b").exists());

    let quiet = run("2", "quiet", &["-q"]);
    assert_eq!(String::from_utf8_lossy(&quiet.stderr), "");
    assert!(text(&quiet).contains("socket"), "{}", text(&quiet));
}
