//! The grammar that all typed options share: `name:key=value,key=value`.

use bytepath_record::{Fault, OptionSpec, Options, joined};

/// A `key=value` as typed.
pub(crate) type TypedOption = (String, String);

/// Splits `name:key=value,...` into the name and the options. A key without a value is a flag that
/// is set to on.
pub fn split(text: &str) -> Result<(String, Vec<TypedOption>), Fault> {
    let (name, rest) = text.split_once(':').unwrap_or((text, ""));
    Ok((name.trim().to_owned(), split_values(rest)?))
}

/// Splits `key=value,...`.
pub(crate) fn split_values(text: &str) -> Result<Vec<TypedOption>, Fault> {
    let mut typed_options: Vec<TypedOption> = Vec::new();
    // A comma between slashes is part of a value: the event cpu/event=1,umask=2/. So is everything
    // between double quotes.
    let (mut between, mut quoted) = (false, false);
    let comma = |c: char| {
        quoted ^= c == '"';
        between ^= c == '/' && !quoted;
        c == ',' && !between && !quoted
    };
    for part in text.split(comma).map(str::trim).filter(|part| !part.is_empty()) {
        let (key, value) = part.split_once('=').unwrap_or((part, "on"));
        let (key, value) = (key.trim(), value.trim());
        let unquoted = value.strip_prefix('"').and_then(|value| value.strip_suffix('"'));
        let value = unquoted.unwrap_or(value);
        if typed_options.iter().any(|(known, _)| known == key) {
            return Err(usage(format!("option '{key}' is given twice in '{text}'")));
        }
        typed_options.push((key.to_owned(), value.to_owned()));
    }
    Ok(typed_options)
}

/// Checks typed options against those declared and fills in the defaults.
/// `what` names the owner of the options in errors: "path uring".
pub fn resolve(
    what: &str,
    declared: &[OptionSpec],
    typed_options: &[TypedOption],
) -> Result<Options, Fault> {
    let is_declared = |key: &String| declared.iter().any(|spec| spec.name == key);
    if let Some((key, _)) = typed_options.iter().find(|(key, _)| !is_declared(key)) {
        return Err(unknown_option(what, declared, key));
    }
    let mut options = Options::default();
    for OptionSpec { name, kind, default, help, .. } in declared {
        let value = typed_options.iter().find(|(key, _)| key == name);
        let parsed = kind.parse(value.map_or(*default, |(_, value)| value)).map_err(|wrong| {
            usage(format!("option '{name}' of {what}: {wrong}"))
                .remedy(format!("it takes {kind}: {help}"))
        })?;
        options.0.insert((*name).to_owned(), parsed);
    }
    Ok(options)
}

/// Options that were renamed, with their new names.
const RENAMED: &[(&str, &str)] = &[("patience", "timeout")];

pub(super) fn unknown_option(what: &str, declared: &[OptionSpec], key: &str) -> Fault {
    let names: Vec<&str> = declared.iter().map(|spec| spec.name).collect();
    let fault = usage(format!("{what} has no option '{key}'"));
    if names.is_empty() {
        fault.remedy("it has no options")
    } else if let Some((_, new)) =
        RENAMED.iter().find(|(old, new)| *old == key && names.contains(new))
    {
        fault.remedy(format!("it is now called '{new}'"))
    } else {
        suggest(fault, key, names)
    }
}

/// Formats those of the resolved options that differ from their defaults, as typed.
pub(crate) fn differing(declared: &[OptionSpec], options: &Options) -> Vec<String> {
    let differing = |spec: &OptionSpec| {
        let value = options.0.get(spec.name)?;
        let default = spec.kind.parse(spec.default).ok()?;
        (*value != default).then(|| typed(spec.name, &spec.kind.print(value)))
    };
    declared.iter().filter_map(differing).collect()
}

/// Adds the nearest of the known names to a fault as its remedy, or all of them.
pub fn suggest<'a>(
    fault: Fault,
    typed: &str,
    known: impl IntoIterator<Item = &'a str> + Clone,
) -> Fault {
    match did_you_mean(typed, known.clone()) {
        Some(near) => fault.remedy(format!("did you mean '{near}'?")),
        None => fault.remedy(format!("choose from {}", joined(known, ", "))),
    }
}

/// Returns the entry of this name, or a fault with a suggestion.
pub fn find<'a, T>(
    what: &str,
    name: &str,
    all: &'a [T],
    name_of: impl Fn(&T) -> &'static str,
) -> Result<&'a T, Fault> {
    all.iter().find(|entry| name_of(entry) == name).ok_or_else(|| {
        suggest(usage(format!("there is no {what} '{name}'")), name, all.iter().map(&name_of))
    })
}

