//! Sensors of the hwmon class.

use super::domain::{Domain, Part};
use super::gauge::{Gauge, Measured, integrate};
use bytepath_record::{Fault, joined};
use bytepath_sys::attribute::Number;
use bytepath_sys::hwmon::{self, Quantity, Sensor};
use std::path::Path;
use std::time::Instant;

/// Opens the sensors of the whole machine, or of its sockets.
pub(super) fn hwmon(sys: &Path) -> Result<Box<dyn Gauge>, Fault> {
    let chosen = hwmon::machine_sensors(sys);
    if chosen.is_empty() {
        let others = hwmon::sensors(sys).into_iter().map(|sensor| sensor.chip);
        let others = match joined(others, ", ").as_str() {
            "" => String::new(),
            others => format!(" (there are sensors of parts alone: {others})"),
        };
        let text = format!("power: no sensor of machine or sockets in /sys/class/hwmon{others}");
        return Err(Fault::unsupported(text).remedy(
            "modprobe acpi_power_meter or amd_energy, where the machine has such sensors",
        ));
    }
    let mut gauges = Vec::new();
    for sensor in chosen {
        let open = Number::open(sensor.path.clone());
        let number = open.map_err(|e| unreadable(&sensor, &e))?;
        let first = number.read().map_err(|e| unreadable(&sensor, &e))?;
        let now = Instant::now();
        let mut readings = Vec::with_capacity(ROOM);
        readings.push((now, first as f64 * 1e-6));
        gauges.push(Watched { sensor, number, first, readings });
    }
    Ok(Box::new(Sensors { begin: Instant::now(), gauges }))
}

/// Number of readings allocated from the start: ten minutes.
const ROOM: usize = 6000;

struct Sensors {
    begin: Instant,
    gauges: Vec<Watched>,
}

struct Watched {
    sensor: Sensor,
    number: Number,
    first: i64,
    readings: Vec<(Instant, f64)>,
}

impl Gauge for Sensors {
    fn tick(&mut self) {
        for gauge in self.gauges.iter_mut().filter(|gauge| gauge.sensor.quantity == Quantity::Power)
        {
            if let Ok(microwatts) = gauge.number.read() {
                gauge.readings.push((Instant::now(), microwatts as f64 * 1e-6));
            }
        }
    }

    fn stop(mut self: Box<Self>) -> Result<Measured, Fault> {
        self.tick();
        let end = Instant::now();
        let seconds = (end - self.begin).as_secs_f64();
        let mut measured = Measured { seconds, ..Measured::default() };
        for gauge in &self.gauges {
            let joules = match gauge.sensor.quantity {
                Quantity::Power => integrate(&gauge.readings, self.begin, end).unwrap_or(0.0),
                Quantity::Energy => {
                    let last = gauge.number.read().map_err(|e| unreadable(&gauge.sensor, &e))?;
                    match last.checked_sub(gauge.first) {
                        Some(gained @ 0..) => gained as f64 * 1e-6,
                        _ => {
                            let text =
                                format!("power: the counter {} went backwards", gauge.sensor.chip);
                            return Ok(Measured { warnings: vec![text], ..Measured::default() });
                        }
                    }
                }
            };
            if gauge.sensor.quantity == Quantity::Power {
                let count = u32::try_from(gauge.readings.len()).unwrap_or(u32::MAX);
                measured.readings = Some(measured.readings.map_or(count, |least| least.min(count)));
            }
            let (name, domain) = (gauge.sensor.name(), domain(&gauge.sensor));
            measured.parts.push(Part { name, domain, joules });
        }
        Ok(measured)
    }
}

/// A socket's counter covers a package; every other chosen sensor covers the whole machine.
fn domain(sensor: &Sensor) -> Domain {
    if sensor.is_socket() { Domain::Package } else { Domain::Platform }
}

fn unreadable(sensor: &Sensor, error: &std::io::Error) -> Fault {
    Fault::system(format_args!("power: {}", sensor.path.display()), error)
        .remedy("is the sensor readable by root only? see its permissions")
}
