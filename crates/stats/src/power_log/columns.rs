//! Finds the column of a log that has the active power, and its unit. Nothing is guessed: a log in
//! which two columns qualify is refused.

use bytepath_record::joined;

/// The columns of time and power of a log.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Columns {
    /// Whether the first line names them.
    pub has_heading: bool,
    pub time: usize,
    pub time_unit: Option<f64>,
    pub power: usize,
    /// Watts of one unit in the power's heading; `None` if that names no unit.
    pub power_unit: Option<f64>,
    /// Number of cells in each row.
    pub count: usize,
    /// The heading of the power's column, or its number.
    pub name: String,
}

impl Columns {
    /// Determines the columns from the cells of the first line: headings, or the first readings.
    /// `choice` selects the power's column by heading or number (from 1).
    pub(super) fn of(cells: &[&str], choice: Option<&str>) -> Result<Columns, String> {
        let is_heading = cells.first().is_some_and(|cell| cell.starts_with(char::is_alphabetic));
        if !is_heading {
            return Columns::without_heading(cells.len(), choice);
        }
        let time = cells.iter().position(|cell| is_time(cell)).unwrap_or(0);
        let power = match choice {
            Some(choice) => chosen(cells, choice)?,
            None => active_power(cells, time)?,
        };
        let power_unit = match quantity(cells[power]) {
            Quantity::Power(unit) => unit,
            Quantity::Other(what) => {
                return Err(format!("the column '{}' is {what}, not active power", cells[power]));
            }
            // The user selected it.
            Quantity::Unknown => None,
        };
        let time_unit = time_unit(cells[time]);
        let name = cells[power].to_owned();
        let count = cells.len();
        Ok(Columns { has_heading: true, time, time_unit, power, power_unit, count, name })
    }

    fn without_heading(count: usize, choice: Option<&str>) -> Result<Columns, String> {
        let power = match choice {
            Some(choice) => choice.parse::<usize>().ok().filter(|n| (1..=count).contains(n)),
            None if count == 2 => Some(2),
            None => {
                return Err(format!(
                    "it has {count} columns and no heading: name that of the power, as in \
                     --column 2"
                ));
            }
        };
        let number = power.ok_or_else(|| {
            format!("it has no heading, so --column is a number from 1 to {count}")
        })?;
        let name = format!("column {number}");
        Ok(Columns { power: number - 1, count, name, ..Columns::default() })
    }
}

/// Splits off a unit at the end of a value, as in `230 W`. Returns the number, and the watts of one
/// unit if there is one.
pub(super) fn split_unit(text: &str) -> Result<(&str, Option<f64>), String> {
    let end = text.trim_end_matches(|c: char| c.is_alphabetic() || c == 'µ').len();
    let (number, unit) = text.split_at(end);
    if unit.is_empty() || number.trim().is_empty() {
        return Ok((text, None));
    }
    match unit_of(unit) {
        Some(Quantity::Power(watts)) => Ok((number.trim_end(), watts)),
        Some(Quantity::Other(what)) => Err(format!("'{text}' is {what}, not active power")),
        _ => Err(format!("'{text}' is not a power: '{unit}' is no unit of it")),
    }
}

/// The quantity that a heading names.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantity {
    /// Active power, with the watts of its unit if the heading has one.
    Power(Option<f64>),
    /// Any other quantity that a meter reports, in words.
    Other(&'static str),
    Unknown,
}

/// Words for active power, used if there is a column of apparent power too.
const ACTIVE: [&str; 4] = ["active", "real", "true", "wirk"];

fn active_power(cells: &[&str], time: usize) -> Result<usize, String> {
    let is_power = |at: &usize| *at != time && matches!(quantity(cells[*at]), Quantity::Power(_));
    let candidates: Vec<usize> = (0..cells.len()).filter(is_power).collect();
    let is_active = |at: &&usize| {
        let name = cells[**at].to_lowercase();
        ACTIVE.iter().any(|word| name.contains(word))
    };
    let active: Vec<&usize> = candidates.iter().filter(is_active).collect();
    match (&candidates[..], &active[..]) {
        ([one], _) => Ok(*one),
        (_, [one]) => Ok(**one),
        ([], _) => Err(format!(
            "none of its columns is active power ({}): name it with --column",
            quoted(cells)
        )),
        (several, _) => {
            let names: Vec<&str> = several.iter().map(|at| cells[*at]).collect();
            Err(format!("several of its columns are power: choose --column {}", quoted(&names)))
        }
    }
}

fn chosen(cells: &[&str], choice: &str) -> Result<usize, String> {
    let named: Vec<usize> =
        (0..cells.len()).filter(|at| cells[*at].eq_ignore_ascii_case(choice.trim())).collect();
    let number = choice.parse::<usize>().ok().filter(|n| (1..=cells.len()).contains(n));
    match (&named[..], number) {
        ([one], _) => Ok(*one),
        ([], Some(number)) => Ok(number - 1),
        ([], None) => Err(format!("it has no column '{choice}', but {}", quoted(cells))),
        _ => Err(format!("several of its columns are called '{choice}': give its number")),
    }
}

