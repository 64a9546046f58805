//! What a study does next, decided from the trials so far: whether it stops ([`stopping`]),
//! which cells get a second pass ([`budget`]), and which are profiled ([`profiles`]).

mod budget;
mod profiles;
mod stopping;

pub use budget::{SecondPass, allot, most_chosen, second_pass, seconds_per_trial};
pub use profiles::cells_to_profile;
pub use stopping::should_stop;
