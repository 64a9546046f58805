//! tcp_info: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// TcpInfoMeter.
pub struct TcpInfoMeter;
impl Meter for TcpInfoMeter {
    fn name(&self) -> &'static str {
        "tcp-info"
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
