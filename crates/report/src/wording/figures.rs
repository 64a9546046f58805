//! Formats numbers: with their significant digits, never a NaN, and never wider than a column.

use bytepath_record::{Cost, Work};
use bytepath_stats::{Effect, Interval, Metric};

/// Printed if there is no number.
pub(crate) const NONE: &str = "-";

/// Formats a number with this many decimals; a dash for `None`; an exponent if it is too large for
/// a column.
pub(crate) fn number(value: impl Into<Option<f64>>, decimals: usize) -> String {
    match value.into() {
        Some(v) if !v.is_finite() => NONE.into(),
        Some(v) if v.abs() >= 1e7 => format!("{v:.1e}"),
        // Rounding must not result in a negative zero.
        Some(v) if v.abs() < 0.5 * 0.1f64.powi(decimals as i32) => format!("{:.decimals$}", 0.0),
        Some(v) => format!("{v:.decimals$}"),
        None => NONE.into(),
    }
}

/// Returns the number of decimals that gives a number this many significant digits; none from a
/// thousand on, and never more than six.
pub(crate) fn digits(largest: f64, counting: u32) -> usize {
    if largest > 0.0 && largest.is_finite() {
        (f64::from(counting) - 1.0 - largest.log10().floor()).clamp(0.0, 6.0) as usize
    } else {
        0
    }
}

/// Formats three significant digits, with at most four decimals.
pub(crate) fn three(value: f64) -> String {
    match value.abs() {
        0.0 => "0".to_owned(),
        size if size < 5e-5 => "<0.0001".to_owned(),
        size => number(value, digits(size, 3).min(4)),
    }
}

/// Formats work per second in the unit of its displayed rate: `53.10`, `0.42`, `0.0394`, `24873`.
pub(crate) fn rate(work: Work, per_second: impl Into<Option<f64>>) -> String {
    let scaled = per_second.into().map(|rate| rate * work.terms().rate_scale);
    let decimals = match scaled {
        Some(rate) if rate >= 999.5 => 0,
        Some(rate) if rate > 0.0 && rate < 0.0995 => 4,
        _ => 2,
    };
    number(scaled, decimals)
}

/// Formats frames per second in thousands: `1330`, `71.3`, `0`.
pub(crate) fn kpps(rate: Option<f64>) -> String {
    let kpps = rate.map(|rate| rate / 1e3);
    let decimals = match kpps {
        Some(rate) if rate > 0.0 && rate < 9.995 => 2,
        Some(rate) if rate > 0.0 && rate < 99.95 => 1,
        _ => 0,
    };
    number(kpps, decimals)
}

/// Formats a part of one in percent: `97%`, `2.3%`, `<0.1%`. Without a blank, so that no line
/// breaks before the sign.
pub(crate) fn percent(part: impl Into<Option<f64>>) -> String {
    match part.into() {
        None => NONE.into(),
        Some(p) if p > 0.0 && p < 0.0005 => "<0.1%".into(),
        // Nearly all must not round to all.
        Some(p) if p < 1.0 && p > 0.9995 => ">99.9%".into(),
        Some(p) if p < 0.0995 && p != 0.0 || (p < 1.0 && p > 0.99) => {
            format!("{}%", number(p * 100.0, 1))
        }
        Some(p) => format!("{}%", number(p * 100.0, 0)),
    }
}

/// Formats the cost of a unit of work, in its display unit: `0.163`, `31.4`.
pub(crate) fn cost(unit: Cost, value: impl Into<Option<f64>>) -> String {
    let scaled = value.into().map(|cost| cost * unit.scale);
    let decimals = match scaled {
        Some(cost) if cost >= 9995.0 => 0,
        Some(cost) if cost >= 99.95 => 1,
        Some(cost) if cost >= 9.995 => 2,
        _ => 3,
    };
    number(scaled, decimals)
}

/// Formats seconds as microseconds: `8.31`, `87.2`, `1042`.
pub(crate) fn microseconds(seconds: impl Into<Option<f64>>) -> String {
    let scaled = seconds.into().map(|s| s * 1e6);
    let decimals = match scaled {
        Some(us) if us >= 999.5 => 0,
        Some(us) if us >= 9.995 => 1,
        _ => 2,
    };
    number(scaled, decimals)
}

