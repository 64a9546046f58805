//! Findings while they are collected.

use bytepath_record::{Finding, Severity};

#[derive(Default)]
pub(super) struct Findings(pub Vec<Finding>);

/// Each finding has a description, its effect on a measurement, and a command against it.
impl Findings {
    pub(super) fn blocks(&mut self, what: impl Into<String>, effect: &str, command: &str) {
        self.add(Severity::Blocks, what, effect, command);
    }

    pub(super) fn distorts(&mut self, what: impl Into<String>, effect: &str, command: &str) {
        self.add(Severity::Distorts, what, effect, command);
    }

    pub(super) fn note(&mut self, what: impl Into<String>, effect: &str, command: &str) {
        self.add(Severity::Note, what, effect, command);
    }

    pub(super) fn add(
        &mut self,
        severity: Severity,
        what: impl Into<String>,
        effect: &str,
        command: &str,
    ) {
        let (what, effect, command) = (what.into(), effect.to_owned(), command.to_owned());
        self.0.push(Finding { severity, what, effect, command });
    }
}
