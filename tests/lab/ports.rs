//! The testbed `ports` with a veth pair in place of two ports and their cable, in a network
//! namespace in place of a machine. Each test restarts itself in there (unshare(1)); the state of
//! the devices is read by iproute2, which shares no code with bytepath.

use crate::isolated::{isolated, text};
use crate::running::await_that;
use bytepath::record::{DeviceName, Restoration, Role, Setting, TrialStatus, WantedSetting};
use bytepath::settings::{Applied, StateFolder, ThisMachine};
use bytepath::study::load;
use bytepath::sys::ethtool::Channels;
use bytepath::sys::netlink::Netlink;
use bytepath::sys::{Roots, attribute, lasting_namespace};
use bytepath_testing::skip;
use std::collections::BTreeSet;
use std::fs;
use std::os::fd::AsFd;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// Runs the ignored test `name` in its own namespaces.
fn in_namespaces(name: &str) {
    match Command::new("ip").arg("-V").output() {
        Ok(_) => isolated(module_path!(), name),
        Err(e) => skip!("no iproute2 ({e})"),
    }
}

#[test]
fn two_ports_stream_and_come_back_as_they_were() {
    in_namespaces("inside_two_ports_stream_and_come_back");
}

#[test]
fn a_study_that_is_killed_gives_its_ports_back_by_a_restore() {
    in_namespaces("inside_a_killed_study_gives_its_ports_back");
}

#[test]
fn settings_for_a_lent_port_are_made_where_it_is() {
    in_namespaces("inside_settings_reach_a_lent_port");
}

#[test]
fn a_port_that_is_in_use_stays_where_it_is() {
    in_namespaces("inside_a_port_in_use_stays");
}

#[test]
fn a_dry_run_on_two_ports_shows_every_setting_and_makes_none() {
    in_namespaces("inside_a_dry_run_shows_every_setting");
}

#[test]
fn ports_without_a_cable_are_reported_and_given_back() {
    in_namespaces("inside_ports_without_a_cable");
}

#[test]
fn a_port_comes_home_with_fewer_queues() {
    in_namespaces("inside_a_port_with_fewer_queues");
}

#[test]
fn a_study_names_what_became_of_its_ports() {
    in_namespaces("inside_ports_that_are_lost");
}

#[test]
fn two_pairs_of_ports_carry_their_flows_and_come_back() {
    in_namespaces("inside_two_pairs_of_ports");
}

#[test]
fn a_port_comes_home_without_a_journal() {
    in_namespaces("inside_a_port_without_a_journal");
}