fn is_time(heading: &str) -> bool {
    let name = heading.to_lowercase();
    ["time", "date", "epoch", "zeit", "datum"].iter().any(|mark| name.contains(mark))
        || matches!(name.as_str(), "t" | "ts" | "s" | "seconds")
}

/// Returns the seconds of one unit of a heading such as `time_ms`.
fn time_unit(heading: &str) -> Option<f64> {
    match words(heading).last()?.to_lowercase().as_str() {
        "s" | "sec" | "secs" | "second" | "seconds" => Some(1.0),
        "ms" | "msec" | "milliseconds" => Some(1e-3),
        "us" | "µs" | "μs" | "usec" | "microseconds" => Some(1e-6),
        "ns" | "nsec" | "nanoseconds" => Some(1e-9),
        _ => None,
    }
}

fn quantity(heading: &str) -> Quantity {
    let words = words(heading);
    let name = heading.to_lowercase();
    let has = |marks: &[&str]| marks.iter().any(|mark| name.contains(mark));
    if has(&["factor", "faktor", "cos"]) || words.iter().any(|w| w.eq_ignore_ascii_case("pf")) {
        return Quantity::Other("a power factor");
    }
    let is_power = has(&["power", "watt", "leistung", "puissance", "potencia", "potenza"])
        || words.iter().any(|word| matches!(word.to_lowercase().as_str(), "p" | "pwr"));
    let last = words.last().copied().unwrap_or_default();
    // In `PowerkW` and `PeakW` the letter before the W may belong to the unit or to the name.
    if last == "W" && heading.ends_with('W') && has_hump_before_unit(heading) {
        return Quantity::Other("of a unit that its name does not tell");
    }
    // In `Power A` the letter is a phase, not a unit.
    let is_letter = last.len() == 1 && !heading.ends_with([')', ']', '}']);
    match unit_of(last) {
        Some(Quantity::Other(_)) if is_power && is_letter => return Quantity::Power(None),
        Some(unit) => return unit,
        None => {}
    }
    if has(&["apparent", "schein"]) {
        return Quantity::Other("apparent power");
    }
    if has(&["reactive", "blind"]) {
        return Quantity::Other("reactive power");
    }
    if has(&["energy", "energie"]) {
        return Quantity::Other("energy");
    }
    if is_power { Quantity::Power(None) } else { Quantity::Unknown }
}

/// Returns whether the `W` is preceded by a lower-case letter that may be the prefix of a unit and
/// that follows another lower-case letter.
fn has_hump_before_unit(heading: &str) -> bool {
    let mut letters = heading.chars().rev().skip(1);
    letters.next().is_some_and(|c| "kmuµμn".contains(c))
        && letters.next().is_some_and(char::is_lowercase)
}

/// Splits a heading into words, with its unit last: at brackets, underscores and changes from lower
/// to upper case, except within a unit with a prefix (`kW`).
fn words(heading: &str) -> Vec<&str> {
    let is_word = |c: char| c.is_alphanumeric() || c == '%' || c == '°';
    let pieces = heading.split(|c: char| !is_word(c)).filter(|piece| !piece.is_empty());
    let words = |piece| if unit_of(piece).is_some() { vec![piece] } else { humps(piece) };
    pieces.flat_map(words).collect()
}

/// Splits a piece at changes of case: `PkgWatt` and `powerKW` into two each.
fn humps(piece: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    for (at, letter) in piece.char_indices() {
        if letter.is_uppercase() && piece[..at].ends_with(char::is_lowercase) {
            parts.push(&piece[begin..at]);
            begin = at;
        }
    }
    parts.push(&piece[begin..]);
    parts
}

/// Returns the quantity of a unit; `None` if meters use no such unit.
fn unit_of(word: &str) -> Option<Quantity> {
    use Quantity::{Other, Power};
    Some(match word {
        // Only the case distinguishes it from mW.
        "MW" => Power(Some(1e6)),
        _ => match word.to_lowercase().as_str() {
            "w" | "watt" | "watts" => Power(Some(1.0)),
            "kw" | "kilowatt" | "kilowatts" => Power(Some(1e3)),
            "mw" | "milliwatt" | "milliwatts" => Power(Some(1e-3)),
            "uw" | "µw" | "μw" | "microwatt" | "microwatts" => Power(Some(1e-6)),
            "nw" | "nanowatt" | "nanowatts" => Power(Some(1e-9)),
            "va" | "kva" | "mva" => Other("apparent power"),
            "var" | "kvar" | "mvar" => Other("reactive power"),
            "wh" | "kwh" | "mwh" | "uwh" | "j" | "kj" | "mj" | "uj" | "joule" | "joules" | "ws" => {
                Other("energy")
            }
            "v" | "mv" | "kv" | "volt" | "volts" => Other("a voltage"),
            "a" | "ma" | "amp" | "amps" | "ampere" | "amperes" => Other("a current"),
            "hz" | "khz" | "mhz" | "ghz" => Other("a frequency"),
            "c" | "°c" | "degc" | "°" | "k" => Other("a temperature or a phase"),
            "%" | "percent" => Other("a percentage"),
            "dbm" => Other("a level in decibels"),
            _ => return None,
        },
    })
}

