//! The embedded testbed in real namespaces, as root and as an ordinary user.
//!
//! The agents here are the double, which executes one small command per line of its standard input
//! and prints one answer. Neither `ip`, `lsns` nor `ethtool` is needed.

use crate::isolated::isolated;
use bytepath::host::{AgentPipe, link_end, steer_link};
use bytepath::record::wire::LinkEnd;
use bytepath::record::{Fault, FaultKind, LinkSettings, Role};
use bytepath::sys::ethtool::Channels;
use bytepath::sys::namespace::Sysfs;
use bytepath::sys::netlink::{Netlink, Veth};
use bytepath::testbed::{self, Deployment, Site};
use bytepath_testing::{DOUBLE, double, run_copied, skip};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const MIB: u64 = 1 << 20;

#[test]
fn traffic_crosses_and_is_cut_as_on_a_wire() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    for mtu in [1500, 4148, 9000] {
        let settings = LinkSettings { mtu, ..wire_like() };
        bed.link(&settings).unwrap();
        let seen = bed.transfer(16 * MIB);
        // 14 bytes of Ethernet header; the pure acknowledgements of the
        // handshake make the mean a little smaller.
        let (mean, limit) = (seen.bytes / seen.packets, u64::from(mtu) + 14);
        assert!(mean <= limit && mean > limit * 8 / 10, "MTU {mtu}: {seen:?}");

        bed.link(&LinkSettings { tso: true, ..settings }).unwrap();
        let seen = bed.transfer(16 * MIB);
        let mean = seen.bytes / seen.packets;
        assert!(mean > 2 * limit, "MTU {mtu} with TSO: {seen:?}");
    }
}

#[test]
fn gro_puts_packets_together_only_when_it_is_on() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    bed.link(&LinkSettings { mtu: 1500, ..wire_like() }).unwrap();
    let on = bed.transfer(32 * MIB);
    bed.link(&LinkSettings { mtu: 1500, gro: false, ..wire_like() }).unwrap();
    let off = bed.transfer(32 * MIB);
    assert!(off.to_ip >= off.packets - 10, "off: {off:?}");
    assert!(on.to_ip < on.packets / 2, "on: {on:?}");
}

#[test]
fn settings_are_in_force_at_both_ends() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    let settings = LinkSettings {
        gso_max: Some(185_000),
        gro_max: Some(185_000),
        qdisc: "pfifo".into(),
        threaded_napi: true,
        ..wire_like()
    };
    bed.link(&settings).unwrap();
    for (role, device) in [(Role::Sender, "byte0"), (Role::Receiver, "byte1")] {
        let link = bed.ask(role, &format!("device {device}"));
        for part in ["up: true", "operational: true", "mtu: 4148", "gso_ipv4: Some(185000)"] {
            assert!(link.contains(part), "{role}: no {part} in {link}");
        }
        assert!(link.contains("gro_ipv4: Some(185000)"), "{role}: {link}");
        assert!(link.contains("\"rx-gro\""), "{role}: {link}");
        assert!(link.contains("\"tx-generic-segmentation\""), "{role}: {link}");
        assert!(!link.contains("\"tx-tcp"), "{role}: {link}");
    }
    assert!(bed.ask(Role::Receiver, "device byte1").contains("thread: Some("));
    assert!(!bed.ask(Role::Sender, "device byte0").contains("thread: Some("));
    bed.transfer(MIB);
    // The next cell starts from a clean device.
    bed.link(&LinkSettings { tso: true, gro: false, ..wire_like() }).unwrap();
    let link = bed.ask(Role::Receiver, "device byte1");
    assert!(link.contains("gso: Some(65536)") && !link.contains("thread: Some("), "{link}");
    assert!(link.contains("\"tx-tcp-segmentation\"") && !link.contains("\"rx-gro\""), "{link}");
}

