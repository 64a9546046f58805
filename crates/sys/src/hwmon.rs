//! Power and energy sensors of the hwmon class: `/sys/class/hwmon/hwmon*`
//! (Documentation/hwmon/sysfs-interface.rst).

use super::attribute;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sensor {
    /// Name of the chip: "power_meter", "amd_energy", "BAT0", "amdgpu".
    pub chip: String,
    /// The driver's name for the sensor: "Esocket0"; empty if it has none.
    pub label: String,
    pub quantity: Quantity,
    /// Path of the attribute with its value.
    pub path: PathBuf,
}

/// Quantity and unit of a sensor's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Energy so far, in microjoules.
    Energy,
    /// Power, in microwatts.
    Power,
}

/// Returns every energy or power sensor below `sys`. If a sensor has both an average and a
/// momentary value, the average is used.
pub fn sensors(sys: &Path) -> Vec<Sensor> {
    let class = sys.join("class/hwmon");
    let mut sensors = Vec::new();
    for folder in attribute::names(&class) {
        let folder = class.join(folder);
        let Some(chip) = attribute::text(&folder.join("name")) else { continue };
        let files = attribute::names(&folder);
        for file in &files {
            let (number, quantity) = match split(file) {
                Some(("energy", number, "input")) => (number, Quantity::Energy),
                Some(("power", number, "average")) => (number, Quantity::Power),
                Some(("power", number, "input"))
                    if !files.contains(&format!("power{number}_average")) =>
                {
                    (number, Quantity::Power)
                }
                _ => continue,
            };
            let kind = if quantity == Quantity::Energy { "energy" } else { "power" };
            let label = attribute::text(&folder.join(format!("{kind}{number}_label")));
            sensors.push(Sensor {
                chip: chip.clone(),
                label: label.unwrap_or_default(),
                quantity,
                path: folder.join(file),
            });
        }
    }
    sensors
}

impl Sensor {
    /// Chip and label: "amd_energy/Esocket0".
    pub fn name(&self) -> String {
        match self.label.is_empty() {
            true => self.chip.clone(),
            false => format!("{}/{}", self.chip, self.label),
        }
    }

    /// Whether it counts the energy of one processor (drivers/hwmon/amd_energy.c).
    pub fn is_socket(&self) -> bool {
        self.quantity == Quantity::Energy && self.label.starts_with("Esocket")
    }
}

/// Returns the sensors of what the whole machine draws; if there are none, those of its sockets, if
/// any. A sensor of the board (acpi_power_meter) takes precedence over a battery, and a battery
/// counts only while it discharges: on mains its sensor shows the charging power. Sensors of parts
/// (graphics cards, regulators, single cores) do not count: they cover only a part of the machine.
pub fn machine_sensors(sys: &Path) -> Vec<Sensor> {
    let all = sensors(sys);
    let board = all.iter().filter(|sensor| sensor.chip == "power_meter").take(1);
    let battery = all
        .iter()
        .filter(|sensor| sensor.quantity == Quantity::Power && discharges(sys, &sensor.chip));
    let sockets = all.iter().filter(|sensor| sensor.is_socket());
    let choices = [board.collect::<Vec<_>>(), battery.collect(), sockets.collect()];
    let chosen = choices.into_iter().find(|chosen| !chosen.is_empty()).unwrap_or_default();
    chosen.into_iter().cloned().collect()
}

/// Whether a battery, given by its name, is currently discharging
/// (Documentation/ABI/testing/sysfs-class-power).
fn discharges(sys: &Path, battery: &str) -> bool {
    let folder = sys.join("class/power_supply").join(battery);
    let says =
        |file: &str, word: &str| attribute::text(&folder.join(file)).as_deref() == Some(word);
    says("type", "Battery") && says("status", "Discharging")
}

/// Splits "power1_average" into ("power", "1", "average").
fn split(file: &str) -> Option<(&str, &str, &str)> {
    let (head, item) = file.split_once('_')?;
    let digits = head.find(|c: char| c.is_ascii_digit())?;
    let (kind, number) = head.split_at(digits);
    number.bytes().all(|byte| byte.is_ascii_digit()).then_some((kind, number, item))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_attributes() {
        assert_eq!(split("power1_average"), Some(("power", "1", "average")));
        assert_eq!(split("energy12_input"), Some(("energy", "12", "input")));
        assert_eq!(split("power1_average_interval"), Some(("power", "1", "average_interval")));
        for other in ["name", "power_input", "power1", "powerx1y_input", ""] {
            assert_eq!(split(other), None, "{other}");
        }
    }
}
