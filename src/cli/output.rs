//! Standard output and standard error. Either may become unusable at any time: a reader that stops
//! early (`bytepath paths | head`), a closed terminal, a full device. Nothing panics because of
//! that, and no measurement stops.

use anstream::AutoStream;
use anstream::stream::RawStream;
use bytepath_record::{Fault, FaultKind, joined, one_line, visible, visible_json};
use bytepath_spec::usage;
use bytepath_sys::files::{self, Folder};
use clap::ColorChoice;
use clap::builder::styling::{AnsiColor, Style};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use serde::Serialize;
use std::borrow::Cow;
use std::fmt::Display;
use std::fs;
use std::io::{self, BufWriter, ErrorKind, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// Sets when colours are used, here and in clap's help.
pub(super) fn set_colours(when: ColorChoice) {
    match when {
        ColorChoice::Auto => anstream::ColorChoice::Auto,
        ColorChoice::Always => anstream::ColorChoice::Always,
        ColorChoice::Never => anstream::ColorChoice::Never,
    }
    .write_global();
}

/// True if this stream gets colours: on a terminal unless `NO_COLOR` is set, or as requested.
pub(super) fn colours<S: RawStream>(stream: &S) -> bool {
    AutoStream::choice(stream) != anstream::ColorChoice::Never
}

/// Returns columns and rows of the terminal; `None` if the stream is not one.
pub(super) fn size(stream: impl AsFd) -> Option<(usize, usize)> {
    let size = rustix::termios::tcgetwinsize(stream).ok()?;
    (size.ws_col > 0).then_some((size.ws_col.into(), size.ws_row.into()))
}

/// Columns of text that is not printed on a terminal.
pub(super) const PAGE_WIDTH: usize = 100;

/// Returns the style of standard output: terminal width and colours on a terminal, otherwise plain.
pub(super) fn style(details: bool) -> bytepath_report::Style {
    let width = size(io::stdout()).map_or(PAGE_WIDTH, |(columns, _)| columns);
    bytepath_report::Style { width, colour: colours(&io::stdout()), details }
}

/// Replaces a file atomically. Anything but a regular file, such as a pipe, is written to directly.
pub(super) fn replace(file: &Path, content: &[u8]) -> io::Result<()> {
    if fs::metadata(file).is_ok_and(|m| !m.is_file()) {
        return Patient(files::open_sink(file)?).write_all(content);
    }
    let (folder, name) = Folder::parent_folder(file)?;
    folder.replace_shared(name, content)
}

/// Writes a result to a file, completely or not at all.
pub(super) fn write_file(file: &Path, content: &[u8]) -> Result<(), Fault> {
    replace(file, content).map_err(|e| file_fault("write", file, &e))
}

/// Writes a result to the named file, or to standard output if there is none.
pub(super) fn deliver(
    file: Option<&Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Fault> {
    let Some(file) = file else { return print(write) };
    let mut content = Vec::new();
    write(&mut content).map_err(|e| file_fault("write", file, &e))?;
    write_file(file, &content)
}

/// Errors if this stream is a terminal, no file was named, and the format is unreadable there.
pub(super) fn refuse_on_terminal(
    stream: impl IsTerminal,
    file: Option<&Path>,
    (format, extension): (&str, &str),
) -> Result<(), Fault> {
    if file.is_some() || !stream.is_terminal() {
        return Ok(());
    }
    Err(usage(format!("refusing to write {format} to a terminal"))
        .remedy(format!("name a file with -o FILE.{extension}")))
}

/// A fault for a file that could not be read or written.
pub(super) fn file_fault(verb: &str, file: &Path, error: &io::Error) -> Fault {
    Fault::storage(format!("cannot {verb} {}: {error}", file.display()))
}

/// Quotes a file or folder for a shell.
pub(super) fn quoted(file: &Path) -> String {
    let text = file.to_string_lossy();
    // Only a zero byte cannot be quoted, and paths contain none.
    shlex::try_quote(&text).map_or_else(|_| text.to_string(), Cow::into_owned)
}

/// A fault for a file whose suffix belongs to no format, if an option could name one.
pub(super) fn unknown_suffix<'a>(
    file: impl Display,
    extensions: impl Iterator<Item = &'a str>,
    option: &str,
) -> Fault {
    let suffixes = joined(extensions.map(|extension| format!(".{extension}")), ", ");
    usage(format!("cannot infer the format from '{file}'"))
        .remedy(format!("use one of the suffixes {suffixes}, or add {option}"))
}

/// Formats a value as JSON without characters that control a terminal.
pub(super) fn json(value: &impl Serialize) -> Result<String, Fault> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Fault::failed(format!("cannot encode: {e}")))?;
    Ok(visible_json(text) + "\n")
}

/// Prints a value as JSON.
pub(super) fn print_json(value: &impl Serialize) -> Result<(), Fault> {
    let text = json(value)?;
    print(|out| out.write_all(text.as_bytes()))
}