#[test]
#[ignore = "started in namespaces by two_ports_stream_and_come_back_as_they_were"]
fn inside_two_ports_stream_and_come_back() {
    let machine = Machine::new();
    let before = machine.look();

    // Cells with different link settings; every byte is compared.
    let file = machine.dir.path().join("ports.toml");
    let experiment = "testbed = 'ports:sender=pa,receiver=pb'\nblocks = 2\n\
                      warm-up = '100ms'\nwindow = '300ms'\nmeters = ['nic']\n\
                      profile = 'none'\n[factors]\npath = ['socket', 'splice']\n\
                      link = ['nic', 'wire:mtu=9000']\ntouch = 'verify'\n\
                      message-size = '64K'\nread-size = '64K'\n";
    fs::write(&file, experiment).unwrap();
    let run = machine.bytepath(&["run", "ports.toml", "--study", "study"]);
    let said = text(&run);
    assert!(said.contains("set: loan pa: here -> lent"), "{said}");
    assert!(said.contains("restored: 2 settings of the host"), "{said}");
    let study = load(&machine.dir.path().join("study")).unwrap();
    assert_eq!(study.trials.len(), 10, "four cells and the baseline's second, two blocks");
    for trial in &study.trials {
        // A busy machine makes figures invalid, or stalls a stream, but corrupts no byte.
        if matches!(&trial.status, TrialStatus::Failed { fault } if fault.message.contains("stood still"))
        {
            continue;
        }
        let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
        assert!(ran, "{}: {:?}", trial.cell, trial.status);
        let [tx, rx] = trial.roles.as_slice() else { panic!("two roles") };
        assert!(tx.total_bytes == rx.total_bytes && rx.count > 0);
        assert_eq!(tx.witness, None, "a page that went by a wire says nothing");
    }
    for cell in &study.header.cells {
        let any = study.trials.iter().any(|t| t.cell == cell.id && t.count > 0);
        assert!(any, "{}: {said}", cell.id);
    }
    let facts = &study.header.facts[Role::Receiver as usize];
    assert_eq!(study.header.settings.len(), 2, "{:?}", study.header.settings);
    assert!(!facts.kernel_release.is_empty());
    machine.is(&before, "run to its end");
    assert!(!machine.dir.path().join("state/journal").exists());
    machine.has_no_namespaces();

    // Stopped by Ctrl-C, and resumed.
    let mut study = machine.study("stopped");
    machine.await_journal(5);
    machine.await_trials("stopped", 1);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&study),
        rustix::process::Signal::INT,
    )
    .unwrap();
    assert_eq!(study.wait().unwrap().code(), Some(130));
    machine.is(&before, "stopped");
    let resumed = machine.bytepath(&["resume", "stopped"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    machine.is(&before, "resumed");
    machine.has_no_namespaces();
}

#[test]
#[ignore = "started in namespaces by a_study_that_is_killed_gives_its_ports_back_by_a_restore"]
fn inside_a_killed_study_gives_its_ports_back() {
    let machine = Machine::new();
    let before = machine.look();

    // Killed while a trial runs: the ports stay away until they are restored.
    let study = machine.study("killed");
    machine.await_trials("killed", 1);
    end(study);
    let gone = |name: &str| {
        let shown = ip(&["link", "show", name]);
        !shown.status.success()
    };
    assert!(gone("pa") && gone("pb"), "they are in namespaces of their own");
    let shown = text(&machine.bytepath(&["restore", "--show"]));
    assert!(shown.contains("set   loan pa: here -> lent"), "{shown}");
    let restored = machine.bytepath(&["restore"]);
    assert!(restored.status.success(), "{}", text(&restored));
    assert!(text(&restored).contains("loan pb: restored: here (was set to lent)"));
    machine.is(&before, &text(&restored));
    machine.has_no_namespaces();
    assert!(text(&machine.bytepath(&["restore"])).starts_with("nothing to restore: "));

    // Killed after each line of the journal: the begin, then two for each loan.
    for lines in 1..=5 {
        let study = machine.study(&format!("killed-{lines}"));
        machine.await_journal(lines);
        end(study);
        let restored = machine.bytepath(&["restore"]);
        assert!(restored.status.success(), "line {lines}: {}", text(&restored));
        machine.is(&before, &format!("killed at line {lines}: {}", text(&restored)));
        machine.has_no_namespaces();
    }

    // Killed while the ports are returned: those not yet back are restored.
    for lines in 6..=7 {
        let study = machine.study(&format!("ended-{lines}"));
        machine.await_trials(&format!("ended-{lines}"), 1);
        rustix::process::kill_process(
            rustix::process::Pid::from_child(&study),
            rustix::process::Signal::INT,
        )
        .unwrap();
        machine.await_journal_or_end(lines);
        end(study);
        machine.bytepath(&["restore"]);
        machine.is(&before, &format!("killed at line {lines}"));
        machine.has_no_namespaces();
    }
}

#[test]
#[ignore = "started in namespaces by settings_for_a_lent_port_are_made_where_it_is"]
fn inside_settings_reach_a_lent_port() {
    let machine = Machine::new();
    let before = machine.look();
    let want = |setting| WantedSetting::from(setting);
    let device = DeviceName::new("pb").unwrap();
    let loan = Setting::Loan { device: device.clone(), beside: None };
    let place = StateFolder::standard();
    let (mut applied, _) =
        Applied::apply(&place, ThisMachine::new(Roots::real()), &[want(loan)]).unwrap();
    let there = |words: &str| {
        let namespace = format!("--net={}", place.lent(&device).display());
        let output = Command::new("nsenter").arg(namespace).args(words.split(' ')).output();
        text(&output.unwrap())
    };
    assert!(there("ip link show pb").contains("mtu 1500"), "{}", there("ip link show pb"));
    // Set by netlink, by a file of sysfs, and by both.
    let lines = ["feature pb rx-gro=on", "rps pb 0 none", "mtu pb 3000"];
    let lines: Vec<WantedSetting> = lines.iter().map(|line| want(line.parse().unwrap())).collect();
    for _ in 0..2 {
        let records = applied.prepare(&lines).unwrap();
        let said: Vec<String> = records.iter().map(ToString::to_string).collect();
        assert_eq!(said[0], "feature pb rx-gro: off -> on");
        assert!(
            said[1].starts_with("rps pb: 1 -> 0") && said[2] == "mtu pb: 1500 -> 3000",
            "{said:?}"
        );
        assert!(there("ip link show pb").contains("mtu 3000"), "{}", there("ip link show pb"));
        let rows = applied.unprepare();
        assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
        assert!(there("ip link show pb").contains("mtu 1500"), "{}", there("ip link show pb"));
    }
    // Settings that are still applied then are restored with the port.
    applied.prepare(&lines).unwrap();
    let rows = applied.undo();
    assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
    machine.is(&before, "after settings in its namespace");
    machine.has_no_namespaces();
}

#[test]
#[ignore = "started in namespaces by a_port_that_is_in_use_stays_where_it_is"]
fn inside_a_port_in_use_stays() {
    let machine = Machine::new();
    let run = |testbed: &str| {
        let before = machine.look();
        let output = machine.bytepath(&["run", "--testbed", testbed, "--path", "socket"]);
        assert!(!output.status.success(), "{testbed}: {}", text(&output));
        machine.is(&before, testbed);
        machine.has_no_namespaces();
        text(&output)
    };
    assert!(run("ports:sender=pb,receiver=pb").contains("pb cannot be both ends"));
    assert!(run("ports:sender=pb").contains("no device for the receiver"));
    assert!(run("ports:sender=pb,receiver=nix").contains("no device nix"), "pb stayed, too");
    assert!(run("ports:sender=lo,receiver=pb").contains("the loopback device cannot be lent"));

    done(&["link", "add", "between", "type", "bridge"]);
    let stays = "between (a bridge) cannot leave its network namespace";
    assert!(run("ports:sender=between,receiver=pb").contains(stays));
    done(&["link", "del", "between"]);

    let both = "ports:sender=pa,receiver=pb";
    for (words, said) in [
        ("addr add 10.9.0.1/24 dev pa", "pa has the address 10.9.0.1/24"),
        ("addr add 2001:db8::1/64 dev pb nodad", "pb has the address 2001:db8::1/64"),
        // An address that a user added does not come back by itself.
        ("addr add fe80::77/64 dev pa nodad", "pa has the address fe80::77/64"),
        ("route add 10.77.0.0/16 dev pa table 77", "the route to 10.77.0.0/16 uses pa"),
        ("route add default dev pb", "the route to 0.0.0.0/0 uses pb"),
        (
            "route add 10.78.0.0/16 nexthop dev lo nexthop dev pb",
            "the route to 10.78.0.0/16 uses pb",
        ),
        ("link add link pa name pa.5 type macvlan", "pa.5 is stacked on pa"),
    ] {
        done(&words.split(' ').collect::<Vec<_>>());
        let text = run(both);
        assert!(text.contains(said), "{words}: {text}");
        let undo =
            words.replace(" add ", " del ").replace(" link pa name", "").replace(" nodad", "");
        done(&undo.split(' ').collect::<Vec<_>>());
    }
    let doctor = machine.bytepath(&["doctor", "--testbed", both]);
    assert!(text(&doctor).contains("socket (sender)"), "{}", text(&doctor));
    done(&["addr", "add", "10.9.0.1/24", "dev", "pa"]);
    let doctor = machine.bytepath(&["doctor", "--testbed", both]);
    assert!(text(&doctor).contains("pa has the address 10.9.0.1/24"), "{}", text(&doctor));
    machine.has_no_namespaces();
}

#[test]
#[ignore = "started in namespaces by a_dry_run_on_two_ports_shows_every_setting_and_makes_none"]
fn inside_a_dry_run_shows_every_setting() {
    let machine = Machine::new();
    let before = machine.look();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/experiments/battle.toml");
    let both = "ports:sender=pa,receiver=pb";
    let dry = machine.bytepath(&["run", file, "--testbed", both, "--dry-run", "--json"]);
    let shown = serde_json::from_slice(&dry.stdout);
    let shown: serde_json::Value = shown.unwrap_or_else(|e| panic!("{e}: {}", text(&dry)));
    let prepared = shown["prepared"].as_array().unwrap();
    assert_eq!(prepared.len(), 17, "sixteen cells, and the baseline again");
    for cell in prepared {
        let id = cell["cell"].as_str().unwrap();
        if id.contains("hw-gro=on") {
            let why = cell["fault"].as_str().expect(id);
            assert!(why.contains("pa has no rx-gro-hw that can be enabled"), "{id}: {why}");
            continue;
        }
        let lines: Vec<&str> = cell["settings"]
            .as_array()
            .expect(id)
            .iter()
            .map(|line| line.as_str().unwrap())
            .collect();
        for line in [
            "mtu pa: 2000 -> 4148",
            "mtu pb: 1500 -> 4148",
            "feature pa rx-gro: off -> on",
            "feature pb rx-gro: off -> on",
            "feature pa rx-gro-hw: off already",
            "feature pb rx-gro-hw: off already",
            "feature pa tx-tcp-segmentation: on already",
            "threaded-napi pb: 0 already",
        ] {
            assert!(lines.contains(&line), "{id}: {line}: {lines:#?}");
        }
        // RPS decides which CPU receives the packets of each end.
        let steered = |line: &&&str| line.starts_with("rps pa: ") || line.starts_with("rps pb: ");
        assert_eq!(lines.iter().filter(steered).count(), 2, "{id}: {lines:#?}");
    }
    let shared = shown["settings"].to_string();
    for part in ["net.ipv4.tcp_rmem", "net.core.optmem_max", "vm.max_map_count", "rings", "loan"] {
        assert!(shared.contains(part), "{part}: {shared}");
    }
    let said = text(&machine.bytepath(&["run", file, "--testbed", both, "--dry-run"]));
    assert!(
        said.contains(
            "cores=together: cannot run here: cannot set 'feature pa rx-gro-hw=on': pa has no"
        ),
        "{said}"
    );
    let (_, prepared) = said.split_once("set before each trial").unwrap();
    for cell in shown["unable"].as_array().unwrap() {
        let line = format!("\n  for {}:\n", cell["cell"].as_str().unwrap());
        assert!(!prepared.contains(&line), "of a cell that cannot run{line}{said}");
    }
    machine.is(&before, "after a dry run");
    machine.has_no_namespaces();
}

#[test]
#[ignore = "started in namespaces by ports_without_a_cable_are_reported_and_given_back"]
fn inside_ports_without_a_cable() {
    let machine = Machine::new();
    // The far ends of these devices are down.
    for name in ["ca", "cb"] {
        done(&["link", "add", name, "type", "veth", "peer", "name", &format!("{name}-far")]);
    }
    let before = machine.look();
    let testbed = "ports:sender=ca,receiver=cb";
    let run = machine.bytepath(&["run", "--testbed", testbed, "--path", "socket"]);
    let said = text(&run);
    assert!(!run.status.success(), "{said}");
    assert!(said.contains("carrier of cb: none within") && said.contains("plugged in"), "{said}");
    machine.is(&before, "without a cable");
    assert!(ip(&["link", "show", "ca"]).status.success());
    machine.has_no_namespaces();
}
/// Queues that a device loses on loan take their masks with them. A device that has not been opened
/// yet (igb) loses half of its queues when it is.
#[test]
#[ignore = "started in namespaces by a_port_comes_home_with_fewer_queues"]
fn inside_a_port_with_fewer_queues() {
    let machine = Machine::new();
    let before = machine.look();
    let queues = |rx| {
        let mut netlink = Netlink::new();
        let index = netlink.link("pb").unwrap().unwrap().index;
        netlink.set_channels(index, &Channels { rx: Some(rx), ..Channels::default() }).unwrap();
    };
    queues(2);
    fs::write("/sys/class/net/pb/queues/rx-1/rps_cpus", "1").unwrap();
    let device = DeviceName::new("pb").unwrap();
    let place = StateFolder::standard();
    let loan = WantedSetting::from(Setting::Loan { device: device.clone(), beside: None });
    let this_machine = ThisMachine::new(Roots::real());
    let (applied, _) = Applied::apply(&place, this_machine, &[loan]).unwrap();
    lasting_namespace::inside(&place.lent(&device), || {
        queues(1);
        // A setting that a link made there.
        let mut netlink = Netlink::new();
        let index = netlink.link("pb").unwrap().unwrap().index;
        netlink.set_mtu(index, 3000).unwrap();
    })
    .unwrap();
    let rows = applied.undo();
    assert!(rows.iter().all(|row| row.outcome == Restoration::Restored), "{rows:?}");
    machine.is(&before, "with fewer queues");
    machine.has_no_namespaces();
}

/// A port that another program takes down costs one trial; ports that vanish end the study.
#[test]
#[ignore = "started in namespaces by a_study_names_what_became_of_its_ports"]
fn inside_ports_that_are_lost() {
    let machine = Machine::new();
    let upset = |name: &str, words: &str| -> (Output, Vec<String>) {
        let testbed = "ports:sender=pa,receiver=pb";
        let mut command = machine.command();
        command.args(["run", "--testbed", testbed, "--path", "socket", "--profile", "none"]);
        command.args(["--meters", "none", "--blocks", "2", "--warm-up", "0", "--window", "1s"]);
        let study = command.args(["--study", name]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let study = study.spawn().unwrap();
        machine.await_trials(name, 1);
        let namespace = machine.dir.path().join("state/lent/pb");
        let received = || {
            let namespace = lasting_namespace::open(&namespace).unwrap().unwrap();
            let count = || Netlink::new().traffic("pb").unwrap().unwrap().received;
            lasting_namespace::within(namespace.as_fd(), count).unwrap()
        };
        let before = received();
        await_that("a stream", || received() > before + 200);
        let namespace = format!("--net={}", namespace.display());
        let done = Command::new("nsenter").arg(namespace).args(words.split(' ')).status();
        assert!(done.unwrap().success());
        let output = study.wait_with_output().unwrap();
        let study = load(&machine.dir.path().join(name)).unwrap();
        let fault = |status: TrialStatus| match status {
            TrialStatus::Failed { fault } => fault.message,
            _ => String::new(),
        };
        (output, study.trials.into_iter().map(|trial| fault(trial.status)).collect())
    };
    let before = machine.look();
    let (output, faults) = upset("down", "ip link set pb down");
    let down = faults.iter().filter(|fault| fault.ends_with("; pb was taken down"));
    assert!(faults.len() == 4 && down.count() == 1, "{faults:?}");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    machine.is(&before, "after a port was taken down");
    let (output, faults) = upset("gone", "ip link del pb");
    let said = text(&output);
    assert!(
        said.contains("the link is lost: pa is gone") && faults.len() < 4,
        "{faults:?}: {said}"
    );
    assert!(said.contains("loan pb: gone: it no longer exists"), "{said}");
    assert_eq!(output.status.code(), Some(5), "{said}");
    assert!(text(&machine.bytepath(&["restore"])).starts_with("nothing to restore"));
    machine.has_no_namespaces();
}

/// Each pair carries the flows of its number, and all ports on loan come back, no matter how the
/// study ends.
#[test]
#[ignore = "started in namespaces by two_pairs_of_ports_carry_their_flows_and_come_back"]
fn inside_two_pairs_of_ports() {
    let machine = Machine::with_two_pairs();
    let before = machine.look();
    let testbed = "ports:sender=pa+qa,receiver=pb+qb";
    let command = |name: &str| {
        let mut command = machine.command();
        command.args(["run", "--testbed", testbed, "--path", "socket", "--profile", "none"]);
        command.args(["--link", "nic:adapters=2", "--stream", "flows=4", "--meters", "none"]);
        command.args(["--blocks", "2", "--warm-up", "0", "--window", "500ms", "--study", name]);
        command
    };
    let all_came = |name: &str| -> u64 {
        let study = load(&machine.dir.path().join(name)).unwrap();
        let bytes = study.trials.iter().map(|trial| {
            let ran = matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. });
            assert!(ran, "{}: {:?}", trial.cell, trial.status);
            let [tx, rx] = trial.roles.as_slice() else { panic!("two roles") };
            assert!(tx.total_bytes == rx.total_bytes && rx.count > 0);
            rx.total_bytes
        });
        bytes.sum()
    };

    // Deleting a device deletes the kernel's counts of it.
    let received = || {
        ["pb", "qb"].map(|name| -> u64 {
            let file = format!("/sys/class/net/{name}/statistics/rx_bytes");
            fs::read_to_string(file).unwrap().trim().parse().unwrap()
        })
    };
    let counted = received();
    let run = command("both").output().unwrap();
    assert!(run.status.success(), "{}", text(&run));
    let sent = all_came("both");
    let counts: Vec<u64> = received().iter().zip(counted).map(|(now, was)| now - was).collect();
    assert!(counts.iter().sum::<u64>() >= sent, "{counts:?} of {sent}");
    assert!(counts.iter().all(|count| *count > sent / 20), "{counts:?} of {sent}");
    machine.is(&before, "over both pairs");
    machine.has_no_namespaces();

    // Cells of one pair and of two alternate.
    let experiment = format!(
        "testbed = '{testbed}'\nblocks = 2\nwarm-up = '0'\nwindow = '300ms'\nmeters = []\n\
         profile = 'none'\n[factors]\npath = 'socket'\nlink = 'nic'\nadapters = [1, 2]\nflows = 2\n"
    );
    fs::write(machine.dir.path().join("pairs.toml"), experiment).unwrap();
    let run = machine.bytepath(&["run", "pairs.toml", "--study", "turns"]);
    assert!(run.status.success(), "{}", text(&run));
    all_came("turns");
    machine.is(&before, "one pair and two");

    // Killed, restored, and resumed.
    let killed = command("killed").stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    machine.await_trials("killed", 1);
    end(killed);
    assert!(!text(&ip(&["link", "show"])).contains("qa"), "the ports are away");
    let restored = text(&machine.bytepath(&["restore"]));
    for port in ["pa", "qa", "pb", "qb"] {
        assert!(restored.contains(&format!("loan {port}: restored: here")), "{port}: {restored}");
    }
    machine.is(&before, &restored);
    machine.has_no_namespaces();
    let resumed = machine.bytepath(&["resume", "killed"]);
    assert!(resumed.status.success(), "{}", text(&resumed));
    machine.is(&before, "resumed");

    // The second port of an end is monitored like the first.
    let down = command("down").stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    machine.await_trials("down", 1);
    let there = machine.dir.path().join("state/lent/qb");
    let look = || {
        let namespace = lasting_namespace::open(&there).unwrap().unwrap();
        let count = || Netlink::new().traffic("qb").unwrap().unwrap().received;
        lasting_namespace::within(namespace.as_fd(), count).unwrap()
    };
    let first = look();
    await_that("a stream", || look() > first + 200);
    let namespace = format!("--net={}", there.display());
    let words = ["ip", "link", "set", "qb", "down"];
    assert!(Command::new("nsenter").arg(namespace).args(words).status().unwrap().success());
    down.wait_with_output().unwrap();
    let study = load(&machine.dir.path().join("down")).unwrap();
    let named = |status: &TrialStatus| matches!(status, TrialStatus::Failed { fault } if fault.message.ends_with("; qb was taken down"));
    let statuses: Vec<TrialStatus> = study.trials.into_iter().map(|trial| trial.status).collect();
    assert_eq!(statuses.iter().filter(|status| named(status)).count(), 1, "{statuses:?}");
    machine.is(&before, "after a port was taken down");
    machine.has_no_namespaces();

    // A named device that no flow uses is refused.
    let run = machine.bytepath(&["run", "--testbed", testbed, "--path", "socket"]);
    assert!(
        text(&run).contains("has 2 devices at each end, and no flow crosses qa"),
        "{}",
        text(&run)
    );
    machine.is(&before, "refused");
}

