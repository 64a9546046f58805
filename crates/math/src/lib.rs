//! The arithmetic shared by statistics and profiles: mean and spread of a sample ([`Moments`]), the
//! standard error of a difference of means ([`welch`]), quantiles and tails of Student's t
//! ([`two_sided`], [`tails`]), intervals that hold at every look
//! ([`StandardError::anytime_half_width`]), one error rate for many comparisons ([`holm`]), and
//! random numbers that never change ([`Random`]). It does not know what the numbers mean.
//!
//! ```
//! use bytepath_math::{Moments, welch};
//!
//! let before: Moments = [10.1, 9.9, 10.0].into_iter().collect();
//! let after: Moments = [12.2, 11.9, 12.1].into_iter().collect();
//! let error = welch(&[before.error().unwrap(), after.error().unwrap()]);
//! let half_width = error.half_width(0.95).unwrap();
//! assert!(after.mean() - before.mean() > half_width, "the two differ");
//! ```

#![forbid(unsafe_code)]

mod anytime;
mod holm;
mod moments;
mod random;
mod student;
mod welch;

pub use holm::{Adjusted, holm};
pub use moments::Moments;
pub use random::Random;
pub use student::{tails, two_sided};
pub use welch::{StandardError, welch};