/// Prints lines of text, without terminal control characters.
pub(super) fn print_text(
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<(), Fault> {
    print(|out| write_plain(out, write))
}

/// Writes lines of text without terminal control characters.
pub(super) fn write_plain(
    out: &mut dyn Write,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> io::Result<()> {
    let mut text = Vec::new();
    write(&mut text)?;
    out.write_all(visible(&String::from_utf8_lossy(&text)).as_bytes())
}

/// Prints output unchanged: colours, and binary data.
pub(super) fn print(write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Fault> {
    let mut out = BufWriter::new(Patient(io::stdout()));
    ignore_closed_reader("standard output", write(&mut out).and_then(|()| out.flush()))
}

/// Writes to standard error, which has no buffer.
pub(super) fn print_error(text: &[u8]) -> io::Result<()> {
    Patient(io::stderr()).write_all(text)
}

/// Set by the signal that asks a command to end.
static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// After this call, a reader that does not read cannot block the process once `stop` is set.
pub(super) fn give_up_after(stop: &Arc<AtomicBool>) {
    let _ = STOP.set(stop.clone());
}

/// Whether a reader was given up; no other one is waited for then.
static GIVEN_UP: AtomicBool = AtomicBool::new(false);

/// A file, pipe or terminal, written to at the pace of its reader. Gives up if nothing was read for
/// [`LAST`] after a signal.
struct Patient<F>(F);

/// How long a reader may read nothing after a signal.
const LAST: Duration = Duration::from_secs(1);

/// Interval of checks whether a signal arrived.
const LOOK: Duration = Duration::from_millis(100);

/// Bytes that a pipe accepts without blocking if it is ready (PIPE_BUF, pipe(7)).
const AT_ONCE: usize = 4096;

impl<F: AsFd> Write for Patient<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let stopped = || STOP.get().is_some_and(|stop| stop.load(Ordering::Relaxed));
        let mut since = None;
        while !takes_more(&self.0)? {
            if !stopped() {
                continue;
            }
            let waited = since.get_or_insert_with(Instant::now).elapsed();
            if GIVEN_UP.load(Ordering::Relaxed) || waited >= LAST {
                GIVEN_UP.store(true, Ordering::Relaxed);
                let text = "interrupted by the user, and its reader reads nothing";
                return Err(io::Error::new(ErrorKind::TimedOut, text));
            }
        }
        let bytes = bytes.get(..AT_ONCE).unwrap_or(bytes);
        Ok(retry_on_intr(|| rustix::io::write(&self.0, bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Waits briefly until the file accepts data; false if it does not.
fn takes_more(file: impl AsFd) -> io::Result<bool> {
    let timeout = Timespec::try_from(LOOK).ok();
    let polled = || poll(&mut [PollFd::new(&file, PollFlags::OUT)], timeout.as_ref());
    Ok(retry_on_intr(polled)? > 0)
}

/// Prints a line on standard error. If standard error cannot be written to, the line is lost.
pub(super) fn say(line: impl Display) {
    let line = line.to_string();
    let _ = print_error(format!("{}\n", visible(&line)).as_bytes());
}

/// Prints thing, cause and remedy on standard error.
pub fn explain(fault: &Fault) {
    print_prefixed("bytepath:", AnsiColor::Red, &fault.to_string());
}

/// Prints a warning on standard error.
pub(super) fn warn(line: impl Display) {
    print_prefixed("bytepath:", AnsiColor::Yellow, &line.to_string());
}

/// Messages of the standard library about invalid numbers, and their meaning in plain words.
const LIBRARY_WORDS: [(&str, &str); 8] = [
    ("invalid digit found in string", "it is not a whole number"),
    ("cannot parse integer from empty string", "it is empty, and a whole number is needed"),
    ("number too large to fit in target type", "it is too large"),
    ("number too small to fit in target type", "it is too small"),
    ("number would be zero for non-zero type", "it may not be zero"),
    ("invalid float literal", "it is not a number"),
    ("cannot parse float from empty string", "it is empty, and a number is needed"),
    ("invalid IP address syntax", "it is not an IP address"),
];

/// Prints clap's error, which begins with `LEAD`.
pub(super) fn clap_error(text: &str) {
    const LEAD: &str = "error:";
    let plain = |text: String, (library, plain): (&str, &str)| text.replace(library, plain);
    let text = &LIBRARY_WORDS.into_iter().fold(text.to_owned(), plain);
    match text.strip_prefix(LEAD) {
        Some(text) => print_prefixed(LEAD, AnsiColor::Red, text.trim_start()),
        None => say(text),
    }
}

/// Prints text on standard error after a coloured prefix.
fn print_prefixed(lead: &str, colour: AnsiColor, text: &str) {
    let style = match colours(&io::stderr()) {
        true => Style::new().fg_color(Some(colour.into())).bold(),
        false => Style::new(),
    };
    let text = names_on_one_line(shortened(text).into_owned());
    let line = format!("{style}{lead}{style:#} {}\n", visible(&text));
    let _ = print_error(line.as_bytes());
}

/// Puts each name of the command line on a single line: text after a line feed in a name must not
/// look like a message of this program.
fn names_on_one_line(text: String) -> String {
    let words = std::env::args_os().skip(1).map(|word| word.to_string_lossy().into_owned());
    words.filter(|word| word.contains('\n')).fold(text, |text, word| {
        // `--study=NAME`, `--kernel NAME=SOURCE`
        let value = word.split_once('=').map_or(word.as_str(), |(_, value)| value);
        text.replace(&word, &one_line(&word)).replace(value, &one_line(value))
    })
}

/// Removes the middle of a long text: a message may quote a whole file, and its remedy is at the
/// end.
fn shortened(text: &str) -> Cow<'_, str> {
    const BEGIN: usize = 2000;
    const END: usize = 1000;
    let left_out = text.chars().count().saturating_sub(BEGIN + END);
    if left_out == 0 {
        return text.into();
    }
    let begin: String = text.chars().take(BEGIN).collect();
    let end: String = text.chars().skip(BEGIN + left_out).collect();
    format!("{begin} [... {left_out} characters ...] {end}").into()
}

/// Converts the result of printing. A reader that has read enough is not a failure.
pub(super) fn ignore_closed_reader(what: &str, result: io::Result<()>) -> Result<(), Fault> {
    match result {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        Err(e) if e.kind() == ErrorKind::TimedOut => {
            Err(Fault::new(FaultKind::Interrupted, format!("cannot write to {what}: {e}")))
        }
        other => other.map_err(|e| Fault::storage(format!("cannot write to {what}: {e}"))),
    }
}
