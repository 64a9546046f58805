//! Numbers as people and programs of any country write them: `1234.5`,
//! `1,234.5`, `1.234,5`, `1 234,5`, `1'234.5`.
//!
//! What a mark means, by these rules, the first that tells:
//!
//! 1. A space of any width and an apostrophe only ever separate thousands; so
//!    does the Arabic `٬`, and `٫` only ever is the decimal mark.
//! 2. Of a point and a comma in one number, the last is the decimal mark.
//! 3. A mark that is there twice separates thousands.
//! 4. A mark before anything but three digits is the decimal mark; so is one
//!    behind nothing, behind `0`, or behind more than three digits.
//! 5. What is left is one mark with three digits behind it: `1.234`. There the
//!    whole file decides ([`Marks`]): if any number in it shows by the rules
//!    above which mark is the decimal one, the other separates thousands. If
//!    none does, the point is the decimal mark, as in the C locale, in which
//!    most tools print; a quantity that is known to be whole
//!    ([`Number::whole`]) is then read as thousands.
//!
//! Groups must be groups: three digits at the end, two or three before (India
//! writes `12,34,567`). `1,2345,6` is no number.

/// A number that was read, with what its marks can mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Number {
    meaning: Meaning,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Meaning {
    /// It has no mark that could be a decimal one.
    Plain(f64),
    /// It shows which mark is the decimal one.
    Shown { value: f64, decimal: Mark },
    /// One mark, three digits behind it.
    Either { decimal: f64, thousands: f64, mark: Mark },
}

/// The two marks that mean one thing here and another there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// `.`
    Point,
    /// `,`
    Comma,
}

/// What the numbers of a file have shown of its marks so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    decimal: Option<Mark>,
}

impl Number {
    /// Reads a number, digits and marks only; an optional sign before them.
    /// `None` if the text is none.
    pub fn parse(text: &str) -> Option<Number> {
        if let Some(value) = plain(text) {
            return Some(Number { meaning: Meaning::Plain(value) });
        }
        let text = text.trim();
        let (negative, digits) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text.strip_prefix('+').unwrap_or(text)),
        };
        if digits.len() > 64 {
            return None;
        }
        let meaning = meaning(digits)?;
        let sign = if negative { -1.0 } else { 1.0 };
        Some(Number {
            meaning: match meaning {
                Meaning::Plain(value) => Meaning::Plain(sign * value),
                Meaning::Shown { value, decimal } => {
                    Meaning::Shown { value: sign * value, decimal }
                }
                Meaning::Either { decimal, thousands, mark } => {
                    Meaning::Either { decimal: sign * decimal, thousands: sign * thousands, mark }
                }
            },
        })
    }

    /// The same number, known to be whole: thousands if its mark tells neither way.
    pub fn whole(self) -> Number {
        match self.meaning {
            Meaning::Either { thousands, .. } => Number { meaning: Meaning::Plain(thousands) },
            _ => self,
        }
    }
}

impl Marks {
    /// Learns from a number. Fails if it contradicts those before: `1,5` and
    /// `1.5` cannot both be right.
    pub fn see(&mut self, number: Number) -> Result<(), String> {
        let Meaning::Shown { decimal, .. } = number.meaning else { return Ok(()) };
        match self.decimal {
            Some(known) if known != decimal => Err(format!(
                "'{}' is the decimal mark here and was not in the lines before",
                decimal.character()
            )),
            _ => {
                self.decimal = Some(decimal);
                Ok(())
            }
        }
    }

    /// The value of a number in a file with these marks.
    pub fn value(&self, number: Number) -> f64 {
        match number.meaning {
            Meaning::Plain(value) | Meaning::Shown { value, .. } => value,
            Meaning::Either { decimal, thousands, mark } => {
                if mark == self.decimal.unwrap_or(Mark::Point) { decimal } else { thousands }
            }
        }
    }
}

impl Mark {
    fn character(self) -> char {
        match self {
            Mark::Point => '.',
            Mark::Comma => ',',
        }
    }

    fn other(self) -> Mark {
        match self {
            Mark::Point => Mark::Comma,
            Mark::Comma => Mark::Point,
        }
    }

    fn of(character: char) -> Option<Mark> {
        match character {
            '.' => Some(Mark::Point),
            ',' => Some(Mark::Comma),
            _ => None,
        }
    }
}

/// The value of digits alone, which most numbers are; only of so few that it is exact.
fn plain(text: &str) -> Option<f64> {
    let short = (1..=15).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    let value = |text: &str| text.bytes().fold(0_u64, |sum, b| sum * 10 + u64::from(b - b'0'));
    short.then(|| value(text) as f64)
}

/// Separates thousands and nothing else: the spaces (no-break, thin, narrow
/// no-break, figure), the apostrophes, the Arabic mark, and the low line of
/// programming languages.
fn only_thousands(character: char) -> bool {
    matches!(
        character,
        ' ' | '\u{a0}' | '\u{2009}' | '\u{202f}' | '\u{2007}' | '\'' | '’' | '٬' | '_'
    )
}

