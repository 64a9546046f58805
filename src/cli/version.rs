//! `bytepath --version`: identifies the build.

use std::sync::OnceLock;

/// Returns the text after the program's name: version, commit, target, compiler. It is static
/// because clap requires it.
pub(super) fn long(commit: Option<&str>) -> &'static str {
    static TEXT: OnceLock<String> = OnceLock::new();
    TEXT.get_or_init(|| {
        let version = env!("CARGO_PKG_VERSION");
        let commit = commit.unwrap_or("not recorded; `make build`, `make install` and packages do");
        let target = env!("BYTEPATH_TARGET");
        let cpu = env!("BYTEPATH_CPU").replace(',', ", ");
        let compiler = env!("BYTEPATH_COMPILER");
        format!("{version}\ncommit    {commit}\ntarget    {target} ({cpu})\ncompiler  {compiler}")
    })
}
