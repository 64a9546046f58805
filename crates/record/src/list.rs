//! Lists as text, and in the order in which things first come up.

use std::fmt::Display;

/// The items in one text, with this between any two.
pub fn joined(items: impl IntoIterator<Item = impl Display>, between: &str) -> String {
    items.into_iter().map(|item| item.to_string()).collect::<Vec<_>>().join(between)
}

/// The first of some names, and how many more there are: `a, b and 3 more`.
pub fn listed(names: &[impl AsRef<str>], most: usize) -> String {
    let more = names.len().saturating_sub(most);
    let named = joined(names.iter().take(most).map(AsRef::as_ref), ", ");
    if more > 0 { format!("{named} and {more} more") } else { named }
}

/// Those that differ from all before them.
pub fn distinct<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    grouped(all.into_iter().map(|one| (one, ()))).into_iter().map(|(one, _)| one).collect()
}

/// Those with equal keys together, after their key.
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
