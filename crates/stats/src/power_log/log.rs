//! A power log: readings of power over time, as a text table.

use super::columns::{Columns, split_unit};
use super::numbers::{Evidence, Locale};
use bytepath_record::joined;
use std::borrow::Cow;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Largest log that is read, in bytes: a week of ten readings per second.
pub const LONGEST_LOG: u64 = 256 << 20;

/// Largest plausible reading, in watts: a machine draws less, so a larger value is in another unit.
const MOST_WATTS: f64 = 1e6;

/// Readings of power over time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Log {
    /// (seconds by the log's own clock, watts), in ascending order of time.
    points: Vec<(f64, f64)>,
    column: String,
}

impl Log {
    /// Parses a table of two or more columns, separated by commas, semicolons, tabs or blanks. A
    /// first line of words names the columns: it must name the time and the active power, whose
    /// unit is applied. Without such a line, the first of two columns is the time and the second
    /// the power. `column` selects the power's column by heading or number (from 1) if several
    /// qualify. Times are seconds, milli-, micro- or nanoseconds since the Unix epoch, seconds
    /// since anything, or RFC 3339 (UTC unless a zone is given). Powers without a unit are watts.
    /// All numbers are of one locale. Lines that begin with `#` are comments, and a last line
    /// without a newline is skipped. Errors name the line.
    pub fn parse(text: &str, column: Option<&str>) -> Result<Log, String> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        // A log that is still being written may end in the middle of a line.
        let whole = text.rfind('\n').map_or(text, |end| text.get(..=end).unwrap_or(text));
        let first = whole.lines().find(|line| !line.trim().is_empty() && !line.starts_with('#'));
        let delimiter = delimiter(first.ok_or("the log is empty")?);
        let table = if delimiter == b' ' { single_blanks(whole) } else { Cow::Borrowed(whole) };
        let first = rows(&table, delimiter).next().ok_or("the log is empty")??;
        let columns = Columns::of(&first.record.iter().collect::<Vec<_>>(), column)?;
        let readings = || rows(&table, delimiter).skip(usize::from(columns.has_heading));
        let mut evidence = Evidence::default();
        for row in readings() {
            let row = row?;
            row.check_length(&columns)?;
            // Numeric, so not a date.
            let is_numeric = |b: u8| b.is_ascii_digit() || b"+-.,eE".contains(&b);
            let time = Some(row.cell(columns.time)).filter(|cell| cell.bytes().all(is_numeric));
            let (power, _) = row.power(&columns)?;
            time.into_iter().chain([power]).for_each(|cell| evidence.add(cell));
        }
        let locale = evidence.locale()?;
        let mut log = Log { column: columns.name.clone(), ..Log::default() };
        for row in readings() {
            log.enter(&row?, &columns, locale)?;
        }
        match log.points.len() {
            0 | 1 => Err("the log has fewer than two readings".into()),
            _ => Ok(log),
        }
    }

    fn enter(&mut self, row: &Row, columns: &Columns, locale: Locale) -> Result<(), String> {
        let (line, cell) = (row.line, row.cell(columns.time));
        let time = seconds(cell, columns.time_unit, locale);
        let time = time.ok_or_else(|| wrong(line, cell, "a time"))?;
        let (number, unit) = row.power(columns)?;
        let scale = match (columns.power_unit, unit) {
            (Some(heading), Some(value)) if heading != value => {
                return Err(wrong(line, row.cell(columns.power), "in the unit of its heading"));
            }
            (heading, value) => value.or(heading).unwrap_or(1.0),
        };
        let watts = locale.number(number).map(|number| number * scale);
        let watts = watts.filter(|watts| watts.abs() <= MOST_WATTS);
        let watts =
            watts.ok_or_else(|| wrong(line, row.cell(columns.power), "a power in watts"))?;
        match self.points.last() {
            Some((last, _)) if time < *last => {
                Err(format!("line {line}: the time goes backwards by {} s", last - time))
            }
            // Some meters repeat a reading; the first of them is kept.
            Some((last, _)) if time == *last => Ok(()),
            _ => {
                self.points.push((time, watts));
                Ok(())
            }
        }
    }

    /// Returns the heading of the power's column, or its number.
    pub fn column(&self) -> &str {
        &self.column
    }

    pub fn points(&self) -> &[(f64, f64)] {
        &self.points
    }

    /// Returns the first and last time, by the log's own clock.
    pub fn extent(&self) -> (f64, f64) {
        let time = |point: Option<&(f64, f64)>| point.map_or(0.0, |(time, _)| *time);
        (time(self.points.first()), time(self.points.last()))
    }

    /// Returns the median time from one reading to the next, in seconds.
    pub fn interval(&self) -> f64 {
        let mut steps: Vec<f64> =
            self.points.windows(2).map(|pair| pair[1].0 - pair[0].0).collect();
        steps.sort_by(f64::total_cmp);
        steps.get(steps.len() / 2).copied().unwrap_or(0.0)
    }

    /// Returns the joules between two moments of the log's own clock, and the number of readings
    /// between them; `None` if the log does not cover them. Interpolates linearly.
    pub fn energy(&self, begin: f64, end: f64) -> Option<(f64, u32)> {
        let (first, last) = self.extent();
        if !(begin >= first && end <= last && begin <= end) {
            return None;
        }
        let from = self.points.partition_point(|(time, _)| *time < begin);
        let to = self.points.partition_point(|(time, _)| *time <= end);
        let inside = self.points.get(from..to)?;
        let mut joules = 0.0;
        let mut before = (begin, self.at(begin)?);
        for point in inside.iter().copied().chain([(end, self.at(end)?)]) {
            joules += (point.0 - before.0) * (point.1 + before.1) / 2.0;
            before = point;
        }
        Some((joules, u32::try_from(inside.len()).unwrap_or(u32::MAX)))
    }

    /// Returns the mean of the readings before a moment of the log's own clock, and their number.
    pub fn mean_before(&self, moment: f64) -> Option<(f64, usize)> {
        let count = self.points.partition_point(|(time, _)| *time < moment);
        let sum: f64 = self.points.iter().take(count).map(|(_, watts)| watts).sum();
        (count > 0).then(|| (sum / count as f64, count))
    }

    /// Returns the interpolated watts at a moment that the log covers.
    fn at(&self, moment: f64) -> Option<f64> {
        let next = self.points.partition_point(|(time, _)| *time < moment);
        let (to, after) = *self.points.get(next)?;
        let before = next.checked_sub(1).and_then(|i| self.points.get(i));
        Some(before.map_or(after, |(from, before)| {
            before + (after - before) * (moment - from) / (to - from)
        }))
    }
}

