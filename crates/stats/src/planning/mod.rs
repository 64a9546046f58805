//! What a study does next, decided from the trials so far: which cells it runs until it is sure
//! ([`until_sure`]), whether it stops by a rule of spreads ([`stopping`]), and which cells are
//! profiled ([`profiles`]).

mod profiles;
mod stopping;
mod until_sure;

pub use profiles::{cells_to_profile, has_choice};
pub use stopping::should_stop;
pub use until_sure::{LEAST_BLOCKS, cells_to_run};
