//! What `bytepath --version` says of its build and only the build knows. Nothing here depends on
//! git: its answer would change with each commit, and with it the whole crate. `make` gives the
//! commit to `src/main.rs` alone (`BYTEPATH_COMMIT`); a packaged crate has it in a file.

use std::process::Command;

const PACKAGED: &str = ".cargo_vcs_info.json";

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    let variable = |name: &str| std::env::var(name).unwrap_or_default();
    println!("cargo:rustc-env=BYTEPATH_TARGET={}", variable("TARGET"));
    println!("cargo:rustc-env=BYTEPATH_CPU={}", variable("CARGO_CFG_TARGET_FEATURE"));
    let compiler = Command::new(variable("RUSTC")).arg("--version").output();
    let compiler = compiler.map(|said| String::from_utf8_lossy(&said.stdout).trim().to_owned());
    println!("cargo:rustc-env=BYTEPATH_COMPILER={}", compiler.unwrap_or_default());
    // {"git": {"sha1": "..."}, ...}
    if let Ok(text) = std::fs::read_to_string(PACKAGED) {
        println!("cargo:rerun-if-changed={PACKAGED}");
        let sha1 = text.split('"').skip_while(|word| *word != "sha1").nth(2).unwrap_or_default();
        println!("cargo:rustc-env=BYTEPATH_PACKAGED={}", sha1.get(..12).unwrap_or(sha1));
    }
}
