//! What clap leaves to us of `--help`: its width, and lists of accepted names.

use super::output::{PAGE_WIDTH, size};
use bytepath_report::wrap;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Command, ValueEnum};

/// Columns of help: the terminal's, at most 100.
pub(super) fn width() -> usize {
    size(std::io::stdout()).map_or(PAGE_WIDTH, |(columns, _)| columns.min(PAGE_WIDTH))
}

/// Largest width in columns of a name that has its description on the same line.
const BESIDE: usize = 34;

/// Formats a heading, and below it accepted values with their descriptions, wrapped with a hanging
/// indent.
pub(super) fn list<T: AsRef<str>, W: AsRef<str>>(
    heading: &str,
    rows: impl IntoIterator<Item = (T, W)>,
) -> String {
    in_columns(heading, rows, width())
}

/// Adds a heading above each of these groups of options.
pub(super) fn headed(command: Command, groups: &'static [(&str, &[&str])]) -> Command {
    let options = groups.iter().flat_map(|(heading, ids)| ids.iter().map(move |id| (heading, id)));
    options.fold(command, |command, (heading, id)| {
        command.mut_arg(id, |argument| argument.help_heading(*heading))
    })
}

/// Groups the subcommands, each group below a heading.
pub(super) fn grouped(command: Command, groups: &[(&str, &[&str])]) -> Command {
    let header = *command.get_styles().get_header();
    let about = |name: &str| match command.find_subcommand(name) {
        Some(command) => command.get_about().map(ToString::to_string).unwrap_or_default(),
        // clap's own command, which is added last.
        None => "Print the help of a command".to_owned(),
    };
    let names = groups.iter().flat_map(|(_, names)| *names).map(|name| name.len());
    let indent = names.max().unwrap_or_default() + 4;
    let mut template = "{about-with-newline}\n{usage-heading} {usage}\n\n".to_owned();
    for (heading, names) in groups {
        template.push_str(&format!("{header}{heading}:{header:#}\n"));
        for name in *names {
            let mut lead = format!("  {name}");
            for line in wrap(&about(name), width().saturating_sub(indent)) {
                template.push_str(&format!("{lead:<indent$}{line}\n"));
                lead.clear();
            }
        }
        template.push('\n');
    }
    template.push_str(&format!("{header}Options:{header:#}\n{{options}}{{after-help}}"));
    command.help_template(template)
}

/// Lists the values that an option accepts.
pub(super) fn values<T: ValueEnum>(heading: &str) -> String {
    let values = T::value_variants().iter().filter_map(T::to_possible_value);
    let row = |value: PossibleValue| {
        let what = value.get_help().map(ToString::to_string).unwrap_or_default();
        (value.get_name().to_owned(), what)
    };
    list(heading, values.map(row))
}

/// A value that an option accepts: its name, its description (empty for an obsolete name), and the
/// value.
pub(super) type Choice<T> = (&'static str, &'static str, T);

/// Returns a parser for these values.
pub(super) fn one_of<T: Copy + Send + Sync>(
    choices: &'static [Choice<T>],
) -> impl TypedValueParser<Value = T> {
    let value =
        |(typed, what, _): &Choice<T>| PossibleValue::new(*typed).help(*what).hide(what.is_empty());
    let names = PossibleValuesParser::new(choices.iter().map(value));
    names
        .map(|name| choices.iter().find(|(typed, ..)| *typed == name).expect("it is one of them").2)
}

/// Lists these values.
pub(super) fn choices<T>(heading: &str, choices: &[Choice<T>]) -> String {
    let shown = choices.iter().filter(|(_, what, _)| !what.is_empty());
    list(heading, shown.map(|(typed, what, _)| (typed, what)))
}

fn in_columns<T: AsRef<str>, W: AsRef<str>>(
    heading: &str,
    rows: impl IntoIterator<Item = (T, W)>,
    width: usize,
) -> String {
    let rows: Vec<(T, W)> = rows.into_iter().collect();
    let lengths = rows.iter().map(|(typed, _)| typed.as_ref().len());
    let indent = lengths.filter(|length| *length <= BESIDE).max().unwrap_or_default() + 4;
    let mut text = format!("{heading}\n");
    for (typed, what) in &rows {
        let mut lead = format!("  {}", typed.as_ref());
        if lead.len() + 2 > indent {
            text.push_str(&format!("{lead}\n"));
            lead.clear();
        }
        for line in wrap(what.as_ref(), width.saturating_sub(indent)) {
            text.push_str(format!("{lead:<indent$}{line}").trim_end());
            text.push('\n');
            lead.clear();
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_a_list_begin_below_each_other() {
        let long = "x".repeat(BESIDE + 1);
        let rows = [("a", "one two three"), ("bcd", "four"), (long.as_str(), "five")];
        let text =
            format!("Names:\n  a    one two\n       three\n  bcd  four\n  {long}\n       five\n");
        assert_eq!(in_columns("Names:", rows, 16), text);
    }
}
