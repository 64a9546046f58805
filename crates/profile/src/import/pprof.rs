//! pprof, ours and others'; see [`crate::pprof`].

use super::lines::unreadable;
use super::{Importer, Times};
use crate::record::{Fault, FaultKind};
use crate::{Profile, pprof};
use std::io::{BufRead, Read};

/// See the module's text.
pub struct Pprof;

/// Unpacked profiles of more bytes are refused: they are held in memory.
const MOST: u64 = 2 << 30;

impl Importer for Pprof {
    fn name(&self) -> &'static str {
        "pprof"
    }

    fn summary(&self) -> &'static str {
        "protocol buffer of bytepath, Go and others, packed by gzip or not"
    }

    fn recognises(&self, head: &[u8]) -> bool {
        pprof::recognises(head)
    }

    fn read(&self, title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
        super::plain(title, input, &mut |input| {
            let mut bytes = Vec::new();
            input.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(title, &e))?;
            if bytes.len() as u64 > MOST {
                let what = format!("{title} is larger than {} MiB unpacked", MOST >> 20);
                return Err(Fault::new(FaultKind::Storage, what));
            }
            pprof::decode(title, &bytes)
        })
    }
}
