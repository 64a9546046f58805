//! Hosts that are reached by a command, and trouble on the way: this program sits between the
//! controller and each agent, and cuts, delays, flips or doubles the bytes; or the command that
//! reaches a host is killed, and the host is unreachable for a while.

use crate::lab::{Lab, Started, descendants, strike};
use crate::namespaces::{Place, join_by};
use crate::studies::{Plan, goes_on};
use anyhow::{Context, Result, ensure};
use bytepath::math::Random;
use bytepath::record::wire::SYNC;
use std::env;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::{Duration, Instant};

/// Environment variable that makes the program sit in between: the folder of the connections, the
/// number of the one to disturb, and the seed.
pub const BETWEEN: &str = "FAULTS_BETWEEN";

/// Several times as long as the controller waits for a missing reply.
const PATIENCE: Duration = Duration::from_secs(240);

/// How long to wait for a lost host.
const TIMEOUT: &str = "timeout=4s";

/// The setting made at the receiver, which must not stay.
const SET: &str = "receiver: mtu to-sender 1400";

/// Disturbs one connection of a study, at some time.
pub fn wire(lab: &mut Lab) -> Result<()> {
    let apart = Apart::new(lab)?;
    let meant = 1 + lab.below(5);
    let plan = apart.plan(lab, meant)?;
    let run = Started::of(lab.command(&plan.arguments))?;
    apart.is_survived(lab, run, &plan)
}

/// Kills the command that reaches a host, or the agent there; the host is unreachable for a while.
pub fn host(lab: &mut Lab) -> Result<()> {
    let mut apart = Apart::new(lab)?;
    let plan = apart.plan(lab, 0)?;
    let mut run = Started::of(lab.command(&plan.arguments))?;
    let wait = lab.below(plan.lasts);
    run.ends_within(Duration::from_millis(wait as u64))?;
    let down = apart.folder.join(DOWN);
    let away = Duration::from_millis(lab.below(6000) as u64);
    if lab.one_in(2) {
        File::create(&down)?;
    }
    let victims = descendants(run.child.id());
    if !victims.is_empty() {
        let victim = lab.pick(&victims);
        let what = fs::read_to_string(format!("/proc/{victim}/cmdline")).unwrap_or_default();
        lab.lines.push(format!("# killed: {}", what.replace('\0', " ")));
        apart.restores_itself = !what.ends_with("\0agent\0--away\0");
        strike(victim, libc::SIGKILL);
    }
    run.ends_within(away)?;
    let _ = fs::remove_file(&down);
    apart.is_survived(lab, run, &plan)
}

/// Two hosts with a link between them.
pub struct Apart {
    pub places: [Place; 2],
    /// Folder in which connections note what was done to them.
    folder: PathBuf,
    /// False if an agent was killed, so that its settings must be restored on request.
    restores_itself: bool,
}

/// Queues of the link in each direction; a round may disable some.
pub const QUEUES: u32 = 4;

/// While this file exists, no host can be reached.
const DOWN: &str = "down";

impl Apart {
    pub fn new(lab: &Lab) -> Result<Apart> {
        let folder = lab.folder.join("connections");
        fs::create_dir(&folder)?;
        let places = ["sender", "receiver"].map(|name| Place::new(&lab.folder, name));
        join_by(&places[0], &places[1], "10.9.0", QUEUES);
        Ok(Apart { places, folder, restores_itself: true })
    }

    /// A short study whose connection number `meant` is disturbed.
    pub fn plan(&self, lab: &mut Lab, meant: usize) -> Result<Plan> {
        let own = env::current_exe()?;
        let seed = lab.random.bits() >> 16;
        let reached = self.places.each_ref().map(|place| {
            format!(
                "exec:env '{BETWEEN}={}:{meant}:{seed}' {} nsenter --target={} --net --mount env \
                 BYTEPATH_STATE={}",
                self.folder.display(),
                own.display(),
                place.pid(),
                place.state.display()
            )
        });
        let blocks = 1 + lab.below(2);
        let meters = lab.pick(&["none", "usual"]);
        let text = format!(
            "run --path socket --cores unpinned --design trials --warm-up 0 --window 200ms \
             --profile none --blocks {blocks} --meters {meters} --study study --testbed"
        );
        let mut arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
        let [sender, receiver] = reached;
        let given = "receiver-device=to-sender";
        arguments
            .push(format!("hosts:sender=\"{sender}\",receiver=\"{receiver}\",{given},{TIMEOUT}"));
        if lab.one_in(2) {
            arguments.extend(["--set".into(), SET.into()]);
        }
        // The baseline runs twice.
        Ok(Plan { arguments, trials: 2 * blocks, settings: 0, lasts: 1500 + 1400 * blocks })
    }

