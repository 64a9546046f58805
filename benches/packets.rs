//! The workload `packets` against DPDK's testpmd (a generator and a sink, by its drivers for packet
//! sockets, AF_XDP and taps) and against a plain generator and read loop, on the same CPUs,
//! interleaved in rotating order. Prints medians of frames sent and received, and the ratio of ours
//! to each with its interval.
//!
//! `cargo bench --bench packets`; needs nsenter and root, and dpdk-testpmd; if that is missing,
//! this is printed and it is left out. Rounds and window by BENCH_PAIRS and BENCH_WINDOW (seconds).

mod common;
#[path = "common/namespace.rs"]
mod namespace;
#[path = "plain/mod.rs"]
mod plain;

use anyhow::{Context, Result, bail, ensure};
use bytepath::record::{Cell, Role, Schedule};
use bytepath::stats::Effect;
use bytepath::study::OpenTestbed;
use namespace::{inside, within};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Seek};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Seconds of our stream before the window.
const WARM_UP: f64 = 0.5;

/// One of our cells, and its competitors.
struct Duel {
    link: &'static str,
    path: &'static str,
    peers: &'static [Peer],
}

struct Peer {
    name: &'static str,
    kind: Kind,
}

enum Kind {
    /// Virtual devices of testpmd's sender and receiver, with DEVICE for the network device.
    Testpmd { tx: &'static str, rx: &'static str },
    /// testpmd makes its own tap, so both of its ends are in the namespace of that.
    TestpmdTap { tx: &'static str },
    /// The small programs in `plain/frames.rs`.
    Plain,
}

const AF_PACKET: &str = "net_af_packet0,iface=DEVICE,qdisc_bypass=1";
const AF_XDP: &str = "net_af_xdp0,iface=DEVICE";

const DUELS: &[Duel] = &[
    Duel {
        link: "offload",
        // testpmd never sleeps.
        path: "packet-ring:bypass=on+packet-ring:wait=spin",
        peers: &[Peer {
            name: "testpmd af_packet",
            kind: Kind::Testpmd { tx: AF_PACKET, rx: AF_PACKET },
        }],
    },
    Duel {
        link: "offload",
        path: "af-xdp+af-xdp:wait=spin",
        peers: &[Peer { name: "testpmd af_xdp", kind: Kind::Testpmd { tx: AF_XDP, rx: AF_XDP } }],
    },
    Duel {
        link: "tap",
        path: "packet:bypass=on+tap",
        peers: &[
            Peer { name: "plain loops", kind: Kind::Plain },
            Peer { name: "testpmd af_packet, tap", kind: Kind::TestpmdTap { tx: AF_PACKET } },
        ],
    },
    Duel {
        link: "tap",
        path: "packet-ring:bypass=on+tap",
        peers: &[Peer { name: "testpmd af_packet, tap", kind: Kind::TestpmdTap { tx: AF_PACKET } }],
    },
];

/// Frames per second.
#[derive(Clone, Copy)]
struct Run {
    sent: Option<f64>,
    received: f64,
}

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    if let Some(played) = plain::played(&asked) {
        return played;
    }
    let rounds = common::number("BENCH_PAIRS", 7.0)? as usize;
    let window = common::number("BENCH_WINDOW", 3.0)?.ceil();
    println!("bytepath packets and peers, 60 B frames, {rounds} rounds, {window} s windows");
    println!(
        "{:<8} {:<36} {:>10} {:>14}  ratio of bytepath's received to it, 95 % interval",
        "link", "program", "sent Kpps", "received Kpps"
    );
    for duel in DUELS {
        duel.fight(rounds, window).with_context(|| format!("{} on {}", duel.path, duel.link))?;
    }
    Ok(())
}

