//! The command that reproduces a study.

use super::setup::seconds;
use bytepath_record::{Cell, Design, SettingRecord, StudyHeader, distinct};

/// Factors of the stream in the id of a cell; any other is one of the link, except for `cores`.
const STREAM: [&str; 10] = [
    "protocol",
    "flows",
    "message-size",
    "read-size",
    "read-memory",
    "touch",
    "congestion",
    "send-buffer",
    "receive-buffer",
    "tls",
];

/// Returns the command in pieces that each belong on one line, quoted for a shell. If the study was
/// run from a file, the command names it (see [`file`]). `None` if flags cannot express it, because
/// the cells differ in more than their path.
pub(crate) fn command(header: &StudyHeader) -> Option<Vec<String>> {
    let mut pieces = match &header.source {
        Some(source) => {
            let run = vec![flag("bytepath run", &source.name)];
            run.into_iter().chain(other_testbed(header, &source.text)).collect()
        }
        None => of_flags(header)?,
    };
    pieces.extend(settings(header));
    let s = &header.schedule;
    pieces.push(match s.design {
        Design::Trials => "--design trials".to_owned(),
        Design::Slices { slice } => flag("--design", &format!("slices:{}", compact(slice))),
    });
    pieces.push(format!("--blocks {}", s.blocks));
    if let Some(budget) = s.budget.filter(|_| s.until_sure || s.first_pass().is_some()) {
        pieces.push(flag("--time", &compact(budget.seconds)));
    }
    pieces.push(flag("--warm-up", &compact(s.warm_up)));
    pieces.push(flag("--window", &compact(s.window)));
    pieces.push(format!("--seed {}", s.seed));
    Some(pieces)
}

/// Returns the file that the command names: its lines without comments and blank ones, which
/// suffices to run it.
pub(crate) fn file(header: &StudyHeader) -> Option<Vec<&str>> {
    let lines = header.source.as_ref()?.text.lines().map(str::trim_end);
    let has_content = |line: &&str| !line.is_empty() && !line.trim_start().starts_with('#');
    Some(lines.filter(has_content).collect())
}

/// Returns the part of the command that names the cells; `None` if flags cannot express it.
fn of_flags(header: &StudyHeader) -> Option<Vec<String>> {
    let cells: Vec<&Cell> = header.cells.iter().filter(|c| !c.null).collect();
    let (_, levels) = split(cells.first()?)?;
    let mut paths = Vec::new();
    let mut kernels = Vec::new();
    for cell in &cells {
        let (path, levels_of_cell) = split(cell)?;
        if levels_of_cell != levels
            || workload(cell) != workload(cells[0])
            || cell.levels.keys().any(|factor| factor != "kernel")
        {
            return None;
        }
        if !paths.contains(&path) {
            paths.push(path);
        }
        let new = cell.kernel.as_ref().filter(|kernel| !kernels.contains(kernel));
        kernels.extend(new);
    }
    // Flags always run every path on every kernel.
    if cells.len() != paths.len() * kernels.len().max(1) {
        return None;
    }
    let mut pieces = vec!["bytepath run".to_owned()];
    if header.testbed != "netns" {
        pieces.push(flag("--testbed", &header.testbed));
    }
    pieces.extend(kernels.iter().map(|kernel| flag("--kernel", &kernel.to_string())));
    pieces.extend(workload(cells.first()?).map(|workload| flag("--workload", workload)));
    pieces.extend(paths.iter().map(|path| flag("--path", path)));
    let baseline = split(cells.iter().find(|c| c.id == header.baseline)?)?.0;
    if paths.first() != Some(&baseline) {
        pieces.push(flag("--baseline", baseline));
    }
    let (mut stream, mut link) = (Vec::new(), Vec::new());
    for level in levels {
        match level.split_once('=')? {
            ("cores", cores) => pieces.push(flag("--cores", &cores.replace('/', ","))),
            (name, _) if STREAM.contains(&name) => stream.push(level),
            ("link", preset) => link.push(preset.replacen(',', ":", 1)),
            _ => link.push(format!("wire:{level}")),
        }
    }
    if !stream.is_empty() {
        pieces.push(flag("--stream", &stream.join(",")));
    }
    if let [one] = link.as_slice() {
        pieces.push(flag("--link", one));
    } else if !link.is_empty() {
        return None;
    } else if header.testbed.starts_with("ports") {
        // The preset that ids omit is not the default one there.
        pieces.push(flag("--link", &cells.first()?.link.preset));
    }
    // A stopping rule can only be declared in a file.
    header.schedule.stopping.is_none().then_some(pieces)
}

/// Returns the testbed, if it differs from the file's.
fn other_testbed(header: &StudyHeader, file: &str) -> Option<String> {
    let testbed = &header.testbed;
    let in_file = file.lines().find(|line| line.trim_start().starts_with("testbed"));
    let same = in_file.map_or(testbed == "netns", |line| line.contains(testbed.as_str()));
    (!same).then(|| flag("--testbed", testbed))
}

/// Returns the settings of the host that the file, if there is one, does not request itself.
fn settings(header: &StudyHeader) -> Vec<String> {
    let file = header.source.as_ref().map_or("", |source| source.text.as_str());
    let option = |record: &SettingRecord| match &record.profile {
        Some(profile) => ("--settings", profile.clone()),
        None => {
            let host = record.host.map_or(String::new(), |role| format!("{role}: "));
            ("--set", format!("{host}{}", record.setting))
        }
    };
    // What a testbed requested, it will request again.
    let records = header.settings.iter().filter(|record| !record.setting.is_of_testbed());
    let options = records.map(option).filter(|(_, value)| !file.contains(value));
    distinct(options.map(|(option, value)| flag(option, &value)))
}

/// Formats seconds as a user types them.
fn compact(s: f64) -> String {
    seconds(s).replace(' ', "")
}

/// Splits an id that was made from flags into path and levels.
fn split(cell: &Cell) -> Option<(&str, Vec<&str>)> {
    let mut words = cell.id.0.split(' ');
    let path = words.next().filter(|path| !path.is_empty())?;
    // The kernel, with its source, and the workload have separate options.
    let has_option = |word: &&str| word.starts_with("kernel=") || workload(cell) == Some(*word);
    let levels: Vec<&str> = words.filter(|word| !has_option(word)).collect();
    levels.iter().all(|level| level.contains('=')).then_some((path, levels))
}

/// Returns the workload as in an id, if it is not the default.
fn workload(cell: &Cell) -> Option<&str> {
    let name = &cell.workload.name;
    cell.id.0.split(' ').skip(1).find(|level| {
        level
            .strip_prefix(name.as_str())
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(':'))
    })
}

fn flag(name: &str, value: &str) -> String {
    let fine = |c: char| c.is_ascii_alphanumeric() || "+-_=:,./".contains(c);
    if !value.is_empty() && value.chars().all(fine) {
        return format!("{name} {value}");
    }
    format!("{name} '{}'", value.replace('\'', r"'\''"))
}
