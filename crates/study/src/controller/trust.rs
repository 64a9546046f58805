//! Protects the user from acting on files that others may have written. Studies to resume and
//! experiments to run are programs: they name commands, hosts, kernels and settings.

use bytepath_host::testbed;
use bytepath_record::{Cell, Fault, FaultKind, Power, PowerSource, Role, joined};

/// The actions that a file causes if the user runs it, in words, each once.
#[derive(Default)]
pub(crate) struct Acts(Vec<String>);

impl Acts {
    pub(crate) fn of(cells: &[Cell], power: &Power) -> Acts {
        let mut acts = Acts::default();
        for kernel in cells.iter().filter_map(|cell| cell.kernel.as_ref()) {
            acts.add(format!("boot the kernel {kernel}"));
        }
        acts.power(power);
        acts
    }

    /// Only the testbed of private namespaces uses nothing of this machine or another.
    pub(crate) fn testbed(&mut self, text: &str) {
        if text != testbed::CATALOG[0].name() {
            self.add(format!("use the testbed {text}"));
        }
    }

    pub(crate) fn power(&mut self, power: &Power) {
        for role in Role::ALL {
            match &power.of(role).source {
                PowerSource::Command { argv } => self.add(format!("run {}", joined(argv, " "))),
                PowerSource::Csv { file, .. } => self.add(format!("read {file}")),
                _ => {}
            }
        }
    }

    pub(crate) fn set(&mut self, setting: impl std::fmt::Display) {
        self.add(format!("set {setting}"));
    }

    fn add(&mut self, act: String) {
        if !self.0.contains(&act) {
            self.0.push(act);
        }
    }

    /// Refuses a file that someone else may have written ([`files::other_writer`]) and that causes
    /// actions, unless the user trusts it.
    ///
    /// [`files::other_writer`]: bytepath_sys::files::other_writer
    pub(crate) fn check(
        &self,
        what: &str,
        stranger: Option<String>,
        trusted: bool,
    ) -> Result<(), Fault> {
        let Some(stranger) = stranger.filter(|_| !trusted && !self.0.is_empty()) else {
            return Ok(());
        };
        let acts = joined(&self.0, "; ");
        let text = format!("{what} {stranger}, and would make you {acts}");
        Err(Fault::new(FaultKind::Permission, text)
            .remedy("add --trust if you would have written the same"))
    }
}
