//! The whole namespace is restored, and not only the value that was written: kernels that round,
//! fill in defaults and change other parameters along with it, devices that are renamed or
//! replaced, and two journals of one host. Each test restarts itself in its own namespaces.

use crate::host::Host;
use crate::isolated::{isolated, text};
use crate::places::bytepath;
use crate::whole::{KINDS, Trials, all_sysctls, ip, is_restored};
use bytepath::record::{Fault, Restoration, Setting, SettingValue, WantedSetting};
use bytepath::settings::journal::{Begin, Entry, JOURNAL_SCHEMA};
use bytepath::settings::{Applied, Machine, StateFolder, ThisMachine};
use bytepath::sys::Roots;
use bytepath::sys::netlink::{NapiTiming, Netlink};
use bytepath_testing::skip;
use rustix::fs::{FlockOperation, flock};
use rustix::mount::{MountFlags, mount};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Runs the ignored test `name` in its own namespaces.
fn in_namespaces(name: &str) {
    match Command::new("ip").arg("-V").output() {
        Ok(_) => isolated(module_path!(), name),
        Err(e) => skip!("no iproute2 ({e})"),
    }
}

#[test]
fn what_the_kernel_makes_of_a_value_is_accepted_or_restored() {
    in_namespaces("inside_a_kernel_that_rounds");
}

#[test]
fn a_crash_before_a_rounded_value_was_read_is_undone() {
    in_namespaces("inside_a_crash_before_it_was_read");
}

#[test]
fn sysctls_that_change_more_than_themselves_are_refused() {
    in_namespaces("inside_side_effects");
}

#[test]
fn every_kind_of_setting_leaves_the_namespace_as_it_was() {
    in_namespaces("inside_every_kind");
}

#[test]
fn a_renamed_device_is_restored_and_one_of_its_name_is_not() {
    in_namespaces("inside_a_renamed_device");
}

#[test]
fn two_journals_of_one_host_exclude_each_other() {
    in_namespaces("inside_two_journals");
}

#[test]
fn polling_instances_get_back_what_each_had() {
    in_namespaces("inside_polling_instances");
}

#[test]
fn monitoring_groups_that_were_left_are_listed_and_removed() {
    isolated(module_path!(), "inside_monitoring_groups");
}

/// A made-up resctrl in this mount namespace, with two groups, one of them locked.
#[test]
#[ignore = "started in namespaces by monitoring_groups_that_were_left_are_listed_and_removed"]
fn inside_monitoring_groups() {
    mount("tmpfs", "/sys/fs", "tmpfs", MountFlags::empty(), None).unwrap();
    let groups = Path::new("/sys/fs/resctrl/mon_groups");
    let [left, held] = ["receiver", "sender"].map(|role| groups.join(format!("bytepath-{role}-0")));
    [&left, &held].iter().for_each(|group| fs::create_dir_all(group).unwrap());
    let lock = File::open(&held).unwrap();
    flock(&lock, FlockOperation::LockExclusive).unwrap();
    let bytepath = |words: &[&str]| {
        let output = bytepath(words).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    };
    let listed = |words: &[&str]| {
        let document: serde_json::Value = serde_json::from_str(&bytepath(words)).unwrap();
        document["memory_groups"].clone()
    };
    let expected = serde_json::json!([left.to_str()]);
    let line = format!("{}: left by a process that was killed\n", left.display());
    assert_eq!(bytepath(&["restore", "--show"]), line);
    assert_eq!(listed(&["restore", "--show", "--json"]), expected);
    assert!(left.is_dir(), "it is only shown");
    assert_eq!(listed(&["restore", "--json"]), expected);
    assert!(!left.exists() && held.is_dir());
    assert!(bytepath(&["restore", "--show"]).starts_with("nothing to restore"));
}

