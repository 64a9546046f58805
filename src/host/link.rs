//! link: to be written.
use crate::record::Fault;
use crate::record::wire::LinkEnd;
/// Sets up this end of a link.
pub fn apply(_end: &LinkEnd) -> Result<(), Fault> {
    todo!()
}
