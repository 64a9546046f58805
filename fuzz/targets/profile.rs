//! Every importer of profiles on any bytes: a profile or an error with the
//! title, no panic; and what was read is written by every exporter and, as
//! pprof, read again as it was. The first byte says which importer, or that the
//! format is to be told by the bytes.

use bytepath::profile::{export, import};

pub fn check(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else { return };
    let choice = usize::from(*choice) % (import::CATALOG.len() + 1);
    let read = match import::CATALOG.get(choice) {
        Some(importer) => importer.read("fuzz", import::Times::Kept, &mut rest),
        None => import::read("fuzz", &mut rest),
    };
    let profile = match read {
        Ok(profile) => profile,
        Err(fault) => {
            assert!(fault.message.contains("fuzz"), "{fault}");
            assert!(fault.message.chars().count() < 2000, "{fault}");
            return;
        }
    };
    // Exporters write as many records as there are samples.
    if profile.count() > 10_000 {
        return;
    }
    for exporter in export::CATALOG {
        let mut out = Vec::new();
        exporter.write(&profile, &mut out).expect("memory takes everything");
        if exporter.name == "pprof" {
            let again = import::read("again", &mut out.as_slice()).expect("what was just written");
            assert_eq!(again, profile);
        }
    }
}
