//! Lists as text, and lists in the order of first occurrence.

use std::fmt::Display;

/// Joins the items, with `between` as separator.
pub fn joined(items: impl IntoIterator<Item = impl Display>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

/// Lists the first `most` names, and how many more there are: `a, b and 3 more`.
pub fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let named = joined(names.iter().take(most).map(AsRef::as_ref), ", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Removes duplicates, keeping the order of first occurrence.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(all.into_iter().map(|one| (one, ()))).into_iter().map(|(one, _)| one).collect()
}

/// Groups items by key, in the order of first occurrence.
pub fn grouped<K: PartialEq, T>(all: impl IntoIterator<Item = (K, T)>) -> Vec<(K, Vec<T>)> {
    let mut groups: Vec<(K, Vec<T>)> = Vec::new();
    for (key, one) in all {
        match groups.iter_mut().find(|(known, _)| *known == key) {
            Some((_, group)) => group.push(one),
            None => groups.push((key, vec![one])),
        }
    }
    groups
}