/// Formats `name=value`, with quotes around a value that could be misread without.
fn typed(name: &str, value: &str) -> String {
    let slashes = value.matches('/').count();
    let comma = slashes == 0 && value.contains(',');
    match slashes % 2 == 1 || comma || value.contains([' ', '+']) {
        true => format!("{name}=\"{value}\""),
        false => format!("{name}={value}"),
    }
}

/// Returns the nearest of the known names, if it is near enough for a typo.
pub(super) fn did_you_mean<'a>(
    typed: &str,
    known: impl IntoIterator<Item = &'a str>,
) -> Option<&'a str> {
    // No typo makes a text this long, and comparing it would take too much time.
    if typed.len() > 200 {
        return None;
    }
    let all = known.into_iter().map(|name| (strsim::jaro_winkler(typed, name), name));
    let near = all.filter(|(likeness, _)| *likeness > 0.8).max_by(|a, b| a.0.total_cmp(&b.0));
    near.map(|(_, name)| name)
}

/// Creates a fault for an invalid request.
pub fn usage(message: impl Into<String>) -> Fault {
    Fault::usage(message)
}

/// Returns the beginning of a text, for an error that repeats it.
pub(crate) fn short(text: &str) -> String {
    cut(text, 80)
}

/// Returns at most `most` characters of a text.
pub(crate) fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\u{2026}", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionKind;
    use bytepath_record::OptionValue;

    #[test]
    fn commas_between_slashes_are_part_of_a_value() {
        let typed_options = split_values("a=x/y=1,z/,b=2").unwrap();
        assert_eq!(typed_options, [("a".into(), "x/y=1,z/".into()), ("b".into(), "2".into())]);
        let typed_options = split_values("a=\"x/y, z=1\",b=2").unwrap();
        assert_eq!(typed_options, [("a".into(), "x/y, z=1".into()), ("b".into(), "2".into())]);
    }

    const DECLARED: &[OptionSpec] = &[
        OptionSpec::new("depth", OptionKind::Count(1, 64), "4").help("requests"),
        OptionSpec::new("fixed", OptionKind::Flag, "on").help("registered"),
        OptionSpec::new("lowat", OptionKind::AutoSize(1, 1 << 30), "auto").help("bytes"),
    ];

    fn resolved(text: &str) -> Result<Options, Fault> {
        let (name, typed_options) = split(text)?;
        resolve(&format!("path {name}"), DECLARED, &typed_options)
    }

    #[test]
    fn defaults_are_filled_in() {
        let options = resolved("uring:lowat=64K").unwrap();
        assert_eq!(options.number("depth"), Some(4));
        assert_eq!(options.number("lowat"), Some(65536));
        assert!(options.flag("fixed"));
        assert_eq!(resolved("uring").unwrap().0["lowat"], OptionValue::Word("auto".into()));
        assert_eq!(differing(DECLARED, &options), ["lowat=64K"]);
    }

    #[test]
    fn errors_name_thing_cause_and_remedy() {
        let text = |t: &str| resolved(t).unwrap_err().to_string();
        assert_eq!(text("uring:dept=3"), "path uring has no option 'dept' (did you mean 'depth'?)");
        assert_eq!(
            text("uring:zzz=3"),
            "path uring has no option 'zzz' (choose from depth, fixed, lowat)"
        );
        assert_eq!(
            text("uring:depth=0"),
            "option 'depth' of path uring: 0 is outside 1 to 64 (it takes 1..64: requests)"
        );
        assert!(text("uring:depth=1,depth=2").contains("given twice"));
        assert!(text("uring:fixed=maybe").contains("neither on nor off"));
    }

    #[test]
    fn a_renamed_option_is_answered_with_its_new_name() {
        const TIMEOUT: &[OptionSpec] =
            &[OptionSpec::new("timeout", OptionKind::Count(1, 60), "10").help("seconds")];
        let old = [("patience".to_string(), "5".to_string())];
        assert_eq!(
            resolve("testbed hosts", TIMEOUT, &old).unwrap_err().to_string(),
            "testbed hosts has no option 'patience' (it is now called 'timeout')"
        );
        // If the new name does not exist here, the old one is as unknown as any other.
        let fault = resolve("path uring", DECLARED, &old).unwrap_err().to_string();
        assert!(fault.contains("choose from depth"), "{fault}");
    }
}
