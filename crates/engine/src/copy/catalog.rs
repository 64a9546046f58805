//! Every copy engine.

use super::engine::EngineKind;
use super::{cpu, dsa, threaded};
use bytepath_record::{Fault, Options};
use bytepath_spec::{find, resolve, split};

pub static CATALOG: &[&EngineKind] = &[&cpu::KIND, &threaded::KIND, &dsa::KIND];

/// Parses `NAME[:key=value,...]` into an engine and all of its options.
pub fn engine(text: &str) -> Result<(&'static EngineKind, Options), Fault> {
    let (name, given) = split(text)?;
    let kind = *find("copy engine", &name, CATALOG, |kind| kind.name)?;
    Ok((kind, resolve(&format!("engine {name}"), kind.options, &given)?))
}
