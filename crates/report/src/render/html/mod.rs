//! Pages: each is one file that needs no network: for a browser, a phone,
//! a printer. Of a study verdicts come first, then figures and tables, methods and
//! host facts last.
//!
//! A document's sections become elements in one place ([`blocks`]); what only a page has
//! (the frontier, the filter, flame graphs) is beside it.
//!
//! Every text that comes from outside goes through `maud`, which escapes it;
//! control and direction characters are made visible in the finished page
//! (`visible`); and the page's own policy lets nothing run but the scripts
//! whose digests it names. Figures are tables whose rows hold a small drawing
//! ([`plot`]): what is drawn can be read next to it. What the scripts need is data
//! (`#data`, as JSON); the page is whole without them, but for its flame graphs.

mod blocks;
mod filter;
mod flame;
mod frontier;
mod method;
mod pages;
mod plot;
mod shell;
mod study;

pub use pages::{between, difference, history, observation};
pub(crate) use study::FORMAT;
pub use study::{explanation, study};
