//! `bytepath --version`: which build this is.

use std::sync::OnceLock;

/// What follows the program's name: version, commit, target, compiler. clap needs a static text.
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
