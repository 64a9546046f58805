//! netns: to be written.
use super::{Raised, Testbed};
use crate::record::{Fault, Support};
use std::path::Path;
/// Netns.
pub struct Netns;
impl Testbed for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn probe(&self) -> Support {
        Support::no("unwritten", "write it")
    }
    fn raise(&self, _: &Path) -> Result<Box<dyn Raised>, Fault> {
        todo!()
    }
}
