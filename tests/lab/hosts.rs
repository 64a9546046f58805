//! Hosts that are reached by a command: two network and mount namespaces that the test makes,
//! joined by a veth pair, and in each an agent with its own state folder. Needs root, unshare(1)
//! and nsenter(1); else it is skipped and reported.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath, join, join_as, ran};
use crate::running::await_that;
use bytepath::record::{Role, Scope};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::process::Stdio;

#[test]
fn hosts_behind_commands_run_a_study_and_keep_their_own_settings() {
    isolated(module_path!(), "inside_hosts_run_a_study");
}

#[test]
#[ignore = "started in a namespace by hosts_behind_commands_run_a_study_and_keep_their_own_settings"]
fn inside_hosts_run_a_study() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = [Place::new(dir.path(), "sender"), Place::new(dir.path(), "receiver")];
    join(&hosts[0], &hosts[1], "10.9.0");
    let testbed = format!(
        "hosts:sender=\"{}\",receiver=\"{}\",receiver-device=to-sender",
        hosts[0].host(),
        hosts[1].host()
    );
    let out = dir.path().join("study");
    let set = "sender: mtu to-receiver 1400";
    let mut run = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--set", set]);
    run.args(["--cores", "unpinned", "--blocks", "2", "--warm-up", "0", "--window", "300ms"]);
    let profile = "all:trials=1,window=300ms,rate=199";
    run.args(["--design", "trials", "--profile", profile, "--study"]).arg(&out);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    // While it runs, the journal of the sender's host records what was set there.
    let journal = hosts[0].state.join("journal");
    await_that("the sender has a journal", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"done\""))
    });
    assert_eq!(hosts[0].mtu("to-receiver"), 1400);
    assert!(!hosts[1].state.join("journal").exists(), "nothing was asked of that host");
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(hosts[0].mtu("to-receiver"), 1500, "{}", text(&output));
    assert!(!journal.exists(), "there is nothing left to restore");

    let study = load(&out).unwrap();
    let said: Vec<String> = study.header.settings.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["sender: mtu to-receiver: 1500 -> 1400"]);
    assert!(study.header.fingerprint.keys().any(|name| name.starts_with("sender: ")));
    assert!(study.header.fingerprint.keys().any(|name| name.starts_with("receiver: ")));
    assert_eq!(study.trials.len(), 4, "two blocks of the path and of itself again");
    for trial in &study.trials {
        assert!(ran(trial), "{:?}: {}", trial.status, text(&output));
        assert!(trial.count > 0);
        for role in Role::ALL {
            let wall = trial.reading("cpu.wall", &Scope::MachineOf(role)).unwrap();
            assert!((0.2..2.0).contains(&wall), "{role}: {wall}");
            let host = Scope::MachineOf(role);
            assert_eq!(trial.reading("steady.clock_changes", &host), Some(0.0), "{role}");
            let busy = |r: &&bytepath::record::Reading| {
                r.metric == "cpu.busy" && matches!(r.scope, Scope::CpuOf(of, _) if of == role)
            };
            assert!(trial.readings.iter().any(|r| busy(&r)), "{role}");
        }
        assert!(trial.reading("cpu.wall", &Scope::Machine).is_none(), "no machine is shared");
    }

    // Each host has sampled itself, and one profile contains both.
    match study.profiles.first().and_then(|trial| trial.profile.as_ref()) {
        Some(profile) => {
            let file = out.join(&profile.file);
            let shown = bytepath(&["profile", file.to_str().unwrap()]).output().unwrap();
            for role in Role::ALL {
                assert!(text(&shown).contains(&role.to_string()), "{}", text(&shown));
            }
        }
        None => {
            let why = study.remarks.iter().find(|remark| remark.starts_with("no profiles"));
            skip!("profiles of two hosts: {}", why.expect("a study says why it has none"));
        }
    }

    // The controller is killed: the host restores its settings by itself.
    let mut killed = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--set", set]);
    killed.args(["--cores", "unpinned", "--blocks", "9", "--window", "2s", "--profile", "none"]);
    killed.args(["--design", "trials", "--study"]).arg(dir.path().join("killed"));
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that("the sender has a journal", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"done\""))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    let restored = || hosts[0].mtu("to-receiver") == 1500 && !journal.exists();
    await_that("the sender's host is as it was", restored);

    // A killed agent cannot do that: then it is done on request.
    let out = dir.path().join("lost");
    let mut lost = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--set", set]);
    lost.args(["--cores", "unpinned", "--blocks", "9", "--window", "2s", "--profile", "none"]);
    lost.args(["--design", "trials", "--study"]).arg(&out);
    let mut lost = lost.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that("the sender has a journal", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"done\""))
    });
    let steward = hosts[0].agents();
    crate::running::signal(*steward.iter().min().unwrap(), libc::SIGKILL);
    lost.kill().unwrap();
    lost.wait().unwrap();
    await_that("no agent runs", || hosts[0].agents().is_empty());
    assert_eq!(hosts[0].mtu("to-receiver"), 1400);
    let output = bytepath(&["restore", "--testbed", &testbed]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!((hosts[0].mtu("to-receiver"), journal.exists()), (1500, false));

    // An existing link does not change because a cell requests another one.
    let other = ["--link", "nic:mtu=9000", "--blocks", "1", "--profile", "none", "--study"];
    let mut refused = bytepath(&["run", "--path", "socket", "--testbed", &testbed]);
    let refused = refused.args(other).arg(dir.path().join("refused")).output().unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused).contains("takes its link"), "{}", text(&refused));

    // The program started is not a shell.
    let mut wrong = bytepath(&["run", "--path", "socket", "--receiver", "exec:/bin/echo"]);
    let wrong = wrong.arg("--study").arg(dir.path().join("wrong")).output().unwrap();
    assert!(!wrong.status.success());
    assert!(text(&wrong).contains("no shell started on exec:/bin/echo"), "{}", text(&wrong));
}