#[test]
fn the_receiving_cpu_is_root_s_to_choose_and_a_note_otherwise() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    let threaded = LinkSettings { threaded_napi: true, ..wire_like() };
    let notes = bed.link_on(&threaded, Some(0)).unwrap();
    assert_eq!(notes.is_empty(), is_root(), "{notes:?}");
    let rps = LinkSettings { rps: Some(0), ..wire_like() };
    match bed.link_on(&rps, None) {
        Ok(_) => assert!(is_root()),
        Err(fault) => {
            assert!(!is_root(), "{fault}");
            assert_eq!(fault.kind, FaultKind::Permission, "{fault}");
            assert!(fault.remedy.is_some(), "{fault}");
        }
    }
}

#[test]
fn queues_that_a_device_gets_later_are_steered_too() {
    isolated(module_path!(), "inside_a_device_gets_more_queues");
}

#[test]
#[ignore = "started in namespaces by queues_that_a_device_gets_later_are_steered_too"]
fn inside_a_device_gets_more_queues() {
    let mut netlink = Netlink::new();
    let [name, peer] = ["byte0", "byte1"].map(String::from);
    netlink.create_veth(&Veth { name, peer, peer_process: None, mtu: None, queues: 4 }).unwrap();
    let [near, far] = ["byte0", "byte1"].map(|name| netlink.link(name).unwrap().unwrap().index);
    let mut give = |rx| {
        let channels = Channels { rx: Some(rx), ..Channels::default() };
        netlink.set_channels(near, &channels).unwrap();
    };
    give(2);
    Netlink::new().set_up(near).unwrap();
    Netlink::new().set_up(far).unwrap();
    let settings = LinkSettings { rps: Some(0), threaded_napi: false, ..wire_like() };
    let plain = LinkEnd::plain("byte0", "198.18.0.2".parse().unwrap(), 30);
    let end = LinkEnd { second: true, settings, ..plain };
    link_end(&end).unwrap();
    let sysfs = Sysfs::open().unwrap();
    let masks = || {
        let mask = |queue| sysfs.read(&format!("class/net/byte0/queues/rx-{queue}/rps_cpus")).ok();
        [0, 1, 2, 3].map(|queue| mask(queue).map(|mask| mask.trim_start_matches(['0', ',']) == "1"))
    };
    assert_eq!(masks(), [Some(true), Some(true), None, None]);
    give(4);
    assert_eq!(masks(), [Some(true), Some(true), Some(false), Some(false)]);
    steer_link(&end).unwrap();
    assert_eq!(masks(), [Some(true); 4]);
}

#[test]
fn sets_the_requested_qdisc() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    // `apply` itself reads the settings back: a missing qdisc would be a fault.
    for qdisc in ["pfifo", "none"] {
        bed.link(&LinkSettings { qdisc: qdisc.into(), ..wire_like() }).unwrap();
    }
}

#[test]
fn refused_settings_are_faults_that_name_them() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    for mtu in [0, 67, 65_536] {
        let fault = bed.link(&LinkSettings { mtu, ..wire_like() }).unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage, "{fault}");
        assert!(fault.message.contains(&format!("MTU {mtu}")), "{fault}");
    }
    let huge = LinkSettings { gso_max: Some(600_000), ..wire_like() };
    let fault = bed.link(&huge).unwrap_err();
    assert!(fault.kind == FaultKind::Usage && fault.message.contains("600000"), "{fault}");
    let idle = LinkSettings { threaded_napi: true, gro: false, ..wire_like() };
    let fault = bed.link(&idle).unwrap_err();
    assert!(fault.kind == FaultKind::Usage && fault.message.contains("GRO"), "{fault}");
    // None of these damaged the testbed.
    bed.link(&wire_like()).unwrap();
    bed.transfer(MIB);
}

#[test]
fn taking_it_down_leaves_nothing() {
    if unavailable() {
        return;
    }
    let mut bed = Bed::raise();
    bed.link(&wire_like()).unwrap();
    let agents = bed.agents();
    assert_eq!(agents.iter().filter(|agent| is_namespace_used(&agent.namespace)).count(), 2);
    let outside = std::fs::read_to_string("/proc/net/dev").unwrap();
    assert!(!outside.contains("byte0") && !outside.contains("byte1"), "{outside}");
    drop(bed);
    for agent in agents {
        assert!(!Path::new(&format!("/proc/{}", agent.pid)).exists(), "{agent:?} lives");
        assert!(!is_namespace_used(&agent.namespace), "{agent:?} has left a process");
    }
}

