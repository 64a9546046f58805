//! Settings of the host that a study requests: profiles that ship with bytepath, and single
//! settings, both as typed and from an experiment file.

use super::options::{find, split, usage};
use bytepath_record::{DeviceName, Fault, Role, Setting, WantedSetting};
use serde::Deserialize;

/// A named list of settings.
#[derive(Clone, Copy, Debug)]
pub struct SettingProfile {
    /// Name, as typed.
    pub name: &'static str,
    /// The shipped file: human-readable TOML.
    pub text: &'static str,
}

/// Every profile.
pub const SETTING_PROFILES: &[SettingProfile] = &[
    SettingProfile { name: "battle-of-zcs", text: include_str!("settings/battle-of-zcs.toml") },
    SettingProfile { name: "dsa", text: include_str!("settings/dsa.toml") },
    SettingProfile { name: "quiet", text: include_str!("settings/quiet.toml") },
];

/// Placeholder for the device that is passed to a profile: `--settings NAME:device=eth0`.
const DEVICE: &str = "DEVICE";

/// The parsed file of a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    summary: String,
    setting: Vec<Line>,
}

/// A setting in a profile.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// The setting in the syntax of [`Setting`].
    set: String,
    /// Its benefit.
    why: String,
    /// If true, a host that does not support it is not an error.
    #[serde(default)]
    optional: bool,
}

impl SettingProfile {
    /// Returns its purpose, in one line.
    pub fn summary(&self) -> String {
        self.file().map(|file| file.summary).unwrap_or_default()
    }

    fn file(&self) -> Result<File, Fault> {
        toml::from_str(self.text)
            .map_err(|e| Fault::failed(format!("profile {}: {}", self.name, e.message())))
    }
}

