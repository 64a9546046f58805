//! bytepath against other programs, each where it runs best: iperf3 of the distribution,
//! another iperf3 if one is named, and neper, pinned and not, with and without GRO on the
//! receiver's device, with sizes of their own.
//!
//! `cargo bench --bench peers [-- LINK ...]`; needs root and nsenter, and at least one of
//! `iperf3` and `tcp_stream` (neper) on the PATH; BENCH_IPERF3 names another iperf3. On
//! each link a first pass tries every way to run each program, BENCH_SCREEN times; what
//! was best there then runs beside bytepath in BENCH_BLOCKS blocks of random order, of
//! whose figures alone the table is made: so no program profits from having been lucky
//! when it was chosen. Windows are of BENCH_WINDOW seconds (whole ones), after one second
//! that does not count.

mod common;
#[path = "common/iperf3.rs"]
mod iperf3;
#[path = "common/namespace.rs"]
mod namespace;

use anyhow::{Context, Result, ensure};
use bytepath::math::{Moments, Random, holm};
use bytepath::record::{Cell, Placement, Role, Schedule};
use bytepath::run::Stand;
use bytepath::stats::{DEFAULT_MARGIN, Effect};
use bytepath::sys::netstat;
use iperf3::Server;
use namespace::inside;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// With offloads, wire-like, and BIG TCP.
const LINKS: &[&str] = &[
    "offload:mtu=1500",
    "offload:mtu=4148",
    "offload:mtu=9000",
    "wire:mtu=1500",
    "wire:mtu=4148",
    "wire:mtu=9000",
    "big-tcp",
];

/// Paths of ours that run on every link.
const PATHS: &[&str] = &["socket", "splice"];

const CONFIDENCE: f64 = 0.95;

const CONGESTION: &str = "cubic";

/// The default of the namespaces for congestion control. iperf3 and neper set theirs
/// when they have connected, and where the default paces (bbr), so does the flow from then on, whatever
/// it is set to (`sk_pacing_status`): its segments then leave from a timer, too, on
/// another CPU, and overtake each other (docs/journal/0010-overtaking.md). reno does not
/// pace, and any namespace may have it.
/// BENCH_DEFAULT names another.
const DEFAULT_CONGESTION: &str = "reno";

/// Another program, and what its own options offer.
struct Peer {
    name: String,
    program: PathBuf,
    kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Iperf3,
    Neper,
}

/// A way to run a program.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Way {
    /// On the link as it is named, or without GRO.
    gro: bool,
    /// On one CPU per end, or where the scheduler puts it.
    pinned: bool,
    options: &'static [&'static str],
}

/// What takes part in the blocks of a link.
enum Contestant<'a> {
    Ours { path: &'static str, gro: bool },
    Theirs { peer: &'a Peer, way: Way },
}

/// What one run came to.
struct Run {
    rate: f64,
    retransmitted: f64,
    out_of_order: f64,
}

/// The namespaces of a link, as it is named and without GRO.
struct Stands<'a>([Stand<'a>; 2]);

fn main() -> Result<()> {
    let asked: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    let links: Vec<&str> = match asked.as_slice() {
        [] => LINKS.to_vec(),
        some => some.iter().map(String::as_str).collect(),
    };
    let screens = common::number("BENCH_SCREEN", 1.0)? as usize;
    let blocks = common::number("BENCH_BLOCKS", 10.0)? as usize;
    let window = common::number("BENCH_WINDOW", 1.0)?.ceil();
    let peers = peers()?;
    println!("{blocks} blocks in random order, windows of {window} s; GRO as the link has it");
    println!("unless said; retransmitted and out-of-order segments per GiB");
    println!(
        "\n{:<49} {:>6} {:>5} {:>7} {:>7}  socket over it",
        "link", "Gbit/s", "sd", "retrans", "o.o.o."
    );
    let mut effects = Vec::new();
    for link in links {
        let found = compare(link, &peers, [screens, blocks], window);
        effects.extend(found.with_context(|| format!("link {link}"))?);
    }
    conclude(&effects);
    Ok(())
}

