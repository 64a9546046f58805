//! Lines of `trials.jsonl`: whatever parses is written as one line, and parses to the same again.
//! So does any finite number that a meter may have measured.

use bytepath::record::{Reading, Scope, Trial, Unit};

use super::round_trip;

pub fn check(data: &[u8]) {
    round_trip::line::<Trial>(data);
    if let Some(bits) = data.first_chunk() {
        let value = f64::from_bits(u64::from_le_bytes(*bits));
        if value.is_finite() {
            let metric = String::from("cpu.wall");
            let reading = Reading::sum(metric, Unit::Seconds, value, Scope::Machine);
            round_trip::record(&reading);
        }
    }
}
