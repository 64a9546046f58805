//! Whether an agent has the same build as its controller.

use super::remote::unexpected;
use bytepath_host::{build_of, own_build};
use bytepath_record::wire::Reply;
use bytepath_record::{Fault, FaultKind, Role, SCHEMA_VERSION};
use std::path::Path;

/// Whether an agent that was started from a program is of the same build; gives its
/// process id.
pub(super) fn check(role: Role, hello: &Reply, program: &Path) -> Result<u32, Fault> {
    let ours = build_of(program).unwrap_or_else(|| own_build().to_owned());
    match hello {
        Reply::Hello { schema: SCHEMA_VERSION, build, pid } if *build == ours => Ok(*pid),
        Reply::Hello { schema, build, .. } => Err(Fault::new(
            FaultKind::Unsupported,
            format!(
                "the {role}'s agent is bytepath {build} (records v{schema}), this is {ours} \
                 (v{SCHEMA_VERSION})"
            ),
        )
        .remedy("install the same build at both ends")),
        other => Err(unexpected(role, other)),
    }
}
