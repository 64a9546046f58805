//! `doctor` on made-up machines of every kind, and on this one.

use bytepath::host::{examine, examine_pair, moment, survey};
use bytepath::record::{Facts, Finding, Severity};
use bytepath::sys::Roots;
use bytepath_testing::skip;
use std::fs;
use std::path::Path;
use std::process::Command;

fn findings(machine: &str) -> Vec<Finding> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/hosts").join(machine);
    assert!(folder.exists(), "{machine}");
    let roots = Roots::recorded(&folder);
    examine(&survey(&roots), &moment(&roots))
}

/// Returns the findings on a machine, one line each: "Distorts: irqbalance is running".
fn said(machine: &str) -> String {
    let line = |f: &Finding| format!("{:?}: {}", f.severity, f.what);
    findings(machine).iter().map(line).collect::<Vec<_>>().join("\n")
}

#[test]
fn six_made_up_machines() {
    for machine in
        ["sapphire-rapids-server", "epyc-server", "laptop", "small-vm", "arm-server", "container"]
    {
        insta::assert_snapshot!(machine, said(machine));
    }
}

#[test]
fn every_finding_says_what_it_does_and_what_helps() {
    let mut all = Vec::new();
    for machine in ["sapphire-rapids-server", "laptop", "small-vm", "container"] {
        all.extend(findings(machine));
    }
    assert!(all.len() > 20, "{}", all.len());
    for finding in &all {
        assert!(finding.effect.len() > 20 && finding.command.len() > 5, "{finding:?}");
        assert!(!finding.what.ends_with('.') && !finding.effect.ends_with('.'), "{finding:?}");
    }
    assert!(all.iter().any(|f| f.severity == Severity::Blocks));
}

#[test]
fn what_netlink_says_of_a_card_is_judged_with_the_exact_command() {
    let command = |machine: &str, what: &str| {
        let all = findings(machine);
        let found = all.iter().find(|finding| finding.what.contains(what));
        found.unwrap_or_else(|| panic!("{machine}: nothing of '{what}': {all:?}")).command.clone()
    };
    for (what, expected) in [
        ("header split is off", "ethtool -G ens3f0np0 tcp-data-split on"),
        ("1024 descriptors, 8192", "ethtool -G ens3f0np0 rx 4096"),
        ("adapts to the load", "ethtool -C ens3f0np0 adaptive-rx off rx-usecs 8"),
        ("hardware GRO is available", "ethtool -K ens3f0np0 rx-gro-hw on"),
    ] {
        assert_eq!(command("sapphire-rapids-server", what), expected);
    }
    for (what, expected) in [
        ("LRO is on", "ethtool -K enp1s0f0np0 lro off"),
        ("TSO is off", "ethtool -K enp1s0f0np0 tso on"),
        ("up to 256 bytes", "ethtool -G enp1s0f0np0 hds-thresh 0"),
        ("waits 250 us", "ethtool -C enp1s0f0np0 rx-usecs 8"),
        ("qdisc htb", "tc qdisc replace dev enp1s0f0np0 root fq"),
    ] {
        assert_eq!(command("arm-server", what), expected);
    }
    // A ring that cannot be larger, and values that a driver does not report, are not findings.
    assert!(!said("arm-server").contains("descriptors"));
    assert!(!said("laptop").contains("wlp0s20f3"), "{}", said("laptop"));
}

#[test]
fn a_well_kept_server_has_nothing_that_blocks_or_distorts() {
    let worse = |f: &Finding| f.severity != Severity::Note;
    let worse: Vec<Finding> = findings("epyc-server").into_iter().filter(worse).collect();
    assert_eq!(worse, []);
    // The cause that hid the effect of a tap patch for weeks is named.
    assert!(said("epyc-server").contains("Safe RET"));
}

