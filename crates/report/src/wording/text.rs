//! The sentences of a study's report: the answer, the evidence, what did not run, and warnings.

use super::figures::{
    self, NONE, amount, bytes, figure, number, percent, plural, ratio, ratio_text, unit,
};
use super::verdicts::superlative;
use bytepath_record::{Evidence, Manner, Percentile, Role, grouped, joined};
use bytepath_stats::{
    Analysis, Comparison, CountedText, CpuRule, End, Failure, Metric, ReceiveWork, Row, Verdict,
    rejections,
};
use std::fmt::Display;

/// Parts above these get a sentence.
const NOTABLE_OTHER: f64 = 0.05;
const NOTABLE_IOWAIT: f64 = 0.01;

/// Returns lines that name the cells with the best mean among those that do the baseline's work: in
/// rate, cost, and the tail of the latency; or in instructions alone if no speed was measured. The
/// best mean is not necessarily shown to be better; that is what the verdict next to it states.
fn leaders(analysis: &Analysis) -> Vec<(String, String)> {
    let work = analysis.work();
    let rows = || analysis.rows.iter().filter(|r| r.status.measured > 0 && r.work == work);
    let leader = |question: Metric| {
        let mean = |row: &Row| mean(analysis, row, question);
        let (row, best) = question.best(rows().filter_map(|row| Some((row, mean(row)?))))?;
        let is_cost = matches!(question, Metric::Cpu | Metric::Instructions);
        let ends = if is_cost { ", both ends" } else { "" };
        let best = format!("{} {}{ends}", figure(question, work, best), unit(question, work));
        if question == Metric::Rate {
            let text = format!("{}: {best}{}", row.cell, standing(row, analysis));
            return Some(("highest".to_owned(), text));
        }
        let base = rows().find(|r| r.baseline && !row.baseline).and_then(mean);
        let base = base.map(|base| figure(question, work, base));
        let than = base.map(|base| format!(" ({} {base})", analysis.baseline)).unwrap_or_default();
        let word = row.comparison(question).map(|c| format!(": {}", c.verdict.word()));
        let text = format!("{}: {best}{than}{}", row.cell, word.unwrap_or_default());
        Some((superlative(question, work), text))
    };
    if analysis.functional.is_some() {
        return leader(Metric::Instructions).into_iter().collect();
    }
    let tail = [Metric::Latency(Percentile::P99), Metric::Latency(Percentile::P50)];
    let [rate, cpu] = [Metric::Rate, Metric::Cpu].map(leader);
    [rate, cpu, tail.into_iter().find_map(leader)].into_iter().flatten().collect()
}

/// Returns the mean of a row in one metric; for a percentile, that of all trials together.
pub(crate) fn mean(analysis: &Analysis, row: &Row, question: Metric) -> Option<f64> {
    let cpu = row.cpu_per_unit.map(|s| s.mean);
    match question {
        Metric::Rate => row.rate.map(|s| s.mean),
        Metric::Cpu => cpu,
        Metric::Instructions => Some(cpu? * analysis.instructions_per_second?),
        Metric::Latency(p) => row.latency.as_ref()?.percentile(p).map(|p| p.pooled),
    }
}

/// Returns the answer in a few lines, each with a lead.
pub(crate) fn answer(analysis: &Analysis) -> Vec<(String, String)> {
    let leaders = leaders(analysis);
    let functional = functional(analysis);
    let opening = functional.or_else(|| leaders.is_empty().then(|| nothing(analysis)));
    opening.map(|text| (String::new(), text)).into_iter().chain(leaders).collect()
}

