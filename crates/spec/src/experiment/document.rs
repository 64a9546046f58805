//! The content of an experiment file, as parsed from TOML. Every value that is validated later
//! keeps its position, so that each error can name a line and a column and what would be valid
//! there.

use super::catalogues::Catalogues;
use super::schema;
use crate::options::{cut, short};
use crate::{suggest, usage};
use bytepath_record::{Fault, is_unsafe_to_display};
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Value, json};
use std::fmt;
use std::ops::RangeInclusive;
use toml::Spanned;

/// An experiment file of bytepath
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
#[schemars(title = "Experiment")]
pub(super) struct Document {
    /// What the experiment is about, one line
    #[schemars(length(max = LONGEST_TITLE))]
    pub title: Option<Placed<String>>,
    /// The workload, with options as in rr:request=64
    pub workload: Option<Placed<String>>,
    /// Where the roles run
    pub testbed: Option<Placed<String>>,
    /// The cell that all others are compared with: a path, or a table of levels
    #[serde(default)]
    #[schemars(schema_with = "schema::baseline")]
    pub baseline: Option<Placed<Item>>,
    /// Passes over all cells, each in random order; with stop, the maximum
    #[schemars(range(min = 1, max = MOST_BLOCKS))]
    pub blocks: Option<Placed<i64>>,
    /// Time for which traffic flows before the window
    pub warm_up: Option<Placed<Time>>,
    /// The measured time of one trial
    pub window: Option<Placed<Time>>,
    /// Seed of the random order; without it, the order is different each time
    #[schemars(range(min = 0))]
    pub seed: Option<Placed<i64>>,
    /// Differences within this share are too small to matter
    pub margin: Option<Placed<Share>>,
    /// Confidence of each interval by itself, and of the verdicts over the whole matrix
    pub confidence: Option<Placed<Share>>,
    /// Exponents of throughput and power in the return on investment
    pub roi: Option<Roi>,
    /// How the cells of a block share its time: "trials" or "slices:TIME"
    #[schemars(regex(pattern = "^(trials|slices(:.+)?)$"))]
    pub design: Option<Placed<String>>,
    /// Stopping rule: within this share, after at least this many blocks
    pub stop: Option<Placed<Stop>>,
    /// Time that the study may take: "2h"; it ends earlier once its answer is certain
    #[serde(alias = "budget")]
    pub time: Option<Placed<Time>>,
    /// Share of a role's CPU that others may use before a trial is rejected: "10%"; without it, such trials count, marked
    pub max_interference: Option<Placed<Share>>,
    /// A meter, "default", "all" or "none", or a list of them
    #[schemars(with = "Option<Value>")]
    pub meters: Option<Placed<Item>>,
    /// Profiles taken at the end: "none", "leading", "largest" or "all", with options as in leading:rate=499
    #[schemars(regex(pattern = schema::profile()))]
    pub profile: Option<Placed<String>>,
    /// Source of power readings: "auto", "rapl", "csv=FILE" ..., with options
    #[schemars(regex(pattern = schema::power()))]
    pub power: Option<Placed<String>>,
    /// Settings of the host to make and restore: a profile, or a table of profile and set
    #[serde(default)]
    #[schemars(schema_with = "schema::settings")]
    pub settings: Option<Placed<Item>>,
    /// The factors to vary, each with a level or a list of levels
    #[schemars(schema_with = "schema::factors")]
    pub factors: Option<Placed<Item>>,
    /// Combinations of levels to leave out
    #[serde(default)]
    #[schemars(schema_with = "schema::exclude")]
    pub exclude: Option<Placed<Item>>,
}

/// Returns the schema of an experiment file, as far as a schema can express it: names of keys and
/// factors, types, words. Ranges of sizes, and whether the parts fit together, are checked only by
/// [`parse_experiment`](crate::parse_experiment).
pub fn experiment_schema(catalogues: &Catalogues) -> Value {
    let settings = SchemaSettings::draft2020_12().with(|s| s.inline_subschemas = true);
    let generator = SchemaGenerator::new(settings);
    let mut document = generator.into_root_schema_for::<Document>().to_value();
    let testbeds = schema::named(catalogues.testbeds.iter().map(|testbed| testbed.name), ":");
    document["properties"]["testbed"]["pattern"] = testbeds.into();
    let meters = [&["default", "usual", "all", "none"], &catalogues.meters[..]].concat();
    let meter = json!({"enum": meters});
    document["properties"]["meters"]["anyOf"] = json!([meter, schema::list(&meter)]);
    document
}

