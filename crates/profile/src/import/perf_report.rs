//! Output of `perf report --stdio`: a table of functions with their shares. Its columns are under a
//! ruler of dots (`tools/perf/ui/stdio/hist.c`), so they are read by position; their headings name
//! them, in any order. If a mail has collapsed the columns, [`super::mail`] reads the rows.
//!
//! ```text
//! # Overhead  Command  Shared Object      Symbol
//! # ........  .......  .................  ..............
//!      18.61%  iperf3   [kernel.kallsyms]  [k] _copy_to_iter
//! ```
//!
//! Shares are converted to weights by the line "Event count (approx.)" above the table, or stay
//! percentages without it. Call graphs below the rows are skipped: they are cut off at some share
//! and do not add up.

use super::format::{Importer, Times};
use super::lines::{Lines, digits, first_lines};
use super::number::{decimal, whole};
use crate::conventions;
use crate::text::{is_hexadecimal, quote};
use crate::{Builder, Frame, FrameKind, Header, Profile, Sample, Thread, Weight};
use bytepath_record::Fault;
use std::io::BufRead;

/// See the module documentation.
pub(super) static FORMAT: Importer = Importer {
    name: "perf-report",
    summary: "what `perf report --stdio` prints: functions and their shares",
    certain: false,
    recognises,
    read,
};

fn recognises(head: &[u8]) -> bool {
    // With anything else in between, it is a mail.
    let own = |line: &[u8]| line.first().is_none_or(|byte| b"# \t[".contains(byte));
    let lines = || first_lines(head).map(<[u8]>::trim_ascii);
    first_lines(head).all(own)
        && lines().zip(lines().skip(1)).any(|(line, next)| {
            let text = String::from_utf8_lossy(line);
            (separator(&text).is_some()
                || ruler(next).is_some_and(|places| has_double_blanks(&places)))
                && text.starts_with('#')
                && COLUMNS.iter().any(|(name, column)| column.measures() && text.contains(name))
        })
}

/// Finds the separator that `-t` puts between the columns of a heading: `#
/// Overhead,Command,Symbol`.
fn separator(heading: &str) -> Option<char> {
    let column = |text: &str| COLUMNS.iter().find(|(name, _)| text.starts_with(name));
    let text = heading.strip_prefix("# ")?;
    let rest = text.get(column(text)?.0.len()..)?.trim_start();
    let separator = rest.chars().next()?;
    column(rest.get(separator.len_utf8()..)?.trim_start()).map(|_| separator)
}

fn read(title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    let mut lines = Lines::new(title, input);
    let mut line = Vec::with_capacity(1024);
    let builder = Builder::new(Header { title: title.to_owned(), ..Header::default() });
    let mut reader = Reader { builder, ..Reader::default() };
    while lines.next(&mut line)? {
        reader.line(&line).map_err(|what| lines.fault(what))?;
        if reader.rows.len() > MOST {
            return Err(lines.fault(format!("more than {MOST} rows")));
        }
    }
    reader.finish().map_err(|what| lines.whole(what))
}

/// A table with more functions is not a report: all kernels have fewer.
const MOST: usize = 1 << 20;

/// The content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Column {
    /// Share of the whole, of the function alone.
    Share,
    Samples,
    Period,
    Command,
    PidCommand,
    TidCommand,
    Object,
    Symbol,
    Cpu,
    /// Share including callees; if one row has it, all have.
    WithCallees,
    /// Of no use here.
    Other,
}

/// Headings; longer ones come before those that they contain.
pub(super) const COLUMNS: &[(&str, Column)] = &[
    ("Overhead", Column::Share),
    ("Self", Column::Share),
    ("Children", Column::WithCallees),
    ("Samples", Column::Samples),
    ("Period", Column::Period),
    ("Pid:Command", Column::PidCommand),
    ("Tid:Command", Column::TidCommand),
    ("Command", Column::Command),
    ("Shared Object", Column::Object),
    ("Symbol", Column::Symbol),
    ("CPU", Column::Cpu),
];

