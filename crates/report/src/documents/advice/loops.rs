//! Compares an observed server with a study of servers: other event loops for the same number of
//! connections and similar messages, next to the program's own loop.

use super::advise::{NEAR, Refusal, by_block, measured};
use super::server::Server;
use crate::wording::figures::{bytes, effect_text, microseconds, plural, rate};
use crate::wording::verdicts::sentence;
use bytepath_record::{Cell, Observation, Role, Study, Work, joined};
use bytepath_stats::{Analysis, Comparison, Costs, Effect, Metric, Rules, analyse_some};
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::BTreeSet;

/// A server with many connections, and other event loops for them.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct ServerAdvice {
    /// The bytepath path that waits for connections as the program does.
    pub path: String,
    /// Connections with messages in both directions.
    pub flows: usize,
    /// Average bytes of a request and of a response.
    pub sizes: [f64; 2],
    /// Number of requests answered.
    pub transactions: u64,
    /// CPU seconds per request, including everything else the program does; `None` if unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_per_transaction: Option<f64>,
    /// The cell of the study that represents the server.
    pub cell: String,
    /// Connections in that cell.
    pub cell_flows: u32,
    /// Average bytes of its requests and responses.
    pub cell_sizes: [f64; 2],
    /// Other loops, in the order of the study.
    pub loops: Vec<LoopAdvice>,
    /// Cells that cannot be compared.
    pub refused: Vec<Refusal>,
}

/// Another loop for the same connections, compared with the one that represents the program.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct LoopAdvice {
    /// The cell of the study that measured it.
    pub cell: String,
    pub path: String,
    /// Transactions per second, as means: of the program's loop, and of this one.
    pub rates: [f64; 2],
    /// The study's comparison of the rates.
    pub rate: Comparison,
    /// The study's comparison of CPU time, both ends together.
    pub cpu: Option<Comparison>,
    /// CPU seconds per transaction at the server, as means: of the program's loop, and of this one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_cpu: Option<[f64; 2]>,
    /// Ratio of these, block by block.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub server_effect: Option<Effect>,
    /// The comparison in sentences: the rate, the server's CPU time, and caveats.
    pub sentences: Vec<String>,
}

impl LoopAdvice {
    /// Returns whether the server's CPU time is less, with confidence for all rows together.
    fn saves_cpu(&self) -> bool {
        let interval = self.server_effect.as_ref().and_then(|effect| effect.interval);
        interval.is_some_and(|interval| interval.high < 1.0)
    }
}

impl ServerAdvice {
    /// Returns one sentence about which loop is better, and how.
    pub(super) fn first(&self) -> String {
        let faster = self.loops.iter().filter(|row| row.rate.verdict.better() == Some(true));
        let faster = faster.filter_map(|row| Some((row, 0, row.rate.effect.as_ref()?.ratio)));
        let cheaper = self.loops.iter().filter(|row| row.saves_cpu());
        let cheaper = cheaper.filter_map(|row| Some((row, 1, row.server_effect.as_ref()?.ratio)));
        let best = faster.max_by(|a, b| a.2.total_cmp(&b.2));
        match best.or_else(|| cheaper.min_by(|a, b| a.2.total_cmp(&b.2))) {
            Some((row, at, _)) => {
                format!("'{}' instead of '{}': {}", row.cell, self.cell, row.sentences[at])
            }
            None => format!(
                "The study shows no loop that serves as many connections at a higher rate than {}, or \
                 for less CPU time of the server.",
                self.path
            ),
        }
    }
}

