//! Hosts behind ssh(1): two namespaces with an sshd each, a third one that steers them, and errors
//! between them. The names, keys and configuration belong to the test. Needs root, unshare(1),
//! nsenter(1) and OpenSSH's client and server; else it is skipped.

use crate::isolated::{isolated, text};
use crate::places::{Place, assert_shaped_like_embedded, bytepath, join, ran};
use crate::running::{Running, await_that, signal};
use bytepath::record::{Role, Scope, TrialStatus};
use bytepath::study::load;
use bytepath_testing::skip;
use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

#[test]
fn a_study_over_ssh_leaves_nothing() {
    isolated(module_path!(), "inside_a_study_over_ssh");
}

#[test]
#[ignore = "started in a namespace by a_study_over_ssh_leaves_nothing"]
fn inside_a_study_over_ssh() {
    let Some(lab) = Lab::new() else { return };
    let out = lab.dir.path().join("study");
    let set = "receiver: mtu to-sender 1400";
    let mut run = lab.run(&out, &["--set", set, "--testbed", "hosts:copies=removed"]);
    let output = run.output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let study = load(&out).unwrap();
    assert!(study.trials.iter().all(ran), "{}", text(&output));
    assert_eq!(study.trials.len(), 4, "two blocks of the path and of itself again");
    for trial in &study.trials {
        for role in Role::ALL {
            let wall = trial.reading("cpu.wall", &Scope::MachineOf(role)).unwrap();
            assert!((0.2..2.0).contains(&wall), "{role}: {wall}");
        }
    }
    let near = lab.dir.path().join("embedded");
    let mut embedded = bytepath(&["run", "--path", "socket", "--cores", "unpinned"]);
    embedded.args(["--design", "trials", "--blocks", "2", "--window", "600ms", "--warm-up", "0"]);
    let embedded = embedded.args(["--profile", "none", "--study"]).arg(&near).output().unwrap();
    // A busy machine may leave nothing to compare.
    assert!(matches!(embedded.status.code(), Some(0 | 5)), "{}", text(&embedded));
    assert_shaped_like_embedded(&study, &load(&near).unwrap());
    let said: Vec<String> = study.header.settings.iter().map(ToString::to_string).collect();
    assert_eq!(said, ["receiver: mtu to-sender: 1500 -> 1400"]);
    assert_eq!(lab.hosts[1].place.mtu("to-sender"), 1500);
    lab.nothing_is_left();

    // The receiver's host did not have the program, so it was given a temporary copy, once.
    assert!(!lab.hosts[1].copies().exists(), "{:?}", lab.hosts[1].copies());
    let output = lab.run(&lab.dir.path().join("kept"), &[]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let copies: Vec<_> = fs::read_dir(lab.hosts[1].copies()).unwrap().collect();
    assert_eq!(copies.len(), 1, "{copies:?}");
    assert!(!lab.hosts[0].copies().exists(), "the sender sees the program where it is");
    lab.nothing_is_left();
}

#[test]
fn a_doctor_connects_to_each_host_once() {
    isolated(module_path!(), "inside_a_doctor");
}

#[test]
#[ignore = "started in a namespace by a_doctor_connects_to_each_host_once"]
fn inside_a_doctor() {
    let Some(lab) = Lab::new() else { return };
    let output =
        lab.bytepath(&["doctor", "--sender", "ssh://sender", "--receiver", "ssh://receiver"]);
    // The hosts may have a blocking condition; that is reported.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", text(&output));
    assert!(text(&output).contains("receiver: "), "{}", text(&output));
    assert_eq!([lab.hosts[0].logins(), lab.hosts[1].logins()], [1, 1]);
    lab.nothing_is_left();
}

#[test]
fn reports_refusals_of_ssh_before_the_study() {
    isolated(module_path!(), "inside_refusals_of_ssh");
}

#[test]
#[ignore = "started in a namespace by reports_refusals_of_ssh_before_the_study"]
fn inside_refusals_of_ssh() {
    let Some(lab) = Lab::new() else { return };
    let said = |receiver: &str| {
        let output = lab.bytepath(&["paths", "--sender", "ssh://sender", "--receiver", receiver]);
        let text = text(&output);
        lab.nothing_is_left();
        text
    };
    let port = said("ssh://receiver:23");
    assert!(port.contains("Connection refused") && port.contains("is sshd running"), "{port}");
    let name = said("ssh://nowhere.invalid");
    assert!(name.contains("Could not resolve"), "{name}");
    let stranger = said("ssh://stranger");
    assert!(stranger.contains("Permission denied"), "{stranger}");
    assert!(stranger.contains("ssh-copy-id"), "{stranger}");

    // There is no room for a copy.
    let full = lab.dir.path().join("receiver-home/.cache");
    let mut mount = lab.hosts[1].place.command("mount");
    fs::create_dir_all(&full).unwrap();
    let mounted = mount.args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&full).status();
    assert!(mounted.unwrap().success());
    let room = said("ssh://receiver");
    assert!(room.contains("cannot be written"), "{room}");

    // The host key has changed since last time.
    let known = lab.dir.path().join("known");
    let text = fs::read_to_string(&known).unwrap();
    let swapped: Vec<String> = text.lines().map(|line| swap_hosts(line, &lab)).collect();
    fs::write(&known, swapped.join("\n") + "\n").unwrap();
    let changed = said("ssh://receiver");
    assert!(changed.contains("Host key verification failed"), "{changed}");
}