/// Returns the text if nothing was measured: the reason, and a remedy.
pub(crate) fn nothing(analysis: &Analysis) -> String {
    let rejected: Vec<&String> = all(analysis).flat_map(|row| &row.status.rejected).collect();
    let failed: u32 = all(analysis).map(|row| row.status.failures()).sum();
    let ended: u32 = all(analysis).map(|row| row.status.ended()).sum();
    let mut text = "No trial was measured, so there is nothing to compare".to_owned();
    let mut reason = |count: u64, what: &str, first: &dyn Display| {
        let joint = if text.contains(':') { ';' } else { ':' };
        text += &format!(
            "{joint} {count} of {} {what}, the first because {first}",
            plural(ended.into(), "trial")
        );
    };
    if let Some(first) = rejected.first() {
        reason(rejected.len() as u64, "rejected", first);
    }
    if let Some(first) = all(analysis).flat_map(|row| &row.status.failed).next() {
        reason(u64::from(failed), "failed", &first.fault);
    }
    text.push('.');
    if !rejected.is_empty() {
        text += " Trials are rejected for interference: stop other work on these CPUs and run \
                 them again, or leave --strict out, and such trials count with a mark; `bytepath \
                 doctor` lists what else disturbs measurements on this host.";
    }
    text
}

/// Returns how often trials that count were disturbed; `None` if none was.
pub(crate) fn busy(analysis: &Analysis) -> Option<String> {
    let disturbed: Vec<&String> = all(analysis).flat_map(|row| &row.status.disturbed).collect();
    let measured: u32 = all(analysis).map(|row| row.status.measured).sum();
    let first = disturbed.first()?;
    Some(format!(
        "~ {} of {} were disturbed, the first: {first}. These figures are of a busy machine, and an \
         idle one may order the cells differently; --wait-idle waits for one, --strict counts only \
         what nothing disturbed.",
        disturbed.len(),
        plural(measured.into(), "trial")
    ))
}

/// Like [`busy`], in one sentence.
pub(crate) fn briefly_busy(analysis: &Analysis) -> Option<String> {
    let disturbed: Vec<&String> = all(analysis).flat_map(|row| &row.status.disturbed).collect();
    let measured: u32 = all(analysis).map(|row| row.status.measured).sum();
    let by = disturbed.first()?.rsplit_once("mostly ").map(|(_, programs)| programs);
    let by = by.map(|programs| format!(", mostly by {programs}")).unwrap_or_default();
    Some(format!(
        "~ {} of {} were disturbed{by}: figures of a busy machine (--wait-idle, --strict).",
        disturbed.len(),
        plural(measured.into(), "trial")
    ))
}

/// Returns what a study without speeds shows; `None` if it measured speed.
pub(crate) fn functional(analysis: &Analysis) -> Option<String> {
    let because = analysis.functional.as_ref()?;
    let worked = analysis.rows.iter().filter(|row| row.status.measured > 0).count();
    let cells = plural(analysis.rows.len() as u64, "cell");
    Some(match analysis.instructions_per_second {
        None => format!(
            "Functional, not performance: {because}. {worked} of {cells} ran; what was copied and \
             what arrived is the same as on any machine, but no figure here shows how fast anything is."
        ),
        Some(_) => format!(
            "Instructions, not time: {because}. {worked} of {cells} ran. Costs are counts of the \
             instructions that ran: they include no cache and no branch predictor, and \
             the kernel chose its routines, including those that copy, for the emulated processor. \
             No figure here shows how fast anything is."
        ),
    })
}

/// Returns a row's label and its comparison with the baseline.
fn standing(row: &Row, analysis: &Analysis) -> String {
    let label = format!(", {}", labels(&row.labels));
    match row.comparison(Metric::Rate) {
        Some(Comparison { verdict: Verdict::NotComparable, .. }) => {
            format!("{label}; {} with {}", Verdict::NotComparable.word(), analysis.baseline)
        }
        Some(Comparison { effect: Some(e), verdict, .. }) => {
            format!("{label}; {} {}: {}", ratio(e.ratio), analysis.baseline, verdict.word())
        }
        _ if row.baseline => format!("{label}; the baseline"),
        _ => label,
    }
}

/// Returns the label, or all labels with their counts if trials disagree.
pub(crate) fn labels(labels: &[CountedText]) -> String {
    match labels {
        [] => NONE.into(),
        [one] => one.text.clone(),
        many => {
            let each = many.iter().map(|l| format!("{}x {}", l.count, l.text));
            format!("trials disagree: {}", joined(each, "; "))
        }
    }
}

