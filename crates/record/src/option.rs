//! Typed options: how a catalogue entry declares what can be set, so that parsing, help text and
//! errors exist once.

use super::unit::{self, bytes};
use super::{Load, Sizes};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;
use std::fmt;

/// Declaration of one option of a path, a link preset or a workload.
#[derive(Clone, Copy, Debug, Serialize, JsonSchema)]
pub struct OptionSpec {
    /// Name as the user types it.
    pub name: &'static str,
    /// Type and range.
    #[serde(rename = "takes")]
    #[schemars(with = "String")]
    pub kind: OptionKind,
    /// Default, as the user would type it.
    pub default: &'static str,
    /// One line of help: what it does, and its unit.
    pub help: &'static str,
}

/// A default that depends on the value of another option.
#[derive(Clone, Copy, Debug)]
pub struct Implied {
    /// The other option and its value, as typed.
    pub given: (&'static str, &'static str),
    /// The option and its default then.
    pub then: (&'static str, &'static str),
}

/// Type and range of an option.
#[derive(Clone, Copy, Debug)]
pub enum OptionKind {
    /// Bytes: `4096`, `64K`, `1M` (powers of 1024). Bounds are inclusive.
    Size(u64, u64),
    /// Bytes as for `Size`, or several sizes by weight ([`Sizes`]): `64@90+16K@9+1M@1`.
    Sizes(u64, u64),
    /// A whole number, bounds inclusive.
    Count(u64, u64),
    /// `on` or `off`.
    Flag,
    /// One of a fixed set of words.
    Choice(&'static [&'static str]),
    /// Bytes as for `Size`, or `auto`, which leaves the choice to the kernel.
    AutoSize(u64, u64),
    /// A whole number within bounds, or a word: `none`, or `auto`, which leaves the choice to
    /// bytepath.
    WordCount(&'static str, u64, u64),
    /// A rate: a whole number within bounds; a percentage of the peak, `70%`, from 1 % to
    /// [`Load::MOST`]; or `auto`.
    Load(u64, u64),
    /// A time, `250ms` or `2s`, kept in milliseconds; bounds inclusive.
    Time(u64, u64),
    /// A name defined by the kernel: letters, digits, `-` and `_`.
    Name,
    /// Any text of one line.
    Text,
}

/// Value of an option after parsing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum OptionValue {
    /// A flag.
    Flag(bool),
    /// Bytes or a count.
    Number(u64),
    /// A word.
    Word(String),
}

/// Resolved options of one catalogue entry: all declared options are present.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Options(pub BTreeMap<String, OptionValue>);

impl Options {
    /// Returns a number; `None` if the value is a word or not declared.
    pub fn number(&self, name: &str) -> Option<u64> {
        match self.0.get(name) {
            Some(OptionValue::Number(n)) => Some(*n),
            _ => None,
        }
    }

    /// Returns message sizes; one byte if not declared.
    pub fn sizes(&self, name: &str) -> Sizes {
        match self.0.get(name) {
            Some(OptionValue::Number(size)) => Some(Sizes::one(*size)),
            Some(OptionValue::Word(text)) => text.parse().ok(),
            _ => None,
        }
        .unwrap_or_else(|| Sizes::one(1))
    }

    /// Returns a flag; false if not declared.
    pub fn flag(&self, name: &str) -> bool {
        matches!(self.0.get(name), Some(OptionValue::Flag(true)))
    }

    /// Returns a word; empty if not declared.
    pub fn word(&self, name: &str) -> &str {
        match self.0.get(name) {
            Some(OptionValue::Word(w)) => w,
            _ => "",
        }
    }
}

impl OptionSpec {
    /// Declares an option by its name, its type and range, and its default as typed.
    pub const fn new(name: &'static str, kind: OptionKind, default: &'static str) -> OptionSpec {
        OptionSpec { name, kind, default, help: "" }
    }

    /// Adds the line of help.
    pub const fn help(self, help: &'static str) -> OptionSpec {
        OptionSpec { help, ..self }
    }
}

