//! Faults during a study: trials that have ended are kept, the rest can be run, and the host is as
//! before.

use crate::host::LINES;
use crate::lab::{Ended, Lab, Started, descendants, strike};
use anyhow::{Context, Result, ensure};
use bytepath::record::{Study, TrialStatus};
use bytepath::study::load;
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::Netlink;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_remount, unmount};
use std::collections::HashSet;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::{PipeReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread::sleep;
use std::time::Duration;

const PATHS: &[&str] = &["socket", "sendfile", "splice", "msg-zerocopy", "uring", "uring-zc"];

/// A short study.
pub struct Plan {
    pub arguments: Vec<String>,
    /// Number of trials when it is complete, without profile trials.
    pub trials: usize,
    pub settings: usize,
    /// Approximate duration in milliseconds.
    pub lasts: usize,
}

impl Plan {
    pub fn draw(lab: &mut Lab, folder: &str) -> Plan {
        let (paths, blocks, window) = (1 + lab.below(2), 1 + lab.below(2), 100 + lab.below(201));
        let mut names = PATHS.to_vec();
        lab.random.shuffle(&mut names);
        let design = lab.pick(&["trials", "slices:20ms"]);
        let meters = lab.pick(&["none", "usual"]);
        let profile = lab.pick(&["none", "none", "none", "all:trials=1,window=100ms"]);
        let text = format!(
            "run --blocks {blocks} --window {window}ms --warm-up 0 --design {design} \
             --meters {meters} --profile {profile} --study {folder}"
        );
        let mut arguments: Vec<String> = text.split(' ').map(str::to_owned).collect();
        arguments.extend(names[..paths].iter().flat_map(|path| ["--path", path]).map(Into::into));
        let settings = if lab.one_in(2) { 0 } else { 1 + lab.below(LINES.len()) };
        let lines = LINES[..settings].iter();
        arguments.extend(lines.flat_map(|line| ["--set", line]).map(Into::into));
        // The baseline runs twice.
        let trials = blocks * (paths + 1);
        Plan { arguments, trials, settings, lasts: 600 + trials * (window + 250) }
    }
}

/// Sends the controller a signal at some moment, also while it makes or restores settings.
pub fn kill(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let number =
        lab.pick(&[libc::SIGKILL, libc::SIGKILL, libc::SIGINT, libc::SIGTERM, libc::SIGHUP]);
    let again = number != libc::SIGKILL && lab.one_in(4);
    // As kill(1) does, as a terminal does, and as timeout(1) does, which sends it to both.
    let (alone, group) = lab.pick(&[(true, false), (false, true), (true, true)]);
    let mut command = lab.command(&plan.arguments);
    command.process_group(0);
    let mut run = Started::of(command)?;
    let strike = |run: &mut Started| -> Result<()> {
        if alone {
            run.signal(number)?;
        }
        if group { run.signal_group(number) } else { Ok(()) }
    };
    await_moment(lab, &mut run, &plan)?;
    strike(&mut run)?;
    if again {
        run.ends_within(Duration::from_millis(lab.below(400) as u64))?;
        strike(&mut run)?;
    }
    let ended = run.end()?.tame()?;
    let (study, journal) = (lab.folder.join("study"), lab.journal());
    match (ended.code, ended.signal) {
        (None, Some(by)) if by == number => {
            let begun = study.exists() || journal.exists();
            let fine = number == libc::SIGKILL || again || !begun;
            ensure!(fine, "signal {number} ended a study at once: {}", ended.err);
            let named = number == libc::SIGKILL || ended.err.contains("bytepath restore");
            ensure!(named || !journal.exists(), "what stays is not named: {}", ended.err);
        }
        (Some(130), _) if number != libc::SIGKILL => lab.host_is_as_before()?,
        // The study had already ended; on a busy machine a trial may fail by itself.
        (Some(0 | 5), _) => lab.host_is_as_before()?,
        other => anyhow::bail!("signal {number} gives {other:?}: {}", ended.err),
    }
    restore(lab)?;
    is_kept(&study, &ended)?;
    is_completed(lab, &plan)
}

/// Kills a process started by the controller, or stops it for a while.
pub fn child(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let mut run = Started::of(lab.command(&plan.arguments))?;
    let wait = lab.below(plan.lasts);
    run.ends_within(Duration::from_millis(wait as u64))?;
    let mut victims = descendants(run.child.id());
    while victims.is_empty() && !run.ends_within(Duration::from_millis(1))? {
        victims = descendants(run.child.id());
    }
    if !victims.is_empty() {
        let victim = lab.pick(&victims);
        match lab.pick(&[libc::SIGKILL, libc::SIGKILL, libc::SIGSEGV, libc::SIGSTOP]) {
            libc::SIGSTOP => {
                strike(victim, libc::SIGSTOP);
                sleep(Duration::from_millis(lab.below(500) as u64));
                strike(victim, lab.pick(&[libc::SIGKILL, libc::SIGCONT]));
            }
            number => drop(strike(victim, number)),
        }
    }
    goes_on(lab, &run.end()?.sound()?.with_code(&[0, 5, 8])?, &plan)
}

/// Sets a device of the link down and up again, or deletes it, while a study runs.
pub fn link(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let mut run = Started::of(lab.command(&plan.arguments))?;
    let wait = lab.below(plan.lasts);
    run.ends_within(Duration::from_millis(wait as u64))?;
    let away = Duration::from_millis(1 + lab.below(400) as u64);
    let removed = lab.one_in(3);
    if let Some(namespace) = namespace_of_an_agent(lab, &run)? {
        let _ = within(namespace.as_fd(), || disturb(away, removed))?;
    }
    is_survived(lab, run, &plan)
}

/// The network namespace of an agent. `None` if the agent has no namespace of its own or is gone.
pub fn namespace_of_an_agent(lab: &mut Lab, run: &Started) -> Result<Option<File>> {
    let agents = descendants(run.child.id());
    if agents.is_empty() {
        return Ok(None);
    }
    let file = format!("/proc/{}/ns/net", lab.pick(&agents));
    let elsewhere = fs::read_link(&file).ok() != Some(fs::read_link("/proc/self/ns/net")?);
    Ok(File::open(file).ok().filter(|_| elsewhere))
}

/// The link's device in the network namespace of this thread.
pub fn device() -> Result<String> {
    let mut names = fs::read_dir("/sys/class/net")?.flatten().map(|entry| entry.file_name());
    let name = names.find(|name| name != "lo").context("no device")?;
    name.into_string().ok().context("an odd name")
}

/// Runs in the namespace of an agent. Its device may come and go at any time.
fn disturb(away: Duration, removed: bool) -> Result<()> {
    let mut netlink = Netlink::new();
    let index = netlink.link(&device()?)?.context("no device")?.index;
    if removed {
        return Ok(netlink.delete_link(index)?);
    }
    netlink.set_down(index)?;
    sleep(away);
    Ok(netlink.set_up(index)?)
}

/// Gives a command outputs that fail: a pipe that is closed, now or after some bytes, or a full
/// device.
pub fn output(lab: &mut Lab) -> Result<()> {
    let plan = Plan::draw(lab, "study");
    let good = lab.host.dir.path().join("good").display().to_string();
    let words = |text: &str| -> Vec<String> { text.split(' ').map(str::to_owned).collect() };
    let observe = "observe --count none --sample none -- sh -c";
    let mut observed = words(observe);
    observed.push("exit 3".into());
    // Each with its exit code, and whether it prints to standard output.
    let commands: [(Vec<String>, i32, bool); 10] = [
        (plan.arguments.clone(), 0, true),
        (plan.arguments.clone(), 0, true),
        (observed, 3, false),
        (words(&format!("show {good} --details")), 0, true),
        (words(&format!("show {good} --format html")), 0, true),
        (words(&format!("show {good} --format parquet")), 0, true),
        (words(&format!("compare {good}")), 0, true),
        (words("paths"), 0, true),
        (words("settings"), 0, true),
        (words("show nothing"), 6, false),
    ];
    let (arguments, code, prints) = commands[lab.below(commands.len())].clone();
    let (out, out_is_full) = sink(lab)?;
    let (err, _) = sink(lab)?;
    let run = Started::into(lab.command(&arguments), out, err)?;
    let ended = run.end()?.sound()?;
    let expected = if out_is_full && prints { 6 } else { code };
    let busy = ended.code == Some(5) && arguments[0] == "run" && expected == 0;
    ensure!(ended.code == Some(expected) || busy, "exit code {:?}, not {expected}", ended.code);
    if arguments[0] == "run" {
        let study = load(&lab.folder.join("study"))?;
        ensure!(study.trials.len() == plan.trials, "{} trials", study.trials.len());
    }
    Ok(())
}

/// Returns such an output, and whether it is a full device.
fn sink(lab: &mut Lab) -> Result<(Stdio, bool)> {
    let (from, to) = std::io::pipe()?;
    Ok(match lab.below(3) {
        0 => (File::options().write(true).open("/dev/full")?.into(), true),
        1 => (to.into(), false),
        _ => {
            let bytes = lab.below(4096) as u64;
            let read = move |from: PipeReader| from.take(bytes).read_to_end(&mut Vec::new());
            std::thread::spawn(move || read(from));
            (to.into(), false)
        }
    })
}

/// Fills the disk at some byte of the study.
pub fn disk(lab: &mut Lab) -> Result<()> {
    let folder = lab.folder.join("disk");
    fs::create_dir(&folder)?;
    // As many small disks as large ones.
    let pages = 1 << (1 + lab.below(8));
    let size = |pages: usize| CString::new(format!("size={}k", 4 * pages));
    let size_now = size(pages + lab.below(pages))?;
    mount("tmpfs", &folder, "tmpfs", MountFlags::empty(), size_now.as_c_str())?;
    let disk = Disk(folder);
    let plan = Plan::draw(lab, "disk/study");
    let ended = Started::of(lab.command(&plan.arguments))?.end()?.sound()?.with_code(&[0, 5, 6])?;
    lab.host_is_as_before()?;
    let study = disk.0.join("study");
    ensure!(study.exists() || ended.code == Some(6), "no study, and no error");
    if study.exists() {
        is_kept(&study, &ended)?;
        load(&study).context("a study that was begun on a full disk")?;
        lab.ask(&["show", "disk/study"])?.with_code(&[0])?;
        mount_remount(&disk.0, MountFlags::empty(), size(16384)?.as_c_str())?;
        is_completed(lab, &plan)?;
    }
    Ok(())
}

struct Disk(PathBuf);

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = unmount(&self.0, UnmountFlags::empty());
    }
}

