//! Damaged files: they are read correctly or refused, in little memory.

use crate::host::LINES;
use crate::lab::{Lab, Started, copy, walk};
use anyhow::{Context, Result, ensure};
use bytepath::math::Random;
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Formats of a report. All but parquet are text.
pub const FORMATS: &[&str] = &["text", "netdev", "html", "json", "csv", "parquet", "ktap"];

/// Makes what is damaged later: a study with profiles, and a folder of two studies.
pub fn prepare(lab: &mut Lab) -> Result<()> {
    let root = lab.host.dir.path().to_owned();
    let text = "run --path socket --path splice --blocks 2 --window 200ms --warm-up 0 \
                --profile all:trials=1,window=200ms --set";
    let mut arguments: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    let good = root.join("good");
    arguments.extend([LINES[1].into(), "--study".into(), good.display().to_string()]);
    // Trials may fail on a busy machine; that does not matter, since files are damaged, not trials.
    lab.ask(&arguments)?.with_code(&[0, 5])?;
    for name in ["one", "two"] {
        copy(&good, &root.join("history").join(name))?;
    }
    Ok(())
}

/// Damages one file, and reads it in every way.
pub fn damage(lab: &mut Lab) -> Result<()> {
    match lab.below(8) {
        0..=2 => study(lab),
        3 => journal(lab),
        4 => history(lab),
        5 => experiment(lab),
        _ => profile(lab),
    }
}

fn study(lab: &mut Lab) -> Result<()> {
    let study = copy_of_good(lab)?;
    let file = any_file(lab, &study)?;
    damage_file(lab, &file)?;
    look_at_study(lab, !file.ends_with("experiment.toml"))
}

/// Copies the good study into the folder of the round, as `study`.
pub fn copy_of_good(lab: &Lab) -> Result<PathBuf> {
    let study = lab.folder.join("study");
    copy(&lab.host.dir.path().join("good"), &study)?;
    Ok(study)
}

pub fn any_file(lab: &mut Lab, folder: &Path) -> Result<PathBuf> {
    let files = walk(folder);
    ensure!(!files.is_empty(), "no file in {}", folder.display());
    let (file, _) = &files[lab.below(files.len())];
    Ok(file.clone())
}

/// Reads the study of the round by a few commands. One that may request endless windows is not
/// resumed.
pub fn look_at_study(lab: &mut Lab, resumes: bool) -> Result<()> {
    let good = lab.host.dir.path().join("good").display().to_string();
    let format = lab.pick(FORMATS);
    let shown = lab.ask_bounded(&["show", "study", "--details", "--format", format])?;
    let shown = shown.with_code(&[0, 3, 6])?;
    if format == "json" && shown.code == Some(0) {
        serde_json::from_slice::<serde_json::Value>(&shown.out).context("no JSON")?;
    }
    let commands: [&[&str]; 5] = [
        &["compare", "study"],
        &["compare", "study", &good],
        &["compare", &good, "study", "--fail-if", "*.rate slower 2%"],
        &["history", "."],
        &["merge", "study", &good, "--study", "merged"],
    ];
    let command = lab.pick(&commands);
    lab.ask_bounded(command)?.with_code(&[0, 2, 3, 5, 6, 7, 125])?;
    if resumes {
        if fs::metadata(lab.folder.join("study"))?.uid() != 0 {
            // Resuming would make settings, as the original did.
            lab.ask(&["resume", "study"])?.with_code(&[3, 4, 6])?;
        }
        // Missing trials are run again; 2 means that none are missing.
        lab.ask(&["resume", "study", "--trust"])?.with_code(&[0, 2, 3, 5, 6])?;
    }
    Ok(())
}

/// Damages the journal of settings that are in force: they are restored, or the failure is
/// reported.
fn journal(lab: &mut Lab) -> Result<()> {
    let run = "run --path socket --blocks 1 --window 10s --study study";
    let mut arguments: Vec<&str> = run.split(' ').collect();
    // The remaining settings depend on each other: if a damaged line loses one, the next may not be
    // restored.
    let settings = 1 + lab.below(3);
    arguments.extend(LINES[..settings].iter().flat_map(|line| ["--set", line]));
    let mut run = Started::of(lab.command(&arguments))?;
    let journal = lab.journal();
    let lines = |text: &[u8]| text.iter().filter(|byte| **byte == b'\n').count();
    while lines(&fs::read(&journal).unwrap_or_default()) < 2 * settings + 1 {
        ensure!(!run.ends_within(std::time::Duration::from_millis(1))?, "it ended early");
    }
    run.signal(libc::SIGKILL)?;
    run.end()?.tame()?;
    let whole = fs::read(&journal)?;
    // Only the last line may be torn, by a crash before its setting was made.
    let last =
        whole[..whole.len() - 1].iter().rposition(|byte| *byte == b'\n').context("a line")?;
    let mut damaged = whole[..last].to_vec();
    spoil(&mut lab.random, &mut damaged);
    damaged.extend(&whole[last..]);
    fs::write(&journal, &damaged)?;
    lab.ask_bounded(&["restore", "--show"])?.with_code(&[0])?;
    let restored = lab.ask_bounded(&["restore"])?.with_code(&[0, 6])?;
    if restored.code == Some(6) {
        ensure!(fs::read(&journal)?.starts_with(&damaged), "the only witness has changed");
        fs::write(&journal, &whole)?;
        lab.ask(&["restore"])?.with_code(&[0])?;
    }
    let text = String::from_utf8_lossy(&damaged);
    lab.host_is_as_before().with_context(|| format!("exit code {:?} for {text}", restored.code))
}

