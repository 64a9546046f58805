//! What a study does next, decided from the trials so far: which cells it runs until its answer is
//! certain ([`until_sure`]), whether a rule on spreads stops it ([`stopping`]), and which cells are
//! profiled ([`profiles`]).

mod profiles;
mod stopping;
mod until_sure;

pub use profiles::{cells_to_profile, has_choice};
pub use stopping::should_stop;
pub use until_sure::{LEAST_BLOCKS, cells_to_run};
