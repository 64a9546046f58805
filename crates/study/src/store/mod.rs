//! The folder of a study on disk. It is used by the command that runs, merges or reports a study;
//! no agent opens it.
//!
//! It is given the header when a study begins, and trials, profiles and remarks as they end
//! (`writer`). It returns a `Study`, read and validated (`load`), several studies merged into one
//! (`merge`), the trials' power from the log of an external meter (`power_log`), and the profiles
//! of cells, named and compared (`explanation`). `layout` has the names of the files.
//!
//! Trials and remarks are only appended, and other files replaced whole, so a folder is readable
//! after a crash at any byte. It knows no host and runs nothing.

mod explanation;
mod layout;
mod load;
mod merge;
pub(crate) mod power_log;
mod writer;

pub use explanation::{ProfiledCell, ends, explanation, profiled_cell};
pub use layout::{Hosts, HostsAfter, Loads, storage};
pub(crate) use layout::{LARGEST_PROFILE, profile_file};
pub use load::{Studies, load, read_studies};
pub use merge::merge;
pub use writer::{StudyWriter, import_power, is_begun, refuse_folder, refuse_used};