fn wrong(line: u64, text: &str, what: &str) -> String {
    let text: String = text.chars().take(40).collect();
    format!("line {line}: '{text}' is not {what}")
}

fn delimiter(line: &str) -> u8 {
    let candidates = [b';', b'\t', b','];
    candidates.into_iter().find(|byte| line.as_bytes().contains(byte)).unwrap_or(b' ')
}

/// Replaces each run of blanks between words by a single one.
fn single_blanks(text: &str) -> Cow<'_, str> {
    let line = |line: &str| joined(line.split_whitespace(), " ") + "\n";
    Cow::Owned(text.lines().map(line).collect())
}

/// A row of the table.
struct Row {
    record: csv::StringRecord,
    line: u64,
}

impl Row {
    fn cell(&self, at: usize) -> &str {
        self.record.get(at).unwrap_or_default()
    }

    /// Returns the number in the power's cell, and the watts of the unit in that cell, if it has
    /// one.
    fn power(&self, columns: &Columns) -> Result<(&str, Option<f64>), String> {
        let parts = split_unit(self.cell(columns.power));
        parts.map_err(|cause| format!("line {}: {cause}", self.line))
    }

    fn check_length(&self, columns: &Columns) -> Result<(), String> {
        let (cells, count) = (self.record.len(), columns.count);
        if cells == count {
            return Ok(());
        }
        let line = self.line;
        Err(if cells > count {
            format!(
                "line {line} has {cells} cells, and the first line {count}: a number with a comma \
                 is quoted, or the cells are separated by semicolons"
            )
        } else {
            format!("line {line} has only {cells} of {count} cells")
        })
    }
}

fn rows(text: &str, delimiter: u8) -> impl Iterator<Item = Result<Row, String>> {
    let reader = csv::ReaderBuilder::new()
        .has_headers(false)
        .flexible(true)
        .comment(Some(b'#'))
        .delimiter(delimiter)
        .trim(csv::Trim::All)
        .from_reader(text.as_bytes());
    reader.into_records().map(|record| {
        let record = record.map_err(|e| e.to_string())?;
        let line = record.position().map_or(0, csv::Position::line);
        Ok(Row { record, line })
    })
}

