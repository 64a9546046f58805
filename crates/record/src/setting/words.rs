//! Parser for settings as users write them, one line each.

use super::kinds::{SETTING_FORMS, parse};
use super::names::tame;
use super::{Cpus, DeviceName, IdleChoice, NumaNode, Setting, Split, Word};
use crate::{Fault, joined, unit};
use std::net::IpAddr;
use std::str::FromStr;

impl FromStr for Setting {
    type Err = Fault;

    fn from_str(text: &str) -> Result<Self, Fault> {
        let (name, rest) = text.trim().split_once(char::is_whitespace).unwrap_or((text.trim(), ""));
        let kinds =
            || SETTING_FORMS.iter().filter_map(|(form, _)| Some((form.split(' ').next()?, form)));
        let Some((_, form)) = kinds().find(|(kind, _)| *kind == name) else {
            let names = joined(kinds().map(|(kind, _)| kind), ", ");
            return Err(wrong(format!("there is no setting '{}'", tame(name)))
                .remedy(format!("choose from {names}")));
        };
        let mut words = Words::new(rest.trim());
        let parsed = parse(name, &mut words).and_then(|setting| words.done().map(|()| setting));
        let setting = parsed.map_err(|fault| {
            let remedy = fault.remedy.clone().unwrap_or_else(|| format!("write {form}"));
            fault.context(format!("setting '{}'", tame(text.trim()))).remedy(remedy)
        })?;
        setting.checked()
    }
}

/// The words after the name of a kind: plain ones (in reverse order) and pairs NAME=VALUE.
pub(super) struct Words<'t> {
    text: &'t str,
    plain: Vec<&'t str>,
    pairs: Vec<(&'t str, &'t str)>,
}

impl<'t> Words<'t> {
    fn new(text: &'t str) -> Self {
        let (pairs, mut plain): (Vec<_>, Vec<_>) =
            text.split_whitespace().partition(|word| word.contains('='));
        plain.reverse();
        let pairs = pairs.into_iter().filter_map(|pair| pair.split_once('=')).collect();
        Words { text, plain, pairs }
    }

    /// Takes all of them, as written.
    pub(super) fn rest(&mut self) -> &'t str {
        self.plain.clear();
        self.pairs.clear();
        self.text
    }

    pub(super) fn next(&mut self, what: &str) -> Result<&'t str, Fault> {
        self.plain.pop().ok_or_else(|| wrong(format!("it lacks {what}")))
    }

    pub(super) fn word(&mut self) -> Result<Word, Fault> {
        Word::new(self.next("a name")?)
    }

    pub(super) fn device(&mut self) -> Result<DeviceName, Fault> {
        DeviceName::new(self.next("the device")?)
    }

    pub(super) fn cpus_or_all(&mut self) -> Result<Option<Cpus>, Fault> {
        match self.next("the CPUs")? {
            "all" => Ok(None),
            list => list.parse().map(Some),
        }
    }

    pub(super) fn queue_and_cpus(&mut self) -> Result<(Option<u32>, Cpus), Fault> {
        let first = self.next("the CPUs")?;
        match self.plain.pop() {
            Some(cpus) => Ok((Some(number(first)?), cpus.parse()?)),
            None => Ok((None, first.parse()?)),
        }
    }

    /// Takes the next plain word if it is this one, and returns whether it was.
    pub(super) fn take_plain(&mut self, word: &str) -> bool {
        self.plain.pop_if(|next| *next == word).is_some()
    }

    /// Takes the last pair; `what` is the error message if there is none.
    pub(super) fn last_pair(&mut self, what: &str) -> Result<(&'t str, &'t str), Fault> {
        self.pairs.pop().ok_or_else(|| wrong(what))
    }

    fn take(&mut self, name: &str) -> Option<&'t str> {
        let at = self.pairs.iter().position(|(known, _)| *known == name)?;
        Some(self.pairs.remove(at).1)
    }

    fn value<T>(
        &mut self,
        name: &str,
        parse: impl FnOnce(&'t str) -> Result<T, Fault>,
    ) -> Result<Option<T>, Fault> {
        self.take(name).map(parse).transpose()
    }

    pub(super) fn number(&mut self, name: &str) -> Result<Option<u32>, Fault> {
        self.value(name, number)
    }

    /// Parses a NUMA node: a number, or a device that is on it.
    pub(super) fn node(&mut self) -> Result<Option<NumaNode>, Fault> {
        self.value("node", |text| match text.parse() {
            Ok(node) => Ok(NumaNode::Number(node)),
            Err(_) => DeviceName::new(text).map(NumaNode::Of),
        })
    }

    pub(super) fn required(&mut self, name: &str) -> Result<u32, Fault> {
        self.number(name)?.ok_or_else(|| wrong(format!("it has no {name}=N")))
    }

    pub(super) fn size(&mut self, name: &str) -> Result<Option<u32>, Fault> {
        self.value(name, |text| {
            let bytes = unit::parse_bytes(text).map_err(wrong)?;
            u32::try_from(bytes).map_err(|_| wrong(format!("'{}' is too large", tame(text))))
        })
    }

    pub(super) fn idle_choice(&mut self) -> Result<IdleChoice, Fault> {
        let latency = self.value("slower-than", |text| {
            let time = unit::parse_duration(text).map_err(wrong)?;
            u32::try_from(time.as_micros()).map_err(|_| wrong(format!("'{text}' is too long")))
        })?;
        match (latency, self.take("without")) {
            (Some(us), None) => Ok(IdleChoice::SlowerThan(us)),
            (None, Some(name)) => Ok(IdleChoice::Named(Word::new(name)?)),
            _ => Err(wrong("it does not name any states")),
        }
    }

    pub(super) fn flag(&mut self, name: &str) -> Result<Option<bool>, Fault> {
        self.value(name, flag)
    }

    pub(super) fn split(&mut self, name: &str) -> Result<Option<Split>, Fault> {
        self.value(name, |text| {
            text.parse().map_err(|_| wrong(format!("'{}' is not on, off or auto", tame(text))))
        })
    }

    pub(super) fn address(&mut self, name: &str) -> Result<Option<IpAddr>, Fault> {
        self.value(name, |text| {
            text.parse().map_err(|_| wrong(format!("'{}' is not an address", tame(text))))
        })
    }

    pub(super) fn port(&mut self, name: &str) -> Result<Option<u16>, Fault> {
        let fits = |n: u32| u16::try_from(n).map_err(|_| wrong(format!("there is no port {n}")));
        self.number(name)?.map(fits).transpose()
    }

    /// Errors if a word was not used.
    fn done(self) -> Result<(), Fault> {
        let Some(word) = self.plain.first().or(self.pairs.first().map(|(name, _)| name)) else {
            return Ok(());
        };
        let pairs = self.text.split_whitespace().filter_map(|pair| pair.split_once('='));
        let times = pairs.filter(|(name, _)| name == word).count();
        Err(wrong(match times {
            0 | 1 => format!("'{}' is unexpected", tame(word)),
            _ => format!("it contains '{}' twice", tame(word)),
        }))
    }
}

pub(super) fn flag(text: &str) -> Result<bool, Fault> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        other => Err(wrong(format!("'{}' is not on or off", tame(other)))),
    }
}

pub(super) fn number<N: FromStr>(text: &str) -> Result<N, Fault> {
    text.parse().map_err(|_| not_a_number(text))
}

pub(super) fn not_a_number(text: &str) -> Fault {
    wrong(format!("'{}' is not a whole number that fits", tame(text)))
}

pub(super) fn wrong(message: impl Into<String>) -> Fault {
    Fault::usage(message)
}
