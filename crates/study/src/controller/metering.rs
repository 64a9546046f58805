//! What a study requests of its meters. A study's header has it in separate fields
//! (`meters`, `power`), which its readers know; a meter gets it as its options.

use bytepath_meter::{self as meter, Chosen, Meter, POWER_NAME, PROFILE_NAME};
use bytepath_record::wire::MeterRequest;
use bytepath_record::{Fault, Power, Profiling, Role, Sampling, StudyHeader};
use serde::Deserialize;
use serde_json::{Value, json};

/// Meters by name, of which `power` measures as requested. Fails if one that runs only in profile
/// trials has none.
pub fn meter_requests(
    names: Vec<String>,
    power: &Power,
    profiling: Option<&Profiling>,
) -> Result<Vec<MeterRequest>, Fault> {
    let apart = |meter: &&Meter| meter.separate_trials && names.iter().any(|n| n == meter.name);
    if let (Some(meter), None) = (meter::CATALOG.iter().copied().find(apart), profiling) {
        let text =
            format!("meter {} runs only in profile trials, and this study has none", meter.name);
        return Err(Fault::usage(text).remedy("take some with --profile all"));
    }
    if !power.is_default() && !names.iter().any(|name| name == POWER_NAME) {
        let text = "power is requested, but its meter is disabled";
        return Err(Fault::usage(text).remedy("add power to --meters"));
    }
    Ok(names.iter().map(|name| request(name, power)).collect())
}

fn request(name: &str, power: &Power) -> MeterRequest {
    let options = match name {
        POWER_NAME if !power.is_default() => json!(power),
        _ => Value::Null,
    };
    MeterRequest { name: name.to_owned(), options }
}

/// What a header records of these meters: their names, and how power is measured. It has no
/// field for the options of any other.
pub fn meters_for_header(meters: &[MeterRequest]) -> Result<(Vec<String>, Power), Fault> {
    let mut power = Power::default();
    for MeterRequest { name, options } in meters.iter().filter(|meter| !meter.options.is_null()) {
        let wrong = |cause: String| {
            let fault = Fault::usage(format!("options of meter {name}: {cause}"));
            fault.remedy("`bytepath meters` lists the options of each meter")
        };
        if name != POWER_NAME {
            return Err(wrong("a study cannot record them".into()));
        }
        power = Power::deserialize(options).map_err(|e| wrong(e.to_string()))?;
    }
    Ok((meters.iter().map(|meter| meter.name.clone()).collect(), power))
}

/// The meters of a trial. If each host has its own source of power, that meter is
/// there twice, with the options of each role.
pub(super) fn of_trial(catalog: &[&'static Meter], header: &StudyHeader) -> Vec<Chosen> {
    let power = &header.power;
    let requests: Vec<_> = header.meters.iter().map(|name| request(name, power)).collect();
    let mut all = meter::chosen(catalog, &requests);
    if power.receiver.is_some()
        && let Some(at) = all.iter().position(|chosen| chosen.meter.name == POWER_NAME)
    {
        let meter = all.remove(at).meter;
        let of = |role| {
            let own = Power { receiver: None, ..power.of(role).clone() };
            Chosen { meter, options: json!(own), role: Some(role) }
        };
        all.extend(Role::ALL.map(of));
    }
    all
}

/// The meter `profile` of a catalogue, to take these samples at one end.
pub(super) fn profile(
    meters: &[&'static Meter],
    role: Role,
    sampling: &Sampling,
) -> Option<Chosen> {
    let meter = *meters.iter().find(|meter| meter.name == PROFILE_NAME)?;
    Some(Chosen { meter, options: json!(sampling), role: Some(role) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_meter::Context;
    use bytepath_record::PowerSource;
    use bytepath_record::wire::Start;
    use bytepath_sys::Roots;

    #[test]
    fn power_options_reach_only_their_meter_and_are_recorded() {
        let power = Power { source: PowerSource::Hwmon, ..Power::default() };
        let names = || vec!["cpu".to_owned(), POWER_NAME.to_owned()];
        let requested = meter_requests(names(), &power, None).unwrap();
        assert_eq!(requested[0], "cpu".into());
        assert_eq!(requested[1].options["source"]["kind"], "hwmon");
        assert_eq!(meters_for_header(&requested).unwrap(), (names(), power.clone()));
        let usual = meter_requests(names(), &Power::default(), None).unwrap();
        assert_eq!(usual, ["cpu".into(), POWER_NAME.into()]);
        let off = meter_requests(vec!["cpu".into()], &power, None).unwrap_err();
        assert!(off.to_string().contains("add power to --meters"), "{off}");
    }

    #[test]
    fn refuses_profile_meters_without_profile_trials() {
        let ask = |profiling: Option<&Profiling>| {
            meter_requests(vec!["handoffs".into()], &Power::default(), profiling)
        };
        assert!(ask(None).unwrap_err().to_string().contains("--profile all"));
        let profiling = bytepath_spec::parse_profile("all").unwrap();
        assert_eq!(ask(profiling.as_ref()).unwrap(), ["handoffs".into()]);
    }

    #[test]
    fn sampling_options_reach_only_their_meter() {
        let sampling = Sampling { event: "cycles".into(), rate: 99, cpus: vec![0, 3] };
        let Chosen { meter, options, .. } =
            profile(meter::CATALOG, Role::Sender, &sampling).unwrap();
        let meters = vec!["cpu".into(), MeterRequest { name: meter.name.into(), options }];
        let line = serde_json::to_string(&Start { meters, alone: false, qemu: None }).unwrap();
        assert_eq!(line.matches("options").count(), 1, "{line}");
        let Start { meters, .. } = serde_json::from_str(&line).unwrap();
        let read = |chosen: &Chosen| {
            let options = chosen.options.clone();
            let context = Context { options, ..Context::idle(Roots::real()) };
            (chosen.meter.name, context.options::<Sampling>().unwrap())
        };
        let read: Vec<_> = meter::chosen(meter::CATALOG, &meters).iter().map(read).collect();
        assert_eq!(read, [("cpu", None), (PROFILE_NAME, Some(sampling))]);
    }

    #[test]
    fn refuses_options_that_a_header_cannot_hold() {
        let wrong = |name: &str, options| {
            let fault =
                meters_for_header(&[MeterRequest { name: name.into(), options }]).unwrap_err();
            assert!(fault.to_string().contains(&format!("options of meter {name}")), "{fault}");
        };
        wrong("cpu", json!({ "depth": 3 }));
        wrong(POWER_NAME, json!({ "source": { "kind": "guess" } }));
    }
}