impl Column {
    /// Returns whether its cells measure the function alone.
    fn measures(self) -> bool {
        matches!(self, Column::Share | Column::Samples | Column::Period)
    }

    pub(super) fn is_command(self) -> bool {
        matches!(self, Column::Command | Column::PidCommand | Column::TidCommand)
    }

    /// Parses the thread from a cell of a command column.
    fn thread(self, cell: &str) -> Thread {
        let (id, name) = match self {
            Column::PidCommand | Column::TidCommand => cell.split_once(':').unwrap_or(("", cell)),
            _ => ("", cell),
        };
        let id = id.trim().parse().unwrap_or(0);
        let (pid, tid) = if self == Column::TidCommand { (0, id) } else { (id, 0) };
        Thread { name: name.to_owned(), pid, tid }
    }
}

/// The printed values of one function.
#[derive(Default)]
pub(super) struct Row {
    pub(super) share: Option<f64>,
    pub(super) samples: Option<u64>,
    pub(super) period: Option<u64>,
    thread: Thread,
    cpu: Option<u32>,
    object: String,
    /// The function with its mark; `None` if there is no such column.
    pub(super) symbol: Option<String>,
}

impl Row {
    /// Moves an address out of the object column: `perf report -v` does not pad long names, so the
    /// address before the symbol may end up there.
    fn realign(&mut self) {
        let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if let Some((object, address)) = self.object.rsplit_once("  ")
            && address.strip_prefix("0x").is_some_and(digits)
        {
            let symbol = format!("{address} {}", self.symbol.as_deref().unwrap_or_default());
            self.symbol = Some(without_address(&symbol).to_owned());
            self.object.truncate(object.trim_end().len());
        }
    }

    /// Stores a cell; `None` if a numeric column has no number.
    pub(super) fn enter(&mut self, column: Column, cell: &str) -> Option<()> {
        match column {
            Column::Share => self.share = Some(cell.strip_suffix('%').and_then(decimal)?),
            Column::Samples => self.samples = Some(whole(cell)?),
            Column::Period => self.period = Some(whole(cell)?),
            Column::Object => self.object = cell.to_owned(),
            Column::Symbol => self.symbol = Some(without_address(cell).to_owned()),
            Column::Cpu => self.cpu = cell.parse().ok(),
            Column::WithCallees => _ = cell.strip_suffix('%').and_then(decimal)?,
            Column::Other => {}
            command => self.thread = command.thread(cell),
        }
        Some(())
    }
}

/// State of reading a report.
#[derive(Default)]
pub(super) struct Reader {
    pub(super) builder: Builder,
    /// Start, end and content of each column.
    pub(super) columns: Vec<(usize, usize, Column)>,
    /// The preceding comment, which is the heading if the ruler follows.
    pub(super) heading: Vec<u8>,
    pub(super) samples: Option<u64>,
    pub(super) total: Option<u64>,
    pub(super) rows: Vec<Row>,
    /// The table of the first event is complete.
    pub(super) more: bool,
}

impl Reader {
    fn line(&mut self, line: &[u8]) -> Result<(), String> {
        if line.starts_with(b"#") {
            return self.comment(line);
        }
        if self.more || line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.columns.is_empty() {
            return Err(match separator(&String::from_utf8_lossy(&self.heading)) {
                Some(separator) => format!(
                    "{} has '{separator}' between its columns, and perf report -t replaces that in \
                     names: print it without -t",
                    quote(line)
                ),
                None => format!("{} comes before any heading of perf report", quote(line)),
            });
        }
        if line.first().is_some_and(|byte| !byte.is_ascii_whitespace()) {
            return Err(format!("{} is not a row of perf report", quote(line)));
        }
        let row = self.row(line);
        self.rows.extend(row);
        Ok(())
    }