/// Returns a line of known hosts with the address of the other host.
fn swap_hosts(line: &str, lab: &Lab) -> String {
    let [one, other] = [0, 1].map(|at| lab.hosts[at].address);
    match line.strip_prefix(one) {
        Some(rest) => format!("{other}{rest}"),
        None => line.replacen(other, one, 1),
    }
}

#[test]
fn a_host_that_is_lost_costs_its_trial_and_not_the_study() {
    isolated(module_path!(), "inside_a_host_that_is_lost");
}

#[test]
#[ignore = "started in a namespace by a_host_that_is_lost_costs_its_trial_and_not_the_study"]
fn inside_a_host_that_is_lost() {
    let Some(lab) = Lab::new() else { return };
    // The agent of a trial dies, and the study goes on.
    let out = lab.dir.path().join("killed");
    let mut run = Running::start(&mut lab.run(&out, &["--blocks", "3", "--window", "1s"]));
    let trials = out.join("trials.jsonl");
    let ended = || fs::read_to_string(&trials).map_or(0, |text| text.lines().count());
    await_that("a trial has ended", || ended() > 0);
    // The first is the steward's; the last is of a trial.
    let mut agents = Vec::new();
    await_that("an agent of a trial runs", || {
        agents = lab.hosts[1].place.agents();
        agents.len() == 2
    });
    signal(*agents.last().unwrap(), libc::SIGKILL);
    let (code, said) = run.end();
    assert_eq!(code, Some(5), "{said}");
    let study = load(&out).unwrap();
    let failed: Vec<String> = study.trials.iter().filter_map(failure).collect();
    assert_eq!((study.trials.len(), failed.len()), (6, 1), "{said}");
    assert!(failed[0].contains("the receiver's agent is gone"), "{failed:?}");
    lab.nothing_is_left();

    // The controller is killed: both hosts end their agents and restore their settings.
    let set = "receiver: mtu to-sender 1400";
    let out = lab.dir.path().join("abandoned");
    let run =
        Running::start(&mut lab.run(&out, &["--blocks", "9", "--window", "1s", "--set", set]));
    let receiver = &lab.hosts[1].place;
    await_that("the MTU is set", || receiver.mtu("to-sender") == 1400);
    run.kill();
    await_that("the MTU is restored", || receiver.mtu("to-sender") == 1500);
    lab.nothing_is_left();
}

/// Why a trial failed.
pub fn failure(trial: &bytepath::record::Trial) -> Option<String> {
    match &trial.status {
        TrialStatus::Failed { fault } => Some(fault.to_string()),
        _ => None,
    }
}

#[test]
fn ctrl_c_keeps_what_was_measured() {
    isolated(module_path!(), "inside_ctrl_c");
}

#[test]
#[ignore = "started in a namespace by ctrl_c_keeps_what_was_measured"]
fn inside_ctrl_c() {
    let Some(lab) = Lab::new() else { return };
    let out = lab.dir.path().join("stopped");
    let set = "receiver: mtu to-sender 1400";
    let mut run = lab.run(&out, &["--blocks", "9", "--window", "1s", "--set", set]);
    let mut run = Running::start(run.process_group(0));
    let trials = out.join("trials.jsonl");
    await_that("a trial has ended", || fs::read_to_string(&trials).is_ok_and(|t| t.contains('\n')));
    // As a terminal does: to the whole group.
    let group = rustix::process::Pid::from_raw(run.0.id() as i32).unwrap();
    rustix::process::kill_process_group(group, rustix::process::Signal::INT).unwrap();
    let (code, said) = run.end();
    assert_eq!(code, Some(130), "{said}");
    let study = load(&out).unwrap();
    assert!(!study.trials.is_empty() && study.trials.iter().all(ran), "{said}");
    assert_eq!(lab.hosts[1].place.mtu("to-sender"), 1500);
    lab.nothing_is_left();
}