/// Programs that are here; one that is not is named.
fn peers() -> Result<Vec<Peer>> {
    let mut peers = Vec::new();
    let on_path = |name: &str| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.exists())
    };
    let iperf3s = [on_path("iperf3"), std::env::var_os("BENCH_IPERF3").map(PathBuf::from)];
    for program in iperf3s.into_iter().flatten() {
        let said = Command::new(&program).arg("--version").output();
        let said = said.with_context(|| program.display().to_string())?.stdout;
        let version = String::from_utf8_lossy(&said);
        let version = version.split_whitespace().nth(1).unwrap_or("?");
        peers.push(Peer { name: format!("iperf3 {version}"), program, kind: Kind::Iperf3 });
    }
    match on_path("tcp_stream") {
        Some(program) => peers.push(Peer { name: "neper".into(), program, kind: Kind::Neper }),
        None => println!("no tcp_stream (neper) on the PATH: left out"),
    }
    ensure!(!peers.is_empty(), "no iperf3 and no tcp_stream on the PATH");
    Ok(peers)
}

/// Prints a link's rows; the effects of `socket` over each contestant, with its words.
fn compare(
    link: &str,
    peers: &[Peer],
    [screens, blocks]: [usize; 2],
    window: f64,
) -> Result<Vec<(String, Effect)>> {
    let stop = AtomicBool::new(false);
    let laboratory = common::laboratory(&stop);
    let stream = format!("congestion={CONGESTION}");
    let (cells, _) = common::cells(PATHS, &stream, link)?;
    let plain =
        format!("{link}{}gro=off,threaded-napi=off", if link.contains(':') { ',' } else { ':' });
    let (without, _) = common::cells(PATHS, &stream, &plain)?;
    let raised = [Stand::raise(&laboratory, &cells[0])?, Stand::raise(&laboratory, &without[0])?];
    let mut stands = Stands(raised);
    stands.pace_nothing(&cells[0])?;
    let mut random = Random::new(u64::from(std::process::id()));

    let mut tried: Vec<(&Peer, Way, Moments)> = Vec::new();
    for peer in peers {
        tried.extend(peer.ways().map(|way| (peer, way, Moments::default())));
    }
    for round in 0..screens {
        eprintln!("{link}: {} ways to run peers, pass {} of {screens}", tried.len(), round + 1);
        random.shuffle(&mut tried);
        for (peer, way, rates) in &mut tried {
            rates.add(stands.theirs(peer, *way, &cells[0], 1.0)?.rate);
        }
    }
    let best = |kind: Kind, anywhere: bool| {
        let of = tried.iter().filter(|(peer, way, _)| peer.kind == kind && (anywhere || way.gro));
        of.max_by(|a, b| a.2.mean().total_cmp(&b.2.mean())).map(|(peer, way, _)| (*peer, *way))
    };
    let mut contestants: Vec<Contestant> =
        PATHS.iter().map(|path| Contestant::Ours { path, gro: true }).collect();
    contestants.push(Contestant::Ours { path: "socket", gro: false });
    for kind in [Kind::Iperf3, Kind::Neper] {
        let (same, any) = (best(kind, false), best(kind, true));
        let differs = any.filter(|any| Some(any.1) != same.map(|same| same.1));
        let both = same.into_iter().chain(differs);
        contestants.extend(both.map(|(peer, way)| Contestant::Theirs { peer, way }));
    }

    let mut runs: Vec<Vec<Run>> = contestants.iter().map(|_| Vec::new()).collect();
    let schedule = Schedule::trials(1, 1.0, window);
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    for block in 0..blocks {
        eprintln!("{link}: block {} of {blocks}", block + 1);
        random.shuffle(&mut order);
        for at in &order {
            runs[*at].push(match &contestants[*at] {
                Contestant::Ours { path, gro } => {
                    let cells = if *gro { &cells } else { &without };
                    let cell = cells.iter().find(|cell| !cell.null && cell.tx.path == *path);
                    stands.ours(*gro, cell.context("no cell")?, &schedule)?
                }
                Contestant::Theirs { peer, way } => stands.theirs(peer, *way, &cells[0], window)?,
            });
        }
    }
    println!("{link}");
    let mut effects = Vec::new();
    for (contestant, theirs) in contestants.iter().zip(&runs) {
        let pairs: Vec<_> = theirs.iter().zip(&runs[0]).map(|(a, b)| (a.rate, b.rate)).collect();
        let effect = Effect::of(&pairs, CONFIDENCE).context("no pairs")?;
        let mean = |of: fn(&Run) -> f64| theirs.iter().map(of).collect::<Moments>();
        let rates = mean(|run| run.rate * 8e-9);
        let (name, is_first) = (contestant.name(), effects.is_empty());
        let ratio = if is_first { String::new() } else { interval(&effect) };
        println!(
            "  {name:<47} {:>6.1} {:>4.1}% {:>7.0} {:>7.0}  {ratio}",
            rates.mean(),
            rates.stddev().unwrap_or(0.0) / rates.mean() * 100.0,
            mean(|run| run.retransmitted).mean(),
            mean(|run| run.out_of_order).mean(),
        );
        effects.push((format!("{link}: socket against {name}"), effect));
    }
    effects.remove(0);
    Ok(effects)
}