    fn comment(&mut self, line: &[u8]) -> Result<(), String> {
        let text = String::from_utf8_lossy(line);
        let comment = text.trim_start_matches(['#', ' ']);
        if let Some(rest) = comment.strip_prefix("Samples:") {
            let (count, event) = rest.split_once("of event").unwrap_or((rest, ""));
            let event = self::event(event)?;
            if self.samples.is_some() || !self.rows.is_empty() {
                let note = format!("left out: the table of the event {event}");
                self.more = true;
                let notes = &mut self.builder.header().notes;
                if notes.len() < 32 {
                    notes.push(note);
                }
                return Ok(());
            }
            let count = rounded(count.trim());
            self.samples =
                Some(count.ok_or_else(|| format!("{} has no number of samples", quote(line)))?);
            self.builder.header().event = event;
        } else if self.more {
            return Ok(());
        } else if let Some(rest) = comment.strip_prefix("Event count (approx.):") {
            let total = whole(rest.trim());
            self.total = Some(total.ok_or_else(|| format!("{} has no event count", quote(line)))?);
        } else if let Some(rest) = comment.strip_prefix("Total Lost Samples:") {
            self.builder.header().lost = digits(rest.trim().as_bytes()).unwrap_or(0);
        } else if let (true, Some(places)) = (self.columns.is_empty(), ruler(line)) {
            self.columns = self.headed(&places)?;
        } else {
            conventions::header_line(comment, self.builder.header());
        }
        self.heading = line.to_vec();
        Ok(())
    }

    /// Finds the heading above each section of the ruler.
    fn headed(&self, places: &[(usize, usize)]) -> Result<Vec<(usize, usize, Column)>, String> {
        let mut columns: Vec<(usize, usize, Column)> = Vec::new();
        for (begin, end) in places {
            let stop = (*end).min(self.heading.len());
            let name = self.heading.get(*begin..stop).unwrap_or_default();
            let name = String::from_utf8_lossy(name);
            let name = name.trim_matches(['#', ' ']);
            if name.contains(" / ") {
                return Err(format!(
                    "{} is of perf report --hierarchy, in which each share is in several rows: \
                     print it without --hierarchy",
                    quote(&self.heading)
                ));
            }
            let known = COLUMNS.iter().find(|(heading, _)| *heading == name);
            columns.push((*begin, *end, known.map_or(Column::Other, |(_, column)| *column)));
        }
        // The comment mark takes the first position of the first column.
        if let Some(first) = columns.first_mut() {
            first.0 = 0;
        }
        if !columns.iter().any(|(_, _, column)| column.measures()) {
            return Err(format!("{} names no share, samples or period", quote(&self.heading)));
        }
        Ok(columns)
    }

    /// Parses a row; `None` for a line of a call graph.
    fn row(&self, line: &[u8]) -> Option<Row> {
        let mut row = Row::default();
        let last = self.columns.len().saturating_sub(1);
        for (index, (begin, end, column)) in self.columns.iter().enumerate() {
            let end = if index == last { line.len() } else { (*end).min(line.len()) };
            let cell = String::from_utf8_lossy(line.get(*begin..end).unwrap_or_default());
            row.enter(*column, cell.trim())?;
        }
        row.realign();
        Some(row)
    }

