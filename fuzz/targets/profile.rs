//! Every importer of profiles on any bytes: a profile or an error with the title, without a panic;
//! and a profile that was read is written by every exporter and, as pprof, read back unchanged.
//! Likewise counters, also compared with themselves. The first byte selects the importer, or
//! detection of the format from the bytes.

use bytepath::profile::import::{Content, ReadOptions};
use bytepath::profile::{counts, export, import};

pub fn check(data: &[u8]) {
    let Some((choice, mut rest)) = data.split_first() else { return };
    let (profiles, counters) = (import::CATALOG, import::COUNTS);
    let choice = usize::from(*choice) % (profiles.len() + counters.len() + 1);
    let counter = choice.checked_sub(profiles.len()).and_then(|at| counters.get(at));
    let read = match (profiles.get(choice), counter) {
        (Some(importer), _) => {
            (importer.read)("fuzz", import::Times::Kept, &mut rest).map(Content::Profile)
        }
        (_, Some(importer)) => (importer.read)("fuzz", None, &mut rest).map(Content::Counts),
        (None, None) => import::open("fuzz", ReadOptions::default(), &mut rest),
    };
    let profile = match read {
        Ok(Content::Profile(profile)) => profile,
        Ok(Content::Counts(table)) => {
            let found = counts::compare([&table, &table], Some([1.0, 2.0]));
            let counted = found.rows.iter().filter(|row| !row.derived);
            assert!(counted.filter_map(|row| row.ratio).all(|ratio| ratio == 1.0));
            return;
        }
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
