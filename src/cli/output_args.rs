//! The options of every command that prints a result: as text, JSON or perhaps HTML, to standard
//! output or to a file.

use super::output::{
    PAGE_WIDTH, deliver, json, refuse_on_terminal, style, unknown_suffix, write_plain,
};
use bytepath_record::Fault;
use bytepath_report::Style;
use bytepath_spec::usage;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// `PAGE` is true for commands that can also print HTML.
#[derive(Debug, Args)]
pub(super) struct OutputArgs<const PAGE: bool = false> {
    #[arg(long, value_name = "NAME", hide_possible_values = true, hide_short_help = true, value_parser = formats(PAGE), help = formats_help(PAGE))]
    format: Option<Format>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    #[arg(short, long, value_name = "FILE", help = out_help(PAGE))]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// For a terminal or a mail
    Text,
    /// A page with figures, for a browser
    Html,
    /// Everything, for programs
    Json,
}

fn formats(page: bool) -> impl TypedValueParser<Value = Format> {
    let all = Format::value_variants().iter().filter(|format| page || **format != Format::Html);
    let names = all.filter_map(Format::to_possible_value);
    PossibleValuesParser::new(names).try_map(|name| Format::from_str(&name, false))
}

fn out_help(page: bool) -> &'static str {
    match page {
        true => "Write to this file: text, .html or .json by its suffix",
        false => "Write to this file: text, or .json by its suffix",
    }
}

fn formats_help(page: bool) -> &'static str {
    match page {
        true => "Format: text, html or json [default: by the suffix of --out, else text]",
        false => "Format: text or json [default: json if --out ends in .json, else text]",
    }
}

/// A JSON document.
#[derive(Serialize, JsonSchema)]
pub(super) struct Document<T> {
    /// Identifies the kind of document: `bytepath-diff`, `bytepath-explanation`.
    pub format: &'static str,
    /// Version of the content. Incremented when a field changes its name or meaning, not when one
    /// is added.
    pub schema: u32,
    #[serde(flatten)]
    pub content: T,
}

impl<T> Document<T> {
    /// The first version of a document.
    pub(super) fn new(format: &'static str, content: T) -> Document<T> {
        Document { format, schema: 1, content }
    }
}

impl<T> Document<BTreeMap<&'static str, T>> {
    /// The first version of a document with one field.
    pub(super) fn of(format: &'static str, field: &'static str, value: T) -> Self {
        Document::new(format, BTreeMap::from([(field, value)]))
    }
}

impl<const PAGE: bool> OutputArgs<PAGE> {
    /// Returns the format: as named, by the suffix of the file, or text. Errors if the suffix
    /// belongs to no format.
    pub(super) fn format(&self) -> Result<Format, Fault> {
        let named = if self.json { Some(Format::Json) } else { self.format };
        let file = self.out.as_deref();
        let suffix = file.and_then(|file| file.extension()?.to_str());
        match (named, suffix) {
            (Some(format), _) => Ok(format),
            (None, None | Some("txt")) => Ok(Format::Text),
            (None, Some("html")) if PAGE => Ok(Format::Html),
            (None, Some("json")) => Ok(Format::Json),
            (None, Some(_)) => {
                let known = ["txt", "json", "html"].into_iter().take(2 + usize::from(PAGE));
                let file = file.unwrap_or(Path::new("")).display();
                Err(unknown_suffix(file, known, "--format"))
            }
        }
    }

    /// Prints a result without an HTML form: JSON from the document, or text.
    pub(super) fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&Style, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        if self.format()? == Format::Html {
            let what = "there is no page of this result";
            return Err(usage(what).remedy("choose --format text or json"));
        }
        self.print_any(document, text, |_| Ok(()))
    }

    /// Prints a result that also has an HTML form.
    pub(super) fn print_any(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&Style, &mut dyn Write) -> io::Result<()>,
        page: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let style = match self.out {
            Some(_) => Style { width: PAGE_WIDTH, colour: false, details: false },
            None => style(false),
        };
        let file = self.out.as_deref();
        match self.format()? {
            Format::Json => {
                let content = json(document)?;
                deliver(file, |out| out.write_all(content.as_bytes()))
            }
            Format::Text => deliver(file, |out| text(&style, out)),
            Format::Html => {
                refuse_on_terminal(io::stdout(), file, ("html", "html"))?;
                deliver(file, page)
            }
        }
    }

    /// Prints a result without an HTML form, as text without terminal control characters.
    pub(super) fn print_plain(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        self.print(document, |_, out| write_plain(out, text))
    }
}