    pub(super) fn finish(mut self) -> Result<Profile, String> {
        if self.rows.is_empty() {
            return Err("holds no row of perf report".into());
        }
        let total = self.total.filter(|total| *total > 0).map(|total| total as f64);
        let samples = self.samples;
        let periods = self.rows.iter().all(|row| row.period.is_some());
        let counts = self.rows.iter().all(|row| row.samples.is_some());
        let shares = self.rows.iter().all(|row| row.share.is_some());
        let header = self.builder.header();
        header.weight = if periods || shares && total.is_some() {
            conventions::weight_of(&header.event)
        } else if shares {
            Weight::Percent
        } else {
            Weight::Samples
        };
        if !periods && shares {
            header.notes.push("weights are shares rounded to 0.01 %".into());
        }
        if !counts && shares && samples.is_some() {
            header.notes.push("numbers of samples follow from shares".into());
        }
        // By its period, if nothing else gives the row's share.
        let share_of = |row: &Row| {
            let by_period = || Some(100.0 * row.period? as f64 / total?);
            row.share.or_else(by_period)
        };
        let mut rest = 100.0;
        let mut all_counts = 0;
        for row in std::mem::take(&mut self.rows) {
            let share = share_of(&row);
            rest -= share.unwrap_or(f64::INFINITY) + ROUNDED;
            let count = match (row.samples, share, samples) {
                (Some(count), _, _) => count,
                (None, Some(share), Some(all)) => (share / 100.0 * all as f64).round() as u64,
                _ => 0,
            };
            all_counts += count;
            let weight = match (row.period, row.share, total) {
                (Some(period), _, _) if periods => period as f64,
                (_, Some(share), Some(total)) if shares => share / 100.0 * total,
                (_, Some(share), _) if shares => share,
                _ => count as f64,
            };
            // Functions that only called others have no own share.
            if weight == 0.0 && count == 0 {
                continue;
            }
            let frame = self.builder.frame(frame(row.symbol.as_deref(), &row.object));
            let stack = self.builder.stack(&[frame]);
            let owner = conventions::owner(&row.thread.name, None);
            let thread = self.builder.thread(row.thread);
            let (cpu, time) = (row.cpu, None);
            self.builder.add(Sample { stack, thread, owner, cpu, time, count, weight });
        }
        // The share that the rows lack: because of a limit, a filter, or because a mail has only
        // the first lines.
        if rest > 0.0 {
            self.add_rest(rest, total, samples.map(|all| all.saturating_sub(all_counts)));
        }
        Ok(self.builder.build())
    }

    /// Adds the share of the whole, in percent, that has no row.
    fn add_rest(&mut self, share: f64, total: Option<f64>, samples: Option<u64>) {
        let header = self.builder.header();
        if header.weight == Weight::Samples && total.is_none() {
            return;
        }
        header.notes.push(format!("{share:.1}% of the whole is in no row of the table"));
        let frame = Frame { function: "[not in the table]".into(), ..Frame::default() };
        let frame = self.builder.frame(frame);
        let stack = self.builder.stack(&[frame]);
        let thread = self.builder.thread(Thread::default());
        let weight = total.map_or(share, |total| share / 100.0 * total);
        let count = samples.unwrap_or(0);
        self.builder.add(Sample { stack, thread, count, weight, ..Sample::default() });
    }
}

/// Largest rounding error of a row's share, in percent.
const ROUNDED: f64 = 0.005;

/// Parses the event in a heading, after "of event": `s 'cpu-clock:u'`. Errors for a group: the
/// count above its table is of all its events together, so no event's share is known.
pub(super) fn event(text: &str) -> Result<String, String> {
    let text = text.strip_prefix('s').unwrap_or(text).trim();
    let name = match text.split(['\'', '"']).collect::<Vec<_>>()[..] {
        [_, name, _, ..] => name,
        _ => text.split_whitespace().next().unwrap_or_default().trim_matches([',', '\'', '"']),
    };
    if name.contains("group {") {
        return Err(format!(
            "the table is of a group of events ({name}): print one for each, by perf report \
             --no-group"
        ));
    }
    Ok(name.to_owned())
}

/// Removes what `perf report -v` puts before a function's mark: `0x116d             B [.] f`.
fn without_address(cell: &str) -> &str {
    let rest = cell
        .strip_prefix("0x")
        .map(|cell| cell.trim_start_matches(|c: char| c.is_ascii_hexdigit()));
    let origin = rest.map(str::trim_start).and_then(|rest| rest.split_once(" ["));
    match origin {
        Some((letter, _)) if letter.len() == 1 => &cell[cell.find('[').unwrap_or(0)..],
        _ => cell,
    }
}

/// Returns the sections of a line of dots and blanks, `# ....  ....`.
fn ruler(line: &[u8]) -> Option<Vec<(usize, usize)>> {
    let dots = line.iter().filter(|byte| **byte == b'.').count();
    let rest = line.iter().all(|byte| matches!(byte, b'#' | b'.' | b' '));
    if dots < 3 || !rest || !line.starts_with(b"#") {
        return None;
    }
    let mut places: Vec<(usize, usize)> = Vec::new();
    for (at, _) in line.iter().enumerate().filter(|(_, byte)| **byte == b'.') {
        match places.last_mut() {
            Some((_, end)) if *end == at => *end = at + 1,
            _ => places.push((at, at + 1)),
        }
    }
    Some(places)
}

