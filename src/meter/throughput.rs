//! throughput: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// Throughput.
pub struct Throughput;
impl Meter for Throughput {
    fn name(&self) -> &'static str {
        "throughput"
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