/// Waits until some moment of a study: one of its settings, or any.
fn await_moment(lab: &mut Lab, run: &mut Started, plan: &Plan) -> Result<()> {
    if plan.settings > 0 && lab.one_in(2) {
        let journal = lab.journal();
        let lines = 1 + lab.below(2 * plan.settings + 1);
        let are_there = || {
            let found = fs::read(&journal).unwrap_or_default();
            found.iter().filter(|byte| **byte == b'\n').count() >= lines
        };
        while !are_there() && !run.ends_within(Duration::ZERO)? {}
        return Ok(());
    }
    let wait = lab.below(plan.lasts + plan.lasts / 4);
    run.ends_within(Duration::from_millis(wait as u64)).map(drop)
}

/// Checks that a study whose link had trouble runs to its end, and reports what it lost.
pub fn is_survived(lab: &mut Lab, run: Started, plan: &Plan) -> Result<()> {
    let ended = run.end()?.sound()?;
    // If the link fails while it is checked before the study, the study does not begin.
    if ended.code == Some(1) && ended.err.contains(" cannot run here: ") {
        ensure!(!lab.folder.join("study").exists(), "a study that was not begun left a folder");
        return lab.host_is_as_before();
    }
    goes_on(lab, &ended.with_code(&[0, 5, 8])?, plan)
}

