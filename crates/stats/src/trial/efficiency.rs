//! The costs of a trial and its returns: CPU per unit of work, return on investment, service
//! demand, and the headline of published work.

use super::cpu::{CpuRule, RoleCpu, role_cpu};
use super::guest::GuestCpu;
use crate::estimate::Summary;
use crate::metric::Metric;
use crate::rules::Rules;
use bytepath_record::{Cell, Role, Scope, Trial, Work};
use schemars::JsonSchema;
use serde::Serialize;

/// Name of the reading used for return on investment by power: mean power over the window in watts,
/// of `Scope::Role` or `Scope::MachineOf` for one end, of `Scope::Machine` for both ends together.
pub const POWER: &str = "power.watts";

/// Fewest trials for which the first and the last are dropped.
const HEADLINE: usize = 5;

/// Bytes of a KiB.
const KIB: f64 = 1024.0;

/// The costs of one trial.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Block of the trial.
    pub block: u32,
    work: Work,
    /// Work per second.
    rate: f64,
    /// Instructions that a CPU second represents, if those are counted.
    instructions_per_second: Option<f64>,
    /// Packets per second at the receiver's device; `None` if no meter counted them.
    pub packets_per_second: Option<f64>,
    /// CPU time by role, in the order of `Role::ALL`.
    pub roles: [Option<RoleCpu>; 2],
    /// CPU time that a guest took on the other role's host, by the role the guest plays, in the
    /// same order.
    pub guests: [Option<GuestCpu>; 2],
    /// Watts drawn by each role, then by both together, less the idle power if that is subtracted.
    pub watts: [Option<f64>; 3],
}

/// The rule by which the CPU time of an end was obtained. Figures by different rules are not
/// comparable: one includes what the other misses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CostRule {
    /// Of a whole CPU, not of threads alone.
    whole: bool,
    /// Without the work of others.
    exact: bool,
    /// In the sum of both ends, with all that a guest takes of its host.
    guest: bool,
}

/// A figure per end, over the measured trials, with the interval of its mean.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct PerEnd {
    /// Based on the sender's costs.
    pub sender: Option<Summary>,
    /// Based on the receiver's costs.
    pub receiver: Option<Summary>,
    pub total: Option<Summary>,
}

/// The mean rate without the first and the last trial in order of time, for comparison with work
/// that publishes "the middle three of five runs". It decides nothing: verdicts and intervals use
/// every trial that counts.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Headline {
    /// Mean of the kept trials, in work per second.
    pub mean: f64,
    pub kept: u32,
    pub of: u32,
}

/// Returns the CPU time of both ends of a measured trial: seconds per unit of work, and nanoseconds
/// per packet received by the receiver's device.
pub fn costs(cell: &Cell, trial: &Trial) -> [Option<f64>; 2] {
    let costs = Costs::of(cell, trial, None);
    [costs.cpu_per_unit(), costs.cpu_per_packet()]
}

impl Costs {
    /// Computes the costs of a measured trial. Each CPU second represents `instructions_per_second`
    /// instructions, if those were counted.
    pub fn of(cell: &Cell, trial: &Trial, instructions_per_second: Option<f64>) -> Costs {
        let watts = |scope| trial.reading(POWER, &scope).filter(|w| *w > 0.0 && w.is_finite());
        // If the host has no other role, all its power is this role's.
        let of = |role| watts(Scope::Role(role)).or_else(|| watts(Scope::MachineOf(role)));
        let [tx, rx] = Role::ALL.map(of);
        let both = watts(Scope::Machine).or_else(|| Some(tx? + rx?));
        Costs {
            block: trial.block,
            work: trial.work,
            rate: trial.rate().unwrap_or(0.0),
            instructions_per_second,
            packets_per_second: trial.packets().map(|packets| packets / trial.window),
            roles: Role::ALL.map(|role| role_cpu(cell, trial, role)),
            guests: Role::ALL.map(|role| GuestCpu::of(trial, role)),
            watts: [tx, rx, both],
        }
    }

