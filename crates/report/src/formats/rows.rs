//! The long table: one row per trial and value. Columns are named only in [`COLUMNS`].

use super::table::{Kind, Record, Value, finite, moment, text, whole};
use bytepath_record::{
    Cell, Evidence, FragmentCounts, Hops, Percentile, ProvenWitness, Reading, Role, RoleRecord,
    Scope, Series, Work, joined,
};
use bytepath_record::{Study, StudyHeader, Trial, Unit};
use bytepath_stats::{self as stats, Costs, GuestCpu, Rules, role_cpu, why_not_measured};
use std::borrow::Cow;

/// A column of the long table.
struct Column {
    name: &'static str,
    kind: Kind,
    /// Value in a row.
    of: for<'a> fn(&'a Row<'a>) -> Value<'a>,
}

/// A row: a value and what it belongs to.
#[derive(Clone, Debug)]
pub(crate) struct Row<'a> {
    header: &'a StudyHeader,
    /// `None` if the trial's cell is not in the study's header.
    cell: Option<&'a Cell>,
    trial: &'a Trial,
    metric: Cow<'a, str>,
    unit: &'static str,
    scope: &'static str,
    role: Option<Role>,
    id: Option<u32>,
    item: Option<&'a str>,
    at: Option<f64>,
    value: Option<f64>,
}

/// Every column, in order. New ones are appended; within a major version none is renamed or changes
/// its meaning.
static COLUMNS: &[Column] = &[
    column("study_started", Kind::Moment, |r| moment(r.header.started_ms)),
    column("kernel", Kind::Text, |r| text(r.header.facts.first().map(|f| &*f.kernel_release))),
    column("cell", Kind::Text, |r| text(&*r.trial.cell.0)),
    column("tx", Kind::Text, |r| text(r.cell.map(|c| &*c.tx.path))),
    column("rx", Kind::Text, |r| text(r.cell.map(|c| &*c.rx.path))),
    column("levels", Kind::Text, |r| levels(r.cell)),
    column("baseline", Kind::Flag, |r| Value::Flag(r.trial.cell == r.header.baseline)),
    column("null_cell", Kind::Flag, |r| Value::Flag(r.cell.is_some_and(|c| c.null))),
    column("block", Kind::Whole, |r| from_one(r.trial.block)),
    column("trial", Kind::Whole, |r| from_one(r.trial.order)),
    column("trial_started", Kind::Moment, |r| moment(r.trial.started_ms)),
    column("status", Kind::Text, |r| text(status(r.trial))),
    column("reason", Kind::Text, |r| {
        why_not_measured(r.trial).map_or(Value::None, |reason| Value::Text(reason.into()))
    }),
    column("label", Kind::Text, |r| text(&*r.trial.label)),
    column("metric", Kind::Text, |r| Value::Text(r.metric.clone())),
    column("unit", Kind::Text, |r| text(r.unit)),
    column("scope", Kind::Text, |r| text(r.scope)),
    column("role", Kind::Text, |r| {
        r.role.map_or(Value::None, |role| Value::Text(role.to_string().into()))
    }),
    column("id", Kind::Whole, |r| whole(r.id)),
    column("item", Kind::Text, |r| text(r.item)),
    column("at", Kind::Number, |r| finite(r.at)),
    column("value", Kind::Number, |r| finite(r.value)),
    column("pair", Kind::Text, |r| text(r.trial.pair.as_deref())),
];

const fn column(
    name: &'static str,
    kind: Kind,
    of: for<'a> fn(&'a Row<'a>) -> Value<'a>,
) -> Column {
    Column { name, kind, of }
}

impl Record for Row<'_> {
    fn columns() -> Vec<(Cow<'static, str>, Kind)> {
        COLUMNS.iter().map(|column| (column.name.into(), column.kind)).collect()
    }

    fn value(&self, column: usize) -> Value<'_> {
        (COLUMNS[column].of)(self)
    }
}

/// Returns the rows of one trial. The first is its rate (for bytes: `throughput`), without a value
/// if the trial was not measured, so every trial has a row.
pub(crate) fn rows<'a>(study: &'a Study, trial: &'a Trial) -> Vec<Row<'a>> {
    let header = &study.header;
    let cell = header.cells.iter().find(|c| c.id == trial.cell);
    let mut rows = Rows { header, cell, trial, rows: Vec::new() };
    rows.of_trial();
    rows.of_costs();
    for record in &trial.roles {
        rows.of_role(record);
    }
    for reading in &trial.readings {
        rows.of_reading(reading);
    }
    for series in &trial.series {
        rows.of_series(series);
    }
    rows.rows
}