/// Most blocks of a study.
pub const MOST_BLOCKS: u32 = 1000;

/// Longest title, in characters: it heads a page with 72 columns.
pub(super) const LONGEST_TITLE: usize = 200;

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, expecting = "a table of throughput and power")]
pub(super) struct Roi {
    /// Exponent of throughput
    #[schemars(range(min = 0, max = 10))]
    pub throughput: Option<Placed<f64>>,
    /// Exponent of power
    #[schemars(range(min = 0, max = 10))]
    pub power: Option<Placed<f64>>,
}

#[derive(Debug, Deserialize, JsonSchema)]
#[serde(
    deny_unknown_fields,
    rename_all = "kebab-case",
    expecting = "a table of within and at-least"
)]
pub(super) struct Stop {
    /// How narrow every interval must be
    pub within: Placed<Share>,
    /// Blocks to run in any case
    #[schemars(range(min = 2, max = MOST_BLOCKS))]
    pub at_least: Option<Placed<i64>>,
}

// A value with its position; not a doc comment, which would hide the value's own in the schema.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(super) struct Placed<T>(#[schemars(with = "T")] Spanned<T>);

impl<T> Placed<T> {
    pub(super) fn get(&self) -> &T {
        self.0.get_ref()
    }

    /// Returns the byte offset of its beginning.
    pub(super) fn at(&self) -> usize {
        self.0.span().start
    }
}