    /// Returns the costs of a cell's measured trials. Those whose CPU time was obtained by other
    /// rules than that of most (because a meter failed) have none.
    pub fn of_trials<'a>(
        cell: &Cell,
        trials: impl IntoIterator<Item = &'a Trial>,
        instructions_per_second: Option<f64>,
    ) -> Vec<Costs> {
        let of = |trial| Costs::of(cell, trial, instructions_per_second);
        let mut all: Vec<Costs> = trials.into_iter().map(of).collect();
        let rules: Vec<_> = all.iter().map(Costs::rules_of_ends).collect();
        // Trials that know more ends come first, then what most trials have; of equals, the first.
        let rank = |one: &&[Option<_>; 2]| {
            (one.iter().flatten().count(), rules.iter().filter(|other| other == one).count())
        };
        let most = rules.iter().rev().max_by_key(rank).copied();
        for costs in all.iter_mut().filter(|costs| Some(costs.rules_of_ends()) != most) {
            (costs.roles, costs.guests) = ([None; 2], [None; 2]);
        }
        all
    }

    /// Returns what has to be equal in all trials of a cell: also how the time was split.
    fn rules_of_ends(&self) -> [Option<(CpuRule, bool, bool)>; 2] {
        [0, 1].map(|end| {
            let RoleCpu { rule, exact, .. } = self.roles[end]?;
            Some((rule, exact, self.guests[end].is_some()))
        })
    }

    /// Returns work per second, in the units that costs refer to.
    pub fn units_per_second(&self) -> f64 {
        self.rate / self.work.terms().unit_size
    }

    /// Returns the figure of a cost metric; `None` for other metrics. CPU time that represents
    /// instructions answers `Instructions`, not `Cpu`.
    pub fn answer(&self, question: Metric) -> Option<f64> {
        match (question, self.instructions_per_second) {
            (Metric::Cpu, None) => self.cpu_per_unit(),
            (Metric::Instructions, Some(n)) => Some(self.cpu_per_unit()? * n),
            _ => None,
        }
    }

    /// Returns CPU seconds per unit of work, both ends together.
    pub fn cpu_per_unit(&self) -> Option<f64> {
        self.per_unit(self.cores()[2])
    }

    /// Returns CPU seconds of one end per unit of work.
    pub fn role_per_unit(&self, role: Role) -> Option<f64> {
        self.per_unit(self.cores()[role as usize])
    }

    fn per_unit(&self, cores: Option<f64>) -> Option<f64> {
        Some(cores? / self.units_per_second()).filter(|cost| cost.is_finite())
    }

    /// Returns CPU nanoseconds per packet received by the receiver's device, both ends together.
    pub fn cpu_per_packet(&self) -> Option<f64> {
        let cost = self.cores()[2]? * 1e9 / self.packets_per_second?;
        Some(cost).filter(|cost| cost.is_finite())
    }

    /// Returns joules per unit of work by role, then for both together.
    pub fn joules_per_unit(&self) -> [Option<f64>; 3] {
        let joules = |watts: f64| Some(watts / self.units_per_second()).filter(|j| j.is_finite());
        self.watts.map(|watts| joules(watts?))
    }

    /// Returns return on investment by power, T^n / P^m, by role, then for both together.
    pub fn roi_power(&self, rules: &Rules) -> [Option<f64>; 3] {
        let rate = self.shown_rate().powf(rules.roi_throughput);
        self.watts.map(|watts| Some(rate / watts?.powf(rules.roi_power)))
    }

    /// Returns the rules by which the two ends' CPU time was obtained; `None` unless both are
    /// known.
    pub fn rules(&self) -> Option<[CostRule; 2]> {
        let rule = |end: usize| {
            let cpu = self.roles[end]?;
            let whole = matches!(cpu.rule, CpuRule::WholeCpu(_));
            let guest = self.guests[end].is_some();
            Some(CostRule { whole, exact: whole && cpu.exact, guest })
        };
        Some([rule(0)?, rule(1)?])
    }

    /// Returns the CPUs kept busy by each end, then by both. The sum uses the host's CPU time for a
    /// guest, which includes the time of its virtual CPUs.
    fn cores(&self) -> [Option<f64>; 3] {
        let ends = self.roles.map(|role| role.map(|cpu| cpu.total));
        let guests = self.guests.map(|guest| guest.map(|guest| guest.total()));
        let [tx_of_both, rx_of_both] = [0, 1].map(|end| guests[end].or(ends[end]));
        [ends[0], ends[1], tx_of_both.zip(rx_of_both).map(|(tx, rx)| tx + rx)]
    }

    /// Returns the rate as reports show it.
    fn shown_rate(&self) -> f64 {
        self.rate * self.work.terms().rate_scale
    }
}

