//! Every fuzz target in one program: `FUZZ_TARGET` names the one to run.
#![no_main]

mod targets;

use std::sync::LazyLock;

static CHECK: LazyLock<targets::Check> = LazyLock::new(|| {
    let asked = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names a target");
    let found = targets::TARGETS.iter().find(|(name, _)| *name == asked);
    found.unwrap_or_else(|| panic!("there is no fuzz target '{asked}'")).1
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| CHECK(data));
