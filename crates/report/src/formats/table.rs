//! A table for other programs: columns with a name and a type, and rows of values, as written by
//! `csv` and `parquet`.

use std::borrow::Cow;

/// A row of a table.
pub(crate) trait Record {
    /// Returns name and type of each column, in order.
    fn columns() -> Vec<(Cow<'static, str>, Kind)>;

    /// Returns the value in a column; its variant matches the column's type.
    fn value(&self, column: usize) -> Value<'_>;
}

/// Type of a column's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text in UTF-8.
    Text,
    Whole,
    /// A number in double precision; never a NaN, never infinite.
    Number,
    Flag,
    /// A time: milliseconds since the Unix epoch.
    Moment,
}

/// A value.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value<'a> {
    None,
    /// Of [`Kind::Text`].
    Text(Cow<'a, str>),
    /// Of [`Kind::Whole`].
    Whole(i64),
    /// Of [`Kind::Number`].
    Number(f64),
    /// Of [`Kind::Flag`].
    Flag(bool),
    /// Of [`Kind::Moment`].
    Moment(i64),
}

/// Returns a time; `None` after the year 9999, the last that date formats can express.
pub(crate) fn moment<'a>(ms: u64) -> Value<'a> {
    const LAST: i64 = 253_402_300_799_999;
    let ms = i64::try_from(ms).ok().filter(|ms| *ms <= LAST);
    ms.map_or(Value::None, Value::Moment)
}

/// Returns a text; `None` if it is empty.
pub(crate) fn text<'a>(text: impl Into<Option<&'a str>>) -> Value<'a> {
    let text = text.into().filter(|text| !text.is_empty());
    text.map_or(Value::None, |text| Value::Text(text.into()))
}

pub(crate) fn whole<'a>(number: impl Into<Option<u32>>) -> Value<'a> {
    number.into().map_or(Value::None, |n| Value::Whole(n.into()))
}

pub(crate) fn finite<'a>(number: Option<f64>) -> Value<'a> {
    number.filter(|n| n.is_finite()).map_or(Value::None, Value::Number)
}