/// Returns why costs by the second rules are not comparable with those of `whose`, by the first;
/// `None` if they are.
pub(crate) fn other_rules(
    whose: &str,
    first: Option<[CostRule; 2]>,
    second: Option<[CostRule; 2]>,
) -> Option<String> {
    let guests = |rules: [CostRule; 2]| rules.map(|rule| rule.guest);
    let of_guests = first.zip(second).is_some_and(|(a, b)| guests(a) != guests(b));
    (first != second).then(|| match of_guests {
        true => format!(
            "this CPU time and {whose} do not include all that a guest takes of its host at the \
             same end"
        ),
        false => format!(
            "CPU time was obtained by a different rule than {whose} (whole CPUs against threads, \
             or exact times against ticks)"
        ),
    })
}

/// Computes return on investment, T^n / C.
pub(crate) fn roi(costs: &[Costs], rules: &Rules) -> PerEnd {
    per_end(costs, rules, |c, part| {
        Some(c.shown_rate().powf(rules.roi_throughput) / c.cores()[part]?)
    })
}

/// Computes return on investment by power, T^n / P^m.
pub(crate) fn roi_power(costs: &[Costs], rules: &Rules) -> PerEnd {
    per_end(costs, rules, |c, part| c.roi_power(rules)[part])
}

/// Computes service demand: CPU microseconds per KiB; defined for bytes only.
pub(crate) fn service_demand(costs: &[Costs], rules: &Rules) -> PerEnd {
    per_end(costs, rules, |c, part| {
        (c.work == Work::Bytes).then_some(c.cores()[part]? * 1e6 / (c.rate / KIB))
    })
}

/// Summarises a figure over the trials; trials where it is not finite (nothing was spent) are left
/// out.
fn per_end(
    costs: &[Costs],
    rules: &Rules,
    figure: impl Fn(&Costs, usize) -> Option<f64>,
) -> PerEnd {
    let summary = |part| {
        Summary::with_interval(costs.iter().filter_map(|c| figure(c, part)), rules.confidence)
    };
    PerEnd { sender: summary(0), receiver: summary(1), total: summary(2) }
}