#[test]
fn a_killed_agent_takes_its_end_of_the_link_with_it() {
    if unavailable() {
        return;
    }
    for (victim, device) in [(Role::Sender, "byte1"), (Role::Receiver, "byte0")] {
        let mut bed = Bed::raise();
        bed.link(&wire_like()).unwrap();
        let pid: i32 = bed.ask(victim, "pid").parse().unwrap();
        kill(pid);
        let ended = || bed.raised.host(victim).exit_report() != "still running";
        wait_until("the agent has ended", ended);
        assert_eq!(bed.raised.host(victim).exit_report(), "killed by signal 9 (SIGKILL)");
        // The survivor's device vanishes when the kernel has freed the namespace.
        let gone = || bed.ask(victim.peer(), &format!("device {device}")) == "none";
        wait_until("the peer's namespace is freed", gone);
    }
}

#[test]
fn a_killed_controller_leaves_nothing() {
    if unavailable() {
        return;
    }
    let mut controller = Command::new(double());
    controller.arg("controller").env(DOUBLE, double());
    let mut child = controller.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap());
    let agents = [(); 2].map(|()| Agent::parse(&answer(&mut answers)));
    assert!(agents.iter().all(|agent| is_namespace_used(&agent.namespace)), "{agents:?}");
    kill(child.id() as i32);
    child.wait().unwrap();
    let gone = || agents.iter().all(|agent| !is_namespace_used(&agent.namespace));
    wait_until("the agents are gone", gone);
}

#[test]
fn it_may_be_raised_from_a_thread_that_ends() {
    if unavailable() {
        return;
    }
    let mut bed = std::thread::spawn(Bed::raise).join().unwrap();
    bed.link(&wire_like()).unwrap();
    bed.transfer(MIB);
}

/// As root, runs all of the above again without any privileges. As an ordinary user, that has been
/// done already.
#[test]
fn an_ordinary_user_can_do_all_this() {
    if !is_root() {
        return skip!("already an ordinary user, see the other tests");
    }
    // A copy, because other users may not be able to reach a home directory.
    let dir = tempfile::tempdir().unwrap();
    let binary = dir.path().join("testbed-tests");
    std::fs::copy(std::env::current_exe().unwrap(), &binary).unwrap();
    let agent = dir.path().join("double");
    std::fs::copy(double(), &agent).unwrap();
    for path in [dir.path(), &binary, &agent] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    let (nobody, anyone) = (65_534, 65_534);
    let mut command = Command::new(&binary);
    command.args(["testbed::", "--skip", "an_ordinary_user", "--test-threads", "1", "--nocapture"]);
    command.env(DOUBLE, &agent);
    command.uid(nobody).gid(anyone).current_dir("/");
    let output = run_copied(&mut command).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success());
}

/// Whether the host forbids the namespaces that these tests need; then the refusal must be one that
/// a user can act on. A user with the privileges must always get them.
pub fn unavailable() -> bool {
    let support = testbed::CATALOG[0].probe();
    if let bytepath::record::Support::No { reason, remedy } = &support {
        assert!(!bytepath::sys::namespace::privileged(), "{reason}");
        assert!(!reason.is_empty() && !remedy.is_empty());
        skip!("{reason} ({remedy})");
    }
    !support.is_yes()
}

/// An agent's role, its standard input and its standard output.
type Pipe = (Role, Box<dyn Write + Send>, BufReader<Box<dyn Read + Send>>);

/// A testbed with the agents' pipes.
struct Bed {
    pipes: [Pipe; 2],
    raised: Deployment,
}

/// What the receiver's device and IP layer counted during a transfer.
#[derive(Debug)]
struct Seen {
    packets: u64,
    bytes: u64,
    to_ip: u64,
}

impl Bed {
    fn raise() -> Bed {
        let mut raised = testbed::CATALOG[0].raise(&Site::of(&double())).unwrap();
        let pipes = Role::ALL.map(|role| {
            let AgentPipe { to_agent, from_agent } = raised.host(role).take_pipe();
            (role, to_agent, BufReader::new(from_agent))
        });
        Bed { pipes, raised }
    }

