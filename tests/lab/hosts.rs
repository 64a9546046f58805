//! Hosts that are reached by a command: two network and mount namespaces that the test
//! makes, a veth pair between them, and in each an agent with a state folder of its own.
//! Needs root, unshare(1) and nsenter(1); else it is skipped aloud.

use crate::isolated::{isolated, text};
use crate::running::await_that;
use bytepath::record::{Role, Scope, TrialStatus};
use bytepath::run::load;
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::{Netlink, Veth};
use bytepath_testing::skip;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

#[test]
fn hosts_behind_commands_run_a_study_and_keep_their_own_settings() {
    isolated(module_path!(), "inside_hosts_run_a_study");
}

#[test]
#[ignore = "started in a namespace by hosts_behind_commands_run_a_study_and_keep_their_own_settings"]
fn inside_hosts_run_a_study() {
    let dir = tempfile::tempdir().unwrap();
    let hosts = [Place::new(dir.path(), "sender"), Place::new(dir.path(), "receiver")];
    join(&hosts);
    let testbed = format!(
        "hosts:sender=\"{}\",sender-address=10.9.0.1,receiver=\"{}\",receiver-address=10.9.0.2,\
         receiver-device=end1",
        hosts[0].command(),
        hosts[1].command()
    );
    let out = dir.path().join("study");
    let set = "sender: mtu end0 1400";
    let mut run = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--set", set]);
    run.args(["--cores", "unpinned", "--blocks", "2", "--warm-up", "0", "--window", "300ms"]);
    let profile = "all:trials=1,window=300ms,rate=199";
    run.args(["--design", "trials", "--profile", profile, "--out"]).arg(&out);
    let run = run.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();

    // While it runs, the journal of the sender's host says what was set there.
    let journal = hosts[0].state.join("journal");
    await_that("the sender has a journal", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"done\""))
    });
    assert_eq!(hosts[0].mtu("end0"), 1400);
    assert!(!hosts[1].state.join("journal").exists(), "nothing was asked of that host");
    let output = run.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(hosts[0].mtu("end0"), 1500, "{}", text(&output));
    assert!(!journal.exists(), "there is nothing left to restore");

    let study = load(&out).unwrap();
    let said: Vec<String> = study.header.settings.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["sender: mtu end0: 1500 -> 1400"]);
    assert!(study.header.fingerprint.keys().any(|name| name.starts_with("sender: ")));
    assert!(study.header.fingerprint.keys().any(|name| name.starts_with("receiver: ")));
    assert_eq!(study.trials.len(), 4, "two blocks of the path and of itself again");
    for trial in &study.trials {
        assert_eq!(trial.status, TrialStatus::Measured, "{}", text(&output));
        assert!(trial.count > 0);
        for role in Role::ALL {
            let wall = trial.reading("cpu.wall", &Scope::MachineOf(role)).unwrap();
            assert!((0.2..2.0).contains(&wall), "{role}: {wall}");
            let busy = |r: &&bytepath::record::Reading| {
                r.metric == "cpu.busy" && matches!(r.scope, Scope::CpuOf(of, _) if of == role)
            };
            assert!(trial.readings.iter().any(|r| busy(&r)), "{role}");
        }
        assert!(trial.reading("cpu.wall", &Scope::Machine).is_none(), "no machine is shared");
    }

    // Each host has sampled its own, and one profile has both.
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

    // A steward that is killed leaves its journal, and the host restores it by itself.
    let mut killed = bytepath(&["run", "--path", "socket", "--testbed", &testbed, "--set", set]);
    killed.args(["--cores", "unpinned", "--blocks", "9", "--window", "2s", "--profile", "none"]);
    killed.args(["--design", "trials", "--out"]).arg(dir.path().join("killed"));
    let mut killed = killed.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    await_that("the sender has a journal", || {
        fs::read_to_string(&journal).is_ok_and(|text| text.contains("\"done\""))
    });
    killed.kill().unwrap();
    killed.wait().unwrap();
    // Either the kernel killed the agents with their parent, or their pipe ended first.
    let restored = || {
        let output = bytepath(&["restore", "--testbed", &testbed]).output().unwrap();
        output.status.success() && hosts[0].mtu("end0") == 1500 && !journal.exists()
    };
    await_that("the sender's host is as it was", restored);

    // A link that is there already is not another one because a cell asks for it.
    let other = ["--link", "nic:mtu=9000", "--blocks", "1", "--profile", "none", "--out"];
    let mut refused = bytepath(&["run", "--path", "socket", "--testbed", &testbed]);
    let refused = refused.args(other).arg(dir.path().join("refused")).output().unwrap();
    assert!(!refused.status.success());
    assert!(text(&refused).contains("takes the link as it is"), "{}", text(&refused));

    // What is started is not an agent.
    let wrong = testbed.replace(env!("CARGO_BIN_EXE_bytepath"), "/bin/echo");
    let mut wrong = bytepath(&["run", "--path", "socket", "--testbed", &wrong, "--out"]);
    let wrong = wrong.arg(dir.path().join("wrong")).output().unwrap();
    assert!(!wrong.status.success());
    assert!(text(&wrong).contains("is gone: exited with code 0"), "{}", text(&wrong));
}

pub fn bytepath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(arguments);
    command
}

/// A network and a mount namespace, kept by a process that sleeps.
pub struct Place {
    pub keeper: Child,
    state: PathBuf,
}

impl Place {
    pub fn new(folder: &Path, name: &str) -> Place {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c"]);
        // What a login shell prints is passed over; here it marks that all is there.
        command.arg("mount -t sysfs sysfs /sys && echo ready && exec sleep 300");
        let mut keeper = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Place { keeper, state: folder.join(name) }
    }

    /// The command that gives a pipe to an agent there. It prints something first.
    pub fn command(&self) -> String {
        let (pid, state) = (self.keeper.id(), self.state.display());
        let program = env!("CARGO_BIN_EXE_bytepath");
        format!(
            "exec:nsenter --target={pid} --net --mount env BYTEPATH_STATE={state} sh -c \
             'echo Welcome; exec {program} agent'"
        )
    }

    pub fn within<T: Send>(&self, work: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.keeper.id())).unwrap();
        within(namespace.as_fd(), || work(&mut Netlink::new())).unwrap()
    }

    fn mtu(&self, device: &str) -> u32 {
        self.within(|netlink| netlink.link(device).unwrap().unwrap().mtu)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = self.keeper.kill();
        let _ = self.keeper.wait();
    }
}

/// A veth pair between two namespaces: `end0` with 10.9.0.1 and `end1` with 10.9.0.2.
fn join([one, other]: &[Place; 2]) {
    let peer_process = Some(other.keeper.id());
    let pair =
        Veth { name: "end0".into(), peer: "end1".into(), peer_process, mtu: None, queues: 1 };
    one.within(|netlink| netlink.create_veth(&pair).unwrap());
    for (place, device, address) in [(one, "end0", "10.9.0.1"), (other, "end1", "10.9.0.2")] {
        place.within(|netlink| {
            let index = netlink.link(device).unwrap().unwrap().index;
            netlink.add_address(index, address.parse().unwrap(), 24).unwrap();
            netlink.set_up(index).unwrap();
        });
    }
}
