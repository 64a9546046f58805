//! The options of every command that prints a result: as text, JSON and perhaps a page, to
//! standard output or into a file.

use super::output::{json, print};
use super::show::{PAGE, replace, style};
use bytepath_record::{Fault, FaultKind, visible};
use bytepath_report::Style;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Printed<F: Formats = Plain> {
    #[arg(
        long, value_name = "NAME", hide_possible_values = true, hide_short_help = true, help = F::HELP
    )]
    format: Option<F>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of printing
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

/// The formats of a command.
pub(super) trait Formats: ValueEnum + Send + Sync + 'static {
    /// Its help.
    const HELP: &'static str;

    /// The one that a file's suffix names.
    fn of_suffix(suffix: &str) -> Option<Self> {
        Self::value_variants().iter().find(|format| format.form().suffix() == suffix).cloned()
    }

    fn form(&self) -> Form;
}

/// What a command may print.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Html,
    Json,
}

impl Form {
    fn suffix(self) -> &'static str {
        match self {
            Form::Text => "txt",
            Form::Html => "html",
            Form::Json => "json",
        }
    }
}

/// Those of most commands.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum Plain {
    /// For a terminal or a mail
    Text,
    /// Everything, for programs
    Json,
}

/// Those of a command that has a page.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(super) enum WithPage {
    /// For a terminal or a mail
    Text,
    /// A page with figures, for a browser
    Html,
    /// Everything, for programs
    Json,
}

impl Formats for Plain {
    const HELP: &'static str =
        "Format: text or json [default: json if --out ends in .json, else text]";

    fn form(&self) -> Form {
        match self {
            Plain::Text => Form::Text,
            Plain::Json => Form::Json,
        }
    }
}

impl Formats for WithPage {
    const HELP: &'static str =
        "Format: text, html or json [default: by the suffix of --out, else text]";

    fn form(&self) -> Form {
        match self {
            WithPage::Text => Form::Text,
            WithPage::Html => Form::Html,
            WithPage::Json => Form::Json,
        }
    }
}

/// What is printed as JSON.
#[derive(Serialize, JsonSchema)]
pub(super) struct Document<T> {
    /// Identifies the document wherever it is found: `bytepath-diff`, `bytepath-explanation`.
    pub format: &'static str,
    /// Version of the content. It grows when a field changes its name or meaning, not
    /// when one is added.
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

impl<F: Formats> Printed<F> {
    /// What was requested.
    pub(super) fn form(&self) -> Form {
        let suffix = || F::of_suffix(self.out.as_deref()?.extension()?.to_str()?);
        match self.json {
            true => Form::Json,
            false => self.format.clone().or_else(suffix).map_or(Form::Text, |format| format.form()),
        }
    }

    /// Prints the result: JSON from the one, text from the other.
    pub(super) fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&Style, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        if self.form() == Form::Html {
            return Err(Fault::new(FaultKind::Usage, "there is no page of this result")
                .remedy("choose --format text or json"));
        }
        self.print_any(document, text, |_| Ok(()))
    }

    /// The same of a result that has a page, too.
    pub(super) fn print_any(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&Style, &mut dyn Write) -> io::Result<()>,
        page: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let mut content = Vec::new();
        let style = match self.out {
            Some(_) => Style { width: PAGE, colour: false, details: false },
            None => style(false),
        };
        match self.form() {
            Form::Json => {
                content = json(document)?.into_bytes();
                Ok(())
            }
            Form::Text => text(&style, &mut content),
            Form::Html => page(&mut content),
        }
        .map_err(|e| Fault::system("cannot write the report", &e))?;
        self.put(&content)
    }

    /// The same with a text in which nothing may steer a terminal.
    pub(super) fn print_plain(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        self.print(document, |_, out| {
            let mut plain = Vec::new();
            text(&mut plain)?;
            out.write_all(visible(&String::from_utf8_lossy(&plain)).as_bytes())
        })
    }

    /// Writes the file, whole or not at all, or prints.
    fn put(&self, content: &[u8]) -> Result<(), Fault> {
        match &self.out {
            Some(file) => keep(file, content),
            None => print(|out| out.write_all(content)),
        }
    }
}

/// Writes a result to a file, whole or not at all.
pub(super) fn keep(file: &Path, content: &[u8]) -> Result<(), Fault> {
    replace(file, content).map_err(|e| {
        Fault::new(FaultKind::Storage, format!("cannot write {}: {e}", file.display()))
    })
}
