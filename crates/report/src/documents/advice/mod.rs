//! Advice for an observed program: [`advise`] compares it with a study, [`advice`] renders the
//! result.

mod advise;
mod loops;
mod server;
#[cfg(test)]
mod tests;
mod text;

pub use advise::{Advice, advise, measurement};
pub use text::{advice, advice_or_hint};