impl OptionKind {
    /// Parses one value; the error describes what is valid.
    pub fn parse(&self, text: &str) -> Result<OptionValue, String> {
        let word = || Ok(OptionValue::Word(text.into()));
        match *self {
            OptionKind::AutoSize(..) if text == "auto" => word(),
            OptionKind::WordCount(special, ..) if text == special => word(),
            OptionKind::Size(min, max) | OptionKind::AutoSize(min, max) => {
                within(unit::parse_bytes(text)?, [min, max], &format!("'{text}'"), bytes)
            }
            OptionKind::Sizes(min, max) => {
                let sizes: Sizes = text.parse()?;
                let outside = || format!("'{text}' is outside {} to {}", bytes(min), bytes(max));
                match sizes.all() {
                    _ if sizes.smallest() < min || sizes.largest() > max => Err(outside()),
                    [(size, _)] => Ok(OptionValue::Number(*size)),
                    _ => Ok(OptionValue::Word(sizes.to_string())),
                }
            }
            OptionKind::Load(..) if text == "auto" => word(),
            OptionKind::Load(..) if text.ends_with('%') => {
                let percent = text.trim_end_matches('%').parse().ok();
                let percent = percent.filter(|percent| (1..=Load::MOST).contains(percent));
                let outside = || format!("'{text}' is outside 1% to {}%", Load::MOST);
                percent.map(|percent| OptionValue::Word(format!("{percent}%"))).ok_or_else(outside)
            }
            OptionKind::Count(min, max)
            | OptionKind::WordCount(_, min, max)
            | OptionKind::Load(min, max) => {
                let n: u64 = text.parse().map_err(|_| format!("'{text}' is not a whole number"))?;
                within(n, [min, max], &n.to_string(), |n| n.to_string())
            }
            OptionKind::Time(min, max) => {
                let ms = unit::parse_duration(text)?.as_millis();
                let ms = u64::try_from(ms).unwrap_or(u64::MAX);
                within(ms, [min, max], &format!("'{text}'"), milliseconds)
            }
            OptionKind::Flag => match text {
                "on" | "true" | "yes" | "1" => Ok(OptionValue::Flag(true)),
                "off" | "false" | "no" | "0" => Ok(OptionValue::Flag(false)),
                _ => Err(format!("'{text}' is neither on nor off")),
            },
            OptionKind::Choice(words) if !words.contains(&text) => {
                Err(format!("'{text}' is not one of {}", words.join(", ")))
            }
            OptionKind::Text if !is_line(text) => {
                Err(format!("'{text}' is not one line of at most 1000 bytes"))
            }
            OptionKind::Name if !is_name(text) => {
                Err(format!("'{text}' is not a name (letters, digits, - and _)"))
            }
            OptionKind::Choice(_) | OptionKind::Text | OptionKind::Name => word(),
        }
    }

    /// Formats a value of this kind such that it parses to the same value again. A count is written
    /// in digits, because a count cannot be typed as `9K`.
    pub fn print(&self, value: &OptionValue) -> String {
        match (self, value) {
            (OptionKind::Size(..) | OptionKind::AutoSize(..) | OptionKind::Sizes(..), _) => {
                value.to_string()
            }
            (OptionKind::Time(..), OptionValue::Number(ms)) => milliseconds(*ms),
            (_, OptionValue::Number(n)) => n.to_string(),
            _ => value.to_string(),
        }
    }
}

/// Checks that a number is within these bounds.
fn within(
    n: u64,
    [min, max]: [u64; 2],
    typed: &str,
    print: fn(u64) -> String,
) -> Result<OptionValue, String> {
    match (min..=max).contains(&n) {
        true => Ok(OptionValue::Number(n)),
        false => Err(format!("{typed} is outside {} to {}", print(min), print(max))),
    }
}

fn is_line(text: &str) -> bool {
    (1..=1000).contains(&text.len()) && !text.chars().any(char::is_control)
}

fn is_name(text: &str) -> bool {
    let sound = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    (1..=15).contains(&text.len()) && text.chars().all(sound)
}

fn milliseconds(ms: u64) -> String {
    if ms < 1000 {
        return format!("{ms}ms");
    }
    unit::seconds(std::time::Duration::from_millis(ms))
}

impl fmt::Display for OptionKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionKind::Size(min, max) => write!(f, "{}..{}", bytes(*min), bytes(*max)),
            OptionKind::Sizes(min, max) => {
                write!(f, "{}..{}|SIZE@WEIGHT+...", bytes(*min), bytes(*max))
            }
            OptionKind::AutoSize(min, max) => write!(f, "auto|{}..{}", bytes(*min), bytes(*max)),
            OptionKind::Count(min, max) => write!(f, "{min}..{max}"),
            OptionKind::WordCount(word, min, max) => write!(f, "{word}|{min}..{max}"),
            OptionKind::Load(min, max) => write!(f, "auto|{min}..{max}|1%..{}%", Load::MOST),
            OptionKind::Time(min, max) => {
                write!(f, "{}..{}", milliseconds(*min), milliseconds(*max))
            }
            OptionKind::Text => f.write_str("TEXT"),
            OptionKind::Flag => f.write_str("on|off"),
            OptionKind::Choice(words) => f.write_str(&words.join("|")),
            OptionKind::Name => f.write_str("NAME"),
        }
    }
}

impl Serialize for OptionKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl fmt::Display for OptionValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            OptionValue::Flag(true) => f.write_str("on"),
            OptionValue::Flag(false) => f.write_str("off"),
            OptionValue::Number(n) => f.write_str(&bytes(*n)),
            OptionValue::Word(w) => f.write_str(w),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_can_be_typed_again() {
        let kinds = [OptionKind::Size(0, 1 << 40), OptionKind::Count(0, 65_535)];
        for (kind, printed) in kinds.into_iter().zip(["9K", "9216"]) {
            let value = kind.parse("9216").unwrap();
            assert_eq!(kind.print(&value), printed);
            assert_eq!(kind.parse(printed), Ok(value));
        }
    }

    #[test]
    fn a_load_is_a_rate_or_a_part_of_the_peak() {
        let load = OptionKind::Load(1, 1000);
        let word = |text: &str| Ok(OptionValue::Word(text.into()));
        assert_eq!(load.parse("070%"), word("70%"));
        assert_eq!(load.parse("200%"), word("200%"));
        assert_eq!(load.parse("auto"), word("auto"));
        assert_eq!(load.parse("70"), Ok(OptionValue::Number(70)));
        assert_eq!(load.to_string(), "auto|1..1000|1%..200%");
        for outside in ["0%", "201%", "7.5%", "-1%", "%", "1001", "0"] {
            assert!(load.parse(outside).is_err(), "{outside}");
        }
    }
}
