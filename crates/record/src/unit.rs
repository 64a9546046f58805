//! Formatting and parsing of quantities: bytes in powers of 1024, durations in seconds. They are in
//! one place so that what is printed can be typed again.

use std::time::Duration;

/// Bytes of one MiB.
pub const MIB: f64 = (1u64 << 20) as f64;

/// Bytes of one GiB.
pub const GIB: f64 = (1u64 << 30) as f64;

const SUFFIXES: [(char, u64); 4] = [('T', 1 << 40), ('G', 1 << 30), ('M', 1 << 20), ('K', 1 << 10)];

/// Formats bytes exactly, with the largest suffix that divides them: `1M`, `1536`, `4148`.
pub fn bytes(n: u64) -> String {
    for (suffix, factor) in SUFFIXES {
        if n >= factor && n.is_multiple_of(factor) {
            return format!("{}{suffix}", n / factor);
        }
    }
    n.to_string()
}

/// Parses bytes: `4096`, `64K`, `64KiB`, `1m`. Powers of 1024; `64KB` is refused, because it may as
/// well mean 64000.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let wrong = || format!("'{text}' is not a size (write 4096, 64K, 1M)");
    let upper = text.trim().to_ascii_uppercase();
    if let Some((digits, suffix)) = decimal(&upper) {
        return Err(format!(
            "'{text}' may mean powers of 1000 or of 1024 (write {digits}{suffix} or \
             {digits}{suffix}iB for 1024, or the bytes as a bare number)"
        ));
    }
    let stem = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let (digits, factor) =
        with_suffix(stem).map_or((stem, 1), |(digits, _, factor)| (digits, factor));
    let n: u64 = digits.parse().map_err(|_| wrong())?;
    n.checked_mul(factor).ok_or_else(wrong)
}

/// Parses a rate in bits per second: `200G`, `2.5g`, `100Mbit/s`, `9600bit/s`. Powers of 1000; a
/// number without a unit is refused, because it may as well be in Gbit/s.
pub fn parse_rate(text: &str) -> Result<f64, String> {
    let wrong = || {
        format!(
            "'{text}' is not a rate with a unit: bit/s, k, M, G or T (200G, 2.5Gbit/s, 9600bit/s)"
        )
    };
    let lower = text.trim().to_ascii_lowercase();
    let stem = lower.strip_suffix("bit/s").or_else(|| lower.strip_suffix("bps")).unwrap_or(&lower);
    let scales = [('k', 1e3), ('m', 1e6), ('g', 1e9), ('t', 1e12)];
    let scale = scales.iter().find_map(|(suffix, f)| Some((stem.strip_suffix(*suffix)?, *f)));
    if scale.is_none() && stem.len() == lower.len() {
        return Err(wrong());
    }
    let (digits, scale) = scale.unwrap_or((stem, 1.0));
    let value: f64 = digits.trim().parse().map_err(|_| wrong())?;
    if value > 0.0 && value * scale <= 1e15 { Ok(value * scale) } else { Err(wrong()) }
}

/// Formats a duration in seconds, exactly and without needless digits: `3s`, `1.5s`, `0.25s`.
pub fn seconds(d: Duration) -> String {
    let text = format!("{}.{:09}", d.as_secs(), d.subsec_nanos());
    format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
}

/// Parses a duration: `3s`, `250ms`, `20us`, `2m`, `1h`. A number without a unit is refused,
/// because it may as well be in milliseconds; 0 needs none.
pub fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is not a duration (write 3s, 250ms, 2m)");
    let lower = text.trim().to_ascii_lowercase();
    if lower.parse::<f64>().is_ok_and(|number| number.is_finite() && number > 0.0) {
        return Err(format!("'{text}' has no unit: {lower}s or {lower}ms?"));
    }
    let scales = [("ms", 1e-3), ("us", 1e-6), ("s", 1.0), ("m", 60.0), ("h", 3600.0)];
    let scale = scales.iter().find_map(|(suffix, f)| Some((lower.strip_suffix(suffix)?, *f)));
    let (digits, scale) = scale.unwrap_or((&lower, 1.0));
    let value: f64 = digits.trim().parse().map_err(|_| wrong())?;
    Duration::try_from_secs_f64(value * scale).map_err(|_| wrong())
}

/// Splits a decimal size such as `64KB` into number and letter.
fn decimal(upper: &str) -> Option<(&str, char)> {
    let (digits, letter, _) = with_suffix(upper.strip_suffix('B')?)?;
    digits.parse::<u64>().is_ok().then_some((digits, letter))
}

/// Splits a number and its suffix, and returns the factor of the suffix.
fn with_suffix(text: &str) -> Option<(&str, char, u64)> {
    SUFFIXES
        .iter()
        .find_map(|(suffix, factor)| Some((text.strip_suffix(*suffix)?, *suffix, *factor)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_round_trip() {
        for n in [0, 1, 1023, 1024, 1536, 4148, 65536, 1 << 20, 3 << 30, 1 << 40] {
            assert_eq!(parse_bytes(&bytes(n)), Ok(n));
        }
        assert_eq!(bytes(1 << 20), "1M");
        assert_eq!(parse_bytes("64KiB"), Ok(65536));
        assert_eq!(parse_bytes("64kib"), Ok(65536));
        assert_eq!(parse_bytes("64B"), Ok(64));
    }

    #[test]
    fn nonsense_is_refused_with_an_example() {
        for text in ["", "K", "1.5M", "-1", "1X", "99999999999T"] {
            assert!(parse_bytes(text).unwrap_err().contains("64K"), "{text}");
        }
        for text in ["", "s", "-1s", "-1", "1d", "nan", "inf"] {
            assert!(parse_duration(text).unwrap_err().contains("250ms"), "{text}");
        }
    }

    #[test]
    fn what_may_mean_two_things_is_refused() {
        assert_eq!(parse_duration("2").unwrap_err(), "'2' has no unit: 2s or 2ms?");
        assert_eq!(parse_duration("0"), Ok(Duration::ZERO));
        assert_eq!(
            parse_bytes("64kB").unwrap_err(),
            "'64kB' may mean powers of 1000 or of 1024 (write 64K or 64KiB for 1024, or the bytes \
             as a bare number)"
        );
    }

    #[test]
    fn rates() {
        assert_eq!(parse_rate("200G"), Ok(200e9));
        assert_eq!(parse_rate("2.5gbit/s"), Ok(2.5e9));
        assert_eq!(parse_rate("9600bps"), Ok(9600.0));
        for text in ["", "G", "-1G", "0", "0G", "200", "nan", "inf", "1X", "9999999T"] {
            assert!(parse_rate(text).unwrap_err().contains("200G"), "{text}");
        }
    }

    #[test]
    fn durations() {
        assert_eq!(parse_duration("20us"), Ok(Duration::from_micros(20)));
        assert_eq!(parse_duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(seconds(Duration::from_millis(1500)), "1.5s");
        assert_eq!(seconds(Duration::from_secs(10)), "10s");
        assert_eq!(seconds(Duration::from_micros(100)), "0.0001s");
        assert_eq!(seconds(Duration::ZERO), "0s");
    }
}
