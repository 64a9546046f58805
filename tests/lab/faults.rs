//! A study whose outputs, disk or time run out: measurements are kept, settings are restored or
//! named, nothing else is left, and the exit code is correct.

use crate::host::{Host, LINES};
use crate::isolated::{isolated, text};
use crate::running::{Running, await_that};
use bytepath::host::differences;
use bytepath::meter::{self, Context};
use bytepath::study::load;
use bytepath::sys::Roots;
use bytepath::sys::ethtool::Channels;
use bytepath::sys::netlink::Netlink;
use bytepath_testing::skip;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, Stdio};

#[test]
fn a_study_continues_without_its_outputs() {
    isolated(module_path!(), "inside_outputs_go_away");
}

#[test]
fn second_signal_names_settings_that_stay() {
    isolated(module_path!(), "inside_a_second_signal");
}

#[test]
fn a_full_disk_leaves_a_study_or_nothing() {
    isolated(module_path!(), "inside_a_full_disk");
}

#[test]
fn a_feature_that_does_not_exist_is_not_off() {
    isolated(module_path!(), "inside_no_such_feature");
}

#[test]
fn a_terminal_that_goes_away_interrupts_a_study() {
    isolated(module_path!(), "inside_a_terminal");
}

#[test]
fn a_signal_that_comes_to_a_process_and_its_group_is_one() {
    isolated(module_path!(), "inside_a_group");
}

#[test]
fn queues_that_someone_changes_are_named() {
    isolated(module_path!(), "inside_queues_change");
}

#[test]
#[ignore = "started in a namespace by a_study_continues_without_its_outputs"]
fn inside_outputs_go_away() {
    let host = Host::new();
    let before = host.look();
    let full = || Stdio::from(File::options().write(true).open("/dev/full").unwrap());
    let closed = || Stdio::from(std::io::pipe().unwrap().1);
    for (name, output) in [("full", full as fn() -> Stdio), ("closed", closed)] {
        let mut command = host.study_command(name, ("2", "100ms"), LINES);
        let status = command.stdout(closed()).stderr(output()).status().unwrap();
        // On a busy machine a trial may move nothing in its window.
        assert!(matches!(status.code(), Some(0 | 5)), "{name}: {status}");
        assert_eq!(load(&host.dir.path().join(name)).unwrap().trials.len(), 4, "{name}");
        assert_eq!(differences(&before, &host.look()), [""; 0], "{name}");
    }
    // A report that cannot be printed is an error; the study is whole.
    let mut command = host.study_command("unprinted", ("1", "100ms"), &[]);
    let status = command.stdout(full()).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(6));
    assert_eq!(load(&host.dir.path().join("unprinted")).unwrap().trials.len(), 2);

    // A closed terminal accepts no more output, and sends SIGHUP.
    let mut study = host.study("hung-up", "2s", LINES);
    study.wait_for("[  1/");
    study.0.stderr.take();
    study.signal(libc::SIGHUP);
    assert_eq!(study.0.wait().unwrap().code(), Some(130));
    assert_eq!(differences(&before, &host.look()), [""; 0]);
    assert_eq!(load(&host.dir.path().join("hung-up")).unwrap().trials.len(), 1);

    // Under nohup(1) the study continues.
    let study = host.study_command("nohup", ("1", "2s"), &[]);
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' HUP; exec \"$0\" \"$@\""]).arg(study.get_program());
    command.args(study.get_args()).current_dir(host.dir.path());
    let mut study = Running::start(&mut command);
    study.wait_for("[  1/");
    study.signal(libc::SIGHUP);
    let (code, said) = study.end();
    assert_eq!(code, Some(0), "{said}");
    assert_eq!(load(&host.dir.path().join("nohup")).unwrap().trials.len(), 2);
}