/// Parses a time into seconds; `unit` is that of the heading.
fn seconds(text: &str, unit: Option<f64>, locale: Locale) -> Option<f64> {
    if let Some(number) = locale.number(text) {
        // Guess the unit by size: a number of seconds has ten digits by now, and each smaller unit
        // has three more.
        let scale = unit.unwrap_or(match number.abs() {
            n if n < 1e11 => 1.0,
            n if n < 1e14 => 1e-3,
            n if n < 1e17 => 1e-6,
            _ => 1e-9,
        });
        return Some(number * scale).filter(|seconds| seconds.abs() < 1e11);
    }
    // "2026-11-21 12:00:00.25" is RFC 3339 except for the T and the zone.
    let mut text = text.replacen(' ', "T", 1);
    let clock = text.split_once('T').map_or("", |(_, clock)| clock);
    if !clock.contains(['Z', 'z', '+', '-']) {
        text.push('Z');
    }
    let moment = OffsetDateTime::parse(&text, &Rfc3339).ok()?;
    Some(moment.unix_timestamp_nanos() as f64 * 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(text: &str) -> Vec<(f64, f64)> {
        Log::parse(text, None).unwrap().points().to_vec()
    }

    #[test]
    fn logs_of_many_meters() {
        let expected = [(1_700_000_000.0, 230.0), (1_700_000_001.0, 231.5)];
        for text in [
            "1700000000,230\n1700000001,231.5\n",
            "# a meter\ntime,volts,Power [W]\n1700000000000,230,230 W\n1700000001000,229,231.5 W\n",
            "Timestamp;Watts\n2023-11-14 22:13:20;230\n2023-11-14T22:13:21Z;231.5\n",
            "1700000000 230\n1700000001 231.5\n170000",
            "watts\ttime\n230\t2023-11-14T23:13:20+01:00\n231.5\t2023-11-14T22:13:21.000Z\n",
            "\u{feff}Time,Power (W)\n1700000000,230\n1700000001,231.5\n",
            "\"Time\",\"P [kW]\"\n1700000000,0.23\n1700000001,0.2315\n",
            "time,power_mw\n1700000000,230000\n1700000001,231500\n",
            "time,power\n1700000000,0.23 kW\n1700000001,231.5 W\n",
            "Time,Power Factor,Power (W)\n1700000000,0.98,230\n1700000001,0.98,231.5\n",
            "t,Apparent Power (VA),Active Power (W)\n1700000000,260,230\n1700000001,260,231.5\n",
            "Zeit;Leistung [W]\n1700000000,000;230,0\n1700000001,000;231,5\n",
            "time;power\n1700000000;0,23 kW\n1700000001;231,5 W\n",
            "time_us   Watts\n1700000000000000   230\n1700000001000000   231.5\n",
        ] {
            assert_eq!(parse(text), expected, "{text}");
        }
    }

    #[test]
    fn errors_name_the_line() {
        let wrong = |text: &str| Log::parse(text, None).unwrap_err();
        assert!(wrong("").contains("empty"));
        assert!(wrong("1,2\n").contains("fewer than two"));
        assert!(
            wrong("1,2\n2,x\n").contains("line 2: 'x' is not a power"),
            "{}",
            wrong("1,2\n2,x\n")
        );
        assert!(wrong("1,2\nx,2\n").contains("line 2: 'x' is not a time"));
        assert!(wrong("5,2\n4,2\n").contains("line 2: the time goes backwards by 1 s"));
        assert!(wrong("1,2\n2,nan\n").contains("line 2"));
        assert!(wrong("1,2\n2,1,150.25\n").contains("line 2 has 3 cells"));
        assert!(wrong("time,power\n1,150,25\n2,150,25\n").contains("line 2 has 3 cells"));
        assert!(wrong("time;power\n1;1,150\n2;1,150\n").contains("thousands"));
        assert!(wrong("time,power\n1,9 VA\n2,9 VA\n").contains("line 2: '9 VA' is apparent"));
        assert!(wrong("time,P [kW]\n1,9 W\n2,9 W\n").contains("in the unit of its heading"));
        assert!(wrong("time,power (MW)\n1,150\n2,150\n").contains("not a power in watts"));
        assert!(wrong("1,230,0.6,100\n2,230,0.6,100\n").contains("--column 2"));
    }

    #[test]
    fn a_column_that_is_chosen_is_read_and_named() {
        let text = "time,battery_power,grid_power\n1,5,100\n2,5,110\n";
        assert!(Log::parse(text, None).unwrap_err().contains("several of its columns"));
        let log = Log::parse(text, Some("grid_power")).unwrap();
        assert_eq!((log.points(), log.column()), (&[(1.0, 100.0), (2.0, 110.0)][..], "grid_power"));
    }

    /// With an energy meter's other columns, and times whose unit cannot be guessed from their
    /// size.
    #[test]
    fn the_unit_of_a_time_is_that_of_its_heading() {
        assert_eq!(parse("time_ms,watts\n0,5\n500,6\n"), [(0.0, 5.0), (0.5, 6.0)]);
        assert_eq!(parse("time,watts\n0,5\n500,6\n"), [(0.0, 5.0), (500.0, 6.0)]);
    }

    #[test]
    fn energy_is_the_area_under_the_readings() {
        let log = Log::parse("0,100\n10,100\n20,200\n30,200\n", None).unwrap();
        assert_eq!(log.energy(0.0, 30.0), Some((1000.0 + 1500.0 + 2000.0, 4)));
        assert_eq!(log.energy(5.0, 15.0), Some((500.0 + 625.0, 1)));
        assert_eq!(log.energy(12.0, 14.0), Some((2.0 * 130.0, 0)));
        assert_eq!(log.energy(-1.0, 5.0), None, "not covered");
        assert_eq!(log.energy(5.0, 31.0), None, "not covered");
        assert_eq!(log.mean_before(11.0), Some((100.0, 2)));
        assert_eq!(log.interval(), 10.0);
    }

    proptest! {
        #[test]
        fn any_text_is_a_log_or_an_error(text in "[0-9a-z,;:.\\n\" TZ#+-]{0,200}") {
            if let Ok(log) = Log::parse(&text, None) {
                prop_assert!(log.points().windows(2).all(|pair| pair[0].0 < pair[1].0));
            }
        }
    }
}