/// Returns the label of a row, with a mark if [`on_a_wire`] has a remark on it.
pub(crate) fn label(row: &Row) -> String {
    let sign = if was_copied_on_the_way(row) { " (*)" } else { "" };
    format!("{}{sign}", labels(&row.labels))
}

/// Returns what would be different on a wire, for the rows with that mark.
pub(crate) fn on_a_wire(analysis: &Analysis) -> Option<String> {
    analysis.rows.iter().any(was_copied_on_the_way).then(|| {
        "(*) Within one machine (veth, lo) the kernel copies zero-copy pages when it delivers them; a \
         NIC reads them in place. With a NIC, expect more throughput and a cheaper send."
            .into()
    })
}

/// Returns whether bytes that were sent by reference were copied between sockets of one machine
/// (`skb_orphan_frags_rx` in include/linux/skbuff.h). Between two machines there is no witness
/// page.
fn was_copied_on_the_way(row: &Row) -> bool {
    if row.sender.witness.copied == 0 {
        return false;
    }
    let evidence = row.sender.ledger.iter().flat_map(|ledger| &ledger.evidence);
    evidence.into_iter().any(Evidence::was_copied_on_the_way)
}

/// Returns how CPU time was attributed to the roles, and what it does not include.
pub(crate) fn cpu_rule(analysis: &Analysis) -> String {
    let ends = || analysis.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    let rules = || ends().filter_map(|(_, e)| e.cpu.as_ref().map(|cpu| (cpu.rule, cpu.exact)));
    let whole = |is_exact| {
        rules().any(|(rule, exact)| matches!(rule, CpuRule::WholeCpu(_)) && exact == is_exact)
    };
    let by_threads = rules().any(|(rule, _)| rule == CpuRule::Threads);
    let sentences = [
        whole(true).then_some(
            "CPU, exact: threads and io_uring workers of the role, softirqs and interrupts of its \
             own CPU; iowait counts as idle, other processes are excluded.",
        ),
        whole(false).then_some(
            "CPU: busy time of the role's own CPU, split by ticks; iowait counts as idle.",
        ),
        by_threads.then_some(
            "CPU: run time of the role's threads; softirq that interrupts them is in sys, \
             softirq on an idle CPU is not seen.",
        ),
    ];
    let has_guest = ends().any(|(_, end)| end.guest.is_some());
    let guest = has_guest.then_some(
        "Both ends: of the one in a guest what this took of its host, by the host's clock (vCPUs, qemu, \
         vhost); the end by itself is as the guest counts it.",
    );
    let sentences = sentences.into_iter().chain([guest]);
    let mut parts: Vec<String> = sentences.flatten().map(str::to_owned).collect();
    let notable = |part: fn(&End) -> Option<f64>, above: f64| -> Vec<String> {
        let name = |(row, end): (&Row, &End)| {
            let part = part(end).filter(|p| *p > above)?;
            Some(format!("{} {} {}", row.cell, row.work.actor(end.role), percent(part)))
        };
        ends().filter_map(name).collect()
    };
    let other = notable(|e| Some(e.cpu.as_ref()?.other), NOTABLE_OTHER);
    if !other.is_empty() {
        parts.push(format!(
            "Not by the role's own threads (interrupts on an idle CPU, or other tasks): {}.",
            other.join(", ")
        ));
    }
    let iowait = notable(|e| e.cpu.as_ref()?.iowait, NOTABLE_IOWAIT);
    if !iowait.is_empty() {
        parts.push(format!("iowait, in no total: {}.", iowait.join(", ")));
    }
    parts.join(" ")
}

/// Returns the terms of the return on investment.
pub(crate) fn terms(analysis: &Analysis) -> String {
    let rules = &analysis.rules;
    let exponent = |e: f64| number(e, 1).trim_end_matches(".0").to_owned();
    let rate = analysis.work().terms().rate_unit;
    let mut text = format!("T: {rate}, C: CPUs used, n = {}", exponent(rules.roi_throughput));
    if powered(analysis) {
        text += &format!(", P: watts, m = {}", exponent(rules.roi_power));
    }
    text
}