#[test]
#[ignore = "started in namespaces by polling_instances_get_back_what_each_had"]
fn inside_polling_instances() {
    let _host = Host::new();
    ip("link add poll0 type veth peer name poll1");
    ip("link set poll0 up");
    ip("link set poll1 up");
    let index = bytepath::sys::device::index("poll0").unwrap();
    let mut netlink = Netlink::new();
    // Without GRO a veth has no NAPI instance.
    let line = ["napi poll0 defer-hard-irqs=3 gro-flush-timeout=20000"];
    let refused = applied(&line).err().unwrap().to_string();
    assert!(refused.contains("no polling instance"), "{refused}");
    netlink.set_features(index, &[("rx-gro", true)]).unwrap();
    let before = netlink.napis(index).unwrap();
    if before.is_empty() || before[0].timing == NapiTiming::default() {
        return skip!("before Linux 6.13: {before:?}");
    }
    let applied = applied(&line).unwrap();
    for napi in netlink.napis(index).unwrap() {
        assert_eq!(napi.timing.defer_hard_irqs, Some(3));
        assert_eq!(napi.timing.gro_flush_timeout, Some(20_000));
        assert_eq!(napi.timing.irq_suspend_timeout, before[0].timing.irq_suspend_timeout);
    }
    assert!(
        applied.records()[0].to_string().contains("defer-hard-irqs"),
        "{:?}",
        applied.records()
    );
    let rows = applied.undo();
    assert!(is_restored(&rows), "{rows:?}");
    assert_eq!(netlink.napis(index).unwrap(), before);
    if before[0].timing.threaded.is_none() {
        return skip!("before Linux 6.17: {before:?}");
    }
    polls_in_a_thread(&mut netlink, index, 1).unwrap();
    // Busy polling in a thread was added by a later kernel.
    if let Err(refused) = polls_in_a_thread(&mut netlink, index, 2) {
        assert!(refused.to_string().contains("poll0"), "{refused}");
        skip!("no threaded busy polling: {refused}");
    }
}

/// Sets the instance to poll in a thread of this kind; undoing it turns that off.
fn polls_in_a_thread(netlink: &mut Netlink, index: u32, kind: u32) -> Result<(), Fault> {
    let mut found = || netlink.napis(index).unwrap()[0].timing.threaded;
    let applied = applied(&[&format!("napi poll0 threaded={kind}")])?;
    assert_eq!(found(), Some(kind));
    let rows = applied.undo();
    assert!(is_restored(&rows), "{rows:?}");
    assert_eq!(found(), Some(0));
    Ok(())
}

fn applied(lines: &[&str]) -> Result<Applied, Fault> {
    let wanted = |line: &&str| WantedSetting::from(line.parse::<Setting>().unwrap());
    let wanted: Vec<WantedSetting> = lines.iter().map(wanted).collect();
    let machine = ThisMachine::new(Roots::real());
    Applied::apply(&StateFolder::standard(), machine, &wanted).map(|(applied, _)| applied)
}

fn file(name: &str) -> PathBuf {
    Path::new("/proc/sys").join(name.replace('.', "/"))
}

fn sysctl(name: &str) -> String {
    fs::read_to_string(file(name)).unwrap()
}

#[test]
#[ignore = "started in namespaces by what_the_kernel_makes_of_a_value_is_accepted_or_restored"]
fn inside_a_kernel_that_rounds() {
    let host = Host::new();
    // The same value, written in another form.
    for (name, asked, made) in [
        ("net.ipv4.tcp_syn_retries", "0x5", "5"),
        ("net.ipv4.tcp_fin_timeout", "07", "7"),
        ("net.ipv4.ip_local_reserved_ports", "5,3,4", "3-5"),
        ("net.ipv4.tcp_rmem", "4096\t0x20000 6291456", "4096\t131072\t6291456"),
    ] {
        let before = sysctl(name);
        let applied = applied(&[&format!("sysctl {name}={asked}")]).unwrap();
        assert_eq!(sysctl(name).trim(), made, "{name}");
        assert_eq!(applied.records()[0].after.get("value").map(str::trim), Some(made));
        let rows = applied.undo();
        assert!(is_restored(&rows), "{rows:?}");
        assert_eq!(sysctl(name), before, "{name}");
    }
    // A value that the kernel changes.
    for (name, asked) in [
        ("net.ipv4.tcp_rmem", "4096 65536"),
        ("net.ipv4.tcp_wmem", "8192"),
        ("net.ipv4.ip_local_port_range", "2000"),
        ("net.ipv4.icmp_ratelimit", "1001"),
        ("net.ipv4.neigh.set0.retrans_time_ms", "1001"),
    ] {
        let before = sysctl(name);
        let _ = fs::write(file(name), asked);
        let made = sysctl(name);
        fs::write(file(name), &before).unwrap();
        if made.split_whitespace().eq(asked.split_whitespace()) {
            println!("{name} keeps {asked} on this kernel");
            continue;
        }
        let line = format!("sysctl {name}={asked}");
        let run = host.quick("refused", &["sysctl net.core.somaxconn=99", &line]);
        let said = text(&run);
        assert!(!run.status.success(), "{said}");
        if made != before {
            assert_eq!(run.status.code(), Some(3), "{said}");
            let words: Vec<&str> = made.split_whitespace().collect();
            let shown = format!(
                "asked for {asked}, the kernel accepted it, but it reads {}",
                words.join(" ")
            );
            assert!(said.contains(&shown), "{said}");
            assert!(said.contains(&format!("; {name}: restored: ")), "{said}");
        }
        assert!(said.contains("; net.core.somaxconn: restored: "), "{said}");
        assert_eq!(sysctl(name), before, "{name}");
        assert!(text(&host.run(&["restore"])).starts_with("nothing to restore"));
    }
}