/// The words, under Holm's rule over the whole table.
fn conclude(effects: &[(String, Effect)]) {
    let margin = DEFAULT_MARGIN.ln_1p();
    let of = |p: &dyn Fn(&Effect) -> Option<f64>| {
        let ps: Vec<f64> = effects.iter().map(|(_, e)| p(e).unwrap_or(1.0)).collect();
        holm(&ps, CONFIDENCE)
    };
    let different = of(&|effect| effect.estimate().p_different());
    let equal = of(&|effect| effect.estimate().p_equivalent(margin));
    println!("\nAmong all of these, at {:.0}% confidence together:", CONFIDENCE * 100.0);
    for ((name, effect), (different, equal)) in effects.iter().zip(different.iter().zip(&equal)) {
        let word = match effect.ratio > 1.0 {
            _ if equal.adjusted <= 1.0 - CONFIDENCE => "EQUIVALENT",
            _ if different.adjusted > 1.0 - CONFIDENCE => "INCONCLUSIVE",
            true => "FASTER",
            false => "SLOWER",
        };
        println!("  {name}: {word} {}", interval(effect));
    }
}

fn interval(effect: &Effect) -> String {
    match effect.interval {
        Some(interval) => {
            format!("{:.2}x [{:.2}, {:.2}]", effect.ratio, interval.low, interval.high)
        }
        None => format!("{:.2}x", effect.ratio),
    }
}

impl Contestant<'_> {
    fn name(&self) -> String {
        let gro = |gro: bool| if gro { "" } else { ", GRO off" };
        match self {
            Contestant::Ours { path, gro: with } => format!("{path}, pinned{}", gro(*with)),
            Contestant::Theirs { peer, way } => {
                let pinned = if way.pinned { "pinned" } else { "not pinned" };
                let options = way.options.join(" ");
                let options = if options.is_empty() { "default" } else { &options };
                format!("{} {options}, {pinned}{}", peer.name, gro(way.gro))
            }
        }
    }
}

impl Peer {
    fn ways(&self) -> impl Iterator<Item = Way> {
        let sizes: &'static [&'static [&'static str]] = match self.kind {
            Kind::Iperf3 => &[&[], &["-l", "1M"], &["-Z", "-l", "1M"]],
            Kind::Neper => &[&[], &["-B", "131072"], &["-B", "1048576"]],
        };
        [true, false].into_iter().flat_map(move |gro| {
            [true, false].into_iter().flat_map(move |pinned| {
                sizes.iter().map(move |options| Way { gro, pinned, options })
            })
        })
    }
}

