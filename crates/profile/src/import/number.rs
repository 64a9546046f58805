//! Numbers with a decimal point or a decimal comma, the other one separating thousands:
//! `1234.5`, `1,234.5`, `1.234,5`.

/// Parses a number that may have decimals. If both marks occur, the last is the decimal one; a
/// single mark is the decimal one. Only a comma before exactly three digits (`1,234`) is ambiguous
/// and refused, like everything that is not a number.
pub(super) fn decimal(text: &str) -> Option<f64> {
    if is_digits(text) {
        return text.parse().ok();
    }
    let (mark, thousands) = match (text.rfind('.'), text.rfind(',')) {
        (point, Some(comma)) if point.is_none_or(|point| point < comma) => (',', '.'),
        _ => ('.', ','),
    };
    let (whole, part) = text.split_once(mark).unwrap_or((text, ""));
    let either = mark == ',' && part.len() == 3 && whole.len() <= 3 && !whole.starts_with('0');
    if either || !is_digits(part) {
        return None;
    }
    format!("{}.{part}", ungrouped(whole, thousands)?).parse().ok()
}

/// Parses a whole number, in which every mark separates thousands.
pub(super) fn whole(text: &str) -> Option<u64> {
    ungrouped(text, if text.contains('.') { '.' } else { ',' })?.parse().ok()
}

/// Removes the marks between groups of three digits.
fn ungrouped(text: &str, mark: char) -> Option<String> {
    let groups: Vec<&str> = text.split(mark).collect();
    let sized = match groups.as_slice() {
        [first, rest @ ..] if !rest.is_empty() => {
            (1..=3).contains(&first.len()) && rest.iter().all(|group| group.len() == 3)
        }
        _ => true,
    };
    (sized && groups.iter().all(|group| is_digits(group))).then(|| groups.concat())
}

fn is_digits(text: &str) -> bool {
    text.len() <= 64 && text.bytes().all(|byte| byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_by_point_and_by_comma() {
        for (text, value) in [
            ("0", 0.0),
            ("1234567", 1_234_567.0),
            ("1234.5", 1234.5),
            ("1234,5", 1234.5),
            ("1,234.5", 1234.5),
            ("1.234,5", 1234.5),
            ("1.234.567,25", 1_234_567.25),
            ("1.000", 1.0),
            ("0,125", 0.125),
            (".125", 0.125),
            ("1234,567", 1234.567),
            ("5.", 5.0),
        ] {
            assert_eq!(decimal(text), Some(value), "{text}");
        }
    }

    #[test]
    fn whole_numbers_with_either_mark() {
        for (text, value) in
            [("0", 0), ("1234567", 1_234_567), ("1,234,567", 1_234_567), ("10.000", 10_000)]
        {
            assert_eq!(whole(text), Some(value), "{text}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_number() {
        for text in
            ["", "-", ".", ",", "-1", "1x", "1.2.3", "1..2", "1 2", "1,23,4.5", "1e5", "nan", "inf"]
        {
            assert_eq!((decimal(text), whole(text)), (None, None), "{text}");
        }
        assert_eq!(decimal("1,234"), None, "1234 or 1.234");
        assert_eq!(whole("1,23"), None);
        assert_eq!(whole("99999999999999999999"), None);
        assert_eq!(decimal(&"9".repeat(400)), None);
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "\\PC{0,24}") {
            let _ = (decimal(&text), whole(&text));
        }
    }
}
