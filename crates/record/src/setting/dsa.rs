//! What may be set of a DSA device: no name leads out of its folders.

use super::Word;

/// What can be set of each kind of part of a DSA device. `state` is `enabled` while the part
/// is bound to its driver; nothing else can be set meanwhile.
const ATTRIBUTES: [(&str, &[&str]); 3] = [
    ("dsa", &["state"]),
    ("engine", &["group_id"]),
    (
        "wq",
        &[
            "state",
            "group_id",
            "mode",
            "size",
            "priority",
            "type",
            "name",
            "driver_name",
            "max_batch_size",
            "max_transfer_size",
            "block_on_fault",
            "threshold",
        ],
    ),
];

/// What is wrong with such a setting; none if nothing is.
pub(super) fn flaw(part: &Word, attribute: &Word, value: &Word) -> Option<String> {
    let number = part.as_str().trim_start_matches(|c: char| c.is_ascii_lowercase());
    let kind = part.as_str().strip_suffix(number).unwrap_or_default();
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let numbered = match number.split_once('.') {
        Some((device, own)) => kind != "dsa" && digits(device) && digits(own),
        None => kind == "dsa" && digits(number),
    };
    let known = ATTRIBUTES.iter().find(|(name, _)| *name == kind).filter(|_| numbered);
    let Some((_, attributes)) = known else {
        return Some(format!("{part} is not dsaD, engineD.N or wqD.N"));
    };
    if !attributes.contains(&attribute.as_str()) {
        return Some(format!("of {part} can be set: {}", attributes.join(", ")));
    }
    let states = attribute.as_str() == "state" && !matches!(value.as_str(), "enabled" | "disabled");
    states.then(|| "a state is enabled or disabled".into())
}
