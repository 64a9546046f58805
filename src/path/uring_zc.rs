//! uring-zc: to be written.
use super::{DataPath, Endpoint, Flow};
use crate::record::{Cell, Facts, Fault, FaultKind, OptionSpec, Role, Support};
/// uring-zc.
pub struct UringZc;
impl DataPath for UringZc {
    fn name(&self) -> &'static str {
        "uring-zc"
    }
    fn summary(&self) -> &'static str {
        ""
    }
    fn roles(&self) -> &'static [Role] {
        &[Role::Sender]
    }
    fn options(&self, _: Role) -> &'static [OptionSpec] {
        &[]
    }
    fn probe(&self, _: Role, _: &Facts) -> Support {
        Support::no("unwritten", "write it")
    }
    fn open(&self, _: Role, _: &Cell, _: Flow) -> Result<Box<dyn Endpoint>, Fault> {
        Err(Fault::new(FaultKind::Unsupported, "unwritten"))
    }
}