    /// Checks that the study ends, can be resumed, and leaves no setting at its hosts.
    pub fn is_survived(&self, lab: &mut Lab, run: Started, plan: &Plan) -> Result<()> {
        let survived = || -> Result<()> {
            let ended = run.end_within(PATIENCE)?.sound()?.with_code(&[0, 1, 2, 3, 5, 8])?;
            goes_on(lab, &ended, plan)?;
            if !self.restores_itself {
                let bed = plan.arguments.iter().skip_while(|word| *word != "--testbed").nth(1);
                lab.ask(&["restore", "--testbed", bed.context("no testbed")?])?.with_code(&[0])?;
            }
            let begin = Instant::now();
            let is_left = || {
                let kept = |place: &Place| place.state.join("journal").exists();
                self.places.iter().any(kept) || self.places[1].mtu("to-sender") != 1500
            };
            while is_left() {
                ensure!(begin.elapsed() < Duration::from_secs(5), "a host keeps its settings");
                sleep(Duration::from_millis(5));
            }
            Ok(())
        };
        let outcome = survived();
        outcome.with_context(|| self.noted())
    }

    /// What connections have noted.
    fn noted(&self) -> String {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let noted = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
        noted.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ")
    }
}

/// Runs a program and relays between it and the process that started this one.
pub fn between(how: &str, words: &[String]) -> Result<ExitCode> {
    let mut parts = how.rsplitn(3, ':');
    let (seed, meant) = (parts.next().context("a seed")?, parts.next().context("a number")?);
    let folder = Path::new(parts.next().context("a folder")?);
    if folder.join(DOWN).exists() {
        eprintln!("no route to host");
        return Ok(ExitCode::from(255));
    }
    let file = |number: &usize| folder.join(number.to_string());
    let number = (1..).find(|number| File::create_new(file(number)).is_ok()).context("a number")?;
    let is_meant = meant.parse() == Ok(number);
    let mut random = Random::new(seed.parse()?);
    let meddler = is_meant.then(|| Meddler::draw(&mut random, file(&number)));
    let of_requests = random.below(2) == 0;

    let (program, arguments) = words.split_first().context("no program")?;
    let mut command = Command::new(program);
    let mut child = command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let (to, from) = (child.stdin.take().context("a pipe")?, child.stdout.take().context("one")?);
    let begun = Arc::new(AtomicBool::new(false));
    let (requests, replies) = match of_requests {
        true => (meddler, None),
        false => (None, meddler),
    };
    let before = begun.clone();
    spawn(move || relay(std::io::stdin(), to, &before, requests));
    relay(from, std::io::stdout(), &begun, replies);
    let status = child.wait()?;
    // The other thread may be waiting for bytes that never come.
    std::process::exit(status.code().unwrap_or(1))
}

/// Disturbs the relayed bytes once.
struct Meddler {
    what: What,
    /// Pieces that are relayed first, counted from the start of the agent.
    after: usize,
    random: Random,
    /// File in which the disturbance is noted.
    note: PathBuf,
}

#[derive(Clone, Copy, Debug)]
enum What {
    Cut,
    CutWithin,
    Delay,
    Flip,
    Double,
}

impl Meddler {
    fn draw(random: &mut Random, note: PathBuf) -> Meddler {
        let all = [What::Cut, What::CutWithin, What::Delay, What::Flip, What::Double];
        let (what, after) = (all[random.below(all.len())], random.below(12));
        Meddler { what, after, random: Random::new(random.bits()), note }
    }

    fn meddle(mut self, piece: &mut Vec<u8>, to: &mut impl Write) {
        let at = self.random.below(piece.len());
        let (what, after) = (self.what, self.after);
        let shown = String::from_utf8_lossy(&piece[..piece.len().min(200)]).into_owned();
        let _ = fs::write(&self.note, format!("{what:?} of piece {after} at byte {at}: {shown}"));
        match what {
            What::Cut => std::process::exit(255),
            What::CutWithin => {
                let _ = to.write_all(&piece[..at]).and_then(|()| to.flush());
                std::process::exit(255);
            }
            What::Delay => sleep(Duration::from_millis(self.random.below(4000) as u64)),
            What::Flip => piece[at] ^= 1 << self.random.below(8),
            What::Double => piece.extend_from_within(..),
        }
    }
}

/// Relays piece by piece. The script that starts the agent is left alone.
fn relay(mut from: impl Read, mut to: impl Write, begun: &AtomicBool, meddler: Option<Meddler>) {
    let mut meddler = meddler;
    let mut buffer = vec![0; 1 << 16];
    while let Ok(read @ 1..) = from.read(&mut buffer) {
        let mut piece = buffer[..read].to_vec();
        if begun.load(Ordering::Acquire) {
            match &mut meddler {
                Some(Meddler { after: after @ 1.., .. }) => *after -= 1,
                _ => {
                    if let Some(meddler) = meddler.take() {
                        meddler.meddle(&mut piece, &mut to);
                    }
                }
            }
        } else if piece.windows(SYNC.len()).any(|part| part == SYNC.as_bytes()) {
            begun.store(true, Ordering::Release);
        }
        if to.write_all(&piece).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}
