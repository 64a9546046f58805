//! cpu: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// Cpu.
pub struct Cpu;
impl Meter for Cpu {
    fn name(&self) -> &'static str {
        "cpu"
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
