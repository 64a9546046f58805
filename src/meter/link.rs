//! link: to be written.
use super::{Context, Meter, Reach, Running};
use crate::record::Fault;
/// Link.
pub struct Link;
impl Meter for Link {
    fn name(&self) -> &'static str {
        "link"
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