/// A port that is missing from the journal is returned as well, and named.
#[test]
#[ignore = "started in namespaces by a_port_comes_home_without_a_journal"]
fn inside_a_port_without_a_journal() {
    let machine = Machine::new();
    let mut study = machine.study("study");
    machine.await_trials("study", 1);
    study.kill().unwrap();
    study.wait().unwrap();
    fs::remove_file(machine.dir.path().join("state/journal")).unwrap();
    assert!(!text(&ip(&["link", "show"])).contains("pa"), "the ports are away");
    let restored = machine.bytepath(&["restore"]);
    let printed = text(&restored);
    assert!(restored.status.success(), "{printed}");
    for port in ["pa", "pb"] {
        let line = printed.lines().find(|line| line.contains(&format!("loan {port}")));
        let line = line.unwrap_or_else(|| panic!("{port}: {printed}"));
        assert!(line.contains("restored") && line.contains("no journal"), "{line}");
        assert!(text(&ip(&["link", "show", port])).contains("mtu"), "{port}");
    }
    assert!(text(&machine.bytepath(&["restore"])).starts_with("nothing to restore"));
    machine.has_no_namespaces();
}

/// The namespace of this process, with a pair of idle devices that have everything that they could
/// lose in a move.
struct Machine {
    dir: tempfile::TempDir,
    devices: Vec<&'static str>,
}

