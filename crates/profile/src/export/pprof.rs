//! pprof, packed by gzip: nothing is lost; see [`crate::pprof`].

use super::Exporter;
use crate::{Profile, pprof};
use flate2::{Compression, GzBuilder};
use std::io::{self, Write};

/// See the module's text.
pub struct Pprof;

impl Exporter for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn summary(&self) -> &'static str {
        "everything, for bytepath and `go tool pprof`"
    }

    fn extension(&self) -> &'static str {
        "pb.gz"
    }

    fn binary(&self) -> bool {
        true
    }

    fn write(&self, profile: &Profile, out: &mut dyn Write) -> io::Result<()> {
        // No time in the packing, so that equal profiles are equal files.
        let mut packed = GzBuilder::new().write(out, Compression::default());
        packed.write_all(&pprof::encode(profile))?;
        packed.finish().map(drop)
    }
}