/// The state after a run was killed between the write and its record.
#[test]
#[ignore = "started in namespaces by a_crash_before_a_rounded_value_was_read_is_undone"]
fn inside_a_crash_before_it_was_read() {
    let host = Host::new();
    let name = "net.ipv4.tcp_rmem";
    let before = sysctl(name);
    let journal = host.dir.path().join("state/journal");
    fs::create_dir_all(journal.parent().unwrap()).unwrap();
    let here = ThisMachine::new(Roots::real()).identity();
    let begin = Begin {
        schema: JOURNAL_SCHEMA,
        boot: here.boot,
        namespace: here.namespace,
        ..Begin::default()
    };
    let lines = [
        Entry::Begin(begin),
        Entry::Intent {
            number: 0,
            setting: format!("sysctl {name}=4096 65536").parse().unwrap(),
            link: None,
            before: SettingValue::one("value", &before),
            goal: SettingValue::one("value", "4096 65536"),
        },
    ];
    let lines: Vec<u8> = lines.iter().flat_map(|entry| entry.line().unwrap()).collect();
    for (written, restored) in [
        ("4096 65536", before.as_str()),
        // A value set by someone else is detected, and stays.
        ("4096 70000 33554432", "4096\t70000\t33554432\n"),
    ] {
        fs::write(&journal, &lines).unwrap();
        fs::write(file(name), written).unwrap();
        let said = text(&host.run(&["restore"]));
        assert_eq!(sysctl(name), restored, "{written}: {said}");
        assert_eq!(said.contains("left alone"), restored != before, "{said}");
        assert!(!journal.exists(), "{said}");
        fs::write(file(name), &before).unwrap();
    }
}

#[test]
#[ignore = "started in namespaces by sysctls_that_change_more_than_themselves_are_refused"]
fn inside_side_effects() {
    let host = Host::new();
    for (line, remedy) in [
        ("net.ipv6.conf.set0.disable_ipv6=1", "set it by hand"),
        ("net.ipv4.neigh.set0.unres_qlen=102", "set net.ipv4.neigh.set0.unres_qlen_bytes"),
        ("net.ipv6.route.gc_min_interval=1", "set net.ipv6.route.gc_min_interval_ms"),
        ("net.netfilter.nf_hooks_lwtunnel=1", "set it by hand"),
    ] {
        let set = format!("sysctl {line}");
        let name = line.split('=').next().unwrap();
        if !file(name).exists() {
            println!("this kernel has no {name}");
            continue;
        }
        let before = sysctl(name);
        for run in [
            host.quick("refused", &["mtu set0 4148", &set]),
            host.run(&["run", "--dry-run", "--path", "socket", "--set", &set]),
        ] {
            let said = text(&run);
            assert!(said.contains(name) && said.contains(remedy), "{said}");
        }
        assert_eq!(sysctl(name), before);
        assert_eq!(sysctl("net.ipv6.conf.set0.mtu").trim(), "1500");
    }
}