impl Machine {
    fn new() -> Machine {
        // The old /sys shows the devices of the original namespace.
        rustix::mount::mount("sysfs", "/sys", "sysfs", rustix::mount::MountFlags::empty(), None)
            .unwrap();
        for line in [
            "link set lo up",
            "link add pa type veth peer name pb",
            "link set pa mtu 2000 up",
            "link set pb up",
        ] {
            done(&line.split(' ').collect::<Vec<_>>());
        }
        fs::write("/proc/sys/net/ipv4/conf/pa/rp_filter", "2").unwrap();
        fs::write("/proc/sys/net/ipv6/conf/pb/accept_ra", "0").unwrap();
        // Only the first network namespace has the default values of these.
        fs::write("/proc/sys/net/ipv4/neigh/pa/gc_stale_time", "77").unwrap();
        fs::write("/proc/sys/net/ipv6/neigh/pa/base_reachable_time_ms", "12344").unwrap();
        fs::write("/proc/sys/net/ipv4/neigh/pb/unres_qlen_bytes", "65537").unwrap();
        fs::write("/sys/class/net/pb/queues/rx-0/rps_cpus", "1").unwrap();
        let discipline = ["qdisc", "replace", "dev", "pb", "root", "pfifo", "limit", "77"];
        assert!(Command::new("tc").args(discipline).status().unwrap().success());
        Machine { dir: tempfile::tempdir().unwrap(), devices: vec!["pa", "pb"] }
    }

