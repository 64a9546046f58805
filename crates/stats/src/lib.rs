//! From trials to verdicts: summaries, paired effects, verdicts, and the analysis
//! of a whole study. Pure: the same study gives the same numbers anywhere.

#![forbid(unsafe_code)]

use bytepath_math as math;
use bytepath_record as record;

mod analysis;
mod budget;
mod build;
mod change;
mod choice;
mod compare;
mod contract;
mod cpu;
mod device_work;
mod effect;
mod estimate;
mod events;
mod factors;
mod foreign;
mod frames;
mod history;
mod hops;
mod idle;
mod offload;
mod offloading;
mod order;
mod pairs;
mod placement;
mod pool;
mod profiling;
mod published;
mod sequential;
mod sizing;
mod student;
mod studies;
mod summary;
mod threshold;
mod verdict;
pub mod wattmeter;
mod worth;

pub use analysis::{
    ANALYSIS_VERSION, Analysis, Comparison, CpuCost, End, Failure, Headline, LatencyRow, Pace,
    PerEnd, PercentileRow, Row, Rules, Status, StoppingNote, Witness,
};
pub use budget::{SecondPass, allot, most_chosen, second_pass, seconds_per_trial};
pub use build::analyse;
pub use change::{Change, changes};
pub use choice::{Choice, Needs, Undecided};
pub use cpu::{CpuRule, ENGINE_RUN, RoleCpu, role_cpu};
pub use device_work::softirq_cpus;
pub use effect::{Effect, Opening};
pub use estimate::Interval;
pub use events::{FOREIGN_LIMIT, STEAL_LIMIT, judge_events};
pub use factors::{Factor, FactorView, Interaction, LevelEffect};
pub use frames::{Fact, FactStep, What, fact_steps, sink};
pub use history::{CHANGE_LEVEL, Entry, History, Point, Shift, StudyPoints, history, points};
pub use hops::{Bound, HopsRow};
pub use idle::IdleShare;
pub use offload::{BreakEven, CopyAt, CopyCell, CopyComparison, CopyRow, CopyTrial, Pays, offload};
pub use offloading::Offloading;
pub use pairs::PairSpread;
pub use placement::{CpuShare, ELSEWHERE_LIMIT, ReceiveWork, collisions};
pub use pool::{Counted, Fragments, Shares, rejections};
pub use profiling::{ProfilingNote, SamplingCost, cells_to_profile};
pub use published::{
    Agreement, FigureComparison, NumberComparison, PUBLISHED_FACTORS, PublishedComparison,
    RowComparison, compare_published,
};
pub use sequential::should_stop;
pub use sizing::{
    DONTNEED, Goal, LARGEST_RING, POLL_WEIGHT, Shortage, Sizing, Traffic, shortages, traffic,
};
pub use studies::{Between, Difference, Pairing, Weight, between, differences, host_differences};
pub use summary::Summary;
pub use threshold::{Outcome, Subject, Threshold, ThresholdResult, judge_thresholds, subjects};
pub use verdict::{Ceiling, DEFAULT_MARGIN, Direction, Noise, Question, Test, Verdict};
pub use worth::{Costs, POWER, costs};
