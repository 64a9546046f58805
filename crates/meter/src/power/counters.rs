//! Sources with energy counters: RAPL through the powercap class and through perf.

use super::domain::Part;
use super::gauge::{Gauge, Measured};
use bytepath_record::Fault;
use bytepath_sys::attribute::Number;
use bytepath_sys::perf::Count;
use bytepath_sys::pmu::{self, Offered};
use bytepath_sys::powercap::{self, Zone};
use std::path::Path;
use std::time::{Duration, Instant};

/// Opens the zones of the powercap class.
pub(super) fn rapl(sys: &Path) -> Result<Box<dyn Gauge>, Fault> {
    let zones = powercap::zones(sys);
    if zones.is_empty() {
        return Err(Fault::unsupported("power: no RAPL zone in /sys/class/powercap").remedy(
            "modprobe intel_rapl_msr, on a processor with RAPL, outside a virtual machine",
        ));
    }
    let mut counters = Vec::new();
    for zone in zones {
        let path = zone.energy();
        let fault = |e: &std::io::Error| {
            let fault = Fault::system(format_args!("power: {}", path.display()), e);
            match e.kind() {
                std::io::ErrorKind::PermissionDenied => {
                    fault.remedy("run as root, or: chmod a+r /sys/class/powercap/*/energy_uj")
                }
                _ => fault,
            }
        };
        let number = Number::open(path.clone()).map_err(|e| fault(&e))?;
        let last = read(&number)?;
        counters.push(Wrapping { zone, number, last, gained: 0 });
    }
    let begin = Instant::now();
    Ok(Box::new(Rapl { counters, begin, looked: begin }))
}

/// How often the counters are read within a window, so that none wraps twice unnoticed: the
/// smallest range in use, 65 kJ, lasts a minute at 1 kW.
const LOOK: Duration = Duration::from_secs(20);

struct Rapl {
    counters: Vec<Wrapping>,
    begin: Instant,
    looked: Instant,
}

struct Wrapping {
    zone: Zone,
    number: Number,
    last: u64,
    gained: u64,
}

impl Wrapping {
    fn look(&mut self) -> Result<(), Fault> {
        let now = read(&self.number)?;
        let more = powercap::gained(self.last, now, self.zone.range);
        self.gained = self.gained.saturating_add(more);
        self.last = now;
        Ok(())
    }
}

fn read(number: &Number) -> Result<u64, Fault> {
    let value = number
        .read()
        .map_err(|e| Fault::system(format_args!("power: {}", number.path().display()), &e))?;
    Ok(u64::try_from(value).unwrap_or(0))
}

impl Gauge for Rapl {
    fn tick(&mut self) {
        if self.looked.elapsed() >= LOOK {
            self.looked = Instant::now();
            // A counter that cannot be read is reported at the end.
            self.counters.iter_mut().for_each(|counter| drop(counter.look()));
        }
    }

    fn stop(mut self: Box<Self>) -> Result<Measured, Fault> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let part = |counter: &mut Wrapping| {
            counter.look()?;
            Ok(Part::named(counter.zone.name.clone(), counter.gained as f64 * 1e-6))
        };
        let parts = self.counters.iter_mut().map(part).collect::<Result<_, Fault>>()?;
        Ok(Measured { seconds, parts, ..Measured::default() })
    }
}

/// Opens the events of perf's PMU `power`.
pub(super) fn perf(sys: &Path) -> Result<Box<dyn Gauge>, Fault> {
    let offered = pmu::offered(sys, "power");
    if offered.is_empty() {
        return Err(Fault::unsupported("power: no PMU power in /sys/bus/event_source/devices")
            .remedy("modprobe rapl, on a processor with RAPL, outside a virtual machine"));
    }
    let mut counters = Vec::new();
    for event in offered {
        let cpus = if event.cpus.is_empty() { vec![0] } else { event.cpus.clone() };
        for cpu in cpus {
            let counter = event.open(cpu, sys).map_err(|e| {
                let what = format!("power: perf refuses power/{}/ on CPU {cpu}", event.name);
                Fault::system(what, &e)
                    .remedy("sysctl -w kernel.perf_event_paranoid=0, or run as root")
            })?;
            counters.push((event.clone(), counter));
        }
    }
    Ok(Box::new(Perf { counters, begin: Instant::now() }))
}

struct Perf {
    counters: Vec<(Offered, Count)>,
    begin: Instant,
}

impl Gauge for Perf {
    fn stop(self: Box<Self>) -> Result<Measured, Fault> {
        let seconds = self.begin.elapsed().as_secs_f64();
        let part = |(event, counter): &(Offered, Count)| {
            let fault = |e| Fault::system(format_args!("power: power/{}/", event.name), &e);
            let joules = counter.read().map_err(fault)? as f64 * event.scale;
            let part = Part::named(event.name.clone(), joules);
            Ok(match event.cpus.len() {
                0 | 1 => part,
                _ => Part { name: format!("{}-cpu{}", event.name, counter.cpu), ..part },
            })
        };
        let parts = self.counters.iter().map(part).collect::<Result<_, Fault>>()?;
        Ok(Measured { seconds, parts, ..Measured::default() })
    }
}