/// Returns whether a meter reported power.
pub(crate) fn powered(analysis: &Analysis) -> bool {
    analysis.rows.iter().any(|row| row.energy().is_some())
}

/// Returns the meaning of "middle"; `None` if no row has such a figure.
pub(crate) fn middle_rule(analysis: &Analysis) -> Option<String> {
    let headlines: Vec<_> = analysis.rows.iter().filter_map(|row| row.headline).collect();
    let most = headlines.iter().max_by_key(|h| h.of)?;
    let fewer = headlines.iter().any(|h| h.of != most.of);
    Some(format!(
        "middle: mean {} of the middle {} of {}{}, in order of time, as in published \
         work; no verdict rests on it.",
        analysis.work().terms().rate_unit,
        most.kept,
        plural(most.of.into(), "trial"),
        if fewer { " (fewer where trials are missing)" } else { "" },
    ))
}

/// Returns the evidence summary for one endpoint.
pub(crate) fn evidence(end: &End) -> String {
    let Some(ledger) = &end.ledger else { return "kept no ledger".into() };
    let manners = [Manner::NotCopied, Manner::Copied, Manner::Discarded, Manner::Unknown];
    let part = |manner: Manner| {
        let share = Some(ledger.part(manner)).filter(|share| *share > 0.0)?;
        let sources = joined(ledger.evidence_of(manner).into_iter().map(source), ", ");
        let by = if sources.is_empty() { "no evidence" } else { &sources };
        Some(format!("{} {} ({by})", percent(share), manner.words()))
    };
    let witness = match (end.witness.shared, end.witness.copied) {
        (0, 0) => String::new(),
        (_, 0) => ", witness page shared".into(),
        (0, _) => ", witness page copied".into(),
        (s, c) => format!(", witness page shared in {s}, copied in {c} trials"),
    };
    joined(manners.into_iter().filter_map(part), ", ") + &witness
}

fn source(e: &Evidence) -> String {
    if e.events == 0 {
        return e.source.clone();
    }
    format!("{}: {}, {} events", e.source, bytes(e.bytes as f64), amount(e.events as f64))
}

/// A cell, or some of its trials, without a figure: the reason, and a remedy, which may be empty.
type Unmeasured<'a> = (&'a Row, String, &'a str);

/// Returns the cells that cannot run on this host.
pub(crate) fn unavailable(analysis: &Analysis) -> Vec<Unmeasured<'_>> {
    let rows = all(analysis).filter_map(|row| Some((row, row.status.unavailable.as_ref()?)));
    rows.map(|(row, (reason, remedy))| (row, reason.clone(), remedy.as_str())).collect()
}

/// Returns the trials that failed, or that an event invalidated: none of them counts.
pub(crate) fn not_counted(analysis: &Analysis) -> Vec<Unmeasured<'_>> {
    let trials = all(analysis).flat_map(|row| {
        let of = row.status.ended();
        let failed = row.status.failed.iter().map(move |Failure { fault, count }| {
            let reason = format!("{count} of {of}: {}", fault.message);
            (row, reason, fault.remedy.as_deref().unwrap_or(""))
        });
        let rejected = rejections(&row.status.rejected, of as usize).into_iter();
        let ran = row.status.rejected_rate.map_or_else(String::new, |rate| {
            format!(
                "; they ran at {} {}",
                figures::rate(row.work, rate),
                row.work.terms().rate_unit
            )
        });
        failed.chain(rejected.map(move |reason| (row, reason + &ran, "")))
    });
    trials.collect()
}

/// Returns the cells without any trial.
pub(crate) fn never_run(analysis: &Analysis) -> Vec<String> {
    all(analysis).filter(|r| r.status.never_run()).map(|r| r.cell.to_string()).collect()
}

