//! Figures that do not exist, with the reason.

use bytepath_record::{Absent, Fault};

/// A figure, or the reason why it does not exist.
pub(crate) fn or_absent<T>(
    absent: &mut Vec<Absent>,
    what: &str,
    result: Option<Result<T, Fault>>,
) -> Option<T> {
    result.and_then(|result| result.map_err(|fault| absent.push(missing(what, fault))).ok())
}

pub(crate) fn missing(what: &str, fault: Fault) -> Absent {
    Absent { what: what.to_owned(), reason: fault.message, remedy: fault.remedy }
}
