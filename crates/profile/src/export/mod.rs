//! What a profile can become: one file per format, one line each in [`CATALOG`].

mod firefox;
mod folded;
mod format;
mod pprof;
mod svg;

pub use format::Exporter;
pub use pprof::FORMAT as PPROF;

pub static CATALOG: &[&Exporter] =
    &[&pprof::FORMAT, &folded::FORMAT, &svg::FORMAT, &firefox::FORMAT];

/// The format with this name.
pub fn find(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| exporter.name == name)
}

/// The first format whose files are named like this one.
pub fn find_by_file_name(name: &str) -> Option<&'static Exporter> {
    CATALOG.iter().copied().find(|exporter| {
        name.strip_suffix(exporter.extension).is_some_and(|rest| rest.ends_with('.'))
    })
}
