//! Bytes as text, and tables of texts.

use bytepath_record::is_unsafe_to_display;
use indexmap::IndexSet;

/// Quotes a line for an error: shortened if it is long, and without terminal control characters.
pub(crate) fn quote(line: impl AsRef<[u8]>) -> String {
    let line = line.as_ref();
    let text = String::from_utf8_lossy(line.get(..line.len().min(240)).unwrap_or_default());
    let text = text.trim();
    let mut quoted: String = text
        .chars()
        .take(60)
        .map(|c| if is_unsafe_to_display(c) { '\u{fffd}' } else { c })
        .collect();
    if text.chars().count() > 60 {
        quoted.push_str("...");
    }
    format!("'{quoted}'")
}

/// Returns the index of a text in a set, adding it if it is new.
pub(crate) fn intern(texts: &mut IndexSet<String>, text: &str) -> usize {
    let known = texts.get_index_of(text);
    known.unwrap_or_else(|| texts.insert_full(text.to_owned()).0)
}

/// Returns whether a text consists of hexadecimal digits, at least one.
pub(crate) fn is_hexadecimal(text: impl AsRef<[u8]>) -> bool {
    let text = text.as_ref();
    !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit)
}

/// Formats bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
