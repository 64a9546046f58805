//! A fleet: one experiment on many pairs of hosts, each of which runs a shard of it. Slurm
//! allocates the pairs; its commands are in [`slurm`]. The folder of a fleet is on a file system that
//! all nodes share:
//!
//! | file | content |
//! |---|---|
//! | `experiment.toml` | the experiment, as it was written |
//! | `fleet.json` | this record |
//! | `bytepath` | a copy of the program, which shards and agents are started from |
//! | `job.sh` | what Slurm starts |
//! | `shard-K/` | the study of shard K; `shard-K.N/` what it had on another pair before |
//! | `shard-K.log` | what shard K printed |

mod record;
pub mod slurm;
mod submit;

pub use record::{Fleet, MOST_SHARDS, Shard, ShardState, collect, shards};
pub use submit::{Order, ShardTask, Submitted, shard_task, submit};