/// Formats a figure of a metric, without its unit.
pub(crate) fn figure(question: Metric, work: Work, value: impl Into<Option<f64>>) -> String {
    match question {
        Metric::Rate => rate(work, value),
        Metric::Cpu => cost(work.terms().cost, value),
        Metric::Instructions => cost(work.terms().instructions, value),
        Metric::Latency(_) => microseconds(value),
    }
}

/// Returns the abbreviated unit of a metric.
pub(crate) fn unit(question: Metric, work: Work) -> &'static str {
    unit_and_scale(question, work).0
}

/// Returns the unit, with the factor from the stored to the displayed value.
pub(crate) fn unit_and_scale(question: Metric, work: Work) -> (&'static str, f64) {
    let terms = work.terms();
    match question {
        Metric::Rate => (terms.rate_unit, terms.rate_scale),
        Metric::Cpu => (terms.cost.unit, terms.cost.scale),
        Metric::Instructions => (terms.instructions.unit, terms.instructions.scale),
        Metric::Latency(_) => ("us", 1e6),
    }
}

/// Formats an amount in about three digits: `0.02`, `1.5`, `88`, `21k`, `9.5k`.
pub(crate) fn amount(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        Some(v) if v.abs() >= 999_500.0 => format!("{}M", number(v / 1e6, 1)),
        Some(v) if v.abs() >= 9_995.0 => format!("{}k", number(v / 1e3, 0)),
        Some(v) if v.abs() >= 999.5 => format!("{}k", number(v / 1e3, 1)),
        Some(v) if v.abs() < 0.95 && v.fract() != 0.0 => number(v, 2),
        Some(v) if v.abs() < 9.95 && v.fract() != 0.0 => number(v, 1),
        other => number(other, 0),
    }
}

/// Formats a ratio: `1.16x`. Values too wide for a column are limited.
pub(crate) fn ratio(value: impl Into<Option<f64>>) -> String {
    match value.into() {
        Some(r) if r > 999.0 => ">999x".into(),
        Some(r) if r < 0.005 => "<0.01x".into(),
        Some(r) => format!("{r:.2}x"),
        None => NONE.into(),
    }
}

/// Formats an interval of ratios: `[1.09, 1.23]`. With a third decimal if two would make both ends
/// nearly equal, or print an end as exactly 1.
pub(crate) fn interval(low: f64, high: f64) -> String {
    let two = |r: f64| format!("{r:.2}");
    let vague = high - low < 0.02 || two(low) == "1.00" || two(high) == "1.00";
    let end = |r: f64| match r {
        r if r > 999.0 => ">999".into(),
        r if r < 0.0005 => "0".into(),
        r if vague => format!("{r:.3}"),
        r => two(r),
    };
    format!("[{}, {}]", end(low), end(high))
}

/// Formats a ratio with its interval, if there is one: `1.16x [1.09, 1.23]`.
pub(crate) fn ratio_text(value: f64, range: Option<Interval>) -> String {
    let range = range.map(|i| format!(" {}", interval(i.low, i.high))).unwrap_or_default();
    format!("{}{range}", ratio(value))
}

pub(crate) fn effect_text(effect: Option<&Effect>) -> String {
    effect.map_or(NONE.into(), |effect| ratio_text(effect.ratio, effect.interval))
}

/// Formats a ratio as a difference in percent: `+20.5%`, `-71.6%`, `+900%`, `0.0%`.
pub(crate) fn change(value: impl Into<Option<f64>>) -> String {
    let Some(part) = value.into().map(|r| r - 1.0).filter(|p| p.is_finite()) else {
        return NONE.into();
    };
    if part > 998.0 {
        return ">+99800%".into();
    }
    let text = number(part * 100.0, usize::from(part.abs() < 0.995));
    let sign = if part > 0.0 && text != "0.0" { "+" } else { "" };
    format!("{sign}{text}%")
}

/// Formats a probability: `0.0625`, `0.25`, `<0.0001`.
pub(crate) fn probability(p: f64) -> String {
    if p < 0.0001 { "<0.0001".into() } else { trimmed(p, 4) }
}

/// Formats a fraction chosen by the user, in percent: `2%`, `0.5%`, `95%`.
pub(crate) fn level(part: f64) -> String {
    format!("{}%", trimmed(part * 100.0, 2))
}