#[test]
fn threads_go_to_cpus_that_each_host_has() {
    isolated(module_path!(), "inside_cpus_of_hosts");
}

#[test]
#[ignore = "started in a namespace by threads_go_to_cpus_that_each_host_has"]
fn inside_cpus_of_hosts() {
    let own = bytepath::sys::thread::allowed().unwrap();
    let [first, .., last] = own.as_slice() else { return skip!("one CPU alone") };
    let dir = tempfile::tempdir().unwrap();
    let hosts = ["sender", "receiver"].map(|name| Place::new(dir.path(), name));
    join(&hosts[0], &hosts[1], "10.9.0");
    // The sender's host has only the last CPU.
    let sender = hosts[0].host().replace("env ", &format!("taskset --cpu-list {last} env "));
    let testbed = format!("hosts:sender=\"{sender}\",receiver=\"{}\"", hosts[1].host());
    let file = dir.path().join("experiment.toml");
    fs::write(&file, "factors = { path = 'socket' }\n").unwrap();
    let placed = |experiment: &[&str]| {
        let words = ["run", "--dry-run", "--format", "json", "--testbed", &testbed];
        let output = bytepath(&[&words[..], experiment].concat()).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let plan: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let placement = plan["cells"][0]["placement"].clone();
        ["sender", "receiver"].map(|role| placement[role].as_u64().unwrap() as u32)
    };
    let ways: [&[&str]; 2] = [&["--path", "socket"], &[file.to_str().unwrap()]];
    // They are one machine, on which both may use that CPU.
    for way in ways {
        assert_eq!(placed(way), [*last, *last]);
    }
    // They are two machines.
    let boot = dir.path().join("boot_id");
    fs::write(&boot, "another\n").unwrap();
    let mut mount = hosts[1].command("mount");
    let mount = mount.arg("--bind").arg(&boot).arg("/proc/sys/kernel/random/boot_id");
    assert!(mount.status().unwrap().success());
    for way in ways {
        assert_eq!(placed(way), [*last, *first]);
    }
}

#[test]
fn two_devices_of_each_host_carry_their_flows() {
    isolated(module_path!(), "inside_two_devices_of_each_host");
}

