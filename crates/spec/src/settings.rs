//! Which settings of the host a study requests: profiles that ship with bytepath,
//! and single settings, as typed and as an experiment file has them.

use super::options::{find, split, usage};
use bytepath_record::{DeviceName, Fault, Role, Setting, WantedSetting, joined};
use serde::Deserialize;

/// A named list of settings.
#[derive(Clone, Copy, Debug)]
pub struct SettingProfile {
    /// Its name, as typed.
    pub name: &'static str,
    /// The file, as it ships: TOML that a person can read.
    pub text: &'static str,
}

/// Every profile.
pub const SETTING_PROFILES: &[SettingProfile] = &[
    SettingProfile { name: "battle-of-zcs", text: include_str!("settings/battle-of-zcs.toml") },
    SettingProfile { name: "dsa", text: include_str!("settings/dsa.toml") },
    SettingProfile { name: "quiet", text: include_str!("settings/quiet.toml") },
];

/// Represents the device that is passed to a profile: `--settings NAME:device=eth0`.
const DEVICE: &str = "DEVICE";

/// A profile's file.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    summary: String,
    setting: Vec<Line>,
}

/// One setting of it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    /// As [`Setting`] is typed.
    set: String,
    /// Its benefit.
    why: String,
    /// True: a host that cannot do it is not an error.
    #[serde(default)]
    optional: bool,
}

impl SettingProfile {
    /// One line: what it is for.
    pub fn summary(&self) -> String {
        self.file().map(|file| file.summary).unwrap_or_default()
    }

    /// Its settings in the order in which they are made, each with its
    /// benefit. Without a device, those of a device carry an obstacle.
    pub fn settings(
        &self,
        device: Option<&DeviceName>,
    ) -> Result<Vec<(WantedSetting, String)>, Fault> {
        let typed = match device {
            Some(device) => format!("{}:device={device}", self.name),
            None => self.name.to_owned(),
        };
        let line = |line: Line| {
            let words = line.set.split(' ').map(|word| match (word, device) {
                (DEVICE, Some(device)) => device.as_str(),
                (word, _) => word,
            });
            let setting: Setting = joined(words, " ").parse()?;
            let nameless = setting.device().is_some_and(|device| device.as_str() == DEVICE);
            let obstacle = nameless
                .then(|| format!("no device was given: --settings {}:device=NAME", self.name));
            let (profile, optional) = (Some(typed.clone()), line.optional);
            Ok((WantedSetting { setting, profile, optional, obstacle, host: None }, line.why))
        };
        self.file()?.setting.into_iter().map(line).collect()
    }

    fn file(&self) -> Result<File, Fault> {
        toml::from_str(self.text)
            .map_err(|e| Fault::failed(format!("profile {}: {}", self.name, e.message())))
    }
}

/// The profile that `NAME` or `NAME:device=DEVICE` names, and the device.
pub fn find_setting_profile(
    text: &str,
) -> Result<(&'static SettingProfile, Option<DeviceName>), Fault> {
    let (name, typed_options) = split(text)?;
    let profile = find("settings profile", &name, SETTING_PROFILES, |profile| profile.name)?;
    let mut device = None;
    for (key, value) in typed_options {
        match key.as_str() {
            "device" => device = Some(DeviceName::new(&value)?),
            other => {
                return Err(usage(format!("profile {name} has no option '{other}'"))
                    .remedy(format!("write {name}:device=NAME")));
            }
        }
    }
    Ok((profile, device))
}

/// The settings that profiles and single lines request: profiles first, so that a
/// line may override them. A single setting is mandatory: it was requested by name.
pub fn wanted_settings<'t>(
    profiles: impl IntoIterator<Item = &'t str>,
    lines: impl IntoIterator<Item = &'t str>,
) -> Result<Vec<WantedSetting>, Fault> {
    let mut wanted = Vec::new();
    for text in profiles {
        let (profile, device) = find_setting_profile(text)?;
        wanted.extend(profile.settings(device.as_ref())?.into_iter().map(|(want, _)| want));
    }
    wanted.extend(lines.into_iter().map(wanted_line).collect::<Result<Vec<_>, _>>()?);
    Ok(wanted)
}

/// The same, where the settings of profiles that lack a device are made on the devices that
/// the testbed names for the sender and the receiver.
pub fn on_devices(
    wanted: Vec<WantedSetting>,
    devices: &[Option<DeviceName>; 2],
) -> Result<Vec<WantedSetting>, Fault> {
    let mut all = Vec::new();
    for want in wanted {
        let lacks = want.setting.device().is_some_and(|device| device.as_str() == DEVICE);
        if !lacks || devices.iter().all(Option::is_none) {
            all.push(want);
            continue;
        }
        for (role, device) in Role::ALL.into_iter().zip(devices) {
            let Some(device) = device else { continue };
            let text = want.setting.to_string().replacen(DEVICE, device.as_str(), 1);
            let (setting, host) = (text.parse()?, Some(role));
            all.push(WantedSetting { setting, obstacle: None, host, ..want.clone() });
        }
    }
    Ok(all)
}

/// One setting, for one host where a role is named before it: `sender: mtu eth0 9000`.
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

    #[test]
    fn a_profile_without_a_device_takes_those_of_the_testbed() {
        let wanted = wanted_settings(["battle-of-zcs"], ["mtu eth9 9000"]).unwrap();
        let named = ["eth1", "eth2"].map(|name| Some(DeviceName::new(name).unwrap()));
        let filled = on_devices(wanted.clone(), &named).unwrap();
        let on_both: Vec<String> = filled
            .iter()
            .filter(|want| want.setting.to_string().contains(" 4148"))
            .map(|want| format!("{}: {}", want.host.unwrap(), want.setting))
            .collect();
        assert_eq!(on_both, ["sender: mtu eth1 4148", "receiver: mtu eth2 4148"]);
        assert!(filled.iter().all(|want| want.obstacle.is_none()));
        assert_eq!(filled.last(), wanted.last(), "what names its device keeps it");
        assert_eq!(on_devices(wanted.clone(), &[None, None]), Ok(wanted));
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
        let device = DeviceName::new("ens1f0np0").unwrap();
        for profile in SETTING_PROFILES {
            assert!(profile.summary().len() > 20, "{}", profile.name);
            let without = profile.settings(None).unwrap();
            let with = profile.settings(Some(&device)).unwrap();
            assert!(without.len() == with.len() && without.len() > 4, "{}", profile.name);
            for ((without, why), (with, _)) in without.iter().zip(&with) {
                assert!(why.len() > 20 && with.obstacle.is_none(), "{}: {why}", with.setting);
                let of_device = with.setting.device().is_some();
                assert_eq!(without.obstacle.is_some(), of_device, "{}", with.setting);
            }
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
