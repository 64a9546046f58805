//! Which energy figures may be added, and which contain each other.

/// The part of the machine that a counter or a sensor covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Domain {
    /// The whole machine, or all of its board that matters: RAPL's psys, a sensor of the power
    /// supply, a battery.
    Platform,
    /// One processor: cores, caches, memory controller. Not its memory.
    Package,
    /// The memory of one processor.
    Dram,
    /// A part of a package (cores, graphics), which the package's figure already includes, or
    /// something outside it. Reported, but never added.
    Part,
}

impl Domain {
    /// Returns the domain of a RAPL zone or an event of perf's PMU `power`, given its name
    /// (`rapl_domain_names`, drivers/powercap/intel_rapl_common.c; arch/x86/events/rapl.c).
    pub(super) fn of(name: &str) -> Domain {
        let own = name.rsplit('/').next().unwrap_or(name);
        match own {
            "energy-pkg" => Domain::Package,
            "energy-psys" => Domain::Platform,
            "dram" | "energy-ram" => Domain::Dram,
            _ if own.starts_with("package-") => Domain::Package,
            _ if own == "psys" || own.starts_with("psys-") => Domain::Platform,
            _ => Domain::Part,
        }
    }
}

/// The energy of one domain over a window.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Part {
    /// Its name: "package-0/dram".
    pub name: String,
    pub domain: Domain,
    /// Joules.
    pub joules: f64,
}

impl Part {
    /// Makes the part for a RAPL zone, or an event of perf's PMU `power`.
    pub(super) fn named(name: String, joules: f64) -> Part {
        Part { domain: Domain::of(&name), name, joules }
    }

    /// Name of its reading: "power.package-0.dram".
    pub(super) fn metric(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '-' { c } else { '.' };
        format!("power.{}", self.name.chars().map(plain).collect::<String>())
    }
}

/// Returns the energy of the machine in joules as far as the parts show it, and a note on it.
///
/// Packages and memory do not overlap and are added. The platform's figure contains both, so it is
/// used alone; of several (one per socket on some servers, the first of which covers all) the
/// largest is used. It is used only if it is at least the sum of its parts: on many boards the
/// register exists but counts nothing.
pub(super) fn total(parts: &[Part]) -> (Option<f64>, Option<String>) {
    let of = |domain| parts.iter().filter(move |part| part.domain == domain).map(|p| p.joules);
    let inner: f64 = of(Domain::Package).chain(of(Domain::Dram)).sum();
    let platform = of(Domain::Platform).reduce(f64::max);
    let has_inner = parts.iter().any(|p| matches!(p.domain, Domain::Package | Domain::Dram));
    match platform {
        Some(platform) if !has_inner || platform >= inner => (Some(platform), None),
        Some(platform) => {
            let doubt = format!(
                "power: the platform's counter shows {platform:.1} J, less than the {inner:.1} J \
                 of packages and memory that it should contain; these are used"
            );
            (Some(inner), Some(doubt))
        }
        None if has_inner => (Some(inner), None),
        None => (None, None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(name: &str, joules: f64) -> Part {
        Part { name: name.into(), domain: Domain::of(name), joules }
    }

    #[test]
    fn nothing_is_counted_twice() {
        let server = [
            part("package-0", 300.0),
            part("package-0/core", 250.0),
            part("package-0/dram", 40.0),
            part("package-1", 280.0),
            part("package-1/dram", 30.0),
        ];
        assert_eq!(total(&server), (Some(650.0), None));
        let with_psys = [&server[..], &[part("psys", 900.0), part("psys-1", 20.0)]].concat();
        assert_eq!(total(&with_psys), (Some(900.0), None), "psys holds all the others");
        assert_eq!(total(&[part("core", 5.0), part("uncore", 1.0)]), (None, None));
        assert_eq!(total(&[part("psys", 9.0)]), (Some(9.0), None));
        let perf = [part("energy-pkg", 7.0), part("energy-ram", 2.0), part("energy-gpu", 1.0)];
        assert_eq!(total(&perf), (Some(9.0), None));
    }

    #[test]
    fn rejects_platform_counters_below_their_parts() {
        let (joules, doubt) = total(&[part("psys", 3.0), part("package-0", 10.0)]);
        assert_eq!(joules, Some(10.0));
        assert!(doubt.unwrap().contains("less than the 10.0 J"));
    }

    #[test]
    fn names_of_readings_are_plain() {
        assert_eq!(part("package-0/dram", 0.0).metric(), "power.package-0.dram");
        assert_eq!(part("Esocket 0", 0.0).metric(), "power.Esocket.0");
    }
}