/// Joins quoted names.
fn quoted(names: &[&str]) -> String {
    joined(names.iter().map(|name| format!("'{name}'")), ", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_name_quantity_and_unit() {
        let watts = |scale| Quantity::Power(Some(scale));
        for (heading, expected) in [
            ("Power (W)", watts(1.0)),
            ("watts", watts(1.0)),
            ("PkgWatt", watts(1.0)),
            ("power.draw [W]", watts(1.0)),
            ("Active Power/W", watts(1.0)),
            ("powerW", watts(1.0)),
            ("Leistung in Watt", watts(1.0)),
            ("P [kW]", watts(1e3)),
            ("power_kw", watts(1e3)),
            ("powerKW", watts(1e3)),
            ("Kilowatts", watts(1e3)),
            ("power (MW)", watts(1e6)),
            ("power_mw", watts(1e-3)),
            ("power {mW}", watts(1e-3)),
            ("milliwatts", watts(1e-3)),
            ("Power (µW)", watts(1e-6)),
            ("power1_input (uW)", watts(1e-6)),
            ("power", Quantity::Power(None)),
            ("P", Quantity::Power(None)),
            ("Power Factor", Quantity::Other("a power factor")),
            ("PF", Quantity::Other("a power factor")),
            ("Apparent Power (VA)", Quantity::Other("apparent power")),
            ("Apparent Power", Quantity::Other("apparent power")),
            ("Reactive Power [VAr]", Quantity::Other("reactive power")),
            ("power_kva", Quantity::Other("apparent power")),
            ("Energy (Wh)", Quantity::Other("energy")),
            ("power_kWh", Quantity::Other("energy")),
            ("energyTotal", Quantity::Other("energy")),
            ("Voltage (V)", Quantity::Other("a voltage")),
            ("Power (%)", Quantity::Other("a percentage")),
            ("PowerkW", Quantity::Other("of a unit that its name does not tell")),
            ("Power A", Quantity::Power(None)),
            ("Power A (W)", watts(1.0)),
            ("Current (A)", Quantity::Other("a current")),
            ("RAMWatt", Quantity::Power(None)),
            ("fan", Quantity::Unknown),
        ] {
            assert_eq!(quantity(heading), expected, "{heading}");
        }
    }

    #[test]
    fn active_power_is_preferred_and_others_are_asked_for() {
        let of = |cells: &[&str], choice| Columns::of(cells, choice).map(|c| (c.power, c.name));
        let name = |at: usize, name: &str| Ok((at, name.to_owned()));
        assert_eq!(of(&["t", "Power Factor", "Power (W)"], None), name(2, "Power (W)"));
        let both = ["Time", "Apparent Power (VA)", "Active Power (W)"];
        assert_eq!(of(&both, None), name(2, "Active Power (W)"));
        assert!(of(&both, Some("2")).unwrap_err().contains("is apparent power"));
        let real = ["time", "Total Power (W)", "Real Power (W)"];
        assert_eq!(of(&real, None), name(2, "Real Power (W)"));
        let several = ["time", "battery_power", "grid_power"];
        let refused = of(&several, None).unwrap_err();
        assert!(refused.contains("--column 'battery_power', 'grid_power'"), "{refused}");
        assert_eq!(of(&several, Some("GRID_POWER")), name(2, "grid_power"));
        assert_eq!(of(&several, Some("2")), name(1, "battery_power"));
        assert!(of(&several, Some("solar")).unwrap_err().contains("no column 'solar'"));
        assert!(of(&["time", "Power Factor"], None).unwrap_err().contains("none of its columns"));
        assert!(of(&["1", "230", "0.6", "100"], None).unwrap_err().contains("no heading"));
        assert_eq!(of(&["1", "230", "0.6", "100"], Some("4")), name(3, "column 4"));
        assert_eq!(of(&["1", "230"], None), name(1, "column 2"));
    }

    #[test]
    fn values_may_have_a_unit() {
        assert_eq!(split_unit("150.25 W"), Ok(("150.25", Some(1.0))));
        assert_eq!(split_unit("0.15kW"), Ok(("0.15", Some(1e3))));
        assert_eq!(split_unit("150"), Ok(("150", None)));
        assert!(split_unit("150 VA").unwrap_err().contains("apparent"));
        assert!(split_unit("150 foo").unwrap_err().contains("no unit"));
        assert_eq!(split_unit("NaN"), Ok(("NaN", None)), "what is no number is refused elsewhere");
    }
}
