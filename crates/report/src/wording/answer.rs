//! The answer, at the top of every report: which cell to use and what it gains, why, and what is
//! undecided. The sentences are the same in every format.

use super::explanation;
use super::figures::{figure, level, percent, plural, ratio, unit};
use super::text::{self, mean};
use super::verdicts::superlative;
use bytepath_profile::Explanation;
use bytepath_record::{grouped, joined, listed};
use bytepath_stats::{Analysis, Comparison, Metric, Recommendation, Requirement, Row, Undecided};

/// Most cells that a sentence names; the rest are only counted.
const NAMED: usize = 4;

/// A lead ("Use", "Keep", "Why", "Undecided") with its sentences.
type Paragraph = (&'static str, String);

/// Returns the answer; empty if only one cell was measured, so that there is nothing to compare.
pub(crate) fn answer(analysis: &Analysis, explanation: Option<&Explanation>) -> Vec<Paragraph> {
    if !is_asked(analysis) {
        return Vec::new();
    }
    let choices = analysis.choices();
    let mut paragraphs = vec![recommendation(analysis, &choices)];
    paragraphs.extend(why(analysis, choices.first(), explanation).or_else(|| why_not(analysis)));
    paragraphs.extend(undecided(analysis, &choices));
    paragraphs.extend(reservations(analysis));
    paragraphs
}

/// Returns whether speeds were compared, so that there is an answer.
pub(crate) fn is_asked(analysis: &Analysis) -> bool {
    analysis.functional.is_none() && analysis.candidates().next().is_some()
}

/// Returns the caveats about the figures, however many cells there are; empty if they are not
/// speeds.
pub(crate) fn reservations(analysis: &Analysis) -> impl Iterator<Item = Paragraph> {
    let all =
        [("Late", late(analysis)), ("Lost", unanswered(analysis)), ("Busy", text::busy(analysis))];
    let all = all.into_iter().filter(|_| analysis.functional.is_none());
    all.filter_map(|(about, text)| Some((about, text?)))
}

/// Returns the answer for one screen: undecided cells and disturbances are shortened to a sentence
/// each.
pub(crate) fn short_answer(
    analysis: &Analysis,
    explanation: Option<&Explanation>,
) -> Vec<Paragraph> {
    let mut paragraphs = answer(analysis, explanation);
    if paragraphs.is_empty() {
        paragraphs.extend(reservations(analysis));
    }
    for (lead, text) in &mut paragraphs {
        let short = match *lead {
            "Undecided" => briefly_undecided(analysis),
            "Busy" => text::briefly_busy(analysis),
            _ => None,
        };
        *text = short.unwrap_or_else(|| std::mem::take(text));
    }
    paragraphs
}

/// Returns the names of the undecided cells.
fn briefly_undecided(analysis: &Analysis) -> Option<String> {
    let undecided = analysis.undecided();
    let mut names: Vec<String> = undecided.iter().map(|u| u.row.cell.to_string()).collect();
    names.dedup();
    let needs_quiet =
        |u: &&Undecided| matches!(u.needs, Requirement::LessNoise(_) | Requirement::Blocks(None));
    let remedy = match undecided.iter().all(|u| needs_quiet(&u)) {
        true => "a quieter machine may tell",
        false => "more time may tell (--time 10m)",
    };
    (!names.is_empty()).then(|| format!("{}, in part: {remedy}.", listed(&names, NAMED)))
}

fn recommendation(analysis: &Analysis, choices: &[Recommendation]) -> Paragraph {
    let base = &analysis.baseline;
    let figures = |choice: &Recommendation| {
        let deciding = analysis.deciding().into_iter();
        joined(deciding.filter_map(|question| standing(analysis, choice.row, question)), "; ")
    };
    let text = match choices {
        [] => keep_baseline(analysis),
        [choice] => format!("{} instead of {base}: {}.", ends(choice.row), figures(choice)),
        several => {
            let each = several.iter().map(|choice| {
                let purposes = choice.questions.iter();
                let purposes =
                    purposes.map(|q| format!("the {}", superlative(*q, analysis.work())));
                let purposes = joined(purposes, " and ");
                format!("{} for {purposes}: {}.", ends(choice.row), figures(choice))
            });
            format!("{} All against {base}.", joined(each, " "))
        }
    };
    (if choices.is_empty() { "Keep" } else { "Use" }, text)
}

/// Returns a cell's name, with the path of each end unless the name contains it.
fn ends(row: &Row) -> String {
    let Row { cell, tx, rx, .. } = row;
    let words = || cell.0.split(|c: char| !c.is_alphanumeric() && c != '-');
    match [tx, rx].into_iter().all(|path| words().any(|word| word == path)) {
        true => cell.to_string(),
        false => format!("{cell} (sender: {tx}, receiver: {rx})"),
    }
}

/// Returns the baseline, its figures, and how the others compare with it.
fn keep_baseline(analysis: &Analysis) -> String {
    let base = &analysis.baseline;
    let deciding = analysis.deciding();
    let reaches = |question: &Metric| {
        let row = analysis.rows.iter().find(|row| row.baseline)?;
        value(analysis, row, *question)
    };
    let reached: Vec<String> = deciding.iter().filter_map(reaches).collect();
    let range = |question: &Metric| {
        let effects = analysis.candidates().filter_map(|row| row.effect(*question));
        let ratios: Vec<f64> = effects.map(|effect| effect.ratio).collect();
        let [low, high] = [f64::min, f64::max].map(|end| ratios.iter().copied().reduce(end));
        let (low, high) = (ratio(low?), ratio(high?));
        let both = if low == high { low } else { format!("{low} to {high}") };
        Some(format!("{both} its {}", about(*question, analysis)))
    };
    let ranges = joined(deciding.iter().filter_map(range), ", ");
    let (others, they) = match analysis.candidates().count() {
        1 => ("the alternative is not".to_owned(), "it has"),
        others => (format!("none of the {others} alternatives is"), "they have"),
    };
    let reached = match reached.is_empty() {
        true => String::new(),
        false => format!(" ({})", joined(reached, ", ")),
    };
    let mut text = format!("{base}{reached}: {others} measurably better{}", worse(analysis));
    if !ranges.is_empty() {
        text += &format!("; {they} {ranges}");
    }
    text + "."
}

/// Returns a figure with its unit; for a latency, with the percentile.
fn value(analysis: &Analysis, row: &Row, question: Metric) -> Option<String> {
    let figure = figure(question, row.work, mean(analysis, row, question)?);
    Some(format!("{}{figure} {}", of_percentile(question), unit(question, row.work)))
}

/// Returns the name of a percentile, to precede its figure.
fn of_percentile(question: Metric) -> String {
    match question {
        Metric::Latency(percentile) => format!("{} ", percentile.name()),
        _ => String::new(),
    }
}

/// Returns how many cells were shown to be worse than the baseline: " (SLOWER: 5, MORE CPU: 4)".
fn worse(analysis: &Analysis) -> String {
    let count = |question| {
        let words = analysis.candidates().filter_map(|row| {
            let verdict = &row.comparison(question)?.verdict;
            (verdict.better() == Some(false)).then(|| verdict.word())
        });
        let words: Vec<_> = words.collect();
        words.first().map(|word| format!("{word}: {}", words.len()))
    };
    let counts = joined(analysis.deciding().into_iter().filter_map(count), ", ");
    if counts.is_empty() { String::new() } else { format!(" ({counts})") }
}

/// Returns how a cell compares with the baseline in one metric, in a few words.
fn standing(analysis: &Analysis, row: &Row, question: Metric) -> Option<String> {
    let Comparison { effect, verdict, .. } = row.comparison(question)?;
    let work = row.work;
    let value = |row: &Row| Some(figure(question, work, mean(analysis, row, question)?));
    let base = value(analysis.rows.iter().find(|row| row.baseline)?)?;
    let name = of_percentile(question);
    let figures = format!("{name}{} against {base} {}", value(row)?, unit(question, work));
    let changed = match (question, verdict.better(), effect) {
        (Metric::Rate, Some(_), Some(effect)) => format!(", {}", ratio(effect.ratio)),
        (_, Some(better), Some(effect)) => {
            let less = if better { "less" } else { "more" };
            format!(", {} {less}", percent((effect.ratio - 1.0).abs()))
        }
        _ => String::new(),
    };
    Some(format!("{figures}{changed} ({})", verdict.word()))
}

/// Returns the largest steps of the explanation: those of the chosen cell, or, if none is better
/// than the baseline, what one of the others costs more.
fn why(
    analysis: &Analysis,
    choice: Option<&Recommendation>,
    explanation: Option<&Explanation>,
) -> Option<Paragraph> {
    let explanation = explanation?;
    let of_choice = |cell: &str| choice.is_none_or(|choice| choice.row.cell.0 == cell);
    let explained = explanation.waterfalls.iter().find(|w| of_choice(&w.after.cell))?;
    let words = explanation::words(explained, explanation.functional);
    // The figures of profile trials differ from those of the trials that count.
    let text = match explanation::resolved(explained).is_empty() {
        _ if explanation.functional => words,
        false => format!("In the profile trials {words}"),
        true => format!("Not known: in the profile trials {words} {}", spoiled(analysis)),
    };
    Some(("Why", text.trim_end().to_owned()))
}

/// States that profiles were taken, but that the chosen cell has no valid one.
fn why_not(analysis: &Analysis) -> Option<Paragraph> {
    let spoiled = Some(spoiled(analysis)).filter(|spoiled| !spoiled.is_empty())?;
    Some(("Why", format!("Not known. {spoiled}")))
}

/// Returns the number of invalid profiles, in a sentence; empty if all are valid.
fn spoiled(analysis: &Analysis) -> String {
    let Some(note) = &analysis.profiling else { return String::new() };
    let all = note.trials as usize + note.spoiled.len();
    match note.spoiled.len() {
        0 => String::new(),
        n if n == all => format!("None of {} counts.", plural(all as u64, "profile")),
        1 => format!("1 of {all} profiles does not count."),
        n => format!("{n} of {all} profiles do not count."),
    }
}

/// Returns what is undecided, and what would decide it.
fn undecided(analysis: &Analysis, choices: &[Recommendation]) -> Option<Paragraph> {
    let of_choice = |choice: &Recommendation| {
        let close =
            analysis.overlapping_choices(choice).into_iter().map(|row| row.cell.to_string());
        let (close, best) = (close.collect::<Vec<_>>(), &choice.row.cell);
        (!close.is_empty()).then(|| {
            format!(
                "Whether {best} is better than {}: their intervals overlap; `--baseline {best}` \
                 compares them.",
                listed(&close, NAMED)
            )
        })
    };
    let mut sentences: Vec<String> = choices.iter().filter_map(of_choice).collect();
    let open = analysis.undecided();
    let open = open.iter().map(|one| {
        let abouts = joined(one.questions.iter().map(|q| about(*q, analysis)), ", ");
        let name = format!("{} ({abouts})", one.row.cell);
        (Remedy::of(one), (name, one))
    });
    let sentence = |(remedy, open): (Remedy, Vec<(String, &Undecided)>)| {
        let (names, open): (Vec<String>, Vec<&Undecided>) = open.into_iter().unzip();
        format!("{}: {}.", listed(&names, NAMED), remedy.words(analysis, &open))
    };
    sentences.extend(grouped(open).into_iter().map(sentence));
    (!sentences.is_empty()).then(|| ("Undecided", sentences.join(" ")))
}

/// Returns the open loops that did not keep up with the load.
fn late(analysis: &Analysis) -> Option<String> {
    let late = |row: &Row| {
        let (due, rate) = (row.behind()?, row.rate.as_ref()?.mean);
        Some(format!("{} answered {rate:.0} of {due:.0} requests a second", row.cell))
    };
    let late: Vec<String> = analysis.rows.iter().filter_map(late).collect();
    (!late.is_empty()).then(|| {
        format!(
            "{}: what waits grows for as long as that lasts, and latency with it, so its latency is of \
             this window's length; choose a lower rate.",
            listed(&late, NAMED)
        )
    })
}

/// Returns the exchanges that received no response.
fn unanswered(analysis: &Analysis) -> Option<String> {
    let lost = |row: &Row| {
        let latency = row.latency.as_ref()?;
        let (none, all) = (latency.unanswered?, latency.count);
        Some(format!("{none} of {} exchanges of {}", all.saturating_add(none), row.cell))
    };
    let lost: Vec<String> = analysis.rows.iter().filter_map(lost).collect();
    (!lost.is_empty()).then(|| {
        format!(
            "{} brought no response. They count as longer than all others: a percentile among them is \
             left out. Rates, mean and max are of the others; the warnings name the causes.",
            listed(&lost, NAMED)
        )
    })
}

fn about(question: Metric, analysis: &Analysis) -> &'static str {
    match question {
        Metric::Rate => analysis.work().terms().rate,
        Metric::Cpu => "CPU",
        Metric::Instructions => "instructions",
        Metric::Latency(percentile) => percentile.name(),
    }
}

