//! Parses which profiles a study takes: `WHAT[:key=value,...]`.

use super::options::{resolve, split, usage};
use super::suggest;
use bytepath_record::OptionKind::{Count, Time};
use bytepath_record::{Fault, OptionSpec, ProfiledCells, Profiling, SAMPLING_OPTIONS};

/// Most profile trials per cell.
pub const MOST_PROFILES: u64 = 1000;

/// The options of profiles.
pub const PROFILE_OPTIONS: &[OptionSpec] = &[
    SAMPLING_OPTIONS[0],
    SAMPLING_OPTIONS[1],
    OptionSpec::new("trials", Count(1, MOST_PROFILES), "5").help("profile trials of each cell"),
    OptionSpec::new("retakes", Count(0, MOST_PROFILES), "3")
        .help("more of them, at most, one for each that is rejected"),
    OptionSpec::new("window", Time(100, 3_600_000), "2s").help("sampled time of each"),
];

/// The choices of cells to profile, with their descriptions.
pub const PROFILED_CELLS: &[(&str, &str)] = &[
    (
        "leading",
        "the baseline and the cell that the study recommends, or, where it recommends none, that \
         of largest",
    ),
    ("largest", "the baseline and the cell whose CPU cost differs most from it"),
    ("all", "every cell that was measured"),
    ("none", "none"),
];

/// The profiles of a study without a flag for them.
pub const DEFAULT_PROFILE: &str = "leading";

/// Parses `leading`, `largest`, `all` or `none`, each but the last with options after a colon. A
/// number alone means `leading` at that rate.
pub fn parse_profile(text: &str) -> Result<Option<Profiling>, Fault> {
    let (name, mut typed_options) = split(text)?;
    let mut name = name.as_str();
    if !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_digit()) {
        if typed_options.iter().any(|(key, _)| key == "rate") {
            return Err(usage(format!("the rate is given twice in '{text}'")));
        }
        typed_options.push(("rate".to_owned(), name.to_owned()));
        name = DEFAULT_PROFILE;
    }
    if name == "none" {
        return match typed_options.is_empty() {
            true => Ok(None),
            false => Err(usage("'none' takes no options").remedy("write none")),
        };
    }
    let Ok(cells) = name.parse() else {
        let fault = usage(format!("'{name}' does not select what to profile"));
        return Err(suggest(fault, name, PROFILED_CELLS.iter().map(|(name, _)| *name)));
    };
    let options = resolve("profile", PROFILE_OPTIONS, &typed_options)?;
    let required = |name: &str| options.number(name).unwrap_or_default();
    Ok(Some(Profiling {
        cells,
        rate: options.number("rate"),
        event: Some(options.word("event")).filter(|event| *event != "auto").map(str::to_owned),
        trials: required("trials") as u32,
        retakes: required("retakes") as u32,
        window: required("window") as f64 / 1e3,
    }))
}

/// Returns the largest number of cells that are profiled in a study with this many cells.
pub fn most_profiled(profiling: &Profiling, cells: usize) -> usize {
    match profiling.cells {
        ProfiledCells::Leading | ProfiledCells::Largest => cells.min(2),
        ProfiledCells::All => cells,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn profiles_are_read() {
        let read = |text: &str| parse_profile(text).unwrap();
        let default = read("largest").unwrap();
        assert_eq!(
            (default.cells, default.trials, default.retakes, default.window),
            (ProfiledCells::Largest, 5, 3, 2.0)
        );
        assert_eq!((default.rate, &default.event), (None, &None));
        assert_eq!(read("none"), None);
        assert_eq!(read("999"), read("leading:rate=999"));
        let event = "all:rate=97,event=cpu/event=0x3c,umask=1/k,trials=2,window=250ms";
        let all = read(event).unwrap();
        assert_eq!(all.event.as_deref(), Some("cpu/event=0x3c,umask=1/k"));
        assert_eq!(
            (all.cells, all.rate, all.trials, all.window),
            (ProfiledCells::All, Some(97), 2, 0.25)
        );
        assert_eq!(read("leading").unwrap().cells, ProfiledCells::Leading);
        assert_eq!(read("largest:retakes=0").unwrap().retakes, 0);
        let cycles = read("all:event=cycles:k,window=1.5s").unwrap();
        assert_eq!((cycles.event.as_deref(), cycles.window), (Some("cycles:k"), 1.5));
        assert_eq!(read("largest:trials=5"), read("largest"));
        assert_eq!(read("all:window=1500ms"), read("all:window=1.5s"));
    }

    #[test]
    fn errors_say_what_would_be_right() {
        let wrong = |text: &str| parse_profile(text).unwrap_err().to_string();
        assert!(wrong("larges").contains("did you mean 'largest'?"));
        assert!(wrong("").contains("leading, largest, all, none"));
        assert!(wrong("none:rate=5").contains("no options"));
        assert!(wrong("all:rat=5").contains("did you mean 'rate'?"));
        assert!(wrong("all:rate=0").contains("auto|1..100000"), "{}", wrong("all:rate=0"));
        assert!(wrong("all:window=1ms").contains("100ms"), "{}", wrong("all:window=1ms"));
        assert!(wrong("999:rate=5").contains("twice"), "{}", wrong("999:rate=5"));
        assert!(wrong("all:event=").contains("event"));
    }
}
