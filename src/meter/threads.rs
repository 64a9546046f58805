//! threads: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// Threads.
pub struct Threads;
impl Meter for Threads {
    fn name(&self) -> &'static str {
        "threads"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn reach(&self) -> Reach {
        Reach::Agent
    }
    fn start(&self, _: &Context) -> Result<Box<dyn Running>, Fault> {
        todo!()
    }
}