fn all(analysis: &Analysis) -> impl Iterator<Item = &Row> {
    analysis.rows.iter().chain(&analysis.null)
}

/// Returns which profiles a study has, and what sampling cost in throughput.
pub(crate) fn profiles(analysis: &Analysis) -> Option<String> {
    let note = analysis.profiling.as_ref()?;
    let mut text = match note.trials {
        0 => format!("none of {} counts", note.spoiled.len()),
        n => format!("{n} of {}", joined(&note.cells, " and ")),
    };
    text += &format!(", {} at {} Hz", note.event, note.rate);
    if let Some(cost) = &note.cost {
        text += &format!(
            "; with sampling {} of the {} without{}",
            ratio_text(cost.ratio, cost.interval),
            analysis.work().terms().rate,
            // A trial that runs alone does not share its caches.
            if cost.same_design { "" } else { ", where cells took turns; here they ran alone" }
        );
    }
    if let Some(first) = note.spoiled.first() {
        text += &match note.trials {
            0 => format!("; the first: {first}"),
            _ => format!("; {} more do not count, the first: {first}", note.spoiled.len()),
        };
    }
    Some(text)
}

/// Returns the warnings: remarks on the study, stalls, warnings of trials, notes of the engines.
pub(crate) fn warnings(analysis: &Analysis) -> Vec<String> {
    let mut lines: Vec<String> = analysis.remarks.clone();
    lines.extend(all(analysis).filter_map(|row| {
        let pace = row.pace.as_ref().filter(|pace| pace.stalled_trials > 0)?;
        let trials = plural(row.status.measured.into(), "trial");
        let (seconds, stalled) = (number(pace.stalled, 1), pace.stalled_trials);
        Some(format!("{}: the flow stalled for {seconds} s in {stalled} of {trials}", row.cell))
    }));
    lines.extend(strayed(analysis));
    lines.extend(analysis.warnings.iter().map(counted));
    lines.extend(notes(analysis));
    lines
}

/// Notes of the engines, each listed once, with the first cell and end that has it.
fn notes(analysis: &Analysis) -> Vec<String> {
    let ends = analysis.rows.iter().flat_map(|row| Role::ALL.map(|role| (row, row.end(role))));
    let notes = ends.flat_map(|(row, end)| {
        let name = format!("{} {}", row.cell, row.work.actor(end.role));
        end.notes.iter().map(move |note| (&note.text, (name.clone(), note.count.max(1))))
    });
    let line = |(text, all): (&String, Vec<(String, u32)>)| {
        let (names, counts): (Vec<String>, Vec<u32>) = all.into_iter().unzip();
        let more = match names.len() {
            1 => String::new(),
            n => format!(" and {} more", n - 1),
        };
        let count = counts.iter().sum::<u32>().saturating_sub(names.len() as u32 - 1);
        let counted = counted(&CountedText { text: text.clone(), count });
        format!("{}{more}: {counted}", names[0])
    };
    grouped(notes).into_iter().map(line).collect()
}

/// Returns a sentence with the number of times it occurs.
pub(crate) fn counted(sentence: &CountedText) -> String {
    match sentence.count {
        0 | 1 => sentence.text.clone(),
        n => format!("{} ({} similar)", sentence.text, n - 1),
    }
}

/// Returns the cells whose receive work ran on other CPUs than the one requested.
fn strayed(analysis: &Analysis) -> Vec<String> {
    let of = |(row, work, what): (&Row, &Option<ReceiveWork>, &str)| {
        let work = work.as_ref().filter(|work| work.ran_elsewhere())?;
        let (asked, part) = (joined(&work.asked, ", "), percent(work.elsewhere()?));
        Some(format!("{}: {part} of {what} ran on a CPU other than {asked}", row.cell))
    };
    let both = analysis.rows.iter().flat_map(|row| {
        let sender = (row, &row.sender_work, "the softirqs at the sender");
        [(row, &row.receive_work, "the receive work"), sender]
    });
    both.filter_map(of).collect()
}