/// A made-up machine of two NUMA nodes, whose NIC is on the second.
fn two_nodes(firmware: &str) -> (tempfile::TempDir, Facts, Vec<Finding>) {
    let folder = tempfile::tempdir().unwrap();
    let text = format!(r#"{{"eth1": {{"driver-version": "24.10", "firmware": "{firmware}"}}}}"#);
    for (path, text) in [
        ("proc/sys/kernel/osrelease", "7.1.0"),
        ("proc/sys/vm/nr_hugepages", "64"),
        ("proc/sys/vm/max_map_count", "65530"),
        ("sys/devices/system/cpu/online", "0-7"),
        ("sys/devices/system/node/online", "0-1"),
        ("sys/devices/system/node/node0/cpulist", "0-3"),
        ("sys/devices/system/node/node1/cpulist", "4-7"),
        ("sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages", "64"),
        ("sys/devices/system/node/node1/hugepages/hugepages-2048kB/nr_hugepages", "0"),
        ("sys/class/net/eth1/speed", "200000"),
        ("sys/class/net/eth1/device/numa_node", "1"),
        ("sys/class/net/eth1/device/uevent", "DRIVER=mlx5_core"),
        ("sys/class/net/eth1/device/current_link_speed", "16.0 GT/s PCIe"),
        ("sys/class/net/eth1/device/max_link_speed", "16.0 GT/s PCIe"),
        ("sys/class/net/eth1/device/current_link_width", "8"),
        ("sys/class/net/eth1/device/max_link_width", "8"),
        ("cards.json", &text),
    ] {
        let path = folder.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let roots = Roots::recorded(folder.path());
    let facts = survey(&roots);
    let found = examine(&facts, &moment(&roots));
    (folder, facts, found)
}

#[test]
fn nodes_and_bus_of_a_made_up_server() {
    let (_folder, facts, found) = two_nodes("28.42.1000");
    assert_eq!(facts.cpus_near("eth1"), Some(&[4, 5, 6, 7][..]));
    for said in [
        // 16 GT/s on 8 lanes, less encoding and headers.
        "eth1: its bus carries about 113 Gbit/s, its link 200 Gbit/s",
        "eth1 is on NUMA node 1, and all 64 huge pages are elsewhere",
        "eth1 is on NUMA node 1",
    ] {
        assert!(found.iter().any(|finding| finding.what == said), "{said}: {found:#?}");
    }
    // Zero-copy receive inserts pages into one mapping (mm/memory.c, vm_insert_pages).
    assert!(!found.iter().any(|finding| finding.what.contains("max_map_count")), "{found:#?}");
    assert_eq!(facts.settings["nic.eth1.firmware"], "28.42.1000");
    assert_eq!(facts.settings["nic.eth1.driver_version"], "24.10");
    assert!(!said("sapphire-rapids-server").contains("its bus carries"), "as much as its link");
}

#[test]
fn cards_that_are_not_alike_are_a_finding_of_two_hosts() {
    let [(_, one, _), (_, same, _), (_, mut other, _)] =
        ["28.42.1000", "28.42.1000", "28.39.2048"].map(two_nodes);
    assert_eq!(examine_pair([&one, &same], &Default::default()), []);
    other.kernel_release = "6.12.9".into();
    // Each host's only NIC is its device; one may also be named.
    for devices in [[vec![], vec![]], [vec!["eth1".to_owned()], vec![]]] {
        let found = examine_pair([&one, &other], &devices);
        let said: Vec<&str> = found.iter().map(|finding| finding.what.as_str()).collect();
        assert_eq!(
            said,
            [
                "firmware: 28.42.1000 of eth1 (sender), 28.39.2048 of eth1 (receiver)",
                "kernel: 7.1.0 (sender), 6.12.9 (receiver)"
            ]
        );
        assert_eq!(found[0].severity, Severity::Distorts);
    }
    let elsewhere = [vec!["eth7".to_owned()], vec![]];
    assert_eq!(examine_pair([&one, &other], &elsewhere).len(), 1, "only what is known");
}

#[test]
fn a_host_that_shows_nothing_is_not_judged() {
    let empty = tempfile::tempdir().unwrap();
    let roots = Roots::recorded(empty.path());
    let facts = survey(&roots);
    let judged = examine(&facts, &moment(&roots));
    let devices = judged.iter().filter(|f| f.what.starts_with("there is no ")).count();
    assert_eq!(judged.len(), devices, "{judged:?}");
}

#[test]
fn this_machine_is_examined_and_cells_that_cannot_run_are_named() {
    let bytepath = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stdout).unwrap())
    };
    let (_, text) = bytepath(&["doctor"]);
    for part in ["Testbeds\n", "Paths\n", "Meters\n", "socket (sender)"] {
        assert!(text.contains(part), "{text}");
    }
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle.toml");
    let (code, text) = bytepath(&["doctor", "--experiment", file, "--json"]);
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let cells = json["cells"].as_array().unwrap();
    // It has the exit code that the study would have before its first trial, which needs its
    // baseline.
    let (dry, text) = bytepath(&["run", "--dry-run", file, "--json"]);
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert!(plan["baseline"].is_string(), "{text}");
    let is_lost = cells.iter().any(|cell| cell["name"] == plan["baseline"]);
    assert_eq!([code, dry], [if is_lost { 3 } else { 0 }; 2], "{text}");
    for cell in cells {
        assert!(!cell["reason"].as_str().unwrap().is_empty(), "{cell}");
    }
    assert_eq!(bytepath(&["doctor", "--experiment", "/no/such.toml"]).0, 6);
}

#[test]
fn a_source_of_power_that_is_missing_ends_doctor_and_dry_run_as_the_study() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("power.toml");
    let experiment = "power = 'ipmi'\nblocks = 1\n[factors]\npath = ['socket']\n";
    fs::write(&file, experiment).unwrap();
    let file = file.to_str().unwrap();
    let study = folder.path().join("study");
    for words in [
        vec!["run", file, "--study", study.to_str().unwrap()],
        vec!["run", "--dry-run", file],
        vec!["doctor", "--experiment", file],
    ] {
        // With this PATH it finds no ipmitool.
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        let output = command.args(&words).env("PATH", folder.path()).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(3), "{words:?}: {said}");
        assert!(said.contains("receiver: power: "), "{words:?}: {said}");
    }
}

#[test]
fn the_cards_of_this_machine_are_asked() {
    let facts = survey(&Roots::real());
    let mut asked = 0;
    let attribute = |card: &Path, name: &str| std::fs::read_to_string(card.join(name));
    for card in std::fs::read_dir("/sys/class/net").unwrap().flatten().map(|entry| entry.path()) {
        let flags = attribute(&card, "flags").unwrap_or_default();
        let flags = u32::from_str_radix(flags.trim().trim_start_matches("0x"), 16).unwrap_or(0);
        if !card.join("device").exists() || flags & 1 == 0 {
            continue;
        }
        let name = card.file_name().unwrap().to_string_lossy().into_owned();
        let known: Vec<_> = facts
            .settings
            .iter()
            .filter(|(setting, _)| setting.starts_with(&format!("nic.{name}.")))
            .collect();
        println!("{known:?}");
        asked += 1;
        for what in ["qdisc", "gro", "mtu"] {
            let setting = format!("nic.{name}.{what}");
            assert!(facts.settings.contains_key(&setting), "{setting}: {known:?}");
        }
    }
    if asked == 0 {
        skip!("no card is up");
    }
}
