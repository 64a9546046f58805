//! Every sysctl and every kind of setting, made and undone: nothing that it changed along with
//! itself stays changed.

use crate::lab::Lab;
use crate::whole::{KINDS, Trials, all_sysctls};
use anyhow::{Result, ensure};
use bytepath::settings::StateFolder;

/// Tries all of them, in an order that the seed draws.
pub fn setting(lab: &mut Lab) -> Result<()> {
    let mut trials = Trials::begin(StateFolder::at(lab.host.dir.path().join("state")));
    let mut all = all_sysctls();
    all.extend(KINDS.iter().map(|kind| vec![(*kind).to_owned()]));
    lab.random.shuffle(&mut all);
    for lines in &all {
        trials.attempt(lines);
    }
    let Trials { findings, made, refused, .. } = trials.end();
    lab.lines.push(format!("# {} settings made, {} refused", made.len(), refused.len()));
    ensure!(findings.is_empty(), "{}", findings.join("\n"));
    ensure!(made.len() > refused.len(), "hardly any could be made: {refused:?}");
    Ok(())
}
