//! What meters read in addition to `/proc`: logs and programs of power meters, lists and numbers of
//! sysfs, protocol counters, netlink's counters of devices. Each yields a value or an error without
//! a panic, and a value has the properties that callers rely on.

use bytepath::meter::{dcmi_reading, printed_watts};
use bytepath::record::TimeSpan;
use bytepath::spec;
use bytepath::stats::power_log::{Log, align};
use bytepath::sys::{attribute, netstat, nic_stats, powercap, qdisc};

pub fn check(data: &[u8]) {
    nic_stats::decode_anything(data);
    qdisc::decode_anything(data);
    let text = String::from_utf8_lossy(data);
    for watts in [printed_watts(&text), dcmi_reading(&text).ok().map(|(watts, _)| watts)]
        .into_iter()
        .flatten()
    {
        assert!(watts.is_finite() && watts >= 0.0);
    }
    if let Ok(log) = Log::parse(&text, None) {
        let (begin, end) = log.extent();
        assert!(begin < end);
        let (joules, readings) = log.energy(begin, end).expect("the log covers itself");
        assert!(joules.is_finite() && readings as usize == log.points().len());
        // Whatever the log contains, an alignment is within it.
        let length = (end - begin) / 3.0;
        let flowed = [TimeSpan { begin: 1000.0, length }];
        if log.points().len() < 200
            && let Ok(found) = align(&log, &flowed)
        {
            assert!(found.offset.is_finite() && (0.0..=1.000_001).contains(&found.explained));
        }
    }
    if let Ok(counters) = netstat::parse(&text) {
        assert!(counters.iter().all(|(_, name, _)| !name.is_empty()));
    }
    let list = attribute::list(&text);
    assert!(list.windows(2).all(|pair| pair[0] < pair[1]));
    if let [before, after, range] = list.iter().map(|n| u64::from(*n)).collect::<Vec<_>>()[..] {
        assert!(
            powercap::gained(before, after, range) <= after.max(range).saturating_add(after) + 1
        );
    }
    let _ = spec::parse_power(&text);
}
