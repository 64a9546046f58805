//! Numbers of a log, by the rules of one locale for all of its cells: either `.` or `,` is the
//! decimal mark, and the other one may separate thousands.

/// The decimal mark of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Locale {
    decimal: char,
}

/// Which of the two the cells so far rule out.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// The first cell with a comma.
    first: Option<String>,
    no_point: bool,
    no_comma: bool,
}

impl Evidence {
    /// Adds a cell that is a number. One without a comma decides nothing.
    pub(super) fn add(&mut self, cell: &str) {
        if cell.contains(',') {
            self.no_point |= Locale { decimal: '.' }.number(cell).is_none();
            self.no_comma |= Locale { decimal: ',' }.number(cell).is_none();
            self.first.get_or_insert_with(|| cell.chars().take(40).collect());
        }
    }

    /// Returns the locale of all cells. The error names a cell that can be read in two ways, or in
    /// none.
    pub(super) fn locale(&self) -> Result<Locale, String> {
        let Some(first) = &self.first else { return Ok(Locale { decimal: '.' }) };
        match (self.no_point, self.no_comma) {
            (false, true) => Ok(Locale { decimal: '.' }),
            (true, false) => Ok(Locale { decimal: ',' }),
            (false, false) => Err(format!(
                "the comma of '{first}' is a decimal mark or separates thousands: write the log \
                 without it"
            )),
            (true, true) => {
                Err(format!("'{first}' and others are not numbers in one way of writing them"))
            }
        }
    }
}

impl Locale {
    /// Parses a number; `None` if it is not one in this locale.
    pub(super) fn number(self, text: &str) -> Option<f64> {
        let thousands = if self.decimal == '.' { ',' } else { '.' };
        let (whole, fraction) = text.split_once(self.decimal).unwrap_or((text, ""));
        if fraction.contains(thousands) {
            return None;
        }
        let mut groups = whole.split(thousands);
        let first = groups.next()?.trim_start_matches(['+', '-']);
        let is_group = |group: &str| group.len() == 3 && group.bytes().all(|b| b.is_ascii_digit());
        if whole.contains(thousands) && !((1..=3).contains(&first.len()) && groups.all(is_group)) {
            return None;
        }
        let plain = text.replace(thousands, "").replace(self.decimal, ".");
        plain.parse().ok().filter(|number: &f64| number.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_locale_reads_all_cells() {
        let of = |cells: &[&str]| {
            let mut evidence = Evidence::default();
            cells.iter().for_each(|cell| evidence.add(cell));
            evidence.locale().map(|locale| locale.decimal)
        };
        assert_eq!(of(&["1.5", "200"]), Ok('.'));
        assert_eq!(of(&["100,50", "99,8"]), Ok(','));
        assert_eq!(of(&["1,150.25", "150.25"]), Ok('.'));
        assert_eq!(of(&["1.150,25", "150,25"]), Ok(','));
        assert_eq!(of(&["1,150", "99,5"]), Ok(','), "one cell decides for all");
        assert!(of(&["1,150", "2,250"]).unwrap_err().contains("thousands"));
        assert!(of(&["1,150.25", "1.150,25"]).is_err());
        assert!(of(&["1,15.25"]).is_err());
    }

    #[test]
    fn thousands_are_groups_of_three() {
        let (point, comma) = (Locale { decimal: '.' }, Locale { decimal: ',' });
        assert_eq!(point.number("1,150.25"), Some(1150.25));
        assert_eq!(point.number("-1,150"), Some(-1150.0));
        assert_eq!(point.number("1,15"), None);
        assert_eq!(point.number("1.5,000"), None);
        assert_eq!(comma.number("1.150,25"), Some(1150.25));
        assert_eq!(comma.number("1795621346,902"), Some(1_795_621_346.902));
        assert_eq!(comma.number("1.5"), None);
        assert_eq!(point.number("1e3"), Some(1000.0));
        assert_eq!(point.number("nan"), None);
        assert_eq!(point.number(""), None);
    }
}