/// Two hosts and the one that steers them, in which the test runs.
pub struct Lab {
    pub dir: tempfile::TempDir,
    pub hosts: [Host; 2],
}

pub struct Host {
    pub place: Place,
    pub home: PathBuf,
    address: &'static str,
    sshd: Child,
    /// The shell line that starts its sshd.
    start: String,
}

impl Lab {
    pub fn new() -> Option<Lab> {
        let sshd = Path::new("/usr/sbin/sshd");
        if !sshd.exists() || Command::new("ssh").arg("-V").output().is_err() {
            skip!("no ssh and sshd; `make tools-fleet` installs them");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let [key, other_key] = ["key", "other-key"].map(|name| make_key(dir.path(), name));
        let places = ["sender", "receiver"].map(|name| Place::new(dir.path(), name));
        join(&places[0], &places[1], "10.9.0");
        let steering = Place::here(dir.path(), "steering");
        let networks = [("10.8.1", "10.8.1.2"), ("10.8.2", "10.8.2.2")];
        let mut hosts = places.into_iter().zip(networks).map(|(place, (network, address))| {
            join(&steering, &place, network);
            Host::new(dir.path(), place, address)
        });
        let hosts = [hosts.next().unwrap(), hosts.next().unwrap()];
        let known = dir.path().join("known");
        let mut config = format!(
            "UserKnownHostsFile {}\nStrictHostKeyChecking accept-new\nUser root\n\
             IdentitiesOnly yes\n",
            known.display()
        );
        for (name, address, key) in [
            ("sender", hosts[0].address, &key),
            ("receiver", hosts[1].address, &key),
            ("stranger", hosts[1].address, &other_key),
        ] {
            let key = key.display();
            config.push_str(&format!("Host {name}\n HostName {address}\n IdentityFile {key}\n"));
        }
        fs::write(dir.path().join("config"), config).unwrap();
        // The system's ssh, with the test's configuration instead of the user's.
        let bin = dir.path().join("bin");
        fs::create_dir(&bin).unwrap();
        let wrapper = format!(
            "#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n",
            dir.path().join("config").display()
        );
        fs::write(bin.join("ssh"), wrapper).unwrap();
        fs::set_permissions(bin.join("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
        Some(Lab { dir, hosts })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = bytepath(arguments);
        let path = std::env::var("PATH").unwrap();
        let bin = self.dir.path().join("bin");
        command.env("PATH", format!("{}:{path}", bin.display()));
        command.env("XDG_RUNTIME_DIR", self.dir.path());
        command
    }

    pub fn bytepath(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// A study of two short blocks, unless `options` override that.
    pub fn run(&self, out: &Path, options: &[&str]) -> Command {
        let mut all = vec!["run", "--path", "socket", "--cores", "unpinned"];
        all.extend(["--sender", "ssh://sender", "--receiver", "ssh://receiver"]);
        all.extend(["--profile", "none"]);
        for (name, usual) in
            [("--design", "trials"), ("--blocks", "2"), ("--window", "600ms"), ("--warm-up", "0")]
        {
            if !options.contains(&name) {
                all.extend([name, usual]);
            }
        }
        all.extend(options);
        let mut command = self.command(&all);
        command.arg("--study").arg(out).stderr(Stdio::piped());
        command
    }

    /// Checks that no agent, no journal and no socket is left.
    pub fn nothing_is_left(&self) {
        for host in &self.hosts {
            await_that("no agent runs", || host.place.agents().is_empty());
            assert!(!host.place.state.join("journal").exists(), "{}", host.place.name);
        }
        let sockets = self.dir.path().join("bytepath");
        await_that("no connection is left", || {
            fs::read_dir(&sockets).is_ok_and(|mut entries| entries.next().is_none())
        });
    }
}

impl Host {
    /// Starts an sshd in a place.
    fn new(dir: &Path, place: Place, address: &'static str) -> Host {
        let home = dir.join(format!("{}-home", place.name));
        fs::create_dir(&home).unwrap();
        let config = format!(
            "ListenAddress {address}\nHostKey {}\nAuthorizedKeysFile {}\nStrictModes no\n\
             PermitRootLogin yes\nPasswordAuthentication no\nUsePAM no\nPidFile none\n\
             SetEnv BYTEPATH_STATE={} HOME={home} \
             PATH={home}/bin:/usr/sbin:/usr/bin:/sbin:/bin\n",
            make_key(dir, &format!("{}-key", place.name)).display(),
            dir.join("key.pub").display(),
            place.state.display(),
            home = home.display(),
        );
        let config_file = dir.join(format!("{}-sshd", place.name));
        fs::write(&config_file, config).unwrap();
        // Hides the built programs from the receiver.
        let hide = match place.name.as_str() {
            "receiver" => format!(" && mount -t tmpfs tmpfs {}", folder_of_program()),
            _ => String::new(),
        };
        let prepared = place
            .command("sh")
            .arg("-c")
            .arg(format!("mount -t tmpfs tmpfs /run && mkdir -p /run/sshd{hide}"))
            .status()
            .unwrap();
        assert!(prepared.success());
        let log = home.join("sshd.log");
        let start =
            format!("exec /usr/sbin/sshd -D -f {} -E {}", config_file.display(), log.display());
        let sshd = listen(&place, &start, address);
        Host { place, home, address, sshd, start }
    }

    /// Processes that serve a connection to it, one each.
    pub fn sessions(&self) -> Vec<u32> {
        let children = format!("/proc/{0}/task/{0}/children", self.sshd.id());
        let all = fs::read_to_string(children).unwrap_or_default();
        all.split_whitespace().map(|pid| pid.parse().unwrap()).collect()
    }

    /// Number of connections ever made to it.
    fn logins(&self) -> usize {
        let log = fs::read_to_string(self.home.join("sshd.log")).unwrap();
        log.lines().filter(|line| line.starts_with("Accepted publickey")).count()
    }

    /// Cuts every connection to it.
    pub fn cut(&self) {
        let sessions = self.sessions();
        assert!(!sessions.is_empty(), "nothing is connected");
        sessions.into_iter().for_each(|pid| signal(pid, libc::SIGKILL));
    }

    /// Cuts its connections and accepts no more.
    pub fn stop(&mut self) {
        self.cut();
        self.sshd.kill().unwrap();
        self.sshd.wait().unwrap();
    }

    /// Accepts connections again.
    pub fn start_again(&mut self) {
        self.sshd = listen(&self.place, &self.start, self.address);
    }

    fn copies(&self) -> PathBuf {
        self.home.join(".cache/bytepath")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.sshd.kill();
        let _ = self.sshd.wait();
    }
}

fn listen(place: &Place, start: &str, address: &str) -> Child {
    let mut command = place.command("sh");
    let sshd = command.args(["-c", start]).spawn().unwrap();
    await_that("sshd listens", || TcpStream::connect((address, 22)).is_ok());
    sshd
}

/// A new key without a passphrase.
fn make_key(dir: &Path, name: &str) -> PathBuf {
    let file = dir.join(name);
    let mut make = Command::new("ssh-keygen");
    make.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&file);
    assert!(make.status().unwrap().success());
    file
}

fn folder_of_program() -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_bytepath"));
    program.parent().unwrap().display().to_string()
}

mod timing {
    use super::*;

    #[test]
    #[ignore = "timing"]
    fn a_trial_over_ssh_takes_little_longer() {
        isolated(module_path!(), "inside_a_trial_takes");
    }

    /// Median of the seconds from the start of one trial to that of the next.
    fn between_trials(out: &Path) -> f64 {
        let began: Vec<u64> = load(out).unwrap().trials.iter().map(|t| t.started_ms).collect();
        let mut all: Vec<u64> = began.windows(2).map(|pair| pair[1] - pair[0]).collect();
        all.sort_unstable();
        all[all.len() / 2] as f64 * 1e-3
    }

    #[test]
    #[ignore = "started in a namespace by a_trial_over_ssh_takes_little_longer"]
    fn inside_a_trial_takes() {
        let Some(lab) = Lab::new() else { return };
        let (far, near) = (lab.dir.path().join("far"), lab.dir.path().join("near"));
        // As in the default study.
        let times = ["--blocks", "5", "--window", "1500ms", "--warm-up", "1s"];
        let output = lab.run(&far, &times).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let mut run = bytepath(&["run", "--path", "socket", "--cores", "unpinned"]);
        run.args(["--design", "trials", "--profile", "none"]).args(times);
        let output = run.arg("--study").arg(&near).output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        let (far, near) = (between_trials(&far), between_trials(&near));
        println!("a trial takes {far:.3} s over ssh and {near:.3} s in the embedded testbed");
        assert!(far < 1.1 * near, "{far} and {near}");

        let begin = std::time::Instant::now();
        let output = lab.bytepath(&["restore", "--receiver", "ssh://receiver"]);
        let took = begin.elapsed().as_secs_f64();
        assert!(output.status.success(), "{}", text(&output));
        println!("connecting and an agent at each end: {took:.3} s");
        assert!(took < 2.0, "{took}");
    }
}