#[test]
fn a_limit_on_namespaces_is_a_lack_of_permission() {
    let dir = tempfile::tempdir().unwrap();
    let script = "mount -t proc proc /proc && echo 0 >/proc/sys/user/max_net_namespaces || exit 99; \
                  exec \"$0\" \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount", "--pid", "--fork", "sh", "-c", script]);
    command.args([env!("CARGO_BIN_EXE_bytepath"), "run", "--path", "socket", "--study"]);
    command.arg(dir.path().join("study")).env("BYTEPATH_STATE", dir.path());
    let output = match command.output() {
        Err(e) => return skip!("no unshare(1): {e}"),
        Ok(output) => output,
    };
    let said = text(&output);
    if output.status.code() == Some(99) || said.starts_with("unshare:") {
        return skip!("no user namespace: {said}");
    }
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("sysctl user.max_net_namespaces="), "{said}");
    assert!(!dir.path().join("study").exists());
}

/// A terminal of script(1), which ends as when ssh(1) is lost or a window is closed: the first
/// process of the session gets SIGHUP and ends, then all of its foreground group.
#[test]
#[ignore = "started in a namespace by a_terminal_that_goes_away_interrupts_a_study"]
fn inside_a_terminal() {
    let host = Host::new();
    let before = host.look();
    let study = host.study_command("lost", ("9", "1s"), LINES);
    let words = std::iter::once(study.get_program()).chain(study.get_args());
    let words: Vec<&str> = words.map(|word| word.to_str().unwrap()).collect();
    let line = shlex::try_join(words).unwrap();
    // One shell stays to report the exit code; the session leader does not.
    let line = format!("sh -c 'trap : HUP; \"$@\"; echo $? >code' sh {line}; true");
    let mut command = Command::new("script");
    command.args(["-qec", &line, "/dev/null"]).current_dir(host.dir.path());
    command.env("SHELL", "/bin/sh").env("BYTEPATH_STATE", host.dir.path().join("state"));
    command.stdin(Stdio::piped()).stdout(Stdio::null());
    let mut terminal = match command.spawn() {
        Ok(child) => Running(child),
        Err(e) => return skip!("no script(1): {e}"),
    };
    let trials = host.dir.path().join("lost/trials.jsonl");
    await_that("a trial has ended", || {
        fs::read_to_string(&trials).is_ok_and(|text| text.contains('\n'))
    });
    assert_ne!(differences(&before, &host.look()), [""; 0]);
    terminal.0.kill().unwrap();
    terminal.0.wait().unwrap();
    let code = host.dir.path().join("code");
    await_that("the study has ended", || fs::read_to_string(&code).is_ok_and(|c| c.contains('\n')));
    assert_eq!(fs::read_to_string(&code).unwrap(), "130\n");
    assert_eq!(differences(&before, &host.look()), [""; 0]);
    let kept = load(&host.dir.path().join("lost")).unwrap().trials.len();
    assert!((1..18).contains(&kept), "{kept}");
}

#[test]
#[ignore = "started in a namespace by a_signal_that_comes_to_a_process_and_its_group_is_one"]
fn inside_a_group() {
    let host = Host::new();
    let before = host.look();
    let mut command = host.study_command("both", ("4", "1s"), LINES);
    let mut study = Running::start(command.process_group(0));
    study.wait_for("[  1/");
    // timeout(1) does both.
    study.signal(libc::SIGTERM);
    let group = rustix::process::Pid::from_raw(study.0.id() as i32).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::TERM).unwrap();
    let (code, said) = study.end();
    assert_eq!(code, Some(130), "{said}");
    assert_eq!(differences(&before, &host.look()), [""; 0]);
}

#[test]
#[ignore = "started in a namespace by second_signal_names_settings_that_stay"]
fn inside_a_second_signal() {
    let host = Host::new();
    let before = host.look();
    let mut study = host.study("impatient", "2s", LINES);
    study.wait_for("[  1/");
    // Both signals are pending before it can handle the first.
    for signal in [libc::SIGSTOP, libc::SIGINT, libc::SIGTERM, libc::SIGCONT] {
        study.signal(signal);
    }
    let mut said = String::new();
    std::io::Read::read_to_string(&mut study.0.stderr.take().unwrap(), &mut said).unwrap();
    let ended = study.0.wait().unwrap().signal();
    assert!([Some(libc::SIGINT), Some(libc::SIGTERM)].contains(&ended), "{ended:?}: {said}");
    assert!(said.contains("these settings stay; `bytepath restore` restores them"), "{said}");
    assert!(said.contains("\n  mtu set0: 1500 -> 4148"), "{said}");
    assert_ne!(differences(&before, &host.look()), [""; 0], "{said}");
    let restored = host.run(&["restore"]);
    assert!(restored.status.success(), "{}", text(&restored));
    assert_eq!(differences(&before, &host.look()), [""; 0]);
}

