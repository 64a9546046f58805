//! From trials to words: summaries, paired effects, verdicts, and the analysis
//! of a whole study. Pure: the same study gives the same numbers anywhere.

mod analysis;
mod build;
mod cpu;
mod effect;
mod pool;
mod sequential;
mod student;
mod summary;
mod verdict;

pub use analysis::{
    ANALYSIS_VERSION, Analysis, Comparison, CpuCost, End, Failure, Pace, Roi, Row, Rules, Status,
    Witness,
};
pub use build::analyse;
pub use cpu::{CpuRule, RoleCpu, role_cpu};
pub use effect::{Effect, Interval, Permutation};
pub use pool::{Counted, Shares};
pub use sequential::should_stop;
pub use summary::Summary;
pub use verdict::{DEFAULT_MARGIN, Noise, Verdict, judge};
