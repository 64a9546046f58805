//! The options of every command that prints a result: as text or JSON, to standard output or
//! into a file.

use super::output::{json, print};
use super::show::{PAGE, replace, style};
use crate::record::{Fault, FaultKind, visible};
use crate::report::Style;
use clap::{Args, ValueEnum};
use schemars::JsonSchema;
use serde::Serialize;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

#[derive(Debug, Args)]
pub(super) struct Printed {
    /// Format: text or json [default: json if --out ends in .json, else text]
    #[arg(long, value_name = "NAME", hide_possible_values = true, hide_short_help = true)]
    format: Option<FormatName>,
    /// Print JSON (same as --format json)
    #[arg(long, conflicts_with = "format")]
    json: bool,
    /// Write to this file instead of printing
    #[arg(short, long, value_name = "FILE")]
    pub out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum FormatName {
    /// For a terminal or a mail
    Text,
    /// Everything, for programs
    Json,
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
    pub fn new(format: &'static str, content: T) -> Document<T> {
        Document { format, schema: 1, content }
    }
}

impl Printed {
    /// Whether JSON was requested.
    pub fn is_json(&self) -> bool {
        let suffix = self.out.as_deref().and_then(Path::extension);
        let named = || suffix.is_some_and(|suffix| suffix == "json");
        self.json || self.format.map_or_else(named, |format| format == FormatName::Json)
    }

    /// Prints the result: JSON from the one, text from the other.
    pub fn print(
        &self,
        document: &impl Serialize,
        text: impl FnOnce(&Style, &mut dyn Write) -> io::Result<()>,
    ) -> Result<(), Fault> {
        let mut content = Vec::new();
        if self.is_json() {
            content = json(document)?.into_bytes();
        } else {
            let style = match self.out {
                Some(_) => Style { width: PAGE, colour: false, details: false },
                None => style(false),
            };
            text(&style, &mut content).map_err(|e| Fault::system("cannot write the text", &e))?;
        }
        self.put(&content)
    }

    /// The same with a text in which nothing may steer a terminal.
    pub fn print_plain(
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