/// Returns the loops of a study that can be compared with a server's; errors with the reason if
/// there are none.
pub(super) fn loops(
    observed: &Observation,
    study: &Study,
    server: &Server,
) -> Result<ServerAdvice, String> {
    let now = nearest(study, server)?;
    let others = |cell: &&Cell| is_same_task(now, cell) && !cell.null && cell.rx != now.rx;
    let others: Vec<&Cell> = study.header.cells.iter().filter(others).collect();
    if others.is_empty() {
        return Err(format!("the study has nothing else to compare '{}' with", now.id));
    }
    let analysis = against(study, now);
    let error = (1.0 - study.header.judgement.confidence) / others.len() as f64;
    let (mut rows, mut refused) = (Vec::new(), Vec::new());
    for cell in others {
        match row(study, &analysis, [now, cell], 1.0 - error) {
            Ok(row) => rows.push(row),
            Err(reason) => refused.push(Refusal { what: cell.id.0.clone(), reason }),
        }
    }
    if rows.is_empty() {
        let reasons =
            refused.into_iter().map(|refusal| format!("'{}': {}", refusal.what, refusal.reason));
        return Err(format!("nothing compares with '{}': {}", now.id, joined(reasons, "; ")));
    }
    let used = observed.used.map(|used| used.user + used.system);
    Ok(ServerAdvice {
        path: server.path.into(),
        flows: server.flows,
        sizes: server.sizes,
        transactions: server.exchanges,
        cpu_per_transaction: used.map(|used| used / server.exchanges.max(1) as f64),
        cell: now.id.0.clone(),
        cell_flows: now.stream.flows,
        cell_sizes: sizes(now),
        loops: rows,
        refused,
    })
}

/// Finds the cell that represents the program: same path, nearest in connections and sizes.
fn nearest<'a>(study: &'a Study, server: &Server) -> Result<&'a Cell, String> {
    let by = format!("requests and responses (workload rr) served by path '{}'", server.path);
    let serves = |cell: &&Cell| {
        let same = cell.workload.name == "rr" && !cell.null && cell.rx.path == server.path;
        same && measured(study, cell).next().is_some()
    };
    let cells: Vec<&Cell> = study.header.cells.iter().filter(serves).collect();
    if cells.is_empty() {
        return Err(format!("the study has no valid trial of {by}"));
    }
    let apart = |a: f64, b: f64| (a / b).ln().abs();
    let flows_apart = |cell: &Cell| apart(f64::from(cell.stream.flows), server.flows as f64);
    let sizes_apart = |cell: &Cell| {
        let of = sizes(cell);
        [0, 1].map(|at| apart(of[at], server.sizes[at]))
    };
    let listed = |texts: BTreeSet<String>| joined(texts, ", ");
    let near = |distance: f64| distance <= NEAR.ln();
    let (with_flows, others): (Vec<&Cell>, Vec<&Cell>) =
        cells.iter().partition(|cell| near(flows_apart(cell)));
    if with_flows.is_empty() {
        return Err(format!(
            "{} carried messages, and the study has measured {by} with {} only",
            plural(server.flows as u64, "connection"),
            listed(others.iter().map(|cell| cell.stream.flows.to_string()).collect())
        ));
    }
    let alike = with_flows.iter().copied().filter(|cell| sizes_apart(cell).into_iter().all(near));
    let order = |cell: &Cell| sizes_apart(cell).iter().sum::<f64>() + flows_apart(cell);
    let nearest = alike
        .min_by(|a, b| order(a).total_cmp(&order(b)).then_with(|| special(a).cmp(&special(b))));
    nearest.ok_or_else(|| {
        format!(
            "messages were {} on average, and the study has measured {by} with {} only",
            size_words(server.sizes),
            listed(with_flows.iter().map(|cell| size_words(sizes(cell))).collect())
        )
    })
}

/// Returns the distance of a cell from the plain one, which is preferred among equals: its clients
/// send a request as soon as each has its response, on every connection, and its loop has no
/// options. Non-default values are in a cell's name.
fn special(cell: &Cell) -> impl Ord + use<> {
    let options = &cell.workload.options;
    let is_timed =
        options.number("rate").is_some() || !["", "auto"].contains(&options.word("rate"));
    let pauses = ["think", "idle"].iter().any(|name| options.number(name).is_some_and(|n| n > 0));
    let is_other = is_timed || pauses || options.flag("incast");
    let named = cell.id.0.matches('=').count();
    (is_other, options.number("outstanding"), cell.rx.options.number("threads"), named)
}