    fn ask(&mut self, role: Role, question: &str) -> String {
        let (_, to, from) = self.pipes.iter_mut().find(|pipe| pipe.0 == role).unwrap();
        writeln!(to, "{question}").unwrap();
        to.flush().unwrap();
        answer(from)
    }

    fn link(&mut self, settings: &LinkSettings) -> Result<Vec<String>, Fault> {
        self.link_on(settings, None)
    }

    /// Sets up both ends; returns the optional requests that failed.
    fn link_on(&mut self, settings: &LinkSettings, cpu: Option<u32>) -> Result<Vec<String>, Fault> {
        let mut notes = Vec::new();
        for role in Role::ALL {
            for end in self.raised.host(role).attachment().ends(settings, |_| cpu) {
                let end = LinkEnd { second: role == Role::Receiver, ..end };
                let end = serde_json::to_string(&end).unwrap();
                let answer = self.ask(role, &format!("link {end}"));
                notes.extend(serde_json::from_str::<Result<Vec<String>, Fault>>(&answer).unwrap()?);
            }
        }
        Ok(notes)
    }

    /// Sends bytes over TCP, and checks that the receiver got as many.
    fn transfer(&mut self, bytes: u64) -> Seen {
        let count = |bed: &mut Bed| -> Vec<u64> {
            let text = bed.ask(Role::Receiver, "counters byte1");
            text.split(' ').map(|word| word.parse().unwrap()).collect()
        };
        let before = count(self);
        let address = self.raised.host(Role::Receiver).attachment().address().unwrap();
        let port = self.ask(Role::Receiver, &format!("listen {address}"));
        self.ask(Role::Sender, &format!("send {address}:{port} {bytes}"));
        assert_eq!(self.ask(Role::Receiver, "received"), bytes.to_string());
        let after = count(self);
        let of = |i: usize| after[i] - before[i];
        Seen { packets: of(0), bytes: of(1), to_ip: of(2) }
    }

    fn agents(&mut self) -> Vec<Agent> {
        Role::ALL.map(|role| Agent::parse(&self.ask(role, "who"))).into()
    }
}

/// Process id and network namespace of an agent.
#[derive(Debug)]
struct Agent {
    pid: u32,
    namespace: PathBuf,
}

impl Agent {
    fn parse(text: &str) -> Agent {
        let (pid, namespace) = text.split_once('/').unwrap();
        Agent { pid: pid.parse().unwrap(), namespace: namespace.into() }
    }
}

/// Whether any process that is visible to us lives in a network namespace.
fn is_namespace_used(namespace: &Path) -> bool {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let mut links = processes.filter_map(|p| std::fs::read_link(p.path().join("ns/net")).ok());
    links.any(|link| link == namespace)
}

fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(10), "never happened: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
    println!("{what} after {:?}", start.elapsed());
}

fn wire_like() -> LinkSettings {
    LinkSettings { threaded_napi: false, ..LinkSettings::default() }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

fn kill(pid: i32) {
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
}

/// The next answer.
fn answer(from: &mut impl BufRead) -> String {
    let mut line = String::new();
    assert!(from.read_line(&mut line).unwrap() > 0, "the agent is gone");
    line.trim_end().to_string()
}

/// Tests that need a quiet machine: `make timing`.
mod timing {
    use super::*;

    #[test]
    #[ignore = "timing"]
    fn up_and_down_quickly() {
        if unavailable() {
            return;
        }
        let mut times = Vec::new();
        for _ in 0..5 {
            let start = Instant::now();
            let mut bed = Bed::raise();
            bed.link(&wire_like()).unwrap();
            let up = start.elapsed();
            drop(bed);
            times.push((start.elapsed(), up));
        }
        times.sort();
        let (both, up) = times[times.len() / 2];
        println!("testbed up in {up:?}, up and down in {both:?} (median of {})", times.len());
        let mut bed = Bed::raise();
        bed.link(&wire_like()).unwrap();
        let start = Instant::now();
        bed.link(&wire_like()).unwrap();
        println!("link made again in {:?}", start.elapsed());
        assert!(both < Duration::from_secs(2), "{times:?}");
    }
}