    /// Adds another pair of idle devices.
    fn with_two_pairs() -> Machine {
        let mut machine = Machine::new();
        for line in
            ["link add qa type veth peer name qb", "link set qa mtu 3000 up", "link set qb up"]
        {
            done(&line.split(' ').collect::<Vec<_>>());
        }
        fs::write("/proc/sys/net/ipv4/conf/qa/rp_filter", "2").unwrap();
        machine.devices.extend(["qa", "qb"]);
        machine
    }

    /// Checks that the devices are as they were.
    fn is(&self, before: &[String], what: &str) {
        let now = self.look();
        let gone: Vec<_> = before.iter().filter(|line| !now.contains(line)).collect();
        let new: Vec<_> = now.iter().filter(|line| !before.contains(line)).collect();
        assert!(gone.is_empty() && new.is_empty(), "{what}: gone {gone:#?}, new {new:#?}");
        assert_eq!(now, before, "{what}: the order");
    }

    /// Everything about the devices that a user could see, except counters, once two looks agree.
    fn look(&self) -> Vec<String> {
        let mut last = self.glance();
        await_that("two looks agree", || {
            let before = std::mem::replace(&mut last, self.glance());
            before == last
        });
        last
    }

    /// Whether the kernel has finished its own work on addresses: it gives each device a link-local
    /// one, probes it, and adds and removes the route to an address some time after the address.
    fn are_settled(&self) -> bool {
        // 3: pa    inet6 fe80::77/64 scope link nodad ...
        let shown = text(&ip(&["-o", "addr", "show"]));
        let of_link = shown.matches("inet6 fe80").count();
        let routes = ["-4", "-6"].map(|of| text(&ip(&[of, "route", "show", "table", "local"])));
        // local fe80::77 dev pa proto kernel metric 0 pref medium
        let routes = routes.concat();
        let routes = routes.lines().filter(|line| line.starts_with("local "));
        let pairs = |device: usize, address: usize| {
            move |line: &str| {
                let words: Vec<&str> = line.split_whitespace().collect();
                let address = words[address].split('/').next().unwrap_or_default();
                self.devices
                    .contains(&words[device])
                    .then(|| format!("{} {address}", words[device]))
            }
        };
        let routes: BTreeSet<String> = routes.filter_map(pairs(3, 1)).collect();
        let addresses: BTreeSet<String> = shown.lines().filter_map(pairs(1, 3)).collect();
        !shown.contains("tentative") && of_link >= self.devices.len() && routes == addresses
    }