/// A duration: `"3s"`, `"250ms"`, `"2m"` or a number of seconds.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write a duration, such as \"3s\"")]
pub(super) enum Time {
    Text(String),
    /// Only 0 is valid without a unit.
    Number(#[schemars(range(min = 0, max = 0))] f64),
}

/// A share: `"2%"` or 0.02.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "write a share, such as \"2%\"")]
pub(super) enum Share {
    Text(#[schemars(regex(pattern = "^ *[0-9.]+ *% *$"))] String),
    Part(#[schemars(extend("exclusiveMinimum" = 0, "exclusiveMaximum" = 1))] f64),
}

/// A value in the words of the catalogues.
#[derive(Clone, Debug)]
pub(super) enum Item {
    /// A text as typed, a whole number, or a boolean as on or off.
    Word(String),
    List(Vec<Placed<Item>>),
    /// In the order of the file.
    Table(Vec<(Placed<String>, Placed<Item>)>),
}

impl<'de> Deserialize<'de> for Item {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Item, D::Error> {
        deserializer.deserialize_any(ItemVisitor)
    }
}

struct ItemVisitor;

impl<'de> Visitor<'de> for ItemVisitor {
    type Value = Item;

    fn expecting(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.write_str("a string, an integer, or true or false")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Item, E> {
        Ok(Item::Word(text.to_owned()))
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<Item, E> {
        Ok(Item::Word(number.to_string()))
    }

    fn visit_bool<E: Error>(self, on: bool) -> Result<Item, E> {
        Ok(Item::Word(if on { "on" } else { "off" }.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Item, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element()? {
            list.push(item);
        }
        Ok(Item::List(list))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Item, A::Error> {
        let mut table: Vec<(Placed<String>, Placed<Item>)> = Vec::new();
        while let Some(entry) = entries.next_entry()? {
            table.push(entry);
        }
        table.sort_by_key(|(key, _)| key.at());
        Ok(Item::Table(table))
    }
}

/// The name of a file and its text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'a> {
    pub name: &'a str,
    pub text: &'a str,
}

impl<'a> Text<'a> {
    /// Parses the text as an experiment.
    pub(super) fn parse(self) -> Result<Document, Fault> {
        let parsed = toml::Deserializer::parse(self.text).map_err(|e| {
            let at = e.span().map_or(0, |span| span.start);
            self.wrong(at, format!("this is not valid TOML: {}", e.message().trim()))
        })?;
        Document::deserialize(parsed).map_err(|e| self.unreadable(&e))
    }

    /// Rewords an error of serde: the line, what is wrong with it, and what is allowed there.
    fn unreadable(self, error: &toml::de::Error) -> Fault {
        let place = error.span().unwrap_or(0..0);
        let message = error.message().replace("string \"$__toml_private_datetime\"", "date");
        let (cause, expected) = match message.rsplit_once(", expected ") {
            Some((cause, expected)) => (cause, Some(expected)),
            None => (message.trim(), None),
        };
        let line = self.text[..place.start].rfind('\n').map_or(0, |newline| newline + 1);
        let line = self.text[line..].lines().next().unwrap_or_default().trim();
        let fault = self.wrong(place.start, format!("{}: {cause}", short(line)));
        let Some(expected) = expected else { return fault };
        let names: Vec<&str> = expected.split('`').skip(1).step_by(2).collect();
        match expected {
            "i64" => fault.remedy("write an integer"),
            "f64" => fault.remedy("write a number"),
            "a string" | "a spanned value" => fault.remedy("write a quoted string"),
            _ if names.is_empty() => fault.remedy(format!("write {expected}")),
            _ => suggest(fault, self.text[place].trim_matches(['"', '\'']), names),
        }
    }

    /// Creates an error at a position: `FILE:LINE:COLUMN: what is wrong`, on one line.
    pub(super) fn wrong(self, at: usize, message: impl AsRef<str>) -> Fault {
        let before = String::from_utf8_lossy(&self.text.as_bytes()[..at]);
        let line = before.matches('\n').count() + 1;
        let column = before.chars().rev().take_while(|c| *c != '\n').count() + 1;
        let message = format!("{}:{line}:{column}: {}", self.name, message.as_ref());
        usage(one_line(&message))
    }

    /// Prefixes a fault with its position.
    pub(super) fn at(self, at: usize, fault: Fault) -> Fault {
        let placed = self.wrong(at, fault.message);
        Fault { remedy: fault.remedy.map(|remedy| one_line(&remedy)), ..placed }
    }

    /// Parses a value; faults are prefixed with its position.
    pub(super) fn read<T>(
        self,
        value: Option<&Placed<String>>,
        parse: impl FnOnce(&str) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        let read = |value: &Placed<String>| parse(value.get()).map_err(|f| self.at(value.at(), f));
        value.map(read).transpose()
    }

    /// Checks that a number is within a range.
    pub(super) fn within<T: PartialOrd + Copy + fmt::Display>(
        self,
        value: Option<&Placed<T>>,
        range: RangeInclusive<T>,
    ) -> Result<Option<T>, Fault> {
        let within = |value: &Placed<T>| match *value.get() {
            number if range.contains(&number) => Ok(number),
            number => {
                let (min, max) = (range.start(), range.end());
                Err(self.wrong(value.at(), format!("{number} is outside {min} to {max}")))
            }
        };
        value.map(within).transpose()
    }
}

/// A table of the file.
#[derive(Clone, Debug)]
pub(super) struct Section<'a> {
    /// Its name in errors: "an experiment".
    what: &'static str,
    /// Its entries, in the order of the file.
    pub entries: Vec<Entry<'a>>,
}

/// One `key = value`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry<'a> {
    text: Text<'a>,
    /// The key.
    pub key: &'a str,
    /// Byte offset of the key.
    key_at: usize,
    value: &'a Placed<Item>,
}

impl<'a> Section<'a> {
    /// Errors if there are keys that are not known here.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Fault> {
        let Some(stray) = self.entries.iter().find(|entry| !known.contains(&entry.key)) else {
            return Ok(());
        };
        let fault = stray.wrong_key(format!("{} has no key '{}'", self.what, short(stray.key)));
        Err(suggest(fault, stray.key, known.iter().copied()))
    }

    /// Returns the entry of a key.
    pub(super) fn get(&self, key: &str) -> Option<Entry<'a>> {
        self.entries.iter().find(|entry| entry.key == key).copied()
    }
}

impl<'a> Entry<'a> {
    /// Creates an entry for a key of the experiment itself; errors at its key are reported at its
    /// value.
    pub(super) fn top(
        text: Text<'a>,
        key: &'a str,
        value: &'a Option<Placed<Item>>,
    ) -> Option<Self> {
        value.as_ref().map(|value| Entry { text, key, key_at: value.at(), value })
    }

    /// Creates an error at the key.
    pub(super) fn wrong_key(&self, message: impl AsRef<str>) -> Fault {
        self.text.wrong(self.key_at, message)
    }

    /// Creates an error at the value.
    pub(super) fn wrong(&self, message: impl AsRef<str>) -> Fault {
        self.text.wrong(self.value.at(), message)
    }

    /// Prefixes a fault with the position of the key.
    pub(super) fn fault_at_key(&self, fault: Fault) -> Fault {
        self.text.at(self.key_at, fault)
    }

    /// Prefixes a fault with the position of the value.
    pub(super) fn fault(&self, fault: Fault) -> Fault {
        self.text.at(self.value.at(), fault)
    }

    /// Returns the value as a word; `None` if it is a list or a table.
    pub(super) fn word(&self) -> Option<&'a str> {
        match self.value.get() {
            Item::Word(word) => Some(word),
            _ => None,
        }
    }

    /// Returns the value as a word; errors if it is not one.
    pub(super) fn one_word(&self) -> Result<&'a str, Fault> {
        self.word().ok_or_else(|| {
            let fault = self.wrong(format!("'{}' takes one value here", short(self.key)));
            fault.remedy("write a string, an integer, or true or false")
        })
    }

