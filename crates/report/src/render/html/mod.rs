//! HTML pages: each is a single file that needs no network, suitable for a browser, a phone or a
//! printer. In a study's page verdicts come first, then figures and tables; methods and host facts
//! are last.
//!
//! A document's sections become elements in one place ([`blocks`]); parts that only a page has (the
//! frontier, the filter, flame graphs) have separate files.
//!
//! Every text from outside goes through `maud`, which escapes it; control and direction characters
//! are made visible in the finished page (`visible`); and the page's own policy allows only the
//! scripts whose digests it lists. Figures are tables whose rows contain a small drawing
//! ([`plot`]): the drawn values can be read next to it. The data of the scripts is in `#data`, as
//! JSON; without scripts the page is complete except for its flame graphs.

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