    fn glance(&self) -> Vec<String> {
        await_that("the devices are settled", || self.are_settled());
        let mut all = String::new();
        for device in &self.devices {
            for words in [
                vec!["-d", "link", "show", device],
                vec!["addr", "show", device],
                vec!["route", "show", "table", "all", "dev", device],
                vec!["-6", "route", "show", "table", "all", "dev", device],
            ] {
                all.push_str(&text(&ip(&words)));
            }
            let discipline = Command::new("tc").args(["qdisc", "show", "dev", device]).output();
            all.push_str(&text(&discipline.unwrap()));
            for file in [
                format!("/sys/class/net/{device}/threaded"),
                format!("/sys/class/net/{device}/queues/rx-0/rps_cpus"),
            ] {
                all.push_str(&format!("{file}: {}", fs::read_to_string(&file).unwrap()));
            }
            for folder in ["ipv4/conf", "ipv6/conf", "ipv4/neigh", "ipv6/neigh"] {
                let folder = Path::new("/proc/sys/net").join(folder).join(device);
                for name in attribute::names(&folder) {
                    // A parameter without a value returns an error.
                    let text = attribute::text(&folder.join(&name)).unwrap_or_default();
                    all.push_str(&format!("{}: {text}\n", folder.join(name).display()));
                }
            }
            let mut netlink = Netlink::new();
            let index = netlink.link(device).unwrap().unwrap().index;
            for feature in netlink.features(index).unwrap().active {
                all.push_str(&format!("{device} has {feature}\n"));
            }
        }
        tame(&all).lines().map(str::to_owned).collect()
    }

    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
        command.env("BYTEPATH_STATE", self.dir.path().join("state"));
        command.current_dir(self.dir.path());
        command
    }

    fn bytepath(&self, words: &[&str]) -> Output {
        self.command().args(words).output().unwrap()
    }

    /// Starts a study that runs for a long time.
    fn study(&self, name: &str) -> Child {
        let testbed = "ports:sender=pa,receiver=pb";
        let mut command = self.command();
        command.args(["run", "--testbed", testbed, "--path", "socket", "--profile", "none"]);
        command.args(["--meters", "none", "--blocks", "3", "--warm-up", "0", "--window", "500ms"]);
        command.args(["--study", name]);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn lines(&self, path: &Path) -> usize {
        let bytes = fs::read(self.dir.path().join(path)).unwrap_or_default();
        bytes.iter().filter(|byte| **byte == b'\n').count()
    }

    fn await_journal(&self, lines: usize) {
        let enough = || self.lines("state/journal".as_ref()) >= lines;
        await_that(&format!("the journal has {lines} lines"), enough);
    }

    /// The journal is deleted once everything is restored, which may be before it is looked at.
    fn await_journal_or_end(&self, lines: usize) {
        let path = self.dir.path().join("state/journal");
        let enough = || !path.exists() || self.lines("state/journal".as_ref()) >= lines;
        await_that(&format!("the journal has {lines} lines or is gone"), enough);
    }

    fn await_trials(&self, study: &str, count: usize) {
        let path = Path::new(study).join("trials.jsonl");
        await_that(&format!("{study} has {count} trials"), || self.lines(&path) >= count);
    }

    /// Checks that no namespace is bound to a file in our folder.
    fn has_no_namespaces(&self) {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
        let ours = self.dir.path().display().to_string();
        let held = |line: &&str| line.contains(&ours) || line.contains("/lent/");
        let left: Vec<&str> = mounts.lines().filter(held).collect();
        assert!(left.is_empty(), "{left:?}");
    }
}

/// Removes what changes by itself: numbers of devices and namespaces, seconds left.
fn tame(text: &str) -> String {
    let mut out = String::new();
    for line in text.lines() {
        let mut skip = false;
        for word in line.split_whitespace() {
            let word = word.split('@').next().unwrap_or_default();
            let number = word.trim_end_matches(':').chars().all(|c| c.is_ascii_digit());
            let changes = matches!(word, "valid_lft" | "link-netnsid" | "expires");
            let index = number && word.ends_with(':');
            if !(skip || changes || index || word.ends_with("sec")) {
                out.push_str(word);
                out.push(' ');
            }
            skip = matches!(word, "link-netnsid" | "expires");
        }
        out.push('\n');
    }
    out
}

fn ip(words: &[&str]) -> Output {
    Command::new("ip").args(words).output().unwrap()
}

fn done(words: &[&str]) {
    let output = ip(words);
    assert!(output.status.success(), "ip {}: {}", words.join(" "), text(&output));
}

/// Kills the study with SIGKILL, and waits for its end.
fn end(mut study: Child) {
    study.kill().unwrap();
    study.wait().unwrap();
}
