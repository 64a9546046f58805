//! Bytes as text.

use bytepath_record::steers;

/// A line as an error quotes it: not all of it if it is long, and nothing in it
/// that a terminal would obey.
pub(crate) fn quote(line: impl AsRef<[u8]>) -> String {
    let line = line.as_ref();
    let text = String::from_utf8_lossy(line.get(..line.len().min(240)).unwrap_or_default());
    let text = text.trim();
    let mut quoted: String =
        text.chars().take(60).map(|c| if steers(c) { '\u{fffd}' } else { c }).collect();
    if text.chars().count() > 60 {
        quoted.push_str("...");
    }
    format!("'{quoted}'")
}

/// Bytes as hexadecimal digits.
pub(crate) fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
