//! Every copy engine.

use super::engine::EngineKind;
use super::{cpu, dsa, threaded};
use bytepath_record::{Fault, Options};
use bytepath_spec::{resolve, split, suggest};

pub static CATALOG: &[&EngineKind] = &[&cpu::KIND, &threaded::KIND, &dsa::KIND];

/// Reads `NAME[:key=value,...]` into an engine and all of its options.
pub fn engine(text: &str) -> Result<(&'static EngineKind, Options), Fault> {
    let all: Vec<&str> = CATALOG.iter().map(|kind| kind.name).collect();
    let (name, given) = split(text)?;
    let kind = CATALOG.iter().find(|kind| kind.name == name).ok_or_else(|| {
        let fault = Fault::usage(format!("there is no copy engine '{name}'"));
        suggest(fault, &name, &all)
    })?;
    Ok((kind, resolve(&format!("engine {name}"), kind.options, &given)?))
}
