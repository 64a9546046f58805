//! softnet: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// Softnet.
pub struct Softnet;
impl Meter for Softnet {
    fn name(&self) -> &'static str {
        "softnet"
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
