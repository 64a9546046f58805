//! What the tests here share: running the binary, and a report of a study.

use assert_cmd::Command;
use bytepath::record::Study;
use bytepath::report::{self, Style};
use bytepath::stats::{Rules, analyse};

/// Runs a command line; returns its exit code, standard output and standard error.
pub fn bytepath(arguments: &[&str]) -> (i32, String, String) {
    said(Command::new(env!("CARGO_BIN_EXE_bytepath")).args(arguments))
}

/// Like [`bytepath`], for any command.
pub fn said(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

/// The commands that the help lists, except `help`.
pub fn commands() -> Vec<String> {
    let (_, help, _) = bytepath(&["--help"]);
    let list = help.split_once("\nUsage:").unwrap().1.split_once("\nOptions:").unwrap().0;
    let names = list.lines().filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = names.map(|line| line.split_whitespace().next().unwrap().to_owned());
    let names: Vec<String> = names.filter(|name| name != "help").collect();
    assert!(names.len() > 20 && names.contains(&"observe".to_owned()), "{help}");
    names
}

/// The text with each run of blanks replaced by one, so that line breaks do not matter.
pub fn words(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Renders a study in a format.
pub fn render(name: &str, study: &Study, style: &Style) -> Vec<u8> {
    let analysis = analyse(study, &Rules::default());
    let mut out = Vec::new();
    let subject = report::Subject::of(study, &analysis, None);
    report::find(name).unwrap().render(&subject, style, &mut out).unwrap();
    out
}
