//! Reads text line by line, in bounded memory.

use bytepath_record::Fault;
use std::io::BufRead;

/// Number of bytes of a file passed to [`Importer::recognises`](super::Importer::recognises).
pub const HEAD: usize = 64 << 10;

/// Longest line of a profile, in bytes.
const LONGEST: usize = 1 << 20;

/// The lines of a text, with their numbers.
pub(super) struct Lines<'a> {
    title: &'a str,
    input: &'a mut dyn BufRead,
    number: u64,
}

impl<'a> Lines<'a> {
    /// Creates a reader of the lines of `input`; `title` names it in errors.
    pub(super) fn new(title: &'a str, input: &'a mut dyn BufRead) -> Self {
        Lines { title, input, number: 0 }
    }

    /// Reads the next line into `line`, without its end; returns false if there is none.
    pub(super) fn next(&mut self, line: &mut Vec<u8>) -> Result<bool, Fault> {
        line.clear();
        let mut any = false;
        loop {
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(e) if e.kind() == std::io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(unreadable(self.title, &e)),
            };
            if chunk.is_empty() {
                break;
            }
            if !any {
                any = true;
                self.number += 1;
            }
            let end = memchr::memchr(b'\n', chunk);
            let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or(chunk);
            if line.len() + part.len() > LONGEST {
                return Err(self.fault(format!("is longer than {LONGEST} bytes")));
            }
            line.extend_from_slice(part);
            let used = end.map_or(chunk.len(), |end| end + 1);
            self.input.consume(used);
            if end.is_some() {
                break;
            }
        }
        if line.last() == Some(&b'\r') {
            line.pop();
        }
        if self.number == 1 && line.starts_with(b"\xef\xbb\xbf") {
            line.drain(..3);
        }
        Ok(any)
    }

    /// Returns the number of the line last read.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Returns a fault about the line last read.
    pub(super) fn fault(&self, what: impl std::fmt::Display) -> Fault {
        Fault::storage(format!("{}, line {}: {what}", self.title, self.number))
    }

    /// Returns a fault about the text as a whole.
    pub(super) fn whole(&self, what: impl std::fmt::Display) -> Fault {
        Fault::storage(format!("{}: {what}", self.title))
    }
}

/// Returns the lines at the beginning of a file (of [`HEAD`] bytes), except for the last if it may
/// be torn.
pub(super) fn first_lines(head: &[u8]) -> impl Iterator<Item = &[u8]> {
    let end = match head.len() < HEAD {
        true => head.len(),
        false => memchr::memrchr(b'\n', head).unwrap_or(0),
    };
    head.get(..end).unwrap_or_default().split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii_end)
}

pub(super) fn unreadable(title: &str, error: &std::io::Error) -> Fault {
    Fault::storage(format!("cannot read {title}: {error}"))
}

/// Parses a decimal number that consists only of digits.
pub(super) fn digits(text: &[u8]) -> Option<u64> {
    if text.is_empty() || text.len() > 19 {
        return None;
    }
    text.iter().try_fold(0_u64, |value, byte| {
        byte.is_ascii_digit().then(|| value * 10 + u64::from(byte - b'0'))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_numbered_and_lose_their_ends() {
        let mut input = &b"\xef\xbb\xbfa\r\n\nb"[..];
        let mut lines = Lines::new("t", &mut input);
        let mut line = Vec::new();
        let mut seen = Vec::new();
        while lines.next(&mut line).unwrap() {
            seen.push(String::from_utf8(line.clone()).unwrap());
        }
        assert_eq!(seen, ["a", "", "b"]);
        assert_eq!(lines.fault("no").message, "t, line 3: no");
    }

    #[test]
    fn an_endless_line_is_refused() {
        let text = vec![b'x'; LONGEST + 2];
        let mut input = std::io::BufReader::with_capacity(4096, &text[..]);
        let error = Lines::new("t", &mut input).next(&mut Vec::new()).unwrap_err();
        assert!(error.message.contains("line 1: is longer"), "{error}");
    }

    #[test]
    fn digits_do_not_overflow() {
        assert_eq!(digits(b"18"), Some(18));
        assert_eq!(digits(b"9999999999999999999"), Some(9_999_999_999_999_999_999));
        assert_eq!(digits(b"18446744073709551616"), None);
        assert_eq!(digits(b"1a"), None);
        assert_eq!(digits(b""), None);
    }
}
