//! Advice for an observed program: [`advise`] compares it with a study, [`advice`] prints that.

mod advise;
mod server;
mod text;

pub use advise::{Advice, advise, measurement};
pub use text::{advice, advice_or_hint};
