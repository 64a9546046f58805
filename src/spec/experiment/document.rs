//! A TOML document whose keys and values know their places, so that every error
//! can point at a line and a column and say what would be right there.

use crate::record::{Fault, FaultKind, unit};
use crate::spec::did_you_mean;
use std::borrow::Cow;
use std::ops::{Range, RangeInclusive};
use std::time::Duration;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A place in the document, in bytes.
pub(super) type Place = Range<usize>;

/// A file's name and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// Parses the text as TOML.
    pub fn parse(self) -> Result<Spanned<DeTable<'a>>, Fault> {
        DeTable::parse(self.text).map_err(|e| {
            let place = e.span().unwrap_or(0..0);
            self.wrong(&place, format!("this is no valid TOML: {}", e.message().trim()))
        })
    }

    /// An error at a place: `FILE:LINE:COLUMN: what is wrong`, on one line.
    pub fn wrong(self, place: &Place, message: impl AsRef<str>) -> Fault {
        let (line, column) = self.line_and_column(place.start);
        let message = one_line(&format!("{}:{line}:{column}: {}", self.name, message.as_ref()));
        Fault::new(FaultKind::Usage, message)
    }

    /// Puts the place in front of a fault that was found elsewhere.
    pub fn at(self, place: &Place, fault: Fault) -> Fault {
        let placed = self.wrong(place, fault.message);
        Fault { remedy: fault.remedy.map(|remedy| one_line(&remedy)), ..placed }
    }

    /// Line and column of a byte, both counted from 1, the column in characters.
    fn line_and_column(self, at: usize) -> (usize, usize) {
        let before = &self.text.as_bytes()[..at.min(self.text.len())];
        let line = before.iter().filter(|byte| **byte == b'\n').count();
        let start = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let column = String::from_utf8_lossy(&before[start..]).chars().count();
        (line + 1, column + 1)
    }
}

/// What a file says may hold line breaks and escapes; an error is one plain line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A table of the document.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    text: Text<'a>,
    /// What it is, for errors: "an experiment".
    what: &'static str,
    /// Its entries in the order of the file.
    pub entries: Vec<Entry<'a>>,
}

/// One `key = value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    text: Text<'a>,
    /// The key.
    pub key: &'a str,
    key_span: (usize, usize),
    value: &'a Spanned<DeValue<'a>>,
}

impl<'a> Section<'a> {
    /// A table as a section.
    pub fn of(text: Text<'a>, what: &'static str, table: &'a DeTable<'a>) -> Self {
        let entry = |(key, value): (&'a Spanned<Cow<'a, str>>, &'a Spanned<DeValue<'a>>)| Entry {
            text,
            key: key.get_ref().as_ref(),
            key_span: (key.span().start, key.span().end),
            value,
        };
        let mut entries: Vec<Entry> = table.iter().map(entry).collect();
        entries.sort_by_key(|entry| entry.key_span);
        Section { text, what, entries }
    }

    /// Refuses keys that are not known here.
    pub fn only(&self, known: &[&str]) -> Result<(), Fault> {
        let Some(stray) = self.entries.iter().find(|entry| !known.contains(&entry.key)) else {
            return Ok(());
        };
        let fault = stray.wrong_key(format!("{} has no key '{}'", self.what, stray.key));
        Err(match did_you_mean(stray.key, known) {
            Some(near) => fault.remedy(format!("did you mean '{near}'?")),
            None => fault.remedy(format!("it has: {}", known.join(", "))),
        })
    }

    /// The entry of a key.
    pub fn get(&self, key: &str) -> Option<Entry<'a>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }

    /// The entry of a key that must be there; the error stands at `place`.
    pub fn need(&self, key: &str, place: &Place, example: &str) -> Result<Entry<'a>, Fault> {
        self.get(key).ok_or_else(|| {
            let text = format!("{} lacks '{key}'", self.what);
            self.text.wrong(place, text).remedy(format!("write {example}"))
        })
    }
}

impl<'a> Entry<'a> {
    /// Place of the key.
    pub fn key_place(&self) -> Place {
        self.key_span.0..self.key_span.1
    }

    /// Place of the value.
    pub fn place(&self) -> Place {
        self.value.span()
    }

    /// An error at the key.
    pub fn wrong_key(&self, message: impl AsRef<str>) -> Fault {
        self.text.wrong(&self.key_place(), message)
    }

    /// An error at the value.
    pub fn wrong(&self, message: impl AsRef<str>) -> Fault {
        self.text.wrong(&self.place(), message)
    }

    /// Puts the place of the key in front of a fault that was found elsewhere.
    pub fn fault_at_key(&self, fault: Fault) -> Fault {
        self.text.at(&self.key_place(), fault)
    }

    /// Puts the place of the value in front of a fault that was found elsewhere.
    pub fn fault(&self, fault: Fault) -> Fault {
        self.text.at(&self.place(), fault)
    }

    fn kind_error(&self, expected: &str, example: &str) -> Fault {
        let found = kind_of(self.value.get_ref());
        self.wrong(format!("'{}' takes {expected}, not {found}", self.key))
            .remedy(format!("write {} = {example}", self.key))
    }

