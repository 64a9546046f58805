//! Conversion to printable ASCII, and line breaking.

/// Converts text to printable ASCII on one line. Blanks of any kind become one space; common
/// symbols become their plain form; other non-ASCII characters, and every control character, are
/// escaped, so that no name or message can control a terminal or disguise itself.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => plain.push(c),
            '\n' | '\r' | '\t' => plain.push(' '),
            '\u{b5}' | '\u{3bc}' => plain.push('u'),
            '\u{d7}' => plain.push('x'),
            '\u{b1}' => plain.push_str("+-"),
            '\u{2013}' | '\u{2014}' | '\u{2212}' => plain.push('-'),
            '\u{2018}' | '\u{2019}' => plain.push('\''),
            '\u{201c}' | '\u{201d}' => plain.push('"'),
            '\u{2026}' => plain.push_str("..."),
            other => plain.extend(other.escape_unicode()),
        }
    }
    plain
}

/// Breaks plain ASCII text into lines of at most `width`: at blanks, else after a character that
/// joins parts of a name, otherwise anywhere. Returns at least one line.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    let width = width.max(1);
    let mut rest = text.trim_end();
    let mut lines = Vec::new();
    while rest.len() > width {
        let head = &rest[..width];
        let at_blank = rest[..=width].rfind(' ').filter(|at| !rest[..*at].trim().is_empty());
        let at_joint = head.rfind(['+', ',', '/', ';', '=']).map(|at| at + 1);
        let at = at_blank.or(at_joint).unwrap_or(width);
        lines.push(rest[..at].trim_end().to_owned());
        rest = rest[at..].trim_start();
    }
    lines.push(rest.to_owned());
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_control_characters() {
        assert_eq!(plain("a\x1b[2Jb\u{202e}c\u{7f}"), "a\\u{1b}[2Jb\\u{202e}c\\u{7f}");
        assert_eq!(plain("two\nlines, 3 \u{b5}s"), "two lines, 3 us");
    }

    #[test]
    fn wraps_at_blanks_then_joints_then_anywhere() {
        assert_eq!(wrap("one two three", 8), ["one two", "three"]);
        assert_eq!(wrap("one two", 7), ["one two"]);
        assert_eq!(
            wrap("splice+tcp-zerocopy-receive", 16),
            ["splice+", "tcp-zerocopy-rec", "eive"]
        );
        assert_eq!(wrap("", 8), [""]);
        assert_eq!(wrap("   x", 2), ["", "x"]);
    }
}