/// Returns whether there are two blanks between these sections, as perf prints them. A mail may
/// have left one, and then the rows below are not aligned with them.
fn has_double_blanks(places: &[(usize, usize)]) -> bool {
    places.windows(2).all(|pair| matches!(pair, [(_, end), (begin, _)] if begin - end > 1))
}

/// Parses `24K`: perf prints large numbers of samples rounded to thousands or millions.
pub(super) fn rounded(text: &str) -> Option<u64> {
    let scale = match text.chars().last()? {
        'K' => 1_000,
        'M' => 1_000_000,
        'G' => 1_000_000_000,
        _ => 1,
    };
    whole(text.trim_end_matches(['K', 'M', 'G']).trim())?.checked_mul(scale)
}

/// Builds the frame of a row: `[k] tcp_recvmsg`, with its module if there is a column for it.
fn frame(symbol: Option<&str>, object: &str) -> Frame {
    let (module, side) = conventions::module(object);
    let symbol = symbol.unwrap_or("[unknown]");
    let (mark, function) = match symbol.split_once(' ') {
        Some((mark @ ("[k]" | "[.]" | "[g]" | "[u]" | "[H]"), rest)) => (mark, rest.trim()),
        _ => ("", symbol),
    };
    let kind = match mark {
        "[k]" | "[g]" => FrameKind::Kernel,
        "[.]" | "[u]" => FrameKind::User,
        _ => side,
    };
    let (function, inlined) = match function.strip_suffix("(inlined)") {
        Some(function) => (function.trim(), true),
        None => (function, false),
    };
    // If a function has no name, perf prints its address with leading zeros.
    let function = match function.strip_prefix("0x") {
        Some(digits) if digits.len() > 1 && is_hexadecimal(digits) => {
            format!("0x{}", digits.trim_start_matches('0'))
        }
        _ => function.to_owned(),
    };
    Frame { function, module, kind, inlined, ..Frame::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Profile, Fault> {
        super::read("t", Times::Kept, &mut text.as_bytes())
    }

    /// Function, weight and number of samples of each row.
    fn rows(profile: &Profile) -> Vec<(String, f64, u64)> {
        let name = |s: &Sample| profile.frame(profile.stack(s.stack)[0]).function.clone();
        profile.samples().iter().map(|s| (name(s), s.weight, s.count)).collect()
    }

    const TABLE: &str = "\
# Samples: 24K of event 'cycles:P'
# Event count (approx.): 10.000.000
#
# Overhead  Command      Shared Object      Symbol
# ........  ...........  .................  ...............
#
    40,48%  tx:1 (main)  busy               [.] spin
     1,50%  net rx 0     [kernel.kallsyms]  [k] read zero
     0,00%  net rx 0     [kernel.kallsyms]  [k] nothing

#
# (Tip: nothing)
#
";

    #[test]
    fn shares_become_weights_by_the_event_count() {
        let profile = read(TABLE).unwrap();
        assert!(recognises(TABLE.as_bytes()));
        let rows = rows(&profile);
        assert_eq!(rows.len(), 3);
        assert_eq!((rows[0].0.as_str(), rows[0].2), ("spin", 9715));
        assert!((rows[0].1 - 4_048_000.0).abs() < 1e-3, "{rows:?}");
        assert_eq!(rows[1].0, "read zero");
        // The table has only 42 % of the whole, and shares refer to the whole.
        assert_eq!(rows[2].0, "[not in the table]");
        assert!((rows[2].1 - 5_800_500.0).abs() < 1e-3 && rows[2].2 == 13925, "{rows:?}");
        assert!(profile.header.notes.iter().any(|n| n.contains("58.0% of the whole")));
        assert_eq!(profile.header.event, "cycles:P");
        assert_eq!(profile.header.weight, Weight::Events);
        assert_eq!(profile.frames()[1].module, "[kernel]");
        assert_eq!(profile.threads()[0].name, "tx:1 (main)");
    }

    #[test]
    fn verbose_rows_that_are_out_of_line() {
        let text = "\
# Overhead  Command  Shared Object                     Symbol
# ........  .......  ................................  ...............
#
    70.00%  names    /opt/app/p/names  0x116d             B [.] ns::run(int)
    30.00%  names    /opt/app/p/names  0x13b1             k [k] f
";
        let profile = read(text).unwrap();
        let names: Vec<String> = rows(&profile).into_iter().map(|row| row.0).collect();
        assert_eq!(names, ["ns::run(int)", "f"]);
        assert_eq!(profile.frames()[0].module, "/opt/app/p/names");
    }

    #[test]
    fn call_chains_of_g_flat_are_no_rows() {
        let text = "\
# Samples: 100  of event 'cpu-clock'
# Event count (approx.): 1000
#
# Children      Self  Command  Symbol
# ........  ........  .......  ...............
#
   100.00%     0.00%  head     [k] entry
           4.28%
                entry
                schedule

   100.00%   100.00%  head     [k] schedule
";
        let rows = rows(&read(text).unwrap());
        assert_eq!(rows, [("schedule".to_owned(), 1000.0, 100)]);
    }

    #[test]
    fn samples_follow_from_periods_where_there_is_nothing_else() {
        let text = "\
# Samples: 10  of event 'cpu-clock'
# Event count (approx.): 1000
#
#       Period  Symbol
# ............  ..............
#
           700  [.] main
           300  [.] f
";
        let rows = rows(&read(text).unwrap());
        assert_eq!(rows, [("main".to_owned(), 700.0, 7), ("f".to_owned(), 300.0, 3)]);
    }

    #[test]
    fn shares_alone_stay_percent() {
        let text: String = TABLE.lines().skip(2).map(|line| format!("{line}\n")).collect();
        let profile = read(&text).unwrap();
        assert_eq!(profile.header.weight, Weight::Percent);
        assert_eq!(rows(&profile)[0].1, 40.48);
    }

    #[test]
    fn verbose_symbols_lose_their_addresses() {
        let verbose = TABLE
            .replace("[.] spin", "0x116d             B [.] (anonymous namespace)::f(int, char)")
            .replace("[k] read zero", "0xffffffff821f5b65 k [k] read zero");
        let rows = rows(&read(&verbose).unwrap());
        assert_eq!(rows[0].0, "(anonymous namespace)::f(int, char)");
        assert_eq!(rows[1].0, "read zero");
        assert_eq!(without_address("[.] 0x0000 [x] y"), "[.] 0x0000 [x] y");
    }

    #[test]
    fn tables_that_do_not_add_up_are_refused_with_what_does() {
        let tree = TABLE
            .replace(
                "# Overhead  Command      Shared Object      Symbol",
                "# Overhead  Command / Shared Object / Symbol",
            )
            .replace(
                "# ........  ...........  .................  ...............",
                "# ........  .................................",
            );
        assert!(read(&tree).unwrap_err().message.contains("print it without --hierarchy"));
        let group =
            TABLE.replace("event 'cycles:P'", "events 'anon group { cycles, page-faults }'");
        assert!(read(&group).unwrap_err().message.contains("--no-group"));
        let alone = TABLE.replace("of event 'cycles:P'", " of events 'cpu-clock/freq=499/u'");
        let header = read(&alone).unwrap().header;
        assert_eq!(header.event, "cpu-clock/freq=499/u");
        assert_eq!(header.weight, Weight::Nanoseconds);
    }

    #[test]
    fn garbage_is_refused_by_line() {
        for (text, line) in [
            ("hello\n", 1),
            (&format!("{TABLE}oops"), 14),
            (&TABLE.replace("24K", "many"), 1),
            (&TABLE.replace("10.000.000", "1.2.3"), 2),
            (&TABLE.replace("Overhead", "Whatever"), 5),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.message.starts_with(&format!("t, line {line}: ")), "{error}");
        }
        assert!(read("# only a comment\n").unwrap_err().message.contains("no row"));
    }
}