fn meaning(text: &str) -> Option<Meaning> {
    let marks: Vec<(usize, char)> =
        text.char_indices().filter(|(_, c)| !c.is_ascii_digit()).collect();
    let digits = text.len() - marks.iter().map(|(_, c)| c.len_utf8()).sum::<usize>();
    if digits == 0
        || marks.iter().any(|(_, c)| Mark::of(*c).is_none() && !only_thousands(*c) && *c != '٫')
    {
        return None;
    }
    let Some(&(last, mark)) = marks.last() else { return Some(Meaning::Plain(value(text, None)?)) };
    let as_thousands = || grouped(text).then(|| value(text, None)).flatten();
    let as_decimal = || {
        let (before, after) = (text.get(..last)?, text.get(last + mark.len_utf8()..)?);
        let right = after.bytes().all(|b| b.is_ascii_digit());
        (right && (before.is_empty() || grouped(before))).then(|| value(text, Some(last))).flatten()
    };
    if mark == '٫' {
        return as_decimal().map(Meaning::Plain);
    }
    let Some(decimal) = Mark::of(mark) else {
        // Thousands behind a decimal mark are no number; groups are checked.
        let other = marks.iter().find_map(|(_, c)| Mark::of(*c));
        return other.is_none().then(as_thousands).flatten().map(Meaning::Plain);
    };
    let same = marks.iter().filter(|(_, c)| *c == mark).count();
    if same > 1 {
        let value = as_thousands()?;
        return Some(Meaning::Shown { value, decimal: decimal.other() });
    }
    if marks.len() > 1 {
        return Some(Meaning::Shown { value: as_decimal()?, decimal });
    }
    let (before, after) = (&text[..last], text.len() - last - 1);
    if after == 3 && (1..=3).contains(&before.len()) && !before.starts_with('0') {
        let (decimal_value, thousands) = (as_decimal()?, as_thousands()?);
        return Some(Meaning::Either { decimal: decimal_value, thousands, mark: decimal });
    }
    Some(Meaning::Shown { value: as_decimal()?, decimal })
}

/// Whether groups between the marks have the lengths that groups of thousands have,
/// and all marks are the same.
fn grouped(text: &str) -> bool {
    let mut marks = text.chars().filter(|c| !c.is_ascii_digit());
    let Some(mark) = marks.next() else { return true };
    if mark == '٫' || marks.any(|other| other != mark) {
        return false;
    }
    let groups: Vec<usize> = text.split(mark).map(str::len).collect();
    match groups.as_slice() {
        [first, middle @ .., last] => {
            (1..=3).contains(first) && *last == 3 && middle.iter().all(|n| (2..=3).contains(n))
        }
        _ => true,
    }
}

/// The digits of a text, with a decimal point where the byte `at` is.
fn value(text: &str, at: Option<usize>) -> Option<f64> {
    let plain: String = text
        .char_indices()
        .filter_map(
            |(index, c)| {
                if Some(index) == at { Some('.') } else { c.is_ascii_digit().then_some(c) }
            },
        )
        .collect();
    plain.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn alone(text: &str) -> Option<f64> {
        Number::parse(text).map(|number| Marks::default().value(number))
    }

    #[test]
    fn every_locale_is_read() {
        for (text, value) in [
            ("0", 0.0),
            ("1234567", 1_234_567.0),
            ("1234.5", 1234.5),
            ("1234,5", 1234.5),
            ("1,234.5", 1234.5),
            ("1.234,5", 1234.5),
            ("1 234,5", 1234.5),
            ("1\u{a0}234,5", 1234.5),
            ("1\u{202f}234,5", 1234.5),
            ("1\u{2009}234\u{2009}567", 1_234_567.0),
            ("1'234.5", 1234.5),
            ("1’234’567,25", 1_234_567.25),
            ("12,34,567", 1_234_567.0),
            ("1.234.567", 1_234_567.0),
            ("1٬234٫5", 1234.5),
            ("0.125", 0.125),
            ("0,125", 0.125),
            (".125", 0.125),
            ("1234.567", 1234.567),
            ("40,48", 40.48),
            ("-1.5", -1.5),
            ("+7", 7.0),
            ("5.", 5.0),
        ] {
            assert_eq!(alone(text), Some(value), "{text}");
        }
    }

    #[test]
    fn what_is_no_number_is_none() {
        for text in [
            "",
            "-",
            ".",
            ",",
            "1,2345,6",
            "1.2.3",
            "1..2",
            "1,23,4.5",
            "1.5 000",
            "1x",
            "١٢",
            "1 2",
            "1234 567",
            "--1",
            "1e5",
            "nan",
            "inf",
            "1,234,56",
            "1 234.567 8",
        ] {
            assert_eq!(Number::parse(text), None, "{text}");
        }
        assert_eq!(Number::parse(&"9".repeat(400)), None);
    }

    #[test]
    fn the_whole_file_decides_what_one_number_does_not() {
        let number = Number::parse("1.234").unwrap();
        let mut marks = Marks::default();
        assert_eq!(marks.value(number), 1.234);
        assert_eq!(marks.value(number.whole()), 1234.0);
        assert_eq!(marks.value(Number::parse("1,234").unwrap()), 1234.0);
        marks.see(Number::parse("12,5").unwrap()).unwrap();
        assert_eq!(marks.value(number), 1234.0);
        assert_eq!(marks.value(Number::parse("1,234").unwrap()), 1.234);
        let error = marks.see(Number::parse("1.5").unwrap()).unwrap_err();
        assert!(error.contains("decimal mark"), "{error}");
        let mut german = Marks::default();
        german.see(Number::parse("1.234.567").unwrap()).unwrap();
        assert_eq!(german.value(number), 1234.0);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = Number::parse(&text);
        }

        #[test]
        fn grouping_by_any_mark_changes_nothing(
            whole in 0_u64..10_000_000_000_000, cents in 0_u32..100,
            style in prop::sample::select(vec![(",", "."), (".", ","), (" ", ","), ("'", "."), ("\u{202f}", ",")]),
        ) {
            let (mark, point) = style;
            let digits = whole.to_string();
            let mut text = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
                    text.push_str(mark);
                }
                text.push(digit);
            }
            let value = alone(&format!("{text}{point}{cents:02}")).unwrap();
            prop_assert!((value - (whole as f64 + f64::from(cents) / 100.0)).abs() < 0.01, "{}", text);
        }
    }
}