impl Duel {
    fn fight(&self, rounds: usize, window: f64) -> Result<()> {
        let (there, missing): (Vec<&Peer>, Vec<&Peer>) =
            self.peers.iter().partition(|peer| peer.is_there());
        missing.iter().for_each(|peer| println!("{:<8} {} is not installed", self.link, peer.name));
        let stop = AtomicBool::new(false);
        let laboratory = common::laboratory(&stop);
        let (cells, _) = common::cells_of(&[self.path], "packets", "", self.link)?;
        let cell = cells.iter().find(|cell| !cell.null).context("no cell")?;
        let mut runs = vec![Vec::new(); there.len() + 1];
        for round in 0..rounds {
            for turn in 0..runs.len() {
                let whose = (round + turn) % runs.len();
                // New namespaces for each run: the kernel frees the queue of an AF_XDP socket some
                // time after its program has ended.
                let mut stand = OpenTestbed::raise(&laboratory, cell)?;
                runs[whose].push(match whose.checked_sub(1) {
                    None => own(&mut stand, cell, window)?,
                    Some(peer) => there[peer].run(&stand, cell, window)?,
                });
            }
        }
        let (ours, theirs) = runs.split_first().context("no runs")?;
        println!("{:<8} {}", self.link, line(&format!("bytepath {}", self.path), ours));
        for (peer, runs) in there.iter().zip(theirs) {
            let pairs: Vec<_> =
                runs.iter().zip(ours).map(|(peer, own)| (peer.received, own.received)).collect();
            let effect = Effect::of(&pairs, 0.95).context("no ratio")?;
            let within = effect.interval.as_ref().context("too few rounds")?;
            let differs = if (within.low..=within.high).contains(&1.0) { "" } else { "*" };
            let ratio =
                format!("{:.3}{differs} [{:.3}, {:.3}]", effect.ratio, within.low, within.high);
            println!("{:<8} {}  {ratio}", self.link, line(peer.name, runs));
        }
        Ok(())
    }
}

/// Medians of a program's runs.
fn line(name: &str, runs: &[Run]) -> String {
    let middle = |of: fn(&Run) -> Option<f64>| {
        let mut all: Vec<f64> = runs.iter().filter_map(of).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).map_or("-".to_owned(), |rate| format!("{:.0}", rate / 1e3))
    };
    let (sent, received) = (middle(|run| run.sent), middle(|run| Some(run.received)));
    format!("{name:<36} {sent:>10} {received:>14}")
}

/// Runs one trial of ours. The frames sent are counted over the whole trial, and scaled to the
/// window's rate.
fn own(stand: &mut OpenTestbed, cell: &Cell, window: f64) -> Result<Run> {
    let trial = stand.run(cell, &[], &Schedule::trials(1, WARM_UP, window), None)?;
    let received = trial.rate().context("the trial has no rate")?;
    let hops = trial.hops.context("the trial has no hops")?;
    Ok(Run { sent: Some(received * hops.generated() as f64 / hops.received as f64), received })
}

impl Peer {
    fn is_there(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        matches!(self.kind, Kind::Plain)
            || std::env::split_paths(&path).any(|folder| folder.join("dpdk-testpmd").exists())
    }

    fn run(&self, stand: &OpenTestbed, cell: &Cell, window: f64) -> Result<Run> {
        use Role::{Receiver, Sender};
        match self.kind {
            Kind::Plain => plain_pair(stand, cell, window),
            Kind::Testpmd { tx, rx } => {
                let devices = [device(stand, Sender)?, device(stand, Receiver)?];
                let sink = Testpmd::start(stand, cell, Receiver, Receiver, rx, &devices[1])?;
                let source = Testpmd::start(stand, cell, Sender, Sender, tx, &devices[0])?;
                over(source, sink, window)
            }
            Kind::TestpmdTap { tx } => {
                let tap = "dtap0";
                let vdev = "net_tap0,iface=DEVICE";
                let sink = Testpmd::start(stand, cell, Receiver, Receiver, vdev, tap)?;
                let source = Testpmd::start(stand, cell, Receiver, Sender, tx, tap)?;
                over(source, sink, window)
            }
        }
    }
}

/// Measures the rates of a pair over a window.
fn over(source: Testpmd, sink: Testpmd, window: f64) -> Result<Run> {
    // The warm-up, and one more second at either end: the seconds in between count.
    std::thread::sleep(Duration::from_secs_f64(WARM_UP + window + 2.0));
    let (sent, received) = (source.end("Tx-pps")?, sink.end("Rx-pps")?);
    Ok(Run { sent: Some(sent), received })
}

/// A forwarding testpmd, which prints its rates every second into a file.
struct Testpmd {
    process: Process,
    output: File,
}