#[test]
#[ignore = "started in namespaces by every_kind_of_setting_leaves_the_namespace_as_it_was"]
fn inside_every_kind() {
    let _host = Host::new();
    let mut trials = Trials::begin(StateFolder::standard());
    for kind in KINDS {
        trials.attempt(&[(*kind).to_owned()]);
    }
    assert!(trials.made.len() >= 10, "{:?}", trials.made);
    // The same subset each time; `make faults` tries all of them.
    let sysctls = all_sysctls();
    assert!(sysctls.len() >= 100, "{}", sysctls.len());
    let (before, apart) = (trials.made.len(), sysctls.len() / 48);
    for lines in sysctls.iter().step_by(apart) {
        trials.attempt(lines);
    }
    assert!(trials.made.len() - before >= 30, "{:?}", trials.refused);
    let Trials { findings, made, refused, .. } = trials.end();
    println!("{} made, {} refused: {refused:?}", made.len(), refused.len());
    assert!(findings.is_empty(), "{findings:#?}");
}

#[test]
#[ignore = "started in namespaces by a_renamed_device_is_restored_and_one_of_its_name_is_not"]
fn inside_a_renamed_device() {
    let _host = Host::new();
    let mtu = |name: &str| {
        fs::read_to_string(format!("/sys/class/net/{name}/mtu")).unwrap().trim().to_owned()
    };
    let own = "net.ipv4.conf.set0.rp_filter";
    let filter = sysctl(own);
    let lines =
        ["mtu set0 2000", &format!("sysctl {own}=2"), "feature set0 tx-tcp-segmentation=off"];
    let renamed = applied(&lines).unwrap();
    ip("link set set0 down");
    ip("link set set0 name moved0");
    ip("link add set0 mtu 2000 type veth peer name other0");
    let rows = renamed.undo();
    assert!(is_restored(&rows), "{rows:?}");
    let said: Vec<String> = rows.iter().map(ToString::to_string).collect();
    assert!(said[2].ends_with("its device has another name now: mtu moved0"), "{said:?}");
    assert_eq!((mtu("moved0").as_str(), mtu("set0").as_str()), ("1500", "2000"));
    assert_eq!(sysctl("net.ipv4.conf.moved0.rp_filter"), filter);

    let gone = applied(&["mtu set0 3000"]).unwrap();
    ip("link del set0");
    ip("link add set0 mtu 3000 type veth peer name other0");
    let rows = gone.undo();
    assert_eq!(rows[0].outcome, Restoration::Gone, "{rows:?}");
    assert!(rows[0].note.contains("another one has the name, with 3000"), "{rows:?}");
    assert_eq!(mtu("set0"), "3000", "it is not the one that was set");
}

#[test]
#[ignore = "started in namespaces by two_journals_of_one_host_exclude_each_other"]
fn inside_two_journals() {
    let host = Host::new();
    let mut study = host.study("first", "2s", &["mtu set0 2000"]);
    study.wait_for("[  1/");
    let elsewhere = |arguments: &[&str]| {
        let mut command = host.command();
        command.env("BYTEPATH_STATE", host.dir.path().join("elsewhere")).args(arguments);
        command.output().unwrap()
    };
    let who = format!("another bytepath (process {}) is changing settings", study.0.id());
    let quick = ["run", "--path", "socket", "--blocks", "1", "--window", "100ms", "--warm-up", "0"];
    let set = ["--profile", "none", "--set", "mtu set0 3000", "--study", "second"];
    let second = elsewhere(&[&quick[..], &set].concat());
    assert_eq!(second.status.code(), Some(6), "{}", text(&second));
    assert!(text(&second).contains(&who), "{}", text(&second));
    // Nothing is restored while it runs either, whatever another journal contains.
    let journal = host.dir.path().join("elsewhere/journal");
    fs::copy(host.dir.path().join("state/journal"), &journal).unwrap();
    let restored = elsewhere(&["restore"]);
    assert_eq!(restored.status.code(), Some(6), "{}", text(&restored));
    assert!(text(&restored).contains(&who), "{}", text(&restored));
    let mtu = || fs::read_to_string("/sys/class/net/set0/mtu").unwrap();
    assert_eq!(mtu().trim(), "2000");
    fs::remove_file(&journal).unwrap();
    study.signal(libc::SIGINT);
    assert_eq!(study.end().0, Some(130));
    assert_eq!(mtu().trim(), "1500");
    let second = elsewhere(&[&quick[..], &set].concat());
    assert!(second.status.success(), "{}", text(&second));
    assert_eq!(mtu().trim(), "1500");
}