/// What would decide all of the cells in one sentence.
#[derive(Clone, Copy, PartialEq)]
enum Remedy {
    LessNoise(f64),
    Spread,
    Blocks,
    /// For large differences: showing these takes fewer blocks than deciding on small ones.
    BlocksIfAsMeasured,
}

impl Remedy {
    fn of(open: &Undecided) -> Remedy {
        match open.needs {
            Requirement::LessNoise(floor) => Remedy::LessNoise(floor),
            Requirement::Spread => Remedy::Spread,
            Requirement::Blocks(blocks) => {
                let fewer = open.as_measured.is_some_and(|n| blocks.is_none_or(|all| n < all));
                if fewer { Remedy::BlocksIfAsMeasured } else { Remedy::Blocks }
            }
        }
    }

    fn words(self, analysis: &Analysis, open: &[&Undecided]) -> String {
        let (base, margin) = (&analysis.baseline, level(analysis.rules.margin));
        let all = blocks(open.iter().map(|open| match open.needs {
            Requirement::Blocks(blocks) => blocks,
            _ => None,
        }));
        match self {
            Remedy::LessNoise(floor) => {
                let floor = percent(floor);
                format!("within the noise of this study, {floor}; repeat on a quieter machine")
            }
            Remedy::Spread => {
                "a comparison takes two blocks at least; give it a longer --time".into()
            }
            Remedy::Blocks => {
                format!("whether the difference from {base} reaches {margin} takes {all}")
            }
            Remedy::BlocksIfAsMeasured => {
                let few = blocks(open.iter().map(|open| open.as_measured));
                format!(
                    "{few} would show a difference from {base} that is as large as measured; whether it \
                     reaches {margin} takes {all}"
                )
            }
        }
    }
}

/// Returns a range of block counts, from the fewest to the most; `None` means more than 1000.
fn blocks(numbers: impl Iterator<Item = Option<u32>> + Clone) -> String {
    let known = numbers.clone().flatten();
    let range = match known.clone().min().zip(known.max()) {
        None => return "more than 1000 blocks".to_owned(),
        Some((least, _)) if numbers.clone().any(|n| n.is_none()) => {
            return format!("about {least} blocks to more than 1000");
        }
        Some((least, most)) => [least, most],
    };
    let [least, most] = range;
    match least == most {
        true => format!("about {most} blocks (--blocks {most})"),
        false => format!("about {least} to {most} blocks (--blocks {most})"),
    }
}