/// Returns the average bytes of a cell's request and response.
fn sizes(cell: &Cell) -> [f64; 2] {
    ["request", "response"].map(|name| {
        let sizes = cell.workload.options.sizes(name);
        let sum = |of: fn(&(u64, u32)) -> f64| sizes.all().iter().map(of).sum::<f64>();
        sum(|(size, weight)| *size as f64 * f64::from(*weight)) / sum(|(_, n)| f64::from(*n))
    })
}

/// Formats `64 B a request and 1 KiB a response`.
pub(super) fn size_words([request, response]: [f64; 2]) -> String {
    format!("{} a request and {} a response", bytes(request.round()), bytes(response.round()))
}

/// Returns whether a cell differs from another at most in its paths.
fn is_same_task(now: &Cell, cell: &Cell) -> bool {
    (&cell.workload, &cell.stream, &cell.link, cell.placement, &cell.kernel, &cell.settings)
        == (&now.workload, &now.stream, &now.link, now.placement, &now.kernel, &now.settings)
}

/// Analyses the cells with the same task, with the program's cell as the baseline.
fn against(study: &Study, now: &Cell) -> Analysis {
    let mut study = study.clone();
    study.header.baseline = now.id.clone();
    analyse_some(&study, &Rules::of(&study.header), |cell| is_same_task(now, cell))
}

fn row(
    study: &Study,
    analysis: &Analysis,
    [now, cell]: [&Cell; 2],
    confidence: f64,
) -> Result<LoopAdvice, String> {
    let of = |cell: &Cell| analysis.rows.iter().find(|row| row.cell == cell.id);
    let (before, after) = of(now).zip(of(cell)).ok_or("no trial of it was measured")?;
    let rates = before.rate.zip(after.rate).ok_or("no trial of it was measured")?;
    let comparison = after.comparison(Metric::Rate).ok_or("no trial of it was measured")?;
    let cpu = after.comparison(Metric::Cpu).cloned();
    let [mine, others] = [now, cell].map(|cell| by_block(study, cell));
    let pairs = mine.iter().filter_map(|(block, costs)| Some((costs, others.get(block)?)));
    let pairs: Vec<(&Costs, &Costs)> = pairs.collect();
    let alike = pairs.iter().all(|(a, b)| a.rules() == b.rules());
    let server = |costs: &Costs| costs.role_per_unit(Role::Receiver);
    let pairs: Vec<(f64, f64)> =
        pairs.iter().filter_map(|(a, b)| Some((server(a)?, server(b)?))).collect();
    let effect = Effect::of(&pairs, confidence).filter(|_| alike);
    let mean = |of: fn(&(f64, f64)) -> f64| pairs.iter().map(of).sum::<f64>() / pairs.len() as f64;
    let means = effect.as_ref().map(|_| [mean(|pair| pair.0), mean(|pair| pair.1)]);
    let unit = Work::Exchanges.terms().rate_unit;
    let [new, old] = [rates.1, rates.0].map(|summary| rate(Work::Exchanges, summary.mean));
    let mut sentences = vec![
        format!("{new} {unit} and not {old}: {}.", sentence(comparison, analysis)),
        server_sentence(effect.as_ref().zip(means)),
    ];
    sentences
        .extend(cpu.as_ref().map(|cpu| format!("CPU of both ends: {}.", sentence(cpu, analysis))));
    if now.tx != cell.tx {
        let [old, new] = [now, cell].map(|cell| &cell.tx.path);
        sentences.push(format!("The client differed, too: '{old}' and '{new}'."));
    }
    Ok(LoopAdvice {
        cell: cell.id.0.clone(),
        path: cell.rx.path.clone(),
        rates: [rates.0.mean, rates.1.mean],
        rate: comparison.clone(),
        cpu,
        server_cpu: means,
        server_effect: effect,
        sentences,
    })
}

fn server_sentence(measured: Option<(&Effect, [f64; 2])>) -> String {
    let Some((effect, [old, new])) = measured else {
        return "CPU of the server: no block has it of both, by one rule.".into();
    };
    format!(
        "CPU of the server: {} us per transaction and not {}, {}.",
        microseconds(new),
        microseconds(old),
        effect_text(Some(effect))
    )
}