/// A damaged study of a folder is shown or left out; the other one is always shown.
fn history(lab: &mut Lab) -> Result<()> {
    let history = lab.folder.join("history");
    copy(&lab.host.dir.path().join("history"), &history)?;
    let file = any_file(lab, &history.join("one"))?;
    damage_file(lab, &file)?;
    lab.ask_bounded(&["history", "history"])?.with_code(&[0])?;
    Ok(())
}

fn experiment(lab: &mut Lab) -> Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("experiments");
    let file = any_file(lab, &folder)?;
    fs::copy(file, lab.folder.join("x.toml"))?;
    damage_file(lab, &lab.folder.join("x.toml"))?;
    lab.ask_bounded(&["run", "--dry-run", "x.toml"])?.with_code(&[0, 2, 3, 4, 6])?;
    Ok(())
}

fn profile(lab: &mut Lab) -> Result<()> {
    let own = lab.host.dir.path().join("good/profiles");
    let others = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/profiles");
    // On a busy machine the study has no profiles: rejected trials are not profiled.
    let folder = if lab.one_in(4) && own.exists() { own } else { others };
    let file = any_file(lab, &folder)?;
    fs::copy(&file, lab.folder.join("damaged"))?;
    damage_file(lab, &lab.folder.join("damaged"))?;
    let file = file.display().to_string();
    let commands: [&[&str]; 5] = [
        &["profile", "damaged"],
        &["profile", "damaged", "--to", "folded"],
        &["profile", "damaged", "--out", "x.svg"],
        &["profile", "damaged", "--out", "x.pb.gz"],
        &["diff", &file, "damaged"],
    ];
    for _ in 0..3 {
        let command = lab.pick(&commands);
        lab.ask_bounded(command)?.with_code(&[0, 2, 3, 6])?;
    }
    Ok(())
}

fn damage_file(lab: &mut Lab, file: &Path) -> Result<()> {
    let mut bytes = fs::read(file)?;
    spoil(&mut lab.random, &mut bytes);
    Ok(fs::write(file, bytes)?)
}

/// Numbers that no program writes.
const NUMBERS: &[&str] =
    &["-1", "0", "1e308", "-1e-308", "18446744073709551616", "NaN", "1e999", "4294967295"];

/// Changes some bytes, in a few places and ways.
fn spoil(random: &mut Random, bytes: &mut Vec<u8>) {
    for _ in 0..1 + random.below(3) {
        let at = random.below(bytes.len() + 1);
        let part = part(random, bytes.len());
        match random.below(9) {
            0 => bytes.truncate(at),
            1 => drop(bytes.drain(part)),
            2 => {
                let twice = bytes[part].to_vec();
                drop(bytes.splice(at..at, twice));
            }
            3 => {
                let noise: Vec<u8> = (0..random.below(64)).map(|_| random.bits() as u8).collect();
                drop(bytes.splice(at..at, noise));
            }
            4 => {
                let lines = lines(bytes);
                let line = lines[random.below(lines.len())].clone();
                drop(bytes.drain(line));
            }
            5 => {
                let lines = lines(bytes);
                let line = bytes[lines[random.below(lines.len())].clone()].to_vec();
                let at = lines[random.below(lines.len())].start;
                drop(bytes.splice(at..at, line));
            }
            6 => {
                let number = NUMBERS[random.below(NUMBERS.len())].bytes();
                if let Some(range) = a_number(random, bytes) {
                    drop(bytes.splice(range, number));
                }
            }
            _ => {
                if let Some(byte) = bytes.get_mut(at) {
                    *byte ^= 1 << random.below(8);
                }
            }
        }
    }
}

/// A range within `length`, short more often than long.
fn part(random: &mut Random, length: usize) -> Range<usize> {
    let longest = if random.below(4) == 0 { length } else { length.min(16) };
    let taken = random.below(longest + 1);
    let begin = random.below(length - taken + 1);
    begin..begin + taken
}

/// Ranges of the lines, each with its newline; at least one.
fn lines(bytes: &[u8]) -> Vec<Range<usize>> {
    let mut begin = 0;
    let ends = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let mut found: Vec<Range<usize>> =
        ends.map(|end| std::mem::replace(&mut begin, end)..end).collect();
    found.push(begin..bytes.len());
    found
}

/// The range of a number somewhere.
fn a_number(random: &mut Random, bytes: &[u8]) -> Option<Range<usize>> {
    let from = random.below(bytes.len().max(1));
    let begin = from + bytes.get(from..)?.iter().position(u8::is_ascii_digit)?;
    let end = bytes[begin..].iter().position(|byte| !byte.is_ascii_digit());
    Some(begin..end.map_or(bytes.len(), |end| begin + end))
}
