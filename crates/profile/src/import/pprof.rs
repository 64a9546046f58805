//! pprof, written by bytepath or others; see [`crate::pprof`]. It is binary; in the text form of
//! `protoc --decode`:
//!
//! ```text
//! sample_type { type: 1 unit: 2 }
//! sample { location_id: 1 location_id: 2 value: 42 label { key: 5 str: 6 } }
//! ```

use super::format::{Importer, Times};
use super::lines::unreadable;
use crate::{Profile, pprof};
use bytepath_record::Fault;
use std::io::{BufRead, Read};

/// Larger unpacked profiles are refused, because they are held in memory.
const MOST: u64 = 1 << 30;

/// See the module documentation.
pub static FORMAT: Importer = Importer {
    name: "pprof",
    summary: "protocol buffer of bytepath, Go and others, gzipped or not",
    certain: true,
    recognises: pprof::recognises,
    read,
};

fn read(title: &str, _: Times, input: &mut dyn BufRead) -> Result<Profile, Fault> {
    super::format::plain(title, input, &mut |input| {
        let mut bytes = Vec::new();
        input.take(MOST + 1).read_to_end(&mut bytes).map_err(|e| unreadable(title, &e))?;
        if bytes.len() as u64 > MOST {
            let what = format!("{title} is larger than {} MiB unpacked", MOST >> 20);
            return Err(Fault::storage(what));
        }
        pprof::decode(title, &bytes)
    })
}
