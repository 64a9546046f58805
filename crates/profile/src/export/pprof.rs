//! pprof, compressed by gzip, without loss; see [`crate::pprof`].

use super::Exporter;
use crate::{Profile, pprof};
use flate2::{Compression, GzBuilder};
use std::io::{self, Write};

/// See the module documentation.
pub static FORMAT: Exporter = Exporter {
    name: "pprof",
    summary: "everything, for bytepath and `go tool pprof`",
    extension: "pb.gz",
    binary: true,
    write,
};

fn write(profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
    // No timestamp in the gzip header, so that equal profiles are equal files.
    let mut packed = GzBuilder::new().write(out, Compression::default());
    packed.write_all(&pprof::encode(profile))?;
    packed.finish().map(drop)
}