/// Checks that a study which has ended reports what it lost, and can be completed.
pub fn goes_on(lab: &mut Lab, ended: &Ended, plan: &Plan) -> Result<()> {
    is_true(lab, ended, plan)?;
    is_completed(lab, plan)
}

/// Checks that a study's exit code agrees with its folder.
pub fn is_true(lab: &Lab, ended: &Ended, plan: &Plan) -> Result<()> {
    lab.host_is_as_before()?;
    let study = lab.folder.join("study");
    is_kept(&study, ended)?;
    if ended.code == Some(0) || is_begun(&study) {
        let failed = |study: &Study| {
            let all = study.trials.iter().chain(&study.profiles);
            all.filter(|trial| matches!(trial.status, TrialStatus::Failed { .. })).count()
        };
        let loaded = load(&study)?;
        // A host that is lost while it restores its settings invalidates no trial, and is named.
        let reported = ended.code == Some(5) && !ended.err.contains("the steward on the ");
        ensure!(
            !reported || failed(&loaded) > 0 || loaded.trials.len() < plan.trials,
            "5 for nothing"
        );
        let silent = ended.code == Some(0) && failed(&loaded) > 0;
        ensure!(!silent, "a failed trial, and exit code 0: {}", ended.err);
        let measured = loaded.trials.iter().any(|trial| trial.status == TrialStatus::Measured);
        let matches = match ended.code {
            Some(0) => measured,
            Some(8) => !measured,
            _ => true,
        };
        ensure!(matches, "exit code {:?}, and trials were measured: {measured}", ended.code);
    }
    Ok(())
}