impl Testpmd {
    /// Starts one end in the namespace of one role, on the CPU of another, and waits until it
    /// forwards. Its main thread, which only prints, has the other CPU.
    fn start(
        stand: &OpenTestbed,
        cell: &Cell,
        place: Role,
        role: Role,
        vdev: &str,
        device: &str,
    ) -> Result<Testpmd> {
        let cpu = |role| cell.placement.cpu(role).context("no CPU");
        let (own, other) = match role {
            Role::Sender => (cpu(Role::Sender)?, cpu(Role::Receiver)?),
            Role::Receiver => (cpu(Role::Receiver)?, cpu(Role::Sender)?),
        };
        let mut output = tempfile::tempfile()?;
        let mode = if role == Role::Sender { "txonly" } else { "rxonly" };
        let mut command = within(stand, place);
        command.args(["dpdk-testpmd", "--no-huge", "-m", "256", "--no-pci", "--file-prefix", mode]);
        command.args(["-l", &format!("{own},{other}"), "--main-lcore", &other.to_string()]);
        command.arg(format!("--vdev={}", vdev.replace("DEVICE", device)));
        command.args(["--", "--forward-mode", mode, "--txpkts=60", "--total-num-mbufs=16384"]);
        command.args(["--stats-period", "1", "--nb-cores=1", "-a"]);
        command.stdin(Stdio::null()).stdout(output.try_clone()?).stderr(output.try_clone()?);
        let process = Process(command.spawn().context("cannot start dpdk-testpmd")?);
        for _ in 0..100 {
            if text(&mut output)?.contains("Port statistics") {
                return Ok(Testpmd { process, output });
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        bail!("dpdk-testpmd does not start: {}", text(&mut output)?)
    }

    /// Ends it. Returns the mean rate of all non-zero seconds but the first and the last.
    fn end(mut self, rate: &str) -> Result<f64> {
        kill_process(Pid::from_child(&self.process.0), Signal::INT)?;
        ensure!(
            self.process.0.wait()?.success(),
            "dpdk-testpmd failed: {}",
            text(&mut self.output)?
        );
        let output = text(&mut self.output)?;
        let values = output.lines().filter_map(|line| {
            let (name, rest) = line.trim().split_once(':')?;
            (name == rate).then(|| rest.split_whitespace().next()?.parse::<f64>().ok()).flatten()
        });
        let values: Vec<f64> = values.filter(|value| *value > 0.0).collect();
        let [_, inner @ .., _] = values.as_slice() else { bail!("no {rate}: {output}") };
        ensure!(!inner.is_empty(), "too few seconds of {rate}: {output}");
        Ok(inner.iter().sum::<f64>() / inner.len() as f64)
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut text = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The network device in the namespace of a role.
fn device(stand: &OpenTestbed, role: Role) -> Result<String> {
    let devices = std::fs::read_to_string(format!("/proc/{}/net/dev", stand.pid(role)))?;
    let mut names = devices.lines().filter_map(|line| Some(line.split_once(':')?.0.trim()));
    Ok(names.find(|name| *name != "lo").context("no device")?.to_owned())
}

fn plain_pair(stand: &OpenTestbed, cell: &Cell, window: f64) -> Result<Run> {
    let end = |role| -> Result<Command> {
        let mut command = inside(stand, cell, role);
        command.arg(std::env::current_exe()?).arg(plain::PLAIN);
        Ok(command)
    };
    let process = stand.pid(Role::Sender).to_string();
    let seconds = [WARM_UP, window].map(|seconds| seconds.to_string());
    let mut sink = end(Role::Receiver)?;
    sink.args(["take", "plain0", &process, &seconds[0], &seconds[1]]).stdout(Stdio::piped());
    let mut sink = Process(sink.spawn().context("cannot start the reader")?);
    let mut lines = BufReader::new(sink.0.stdout.take().context("no output")?).lines();
    let device = lines.next().context("the reader ended")??;
    let mut source = end(Role::Sender)?;
    let _source = Process(source.args(["generate", &device]).spawn()?);
    let result = lines.next().context("the reader ended without a result")??;
    let (frames, seconds) = result.split_once(' ').context("two numbers")?;
    Ok(Run { sent: None, received: frames.parse::<f64>()? / seconds.parse::<f64>()? })
}

/// A process that does not outlive its parent.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
