//! The caller's own CPU: a copy is done when it is submitted.

use super::{Copy, Engine, EngineKind, Events};
use crate::record::{Fault, FaultKind, OptionKind, OptionSpec};
use crate::sys::copying::Method;
use crate::sys::idxd::Memories;

/// See the module's text.
pub static KIND: EngineKind = EngineKind {
    name: "cpu",
    summary: "the caller's own CPU",
    model: false,
    options: &[OptionSpec {
        name: "method",
        kind: OptionKind::Choice(&["memmove", "rep-movsb", "non-temporal"]),
        default: "memmove",
        help: "memmove of the C library, the instruction, or stores past the caches",
    }],
    open: |memories, _, options| {
        let word = options.word("method");
        let method = match word {
            "rep-movsb" => Method::RepMovsb,
            "non-temporal" => Method::NonTemporal,
            _ => Method::Memmove,
        };
        if !method.available() {
            let what = format!("this processor has no way to copy by {word}");
            return Err(Fault::new(FaultKind::Unsupported, what).remedy("choose method=memmove"));
        }
        Ok(Box::new(Cpu { memories: memories.clone(), method, done: 0 }))
    },
};

struct Cpu {
    memories: Memories,
    method: Method,
    done: u64,
}

impl Engine for Cpu {
    fn submit(&mut self, copy: &Copy) -> Result<bool, Fault> {
        let [from, to] = [copy.from, copy.to].map(|place| place.of(&self.memories));
        self.method.copy(from, to, copy.len as usize);
        self.done += 1;
        Ok(true)
    }

    fn flush(&mut self) -> Result<(), Fault> {
        Ok(())
    }

    fn poll(&mut self) -> Result<u64, Fault> {
        Ok(self.done)
    }

    fn events(&self) -> Events {
        Events::default()
    }
}