/// Drops the first and the last trial in the order run, and averages the rest.
pub(crate) fn headline(measured: &[&Trial]) -> Option<Headline> {
    let mut trials: Vec<(u32, f64)> =
        measured.iter().filter_map(|t| Some((t.order, t.rate()?))).collect();
    if trials.len() < HEADLINE {
        return None;
    }
    trials.sort_by_key(|(order, _)| *order);
    let kept = &trials[1..trials.len() - 1];
    let mean = Summary::of(kept.iter().map(|(_, t)| *t))?.mean;
    Some(Headline { mean, kept: kept.len() as u32, of: trials.len() as u32 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, thread, trial};
    use bytepath_record::unit::GIB;
    use bytepath_record::{Reading, Unit};

    /// 10 Gbit/s for one second, half a CPU at the sender and a quarter at the receiver, 40 and 60
    /// watts.
    fn worked() -> Trial {
        let mut t = trial("a", 0, 1.0, 1_250_000_000);
        t.roles[0].threads = vec![thread("tx", 0.5, 0.1, 0.4)];
        t.roles[1].threads = vec![thread("rx", 0.25, 0.05, 0.2)];
        for (role, watts) in Role::ALL.into_iter().zip([40.0, 60.0]) {
            t.readings.push(Reading::mean(POWER, Unit::Watts, watts, Scope::Role(role)));
        }
        t
    }

    fn near(summary: Option<Summary>, expected: f64) -> bool {
        summary.is_some_and(|s| (s.mean - expected).abs() < 1e-9 * expected)
    }

    #[test]
    fn returns_by_hand() {
        let costs = [Costs::of(&cell("a"), &worked(), None)];
        let rules = Rules::default();
        let r = roi(&costs, &rules);
        assert!(near(r.sender, 200.0) && near(r.receiver, 400.0) && near(r.total, 100.0 / 0.75));
        let p = roi_power(&costs, &rules);
        let joules = costs[0].joules_per_unit().map(Summary::of);
        for (joules, watts) in joules.into_iter().zip([40.0, 60.0, 100.0]) {
            assert!(near(joules, watts * GIB / 1.25e9), "{joules:?}");
        }
        assert_eq!(costs[0].watts[2], Some(100.0));
        assert!(near(p.sender, 2.5) && near(p.receiver, 100.0 / 60.0) && near(p.total, 1.0));
        // Separate hosts draw what their roles do.
        let mut apart = worked();
        for reading in &mut apart.readings {
            let Scope::Role(role) = reading.scope else { continue };
            reading.scope = Scope::MachineOf(role);
        }
        assert_eq!(roi_power(&[Costs::of(&cell("a"), &apart, None)], &rules), p);
        let rules = Rules { roi_throughput: 1.0, roi_power: 2.0, ..rules };
        assert!(near(roi(&costs, &rules).total, 10.0 / 0.75));
        assert!(near(roi_power(&costs, &rules).total, 0.001));
        // Half a CPU second for 1.25e9 bytes, which are 1220703.125 KiB.
        let d = service_demand(&costs, &rules);
        assert!(near(d.sender, 0.5e6 / 1_220_703.125) && near(d.total, 0.75e6 / 1_220_703.125));
    }

    #[test]
    fn nothing_spent_returns_nothing() {
        let costs = [Costs::of(&cell("a"), &trial("a", 0, 1.0, 1_000), None)];
        let rules = Rules::default();
        for r in [roi(&costs, &rules), roi_power(&costs, &rules), service_demand(&costs, &rules)] {
            assert_eq!(r, PerEnd::default());
        }
        let mut idle = worked();
        idle.count = 0;
        assert_eq!(Costs::of(&cell("a"), &idle, None).cpu_per_unit(), None);
    }

    #[test]
    fn the_headline_is_the_middle_in_order_of_time_not_of_value() {
        // The largest and the smallest are kept if they ran in the middle.
        let mut trials: Vec<Trial> =
            [3, 100, 4, 1, 5].into_iter().map(|b| trial("a", 0, 8.0, b)).collect();
        for (order, t) in trials.iter_mut().enumerate() {
            t.order = 10 + order as u32;
        }
        trials.reverse();
        let all: Vec<&Trial> = trials.iter().collect();
        let h = headline(&all).unwrap();
        assert_eq!((h.mean, h.kept, h.of), (35.0 / 8.0, 3, 5));
        assert_eq!(headline(&all[1..]), None, "four are too few to drop two of");
    }

    #[test]
    fn an_exchange_costs_what_it_took() {
        // Half a CPU and a quarter for 25,000 exchanges in a second: 30 us each.
        let mut rr = worked();
        (rr.work, rr.count) = (Work::Exchanges, 25_000);
        let costs = [Costs::of(&cell("a"), &rr, None)];
        assert!((costs[0].cpu_per_unit().unwrap() - 30e-6).abs() < 1e-12);
        let answers = |costs: &Costs| [Metric::Cpu, Metric::Instructions].map(|q| costs.answer(q));
        assert_eq!(answers(&costs[0]), [costs[0].cpu_per_unit(), None]);
        // The same seconds, each 62.5 million instructions: 1875 per exchange.
        let [time, counted] = answers(&Costs::of(&cell("a"), &rr, Some(62.5e6)));
        assert!(time.is_none() && (counted.unwrap() - 1875.0).abs() < 1e-6, "{counted:?}");
        assert!((costs[0].joules_per_unit()[2].unwrap() - 4e-3).abs() < 1e-12);
        assert_eq!(service_demand(&costs, &Rules::default()), PerEnd::default());
    }
}