#[test]
#[ignore = "started in a namespace by a_full_disk_leaves_a_study_or_nothing"]
fn inside_a_full_disk() {
    let host = Host::new();
    let disk = host.dir.path().join("disk");
    fs::create_dir(&disk).unwrap();
    let mut begun = 0;
    for pages in 1..=12 {
        let size = std::ffi::CString::new(format!("size={}k", 4 * pages)).unwrap();
        mount("tmpfs", &disk, "tmpfs", MountFlags::empty(), size.as_c_str()).unwrap();
        let run = host.quick("disk/deep/study", &[]);
        match disk.join("deep").exists() {
            true => {
                begun += 1;
                load(&disk.join("deep/study")).unwrap();
            }
            false => assert_eq!(run.status.code(), Some(6), "{pages}: {}", text(&run)),
        }
        unmount(&disk, UnmountFlags::empty()).unwrap();
    }
    assert!((1..12).contains(&begun), "some of these disks hold a study, and some do not: {begun}");
}

/// The meter `steady` notices, and rejects a trial for it.
#[test]
#[ignore = "started in a namespace by queues_that_someone_changes_are_named"]
fn inside_queues_change() {
    let _host = Host::new();
    let steady = meter::CATALOG.iter().find(|meter| meter.name == "steady").unwrap();
    let context = Context { devices: vec!["set0".into()], ..Context::idle(Roots::real()) };
    let mut netlink = Netlink::new();
    let index = netlink.link("set0").unwrap().unwrap().index;
    let mut warnings = |change: &dyn Fn(&mut Netlink)| {
        let window = (steady.start)(&context).unwrap();
        change(&mut netlink);
        window.stop().unwrap().warnings
    };
    assert_eq!(warnings(&|_| ()), [""; 0]);
    let fewer = Channels { rx: Some(1), tx: Some(1), ..Channels::default() };
    let mut said = warnings(&|netlink| netlink.set_channels(index, &fewer).unwrap());
    // veth_set_channels (drivers/net/veth.c) takes the carrier down meanwhile.
    said.retain(|line| !line.contains("count of carrier changes"));
    assert_eq!(said, ["steady: set0: channels was rx=2 tx=2 and is rx=1 tx=1"]);
    let gro = |netlink: &mut Netlink, on: bool| {
        netlink.set_features(index, &[("rx-gro", on)]).unwrap();
    };
    let said = warnings(&|netlink| gro(netlink, true));
    let has = |what: &str| said.iter().any(|line| line.contains(what));
    assert!(said.len() == 2 && has("features was") && has("NAPI instances was"), "{said:?}");
    let said = warnings(&|_| fs::write("/sys/class/net/set0/threaded", "1").unwrap());
    assert!(said.len() == 1 && said[0].ends_with(" with a thread"), "{said:?}");
    // All values are as before, but the queue is a new one.
    let said = warnings(&|netlink| [false, true].into_iter().for_each(|on| gro(netlink, on)));
    assert!(said.len() == 1 && said[0].contains("NAPI instances"), "{said:?}");
}

#[test]
#[ignore = "started in a namespace by a_feature_that_does_not_exist_is_not_off"]
fn inside_no_such_feature() {
    let host = Host::new();
    for feature in ["no-such-thing=off", "tso=off", "no-such-thing=on"] {
        let refused = host.quick("refused", &[&format!("feature set0 {feature}")]);
        assert_eq!(refused.status.code(), Some(3), "{feature}: {}", text(&refused));
        assert!(text(&refused).contains("`ethtool -k set0` lists"), "{}", text(&refused));
    }
}