/// Returns the outcome of a trial, as one word.
pub(crate) fn status(trial: &Trial) -> &'static str {
    (&trial.status).into()
}

/// Returns the symbol of a unit in the column `unit`.
pub(crate) fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Seconds => "s",
        Unit::Bytes => "B",
        Unit::BytesPerSecond => "B/s",
        Unit::PerSecond => "1/s",
        Unit::Count => "1",
        Unit::Ratio => "ratio",
        Unit::Joules => "J",
        Unit::Watts => "W",
        Unit::Hertz => "Hz",
    }
}

/// What a value belongs to: scope, role, id, item.
type Place<'a> = (&'static str, Option<Role>, Option<u32>, Option<&'a str>);

/// Collects the rows of a trial.
struct Rows<'a> {
    header: &'a StudyHeader,
    cell: Option<&'a Cell>,
    trial: &'a Trial,
    rows: Vec<Row<'a>>,
}

impl<'a> Rows<'a> {
    fn push(
        &mut self,
        metric: impl Into<Cow<'a, str>>,
        unit: &'static str,
        (scope, role, id, item): Place<'a>,
        value: impl Into<Option<f64>>,
    ) {
        let (header, cell, trial) = (self.header, self.cell, self.trial);
        let (metric, value) = (metric.into(), value.into());
        let row = Row { header, cell, trial, metric, unit, scope, role, id, item, at: None, value };
        self.rows.push(row);
    }