impl Stands<'_> {
    /// Sets [`DEFAULT_CONGESTION`] in all namespaces, which end with the bench.
    fn pace_nothing(&self, cell: &Cell) -> Result<()> {
        let name = std::env::var("BENCH_DEFAULT").unwrap_or_else(|_| DEFAULT_CONGESTION.into());
        let set = format!("net.ipv4.tcp_congestion_control={name}");
        for stand in &self.0 {
            for role in Role::ALL {
                let status = inside(stand, cell, role).args(["sysctl", "-qw", &set]).status()?;
                ensure!(status.success(), "sysctl {set} failed");
            }
        }
        Ok(())
    }

    fn ours(&mut self, gro: bool, cell: &Cell, schedule: &Schedule) -> Result<Run> {
        let stand = &mut self.0[usize::from(!gro)];
        let before = Tcp::of(stand)?;
        let trial = stand.run(cell, &[], schedule, None)?;
        let rate = trial.rate().with_context(|| format!("no rate: {:?}", trial.status))?;
        before.until(stand, rate, schedule.warm_up + schedule.window)
    }

    fn theirs(&mut self, peer: &Peer, way: Way, cell: &Cell, window: f64) -> Result<Run> {
        let stand = &self.0[usize::from(!way.gro)];
        let mut cell = cell.clone();
        if !way.pinned {
            cell.placement = Placement::default();
        }
        let before = Tcp::of(stand)?;
        let mut server = inside(stand, &cell, Role::Receiver);
        server.arg(&peer.program);
        let mut client = inside(stand, &cell, Role::Sender);
        client.arg(&peer.program);
        let address = stand.address(Role::Receiver).to_string();
        let seconds = window.to_string();
        let rate = match peer.kind {
            Kind::Iperf3 => {
                let _server = Server::listening(server)?;
                client.args(["-c", &address, "-J", "-C", CONGESTION, "-O", "1", "-t", &seconds]);
                let output = client.args(way.options).output().context("cannot run iperf3 -c")?;
                iperf3::received(&output)? / 8.0
            }
            Kind::Neper => {
                // It counts from its first sample on.
                let length = (window + 1.0).to_string();
                let common = ["-l", &length, "--nolog", "--congestion-control", CONGESTION];
                server.args(common).args(way.options).stdout(Stdio::null());
                let _server = Server::started(server)?;
                listening(stand)?;
                client.args(["-c", "-H", &address]).args(common).args(way.options);
                let output = client.output().context("cannot run tcp_stream -c")?;
                throughput(&output.stdout)?
            }
        };
        before.until(stand, rate, window + 1.0)
    }
}

/// What TCP counts in the namespaces of a stand.
struct Tcp {
    retransmitted: i64,
    out_of_order: i64,
}

impl Tcp {
    fn of(stand: &Stand) -> Result<Tcp> {
        let count = |role: Role, file: &str, name: (&str, &str)| -> Result<i64> {
            let path = format!("/proc/{}/net/{file}", stand.pid(role));
            let text = fs::read_to_string(&path).with_context(|| path.clone())?;
            let counters = netstat::parse(&text).ok().context(path)?;
            let found = counters.iter().find(|counter| (counter.0, counter.1) == name);
            Ok(found.map_or(0, |counter| counter.2))
        };
        Ok(Tcp {
            retransmitted: count(Role::Sender, "snmp", ("Tcp", "RetransSegs"))?,
            out_of_order: count(Role::Receiver, "netstat", ("TcpExt", "TCPOFOQueue"))?,
        })
    }

    /// A run of this rate for so many seconds that began here and has ended.
    fn until(&self, stand: &Stand, rate: f64, seconds: f64) -> Result<Run> {
        let after = Tcp::of(stand)?;
        let gib = rate * seconds / f64::from(1 << 30);
        Ok(Run {
            rate,
            retransmitted: (after.retransmitted - self.retransmitted) as f64 / gib,
            out_of_order: (after.out_of_order - self.out_of_order) as f64 / gib,
        })
    }
}

/// Waits until neper's control port listens in the receiver's namespace.
fn listening(stand: &Stand) -> Result<()> {
    let begin = Instant::now();
    let files =
        ["tcp", "tcp6"].map(|file| format!("/proc/{}/net/{file}", stand.pid(Role::Receiver)));
    // Port 12866 in state 0A, TCP_LISTEN (include/net/tcp_states.h).
    let listens = |line: &str| line.contains(":3242 ") && line.contains(" 0A ");
    loop {
        for file in &files {
            let text = fs::read_to_string(Path::new(file)).unwrap_or_default();
            if text.lines().any(listens) {
                return Ok(());
            }
        }
        ensure!(begin.elapsed() < Duration::from_secs(5), "tcp_stream does not listen");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes a second at the other end, which a client of neper prints in bits.
fn throughput(output: &[u8]) -> Result<f64> {
    let text = String::from_utf8_lossy(output);
    let bits = text.lines().find_map(|line| line.strip_prefix("remote_throughput="));
    Ok(bits.context("tcp_stream printed no throughput")?.parse::<f64>()? / 8.0)
}