/// Formats a number without trailing zeros.
fn trimmed(value: f64, decimals: usize) -> String {
    let text = number(value, decimals);
    if !text.contains('.') || text.contains('e') {
        return text;
    }
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Formats seconds as milliseconds: `0.112`.
pub(crate) fn milliseconds(seconds: f64) -> String {
    number(seconds * 1e3, 3)
}

/// Formats bytes in the most readable unit: `4148 B`, `1.5 MiB`.
pub(crate) fn bytes(bytes: f64) -> String {
    const STEPS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut step = 0;
    while value.abs() >= 9999.5 && step + 1 < STEPS.len() {
        value /= 1024.0;
        step += 1;
    }
    // Round sizes use the larger unit even when small.
    if step == 0 && value >= 1024.0 && value % 1024.0 == 0.0 {
        value /= 1024.0;
        step = 1;
    }
    // Otherwise 1023.97 would be printed as 1024.0.
    if step > 0 && value >= 1023.95 && step + 1 < STEPS.len() {
        value /= 1024.0;
        step += 1;
    }
    let whole = value.fract() == 0.0;
    format!("{} {}", number(value, usize::from(!whole && step > 0)), STEPS[step])
}

/// Formats `1 block`, `5 blocks`.
pub fn plural(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_numbers_with_significant_digits() {
        assert_eq!(number(-0.0001, 2), "0.00");
        assert_eq!(number(f64::NAN, 2), "-");
        assert_eq!(number(1e300, 2), "1.0e300");
        assert_eq!([0.0, 0.00001, -0.0123, 1234.5].map(three), ["0", "<0.0001", "-0.0123", "1234"]);
        assert_eq!(rate(Work::Bytes, 53.096e9 / 8.0), "53.10");
        assert_eq!(rate(Work::Bytes, 39.4e6 / 8.0), "0.0394");
        assert_eq!(rate(Work::Bytes, 0.0), "0.00");
        assert_eq!(rate(Work::Exchanges, 24_873.4), "24873");
        assert_eq!(rate(Work::Packets, 1.234e6), "1.23");
        assert_eq!(cost(Work::Bytes.cost(None), 0.1634), "0.163");
        assert_eq!(cost(Work::Exchanges.cost(None), 31.42e-6), "31.42");
        assert_eq!(cost(Work::Exchanges.cost(None), None), "-");
        assert_eq!(cost(Work::Bytes.cost(Some(62.5e6)), 34.2), "2137.5");
        assert_eq!(figure(Metric::Instructions, Work::Exchanges, 12_345.6), "12346");
        let times = [8.31e-6, 87.24e-6, 1.0418e-3].map(microseconds);
        assert_eq!(times, ["8.31", "87.2", "1042"]);
        assert_eq!(percent(0.0), "0%");
        assert_eq!(percent(0.0001), "<0.1%");
        assert_eq!(percent(0.023), "2.3%");
        assert_eq!(percent(0.973), "97%");
        assert_eq!(percent(0.9991), "99.9%");
        assert_eq!(percent(0.999_99), ">99.9%", "nearly all is not all");
        assert_eq!(percent(1.0), "100%");
        assert_eq!(amount(88.0), "88");
        assert_eq!(amount(1234.0), "1.2k");
        assert_eq!(amount(21_040.0), "21k");
        assert_eq!(amount(1.5), "1.5");
        assert_eq!(ratio(1e9), ">999x");
        assert_eq!(interval(1.0912, 1.2288), "[1.09, 1.23]");
        assert_eq!(
            interval(1.0012, 1.2288),
            "[1.001, 1.229]",
            "an end next to 1 is distinguishable"
        );
        assert_eq!(change(1.2049), "+20.5%");
        assert_eq!(change(0.284), "-71.6%");
        assert_eq!(change(10.0), "+900%");
        assert_eq!(change(1.0001), "0.0%");
        assert_eq!(change(1e300), ">+99800%");
        assert_eq!(probability(0.0625), "0.0625");
        assert_eq!(probability(1.0), "1");
        assert_eq!(
            (level(0.02), level(0.005), level(0.95)),
            ("2%".into(), "0.5%".into(), "95%".into())
        );
        assert_eq!(bytes(4148.0), "4148 B");
        assert_eq!(bytes(65536.0), "64 KiB");
        assert_eq!(bytes(1.5 * 1048576.0), "1.5 MiB");
        assert_eq!(bytes(1048560.0), "1.0 MiB");
        assert_eq!(bytes(23.4 * 1073741824.0), "23.4 GiB");
    }
}