/// A profile as typed: `NAME[:device=DEVICE]`, `dsa[:device=dsa0,queue=wq0.0]`.
#[derive(Clone, Debug)]
pub struct ChosenProfile {
    pub profile: &'static SettingProfile,
    /// The text as typed.
    typed: String,
    /// Placeholders in its lines, with their replacements.
    words: Vec<(&'static str, String)>,
}

impl ChosenProfile {
    /// Returns its settings in the order in which they are made, each with its benefit. Without a
    /// device, those of a network device carry an obstacle.
    pub fn settings(&self) -> Result<Vec<(WantedSetting, String)>, Fault> {
        let filled = |text: &str| {
            let fill = |text: String, (name, word): &(&str, String)| text.replace(name, word);
            self.words.iter().fold(text.to_owned(), fill)
        };
        let line = |line: Line| {
            let setting: Setting = filled(&line.set).parse()?;
            let nameless = setting.device().is_some_and(|device| device.as_str() == DEVICE);
            let name = self.profile.name;
            let obstacle =
                nameless.then(|| format!("no device was given: --settings {name}:device=NAME"));
            let (profile, optional) = (Some(self.typed.clone()), line.optional);
            let wanted = WantedSetting { setting, profile, optional, obstacle, host: None };
            Ok((wanted, filled(&line.why)))
        };
        self.profile.file()?.setting.into_iter().map(line).collect()
    }
}

/// Parses the name of a profile with its options.
pub fn find_setting_profile(text: &str) -> Result<ChosenProfile, Fault> {
    let (name, typed_options) = split(text)?;
    let profile = find("settings profile", &name, SETTING_PROFILES, |profile| profile.name)?;
    let is_dsa = profile.name == DSA;
    let (mut device, mut queue) = (None, None);
    for (key, value) in typed_options {
        match key.as_str() {
            "device" => device = Some(value),
            "queue" if is_dsa => queue = Some(value),
            other => {
                let form = if is_dsa { "device=dsa0,queue=wq0.0" } else { "device=NAME" };
                return Err(usage(format!("profile {name} has no option '{other}'"))
                    .remedy(format!("write {name}:{form}")));
            }
        }
    }
    let words = match device {
        _ if is_dsa => parts_of_dsa(device, queue)?,
        Some(device) => vec![(DEVICE, DeviceName::new(&device)?.to_string())],
        None => Vec::new(),
    };
    Ok(ChosenProfile { profile, typed: text.to_owned(), words })
}

/// The profile for a DSA, whose lines contain placeholders for its parts.
const DSA: &str = "dsa";

/// Returns the replacements for the parts of a DSA in the lines of its profile.
fn parts_of_dsa(
    device: Option<String>,
    queue: Option<String>,
) -> Result<Vec<(&'static str, String)>, Fault> {
    let device = device.unwrap_or_else(|| "dsa0".into());
    let is_number = |text: &&str| text.parse::<u16>().is_ok_and(|n| n.to_string() == *text);
    let number = device.strip_prefix("dsa").filter(is_number).ok_or_else(|| {
        usage(format!("'{device}' is not a DSA")).remedy("name one of /sys/bus/dsa/devices: dsa0")
    })?;
    let first = format!("wq{number}.");
    let queue = queue.unwrap_or_else(|| format!("{first}0"));
    if !queue.strip_prefix(&first).is_some_and(|number| is_number(&number)) {
        let text = format!("'{queue}' is not a work queue of {device}");
        return Err(usage(text).remedy(format!("name one of its queues: {first}0")));
    }
    let engine = format!("engine{number}");
    Ok(vec![("{device}", device), ("{queue}", queue), ("{engine}", engine)])
}

/// Returns the settings that profiles and single lines request. Profiles come first, so that a line
/// may override them. A single setting is mandatory, since it was requested by name.
pub fn wanted_settings<'t>(
    profiles: impl IntoIterator<Item = &'t str>,
    lines: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<WantedSetting>, Fault> {
    let mut wanted = Vec::new();
    for text in profiles {
        let settings = find_setting_profile(text)?.settings()?;
        wanted.extend(settings.into_iter().map(|(want, _)| want));
    }
    wanted.extend(lines.into_iter().map(wanted_line).collect::<Result<Vec<_>, _>>()?);
    Ok(wanted)
}

/// Returns the settings with the testbed's devices of sender and receiver filled in: for profiles
/// that lack a device, and for lines with the placeholder `DEVICE`.
pub fn on_devices(
    wanted: Vec<WantedSetting>,
    devices: &[Vec<DeviceName>; 2],
) -> Result<Vec<WantedSetting>, Fault> {
    let has_none = devices.iter().all(Vec::is_empty);
    let mut all = Vec::new();
    for want in wanted {
        let lacks = want.setting.device().is_some_and(|device| device.as_str() == DEVICE);
        if lacks && has_none && want.profile.is_none() {
            let what = format!("'{}': the testbed names no device to take the place", want.setting);
            return Err(usage(format!("{what} of {DEVICE}"))
                .remedy("name the device in the line, or those of the testbed"));
        }
        if !lacks || has_none {
            all.push(want);
            continue;
        }
        let of_role = |role: Role| devices[role as usize].iter().map(move |device| (role, device));
        for (role, device) in Role::ALL.into_iter().flat_map(of_role) {
            let text = want.setting.to_string().replacen(DEVICE, device.as_str(), 1);
            let (setting, host) = (text.parse()?, Some(role));
            all.push(WantedSetting { setting, obstacle: None, host, ..want.clone() });
        }
    }
    Ok(all)
}

/// Parses one setting; a role before it restricts it to one host: `sender: mtu eth0 9000`.
fn wanted_line(line: &str) -> Result<WantedSetting, Fault> {
    let of = |role: &Role| Some((*role, line.trim_start().strip_prefix(&format!("{role}:"))?));
    let (host, line) = match Role::ALL.iter().find_map(of) {
        Some((role, rest)) => (Some(role), rest.trim_start()),
        None => (None, line),
    };
    Ok(WantedSetting { host, ..line.parse::<Setting>()?.into() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::joined;

    #[test]
    fn a_profile_without_a_device_takes_those_of_the_testbed() {
        let lines = ["hugepages 2M node=DEVICE 512", "mtu eth9 9000"];
        let wanted = wanted_settings(["battle-of-zcs"], lines).unwrap();
        let named = ["eth1", "eth2"].map(|name| vec![DeviceName::new(name).unwrap()]);
        let filled = on_devices(wanted.clone(), &named).unwrap();
        let on_both: Vec<String> = filled
            .iter()
            .filter(|want| want.setting.to_string().contains(" 4148"))
            .map(|want| format!("{}: {}", want.host.unwrap(), want.setting))
            .collect();
        assert_eq!(on_both, ["sender: mtu eth1 4148", "receiver: mtu eth2 4148"]);
        let pages = filled.iter().map(|want| want.setting.to_string());
        let pages: Vec<String> = pages.filter(|text| text.starts_with("hugepages")).collect();
        let of_nodes = |count: u32| [1, 2].map(|n| format!("hugepages 2M node=eth{n} {count}"));
        let any = "hugepages 2M 128".to_owned();
        let [nodes, typed] = [128, 512].map(of_nodes);
        assert_eq!(pages, [&[any][..], &nodes, &typed].concat(), "any node's first");
        let two = ["eth3", "eth4"].map(|name| DeviceName::new(name).unwrap()).to_vec();
        let filled_both = on_devices(wanted.clone(), &[two, named[1].clone()]).unwrap();
        let text = |want: &WantedSetting| format!("{:?} {}", want.host, want.setting);
        let all = joined(filled_both.iter().map(text), "\n");
        assert!(all.contains("mtu eth3 4148") && all.contains("mtu eth4 4148"), "{all}");
        assert!(filled.iter().all(|want| want.obstacle.is_none()));
        assert_eq!(filled.last(), wanted.last(), "what names its device keeps it");
        let refused = on_devices(wanted.clone(), &Default::default()).unwrap_err();
        assert!(
            refused.message.contains("names no device to take the place of DEVICE"),
            "{refused}"
        );
        let of_profile: Vec<_> = wanted.into_iter().filter(|w| w.profile.is_some()).collect();
        assert_eq!(on_devices(of_profile.clone(), &Default::default()), Ok(of_profile));
    }

    #[test]
    fn a_line_may_name_the_host() {
        let host = |line: &str| wanted_line(line).map(|want| (want.host, want.setting.to_string()));
        let mtu = || "mtu eth0 9000".to_owned();
        assert_eq!(host("mtu eth0 9000"), Ok((None, mtu())));
        assert_eq!(host("sender: mtu eth0 9000"), Ok((Some(Role::Sender), mtu())));
        assert_eq!(host("receiver:mtu eth0 9000"), Ok((Some(Role::Receiver), mtu())));
        assert!(host("somewhere: mtu eth0 9000").is_err());
    }

    #[test]
    fn every_profile_is_sound_with_and_without_a_device() {
        for profile in SETTING_PROFILES {
            assert!(profile.summary().len() > 20, "{}", profile.name);
            let device = if profile.name == DSA { "dsa3" } else { "ens1f0np0" };
            let of = |text: &str| find_setting_profile(text).unwrap().settings().unwrap();
            let without = of(profile.name);
            let with = of(&format!("{}:device={device}", profile.name));
            assert!(without.len() == with.len() && without.len() > 4, "{}", profile.name);
            for ((without, why), (with, _)) in without.iter().zip(&with) {
                assert!(why.len() > 20 && with.obstacle.is_none(), "{}: {why}", with.setting);
                let of_device = with.setting.device().is_some();
                assert_eq!(without.obstacle.is_some(), of_device, "{}", with.setting);
            }
        }
    }

    #[test]
    fn the_parts_of_a_dsa_are_those_of_the_device_and_queue_that_are_named() {
        let lines = |text: &str| -> Vec<String> {
            let settings = find_setting_profile(text).unwrap().settings().unwrap();
            settings.iter().map(|(wanted, _)| wanted.setting.to_string()).collect()
        };
        let usual = lines("dsa");
        assert_eq!(usual[0], "dsa dsa0 state=disabled", "an enabled device takes no settings");
        assert_eq!(usual.last().unwrap(), "dsa wq0.0 state=enabled");
        assert_eq!(lines("dsa:device=dsa0,queue=wq0.0"), usual);
        let other = lines("dsa:device=dsa2,queue=wq2.3");
        assert_eq!(other.len(), usual.len());
        let own = |line: &String| ["dsa2", "engine2.", "wq2.3"].iter().any(|p| line.contains(p));
        assert!(other.iter().all(own), "{other:?}");
        for (text, why) in [
            ("dsa:queue=wq1.0", "not a work queue of dsa0"),
            ("dsa:device=dsa1,queue=wq1.x", "not a work queue of dsa1"),
            ("dsa:device=eth0", "'eth0' is not a DSA"),
            ("dsa:device=dsa01", "'dsa01' is not a DSA"),
            ("dsa:engine=1", "write dsa:device=dsa0,queue=wq0.0"),
        ] {
            let fault = find_setting_profile(text).unwrap_err().to_string();
            assert!(fault.contains(why), "{text}: {fault}");
        }
    }

    #[test]
    fn what_is_requested_by_name() {
        let wanted =
            wanted_settings(["quiet"], ["sysctl kernel.numa_balancing=1", "mtu eth0 4148"])
                .unwrap();
        let last = wanted.last().unwrap();
        assert!(last.setting.to_string() == "mtu eth0 4148" && !last.optional);
        assert_eq!(wanted[0].profile.as_deref(), Some("quiet"));
        let text = |profile: &str, line: &str| {
            wanted_settings(Some(profile), Some(line)).unwrap_err().to_string()
        };
        assert_eq!(
            text("quite", "mtu eth0 4148"),
            "there is no settings profile 'quite' (did you mean 'quiet'?)"
        );
        assert!(text("quiet:nic=x", "mtu eth0 4148").contains("quiet:device=NAME"));
        assert!(text("quiet:device=a/b", "mtu eth0 4148").contains("not a name of a network"));
        assert!(text("quiet", "mtu eth0").contains("write mtu DEVICE BYTES"));
    }
}