#[test]
#[ignore = "started in a namespace by two_devices_of_each_host_carry_their_flows"]
fn inside_two_devices_of_each_host() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = ["sender", "receiver"].map(|name| Place::new(dir.path(), name));
    let ends = ["a", "b"].map(|pair| [format!("{pair}0"), format!("{pair}1")]);
    for ([sender, receiver], network) in ends.iter().zip(["10.9.0", "10.9.1"]) {
        join_as(&hosts[0], &hosts[1], [sender, receiver], network);
    }
    let testbed = format!(
        "hosts:sender=\"{}\",receiver=\"{}\",sender-device=a0+b0,receiver-device=a1+b1",
        hosts[0].host(),
        hosts[1].host()
    );
    let command = |name: &str| {
        let mut run = bytepath(&["run", "--path", "socket", "--testbed", &testbed]);
        run.args(["--link", "given:adapters=2,mtu=1400", "--stream", "flows=4", "--meters", "nic"]);
        run.args(["--cores", "unpinned", "--blocks", "2", "--warm-up", "0", "--window", "500ms"]);
        run.args(["--profile", "none", "--study"]).arg(dir.path().join(name));
        run
    };
    let received = || {
        ["a1", "b1"].map(|device| {
            hosts[1].within(|netlink| netlink.traffic(device).unwrap().unwrap().received)
        })
    };
    let mtus = || {
        let of = |host: usize, pair: usize| hosts[host].mtu(&ends[pair][host]);
        [of(0, 0), of(0, 1), of(1, 0), of(1, 1)]
    };
    let are_back =
        || mtus() == [1500; 4] && hosts.iter().all(|h| !h.state.join("journal").exists());

    let before = received();
    let output = command("both").output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let study = load(&dir.path().join("both")).unwrap();
    assert_eq!(study.remarks, [""; 0]);
    assert_eq!(study.header.facts[0].settings["link.route"], "a0, b0");
    let mut sent = 0;
    for trial in &study.trials {
        assert!(ran(trial), "{:?}: {}", trial.status, text(&output));
        let prepared: Vec<String> = trial.prepared.iter().map(ToString::to_string).collect();
        for (role, device) in
            [("sender", "a0"), ("sender", "b0"), ("receiver", "a1"), ("receiver", "b1")]
        {
            let line = format!("{role}: mtu {device}: 1500 -> 1400");
            assert!(prepared.contains(&line), "{line}: {prepared:?}");
        }
        sent += trial.roles[1].total_bytes;
    }
    // A packet of a veth pair holds at most 64 KiB.
    let came: Vec<u64> = received().iter().zip(before).map(|(now, was)| now - was).collect();
    assert!(came.iter().all(|packets| *packets > sent / 65_536 / 20), "{came:?} of {sent}");
    assert!(are_back(), "{:?}", mtus());

    // The controller is killed while everything is set: each host restores its settings by itself.
    let killed = command("killed").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut killed = killed.unwrap();
    await_that("all is set for a trial", || mtus() == [1400; 4]);
    killed.kill().unwrap();
    killed.wait().unwrap();
    await_that("both hosts are as they were", are_back);

    // The stewards are killed as well: then it is done on request.
    let lost = command("lost").stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut lost = lost.unwrap();
    await_that("all is set for a trial", || mtus() == [1400; 4]);
    for host in &hosts {
        crate::running::signal(host.agents()[0], libc::SIGKILL);
    }
    lost.kill().unwrap();
    lost.wait().unwrap();
    await_that("no agent runs", || hosts.iter().all(|host| host.agents().is_empty()));
    let output = bytepath(&["restore", "--testbed", &testbed]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(are_back(), "{:?}: {}", mtus(), text(&output));

    // A named device that no flow uses is refused, and so is naming only one of a pair.
    let refused = |words: &[&str]| {
        let output = bytepath(&[&["run", "--path", "socket"], words].concat()).output().unwrap();
        assert!(!output.status.success(), "{}", text(&output));
        text(&output)
    };
    let why = refused(&["--testbed", &testbed]);
    assert!(why.contains("has 2 devices at each end, and no flow crosses b0"), "{why}");
    assert!(why.contains("--link given:adapters=2"), "{why}");

    // Devices that do not exist, in another order than their networks, or that do not match the
    // addresses.
    let of_both = "sender-address=10.9.0.1+10.9.1.1,receiver-address=10.9.0.2+10.9.1.2";
    let of_one = "sender-address=10.9.0.1,receiver-address=10.9.0.2";
    for (senders, receivers, addresses, words) in [
        ("a0+typo", "a1+b1", "", "sender: cannot find the network device typo"),
        ("a0+typo", "a1+b1", of_both, "sender: cannot find the network device typo"),
        ("typo", "a1", of_one, "sender: cannot find the network device typo"),
        ("a0", "typo", of_one, "receiver: cannot find the network device typo"),
        ("b0+a0", "a1+b1", "", "b0 of the sender is in that of b1 of the receiver"),
        ("b0+a0", "a1+b1", of_both, "the sender's packets to 10.9.0.2 leave by a0, not by b0"),
    ] {
        let devices = format!("sender-device={senders},receiver-device={receivers}");
        let other = testbed.replace("sender-device=a0+b0,receiver-device=a1+b1", &devices);
        let other = [other.as_str(), addresses].join(if addresses.is_empty() { "" } else { "," });
        let link = if senders.contains('+') { "given:adapters=2" } else { "given" };
        let words_of_link = ["--link", link, "--stream", "flows=2"];
        let why = refused(&[&["--dry-run", "--testbed", &other][..], &words_of_link].concat());
        assert!(why.contains(words), "{senders} {receivers} {addresses}: {why}");
    }

    // Two networks over the same device are one route.
    for (host, address) in [(0, "10.9.0.11"), (1, "10.9.0.12")] {
        hosts[host].within(|netlink| {
            let index = netlink.link(&ends[1][host]).unwrap().unwrap().index;
            netlink.add_address(index, address.parse().unwrap(), 24).unwrap();
        });
    }
    let addresses = "sender-address=10.9.0.1+10.9.0.11,receiver-address=10.9.0.2+10.9.0.12";
    let one_way = format!("{testbed},{addresses}");
    let study = dir.path().join("one-way").display().to_string();
    let why = refused(&[
        "--testbed",
        &one_way,
        "--link",
        "given:adapters=2",
        "--stream",
        "flows=2",
        "--study",
        &study,
    ]);
    assert!(why.contains("packets to 10.9.0.2 and 10.9.0.12 all leave by a0"), "{why}");
}