    /// Parses the value as one word; faults are prefixed with its position.
    pub(super) fn read<T>(&self, parse: impl Fn(&str) -> Result<T, Fault>) -> Result<T, Fault> {
        parse(self.one_word()?).map_err(|fault| self.fault(fault))
    }

    /// Returns a level as typed. It must be one short line, because reports and errors about other
    /// levels repeat it.
    pub(super) fn level(&self) -> Result<&'a str, Fault> {
        let level = self.one_word()?;
        if level.contains(is_unsafe_to_display) {
            let text = format!("a level of '{}' has a tab, line break or the like in it", self.key);
            return Err(self.wrong(text).remedy("write it on one line, with spaces alone"));
        }
        if level.chars().count() > LONGEST_LEVEL {
            let text =
                format!("a level of '{}' is longer than {LONGEST_LEVEL} characters", self.key);
            return Err(self.wrong(text));
        }
        Ok(level)
    }

    /// Returns whether the value is a table.
    pub(super) fn is_section(&self) -> bool {
        matches!(self.value.get(), Item::Table(_))
    }

    /// Returns the value as a table.
    pub(super) fn section(&self, what: &'static str, example: &str) -> Result<Section<'a>, Fault> {
        let Item::Table(table) = self.value.get() else {
            let fault = self.wrong(format!("'{}' takes a table", self.key));
            return Err(fault.remedy(format!("write {} = {example}", self.key)));
        };
        let entry = |(key, value): &'a (Placed<String>, Placed<Item>)| Entry {
            text: self.text,
            key: key.get(),
            key_at: key.at(),
            value,
        };
        Ok(Section { what, entries: table.iter().map(entry).collect() })
    }

    /// Returns the elements of a list; any other value counts as a list of one.
    pub(super) fn list(&self) -> Vec<Entry<'a>> {
        match self.value.get() {
            Item::List(items) => items.iter().map(|value| Entry { value, ..*self }).collect(),
            _ => vec![*self],
        }
    }
}

/// Most characters of a level.
const LONGEST_LEVEL: usize = 200;

/// Makes an error one plain line: a file may contain long texts, line breaks and escapes.
fn one_line(text: &str) -> String {
    cut(text, 1000).chars().map(|c| if is_unsafe_to_display(c) { ' ' } else { c }).collect()
}