fn is_begun(study: &Path) -> bool {
    study.join("trials.jsonl").exists()
}

/// Checks that each trial that was reported is in the study.
fn is_kept(study: &Path, ended: &Ended) -> Result<()> {
    let reported = ended.err.lines().filter(|line| {
        line.starts_with('[') && line.contains(" left") && !line.starts_with("[profile")
    });
    let reported = reported.count();
    if reported > 0 {
        let kept = load(study)?.trials.len();
        ensure!(kept >= reported, "{reported} trials were reported, and {kept} are kept");
    }
    Ok(())
}

fn restore(lab: &mut Lab) -> Result<()> {
    lab.ask(&["restore"])?.with_code(&[0])?;
    lab.host_is_as_before()
}

/// Resumes a study until it is complete, and checks that no trial is lost or doubled. The resumed
/// study may be killed, too.
fn is_completed(lab: &mut Lab, plan: &Plan) -> Result<()> {
    let out = plan.arguments.iter().skip_while(|a| *a != "--study").nth(1).context("no --study")?;
    let study = lab.folder.join(out);
    if !is_begun(&study) {
        lab.ask(&["resume", out])?.with_code(&[6])?;
        return Ok(());
    }
    let trials = || fs::read(study.join("trials.jsonl"));
    let mut before = trials()?;
    // A crash tears only the last line.
    before.truncate(before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1));
    if lab.one_in(3) {
        let mut run = Started::of(lab.command(&["resume", out]))?;
        await_moment(lab, &mut run, plan)?;
        run.signal(libc::SIGKILL)?;
        let ended = run.end()?.tame()?;
        restore(lab)?;
        is_kept(&study, &ended)?;
    }
    // 2 means that there is nothing to resume.
    lab.ask(&["resume", out])?.with_code(&[0, 2, 5])?;
    lab.host_is_as_before()?;
    ensure!(trials()?.starts_with(&before), "resume has changed trials that were there");
    let loaded = load(&study)?;
    let distinct: HashSet<_> = loaded.trials.iter().map(|t| (&t.cell, t.block)).collect();
    let (all, distinct) = (loaded.trials.len(), distinct.len());
    ensure!(all == plan.trials && distinct == all, "{all} trials, {distinct} of them distinct");
    lab.ask(&["show", out])?.with_code(&[0]).map(drop)
}