    /// A text; `example` is shown where it is none.
    pub fn string(&self, example: &str) -> Result<&'a str, Fault> {
        match self.value.get_ref() {
            DeValue::String(text) => Ok(text),
            _ => Err(self.kind_error("a text", example)),
        }
    }

    /// A text, or none where the value is something else.
    pub fn as_string(&self) -> Option<&'a str> {
        match self.value.get_ref() {
            DeValue::String(text) => Some(text),
            _ => None,
        }
    }

    /// A whole number within a range.
    pub fn count(&self, range: RangeInclusive<u64>) -> Result<u64, Fault> {
        let DeValue::Integer(number) = self.value.get_ref() else {
            return Err(self.kind_error("a whole number", &range.start().max(&5).to_string()));
        };
        let (min, max) = (range.start(), range.end());
        u64::from_str_radix(number.as_str(), number.radix())
            .ok()
            .filter(|n| range.contains(n))
            .ok_or_else(|| self.wrong(format!("'{}' is outside {min} to {max}", self.key)))
    }

    /// A number, whole or not, within a range.
    pub fn number(&self, range: RangeInclusive<f64>) -> Result<f64, Fault> {
        let text = match self.value.get_ref() {
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.kind_error("a number", "2")),
        };
        let (min, max) = (range.start(), range.end());
        let number = text.parse::<f64>().ok().filter(|n| range.contains(n));
        number.ok_or_else(|| self.wrong(format!("'{}' is outside {min} to {max}", self.key)))
    }

    /// A share, as `"2%"` or `0.02`, within a range of percent.
    pub fn share(&self, percent: RangeInclusive<f64>) -> Result<f64, Fault> {
        let example = format!("\"{}%\"", percent.start().max(2.0).min(*percent.end()));
        let wrong = || self.kind_error("a share", &example);
        let share = match self.value.get_ref() {
            DeValue::String(text) => {
                let number = text.trim().strip_suffix('%').ok_or_else(wrong)?;
                number.trim().parse::<f64>().map_err(|_| wrong())? / 100.0
            }
            DeValue::Float(number) => number.as_str().parse::<f64>().map_err(|_| wrong())?,
            _ => return Err(wrong()),
        };
        let (min, max) = (percent.start(), percent.end());
        // The bounds are of percent; dividing them would make 5 % miss itself.
        if percent.contains(&(share * 100.0)) {
            return Ok(share);
        }
        Err(self.wrong(format!("'{}' is outside {min}% to {max}%", self.key)))
    }

    /// A duration, as `"3s"`, `"250ms"`, `"2m"` or a number of seconds.
    pub fn duration(
        &self,
        parse: impl Fn(&str) -> Result<Duration, String>,
    ) -> Result<Duration, Fault> {
        let text = match self.value.get_ref() {
            DeValue::String(text) => text.as_ref(),
            DeValue::Integer(number) if number.radix() == 10 => number.as_str(),
            DeValue::Float(number) => number.as_str(),
            _ => return Err(self.kind_error("a duration", "\"3s\"")),
        };
        parse(text).map_err(|wrong| self.wrong(format!("'{}': {wrong}", self.key)))
    }

    /// True for a table.
    pub fn is_table(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    /// A table.
    pub fn section(&self, what: &'static str, example: &str) -> Result<Section<'a>, Fault> {
        match self.value.get_ref() {
            DeValue::Table(table) => Ok(Section::of(self.text, what, table)),
            _ => Err(self.kind_error("a table", example)),
        }
    }

    /// Whether the value is a table.
    pub fn is_section(&self) -> bool {
        matches!(self.value.get_ref(), DeValue::Table(_))
    }

    /// The elements of a list; a value that is no list is a list of itself.
    pub fn list(&self) -> Vec<Entry<'a>> {
        let element = |value| Entry { value, ..*self };
        match self.value.get_ref() {
            DeValue::Array(values) => values.iter().map(element).collect(),
            _ => vec![*self],
        }
    }

    /// A level as typed: a text, a whole number, or true and false as on and off.
    pub fn level(&self) -> Result<String, Fault> {
        let level = match self.value.get_ref() {
            DeValue::String(text) => text.clone().into_owned(),
            DeValue::Integer(number) => {
                match i64::from_str_radix(number.as_str(), number.radix()) {
                    Ok(number) => number.to_string(),
                    Err(_) => {
                        return Err(self.wrong(format!("'{}': this number is too large", self.key)));
                    }
                }
            }
            DeValue::Boolean(true) => "on".to_owned(),
            DeValue::Boolean(false) => "off".to_owned(),
            other => {
                let found = kind_of(other);
                let text = format!("a level of '{}' is {found}", self.key);
                return Err(self
                    .wrong(text)
                    .remedy("a level is a text, a whole number, or true or false"));
            }
        };
        if level.chars().count() > LONGEST_LEVEL {
            let text =
                format!("a level of '{}' is longer than {LONGEST_LEVEL} characters", self.key);
            return Err(self.wrong(text));
        }
        Ok(level)
    }
}

/// Characters of a level; it ends up in the id of a cell.
const LONGEST_LEVEL: usize = 200;

fn kind_of(value: &DeValue) -> &'static str {
    match value {
        DeValue::String(_) => "this text",
        DeValue::Integer(_) => "a whole number",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

/// The longest time that anything may be asked to last.
pub(super) const LONGEST: Duration = Duration::from_secs(3600);

/// Reads a measured window: [`unit::parse_duration`] within 100 ms, the
/// shortest that a tick-based CPU figure means anything for, and one hour.
pub fn parse_window(text: &str) -> Result<Duration, String> {
    between(text, Duration::from_millis(100), "a window lasts from 100ms to 60m")
}

/// Reads a warm-up: none, or at most one hour.
pub fn parse_warm_up(text: &str) -> Result<Duration, String> {
    between(text, Duration::ZERO, "a warm-up lasts at most 60m")
}

pub(super) fn between(text: &str, least: Duration, otherwise: &str) -> Result<Duration, String> {
    let time = unit::parse_duration(text)?;
    if time < least || time > LONGEST {
        return Err(format!("'{text}': {otherwise}"));
    }
    Ok(time)
}
