//! Hostile words, in arguments and in every field of a study.

use crate::damage::{FORMATS, copy_of_good};
use crate::lab::Lab;
use anyhow::{Context, Result};
use serde_json::Value;
use std::ffi::OsString;
use std::fs;
use std::os::unix::ffi::OsStringExt;

const WORDS: &[&str] = &[
    "",
    " ",
    "-",
    "--",
    "-1",
    "0",
    "1e999",
    "NaN",
    "inf",
    "18446744073709551616",
    "0x10",
    "1,,2",
    "=",
    "a=b=c",
    ":",
    "::",
    "a:b=c,d=",
    ",",
    "/",
    ".",
    "..",
    "../../../etc/passwd",
    "/dev/null/x",
    "\u{1b}[31mred\u{7}",
    "\u{202e}evil",
    "\u{200b}",
    "\0x",
    "\r\n\n",
    "\t",
    "\u{9b}2J",
    "\u{feff}",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned",
    "| touch pwned",
    "' ; touch pwned #",
    "\" && touch pwned",
    "%s%n%x",
    "<script>alert(1)</script>",
    "]]>",
    "-oProxyCommand=touch pwned",
    "ssh://-oProxyCommand=touch pwned/",
    "exec:touch pwned",
    "\u{1f4a9}",
    "\u{e9}\u{301}",
    "socket:",
    "socket+",
    "+socket",
    "socket+uring:zc=maybe",
    "99999999999999999999s",
    "1e9h",
    "-0",
];

/// Every place on the command line that takes a word, `@`. None of these measures anything, and all
/// their files stay below the folder of the round.
const COMMANDS: &[&str] = &[
    "@",
    "run --dry-run @",
    "run --dry-run --path @",
    "run --dry-run --path socket:@",
    "run --dry-run --baseline @",
    "run --dry-run --workload @",
    "run --dry-run --workload rr:@",
    "run --dry-run --stream @",
    "run --dry-run --stream flows=@",
    "run --dry-run --link @",
    "run --dry-run --link wire:mtu=@",
    "run --dry-run --cores @",
    "run --dry-run --meters @",
    "run --dry-run --blocks @",
    "run --dry-run --warm-up @",
    "run --dry-run --window @",
    "run --dry-run --design slices:@",
    "run --dry-run --budget @",
    "run --dry-run --seed @",
    "run --dry-run --profile @",
    "run --dry-run --power @",
    "run --dry-run --settings @",
    "run --dry-run --set @",
    "run --dry-run --testbed @",
    "run --dry-run --testbed vm:@",
    "run --dry-run --kernel @",
    "run --pairs @",
    "run --pairs a --inventory @",
    "resume @",
    "show @",
    "show study --format @",
    "show study --out x@.html",
    "show study --per @",
    "compare study @",
    "compare study --baseline @",
    "compare study --fail-if @",
    "merge @ study",
    "merge study study --study x@",
    "history @",
    "history . @",
    "attach study @",
    "attach study x --rest @",
    "diff @ @",
    "diff @ x --work @",
    "diff x x --by @",
    "diff x x --threshold @",
    "diff x x --rules @",
    "profile @",
    "profile x --from @",
    "profile x --to @",
    "profile x --top @",
    "size --rate @ --rtt @",
    "size --rate 1G --rtt 1ms --mtu @ --hold @",
    "copy --engine @",
    "copy --size @ --depth @",
    "observe --pid @",
    "observe --sample @ -- true",
    "run --dry-run -P @ -l @",
    "doctor --experiment @",
    "doctor --testbed @",
    "settings @",
    "restore --testbed @",
    "schema @",
    "fleet @",
    "agent @",
];

/// Uses a hostile word as an argument, or as a string of a study.
pub fn word(lab: &mut Lab) -> Result<()> {
    if lab.one_in(2) { field(lab) } else { argument(lab) }
}

fn argument(lab: &mut Lab) -> Result<()> {
    copy_of_good(lab)?;
    for _ in 0..4 {
        let command = lab.pick(COMMANDS);
        let word = any_word(lab);
        let words = command.split(' ').map(|part| match part.split_once('@') {
            Some((before, after)) => {
                let bytes = [before.as_bytes(), &word, after.as_bytes()].concat();
                OsString::from_vec(bytes.into_iter().filter(|byte| *byte != 0).collect())
            }
            None => part.into(),
        });
        let words: Vec<OsString> = words.collect();
        lab.ask_bounded(&words)?.with_code(&[0, 2, 3, 4, 6, 7, 125])?;
    }
    Ok(())
}

fn any_word(lab: &mut Lab) -> Vec<u8> {
    let word = lab.pick(WORDS).as_bytes();
    match lab.below(8) {
        0 => word.repeat(1 + lab.below(1000)),
        1 => (0..1 + lab.below(40)).map(|_| lab.random.bits() as u8).collect(),
        2 => [word, lab.pick(WORDS).as_bytes()].concat(),
        _ => word.to_vec(),
    }
}

/// Replaces one string of a study, and reads it in every format.
fn field(lab: &mut Lab) -> Result<()> {
    let study = copy_of_good(lab)?;
    let word = String::from_utf8_lossy(&any_word(lab)).into_owned();
    let name = lab.pick(&["experiment.toml", "hosts.json", "trials.jsonl"]);
    let file = study.join(name);
    let text = fs::read_to_string(&file)?;
    let changed = match name {
        "experiment.toml" => {
            let mut all: Value = toml::from_str(&text)?;
            replace_one(lab, &mut all, &word)?;
            toml::to_string(&all)?
        }
        "hosts.json" => {
            let mut all: Value = serde_json::from_str(&text)?;
            replace_one(lab, &mut all, &word)?;
            all.to_string()
        }
        _ => {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let at = lab.below(lines.len());
            let mut trial: Value = serde_json::from_str(&lines[at])?;
            replace_one(lab, &mut trial, &word)?;
            lines[at] = trial.to_string();
            lines.join("\n") + "\n"
        }
    };
    fs::write(&file, changed)?;
    for format in FORMATS {
        lab.ask_bounded(&["show", "study", "--format", format])?.with_code(&[0, 2, 3, 6])?;
    }
    lab.ask_bounded(&["compare", "study"])?.with_code(&[0, 2, 3, 6])?;
    lab.ask_bounded(&["history", "."])?.with_code(&[0, 2, 3, 6])?;
    Ok(())
}

fn replace_one(lab: &mut Lab, value: &mut Value, word: &str) -> Result<()> {
    let mut count = 0;
    each(value, &mut |_| count += 1);
    let at = lab.below(count);
    count = 0;
    each(value, &mut |text| {
        if count == at {
            word.clone_into(text);
        }
        count += 1;
    });
    (count > 0).then_some(()).context("no string")
}

/// Applies `work` to every string of a value, except names of fields.
fn each(value: &mut Value, work: &mut impl FnMut(&mut String)) {
    match value {
        Value::String(text) => work(text),
        Value::Array(all) => all.iter_mut().for_each(|value| each(value, work)),
        Value::Object(all) => all.values_mut().for_each(|value| each(value, work)),
        _ => {}
    }
}