    /// Adds the values that are not `None`.
    fn push_known<const N: usize>(
        &mut self,
        unit: &'static str,
        place: Place<'a>,
        values: [(&'static str, Option<f64>); N],
    ) {
        let known = values.into_iter().filter(|(_, value)| value.is_some());
        known.for_each(|(metric, value)| self.push(metric, unit, place, value));
    }

    fn of_trial(&mut self) {
        const TRIAL: Place = ("trial", None, None, None);
        let trial = self.trial;
        let terms = trial.work.terms();
        let rate = trial.rate().map(|rate| rate * terms.plain_scale);
        self.push(terms.metric, terms.plain_unit, TRIAL, rate);
        if trial.rate().is_none() {
            return;
        }
        self.push("window", "s", TRIAL, trial.window);
        let (metric, unit) = counted(trial.work, ["window.bytes", "window.count"]);
        self.push(metric, unit, TRIAL, trial.count as f64);
        if let Some(hops) = &trial.hops {
            self.of_hops(hops, TRIAL);
        }
        for (metric, value) in stats::sink(trial) {
            self.push(metric, "1", ("role", Some(Role::Receiver), None, None), value);
        }
        if let Some(offered) = trial.offered {
            self.push("window.offered", "1/s", TRIAL, offered);
        }
        let Some(latency) = &trial.latency else { return };
        self.push("latency.count", "1", TRIAL, latency.count() as f64);
        if latency.unanswered() > 0 {
            self.push("latency.unanswered", "1", TRIAL, latency.unanswered() as f64);
        }
        self.push("latency.mean", "s", TRIAL, latency.mean());
        self.push("latency.max", "s", TRIAL, latency.max());
        for percentile in Percentile::ALL {
            let metric = format!("latency.{}", percentile.name());
            self.push(metric, "s", TRIAL, latency.percentile(percentile));
        }
    }

    /// Adds frames by the hop at which they were last seen, over the whole trial.
    fn of_hops(&mut self, hops: &Hops, place: Place<'a>) {
        let counts = [
            ("hops.generated", hops.generated()),
            ("hops.turned_back", hops.returned()),
            ("hops.sent", hops.sent()),
            ("hops.dropped.qdisc", hops.qdisc_dropped),
            ("hops.dropped.device", hops.device_dropped),
            ("hops.dropped.wire", hops.wire_dropped),
            ("hops.dropped.arrival", hops.arrival_dropped),
            ("hops.dropped.sink", hops.sink_dropped),
            ("hops.queued.qdisc", hops.qdisc_queued),
            ("hops.queued.ring", hops.ring_queued),
            ("hops.received", hops.received),
            ("hops.strays", hops.strays),
        ];
        counts.into_iter().for_each(|(metric, count)| self.push(metric, "1", place, count as f64));
    }

    /// Adds CPU time and energy per unit of work, for each end and for both together.
    fn of_costs(&mut self) {
        let Some(cell) = self.cell.filter(|_| self.trial.rate().is_some()) else { return };
        let costs = Costs::of(cell, self.trial, None);
        let (cpu, cpu_unit) = match self.trial.work {
            Work::Bytes => ("cpu_per_gib", "s/GiB"),
            Work::Exchanges => ("cpu_per_transaction", "s"),
            Work::Packets => ("cpu_per_packet", "s"),
        };
        let [tx, rx] = Role::ALL.map(|role| costs.role_per_unit(role));
        let cpus = [tx, rx, costs.cpu_per_unit()];
        let cpus = if self.header.functional.is_some() { [None; 3] } else { cpus };
        let returns = match self.header.functional {
            None => costs.roi_power(&Rules::of(self.header)),
            Some(_) => [None; 3],
        };
        for (metric, unit, values) in [
            (cpu, cpu_unit, cpus),
            ("energy.watts", "W", costs.watts),
            ("energy.joules_per_unit", "J", costs.joules_per_unit()),
            ("energy.roi", "1", returns),
        ] {
            let roles = [Some(Role::Sender), Some(Role::Receiver), None];
            for (role, value) in roles.into_iter().zip(values) {
                let scope = if role.is_some() { "role" } else { "trial" };
                self.push_known(unit, (scope, role, None, None), [(metric, value)]);
            }
        }
    }

    fn of_role(&mut self, record: &'a RoleRecord) {
        let role = record.role;
        let here: Place = ("role", Some(role), None, None);
        self.push("role.window", "s", here, record.window);
        let (metric, unit) = counted(self.trial.work, ["role.window.bytes", "role.window.count"]);
        self.push(metric, unit, here, record.count as f64);
        self.push("role.total.bytes", "B", here, record.total_bytes as f64);
        if let Some(cpu) = self.cell.and_then(|cell| role_cpu(cell, self.trial, role)) {
            let values = [
                ("role.cpu.total", Some(cpu.total)),
                ("role.cpu.user", Some(cpu.user)),
                ("role.cpu.system", Some(cpu.system)),
                ("role.cpu.softirq", Some(cpu.softirq)),
                ("role.cpu.unsplit", Some(cpu.unsplit)),
                ("role.cpu.iowait", cpu.iowait),
            ];
            self.push_known("s/s", here, values);
        }
        if let Some(guest) = GuestCpu::of(self.trial, role) {
            let values = [
                ("role.guest.total", guest.total()),
                ("role.guest.vcpu", guest.vcpu),
                ("role.guest.qemu", guest.qemu),
                ("role.guest.vhost", guest.vhost),
            ];
            values.into_iter().for_each(|(metric, value)| self.push(metric, "s/s", here, value));
        }
        self.of_ledger(record, here);
        let sizes = &record.sizes;
        if sizes.count > 0 {
            self.push("size.count", "1", here, sizes.count as f64);
            self.push("size.min", "B", here, sizes.min as f64);
            self.push("size.mean", "B", here, sizes.mean);
            self.push("size.max", "B", here, sizes.max as f64);
            for (percentile, bytes) in &sizes.percentiles {
                self.push(format!("size.p{percentile}"), "B", here, *bytes as f64);
            }
        }
        if let Some(fragments) = &record.fragments {
            self.of_fragments(fragments, here);
        }
        for call in &record.calls {
            let place: Place = ("call", Some(role), None, Some(&call.name));
            self.push("call.calls", "1", place, call.calls as f64);
            self.push("call.errors", "1", place, call.errors as f64);
            self.push("call.bytes", "B", place, call.bytes as f64);
            self.push("call.total", "s", place, call.total);
            self.push("call.min", "s", place, call.min);
            self.push("call.avg", "s", place, call.avg);
            self.push("call.max", "s", place, call.max);
            self.push("call.stddev", "%", place, call.stddev_percent);
        }
        for thread in &record.threads {
            let place: Place = ("thread", Some(role), Some(thread.tid), Some(&thread.name));
            self.push("thread.run", "s", place, thread.run);
            self.push("thread.wait", "s", place, thread.wait);
            self.push("thread.user", "s", place, thread.user);
            self.push("thread.system", "s", place, thread.system);
            self.push("thread.voluntary", "1", place, thread.voluntary as f64);
            self.push("thread.involuntary", "1", place, thread.involuntary as f64);
        }
    }

    fn of_fragments(&mut self, counts: &FragmentCounts, here: Place<'a>) {
        let figures = [
            ("fragments.calls", counts.calls),
            ("fragments.count", counts.fragments),
            ("fragments.min", counts.min),
            ("fragments.max", counts.max),
            ("fragments.calls.above_1024", counts.above_1024),
            ("fragments.calls.from_512_to_1024", counts.from_512_to_1024),
            ("fragments.calls.below_512", counts.below_512),
            ("fragments.calls.gathered_above_1024", counts.gathered_above_1024),
            ("fragments.frees_avoided", counts.frees_avoided),
        ];
        figures.into_iter().for_each(|(metric, count)| self.push(metric, "1", here, count as f64));
        let shares = [
            ("fragments.average", counts.average()),
            ("fragments.share.above_1024", counts.above_share()),
            ("fragments.share.above_1024_of_gathered", counts.above_share_of_gathered()),
            ("fragments.share.below_512", counts.below_share()),
        ];
        self.push_known("1", here, shares);
    }

    fn of_ledger(&mut self, record: &'a RoleRecord, here: Place<'a>) {
        let ledger = &record.ledger;
        self.push("ledger.delivered", "B", here, ledger.delivered as f64);
        self.push("ledger.copied", "B", here, ledger.copied as f64);
        self.push("ledger.not_copied", "B", here, ledger.not_copied as f64);
        self.push("ledger.discarded", "B", here, ledger.discarded as f64);
        self.push("ledger.unknown", "B", here, ledger.unknown as f64);
        if let Some(witness) = record.witness {
            let shared = f64::from(witness == ProvenWitness::Shared);
            self.push("witness.shared", "1", here, shared);
        }
        for Evidence { manner, bytes, events, source, .. } in &ledger.evidence {
            let place: Place = ("evidence", Some(record.role), None, Some(source));
            let manner = manner.words().replace(' ', "_");
            self.push(format!("evidence.{manner}.bytes"), "B", place, *bytes as f64);
            self.push(format!("evidence.{manner}.events"), "1", place, *events as f64);
        }
    }

    fn of_reading(&mut self, r: &'a Reading) {
        let terms = self.trial.work.terms();
        match &*r.metric {
            "throughput.flow" => {
                let [metric, _] = flow_rates(self.trial.work);
                self.push(metric, terms.plain_unit, place(&r.scope), r.value * terms.plain_scale);
            }
            metric => self.push(metric, unit(r.unit), place(&r.scope), r.value),
        }
    }

    fn of_series(&mut self, series: &'a Series) {
        let terms = self.trial.work.terms();
        let (metric, unit, scale) = match &*series.metric {
            "throughput" => {
                let [_, metric] = flow_rates(self.trial.work);
                (metric, terms.plain_unit, terms.plain_scale)
            }
            metric => (metric, unit(series.unit), 1.0),
        };
        for (step, value) in series.values.iter().enumerate() {
            self.push(metric, unit, place(&series.scope), *value * scale);
            // Rounded to microseconds: three steps of 0.1 s are 0.3 s.
            let at = (step as f64 * series.step * 1e6).round() / 1e6;
            if let Some(row) = self.rows.last_mut() {
                row.at = Some(at);
            }
        }
    }
}

/// Returns the metric names of a connection's rate, over the window and step by step. The unit of
/// the meter `throughput` depends on the kind of work, and its own name is used by the trial's
/// rate.
fn flow_rates(work: Work) -> [&'static str; 2] {
    match work {
        Work::Bytes => ["flow.throughput", "flow.throughput.step"],
        Work::Exchanges => ["flow.transactions", "flow.transactions.step"],
        Work::Packets => ["flow.packets", "flow.packets.step"],
    }
}

/// Returns the metric and unit of a count by kind of work: bytes have names of their own.
fn counted(work: Work, [bytes, other]: [&'static str; 2]) -> (&'static str, &'static str) {
    if work == Work::Bytes { (bytes, "B") } else { (other, "1") }
}

fn place(scope: &Scope) -> Place<'_> {
    match scope {
        Scope::Machine => ("machine", None, None, None),
        Scope::Cpu(cpu) => ("cpu", None, Some(*cpu), None),
        Scope::MachineOf(role) => ("machine", Some(*role), None, None),
        Scope::CpuOf(role, cpu) => ("cpu", Some(*role), Some(*cpu), None),
        Scope::Role(role) => ("role", Some(*role), None, None),
        Scope::Flow(role, flow) => ("flow", Some(*role), Some(*flow), None),
        Scope::Link(role, device) => ("link", Some(*role), None, Some(device)),
        Scope::Function(name) => ("function", None, None, Some(name)),
        Scope::FunctionOf(role, name) => ("function", Some(*role), None, Some(name)),
        Scope::Threads(role, group) => ("threads", Some(*role), None, Some(group)),
    }
}

/// Returns the levels of a cell's factors: `mtu=9000;path=socket`.
pub(super) fn levels<'a>(cell: Option<&Cell>) -> Value<'a> {
    let levels = cell.map(|c| &c.levels).filter(|l| !l.is_empty());
    levels.map_or(Value::None, |levels| {
        Value::Text(joined(levels.iter().map(|(k, v)| format!("{k}={v}")), ";").into())
    })
}

/// Converts a zero-based number of the records to one-based.
fn from_one<'a>(number: u32) -> Value<'a> {
    Value::Whole(i64::from(number) + 1)
}
