//! Builds cells from factors: their product, minus excluded combinations.

use super::catalogues::Catalogues;
use super::document::Entry;
use super::factors::{Choice, Factor, Kind, Level, choice, name_of_settings, settings_of_level};
use crate::cells::{CellRequest, cell, halves, null_of};
use crate::kernel::parse_kernel;
use crate::link::PRESETS;
use crate::placement::read_cores;
use bytepath_record::{Cell, CellId, Fault, joined};
use std::collections::HashMap;

/// The cells of an experiment, each with its level of each factor.
pub(super) struct Product<'a, 'f> {
    factors: &'f [Factor<'a>],
    cells: Vec<(Vec<usize>, Cell)>,
}

/// Builds every combination of levels that is not excluded.
pub(super) fn product<'a, 'f>(
    place: &Entry,
    factors: &'f [Factor<'a>],
    excludes: &[Entry],
    catalogues: &Catalogues,
) -> Result<Product<'a, 'f>, Fault> {
    let combinations: usize = factors.iter().map(|factor| factor.levels.len()).product();
    let mut choices: Vec<(Choice, &Entry, bool)> = Vec::new();
    for entry in excludes {
        let example = "{ path = \"uring\", gro = \"off\" }";
        let section = entry.section("[[exclude]]", example)?;
        if section.entries.is_empty() {
            return Err(entry.wrong("an empty exclude would exclude everything"));
        }
        let choice = choice(&section, factors, catalogues)?;
        if !choice.is_of_none() {
            choices.push((choice, entry, false));
        }
    }
    let mut cells: Vec<(Vec<usize>, Cell)> = Vec::new();
    let mut known: HashMap<CellId, usize> = HashMap::new();
    for number in 0..combinations {
        let picks = picks(factors, number);
        let mut excluded = false;
        for (choice, _, used) in &mut choices {
            let holds = choice.holds(&picks);
            (*used, excluded) = (*used || holds, excluded || holds);
        }
        if excluded {
            continue;
        }
        let cell = build(factors, &picks, catalogues)
            .map_err(|fault| place.fault_at_key(fault.context(describe(factors, &picks))))?;
        if let Some(same) = known.insert(cell.id.clone(), cells.len()) {
            let (mine, other) = (describe(factors, &picks), describe(factors, &cells[same].0));
            let text = format!("'{mine}' and '{other}' are the same cell");
            return Err(place.wrong_key(text).remedy("exclude one of them"));
        }
        cells.push((picks, cell));
    }
    if let Some((_, entry, _)) = choices.iter().find(|(.., used)| !used) {
        return Err(entry
            .wrong("this exclude excludes nothing")
            .remedy("no combination of levels matches; correct or remove it"));
    }
    if cells.is_empty() {
        let text = "nothing is left to run: every combination is excluded";
        return Err(place.wrong_key(text).remedy("exclude less"));
    }
    Ok(Product { factors, cells })
}

impl Product<'_, '_> {
    /// Finds the baseline (the first cell if none is named) and returns all cells, with the
    /// baseline's second copy at the end.
    pub(super) fn finish(
        self,
        baseline: Option<&Entry>,
        catalogues: &Catalogues,
    ) -> Result<(Vec<Cell>, CellId), Fault> {
        let index = baseline.map_or(Ok(0), |entry| self.baseline(entry, catalogues))?;
        let mut cells: Vec<Cell> = self.cells.into_iter().map(|(_, cell)| cell).collect();
        let id = cells[index].id.clone();
        cells.push(null_of(&cells[index]));
        Ok((cells, id))
    }

    fn baseline(&self, entry: &Entry, catalogues: &Catalogues) -> Result<usize, Fault> {
        let example = "{ path = \"socket\", gro = \"on\" }";
        let (open, cells): (Vec<&str>, Vec<usize>) = if let Some(path) = entry.word() {
            let (_, tx, rx) =
                halves(path, &catalogues.paths).map_err(|fault| entry.fault(fault))?;
            let is_path = |kind| matches!(kind, Kind::Path | Kind::Half(_));
            let open = self.factors.iter().filter(|f| f.levels.len() > 1 && !is_path(f.kind));
            let same = |cell: &Cell| (&cell.tx, &cell.rx) == (&tx, &rx);
            (open.map(|f| f.name).collect(), self.positions(|_, cell| same(cell)))
        } else {
            let section = entry.section("the baseline", example)?;
            let choice = choice(&section, self.factors, catalogues)?.without_replaced();
            (choice.leaves_open(self.factors), self.positions(|picks, _| choice.holds(picks)))
        };
        match cells.as_slice() {
            [one] => Ok(*one),
            [] => Err(entry
                .wrong("the baseline is not among the cells")
                .remedy("name levels of [factors] that no [[exclude]] removes")),
            several => {
                let (count, open) = (several.len(), open.join(", "));
                let text = format!("{count} cells have the levels of the baseline");
                let example = describe(self.factors, &self.cells[several[0]].0);
                Err(entry.wrong(text).remedy(format!("give its {open} too: one is '{example}'")))
            }
        }
    }

    fn positions(&self, is_one: impl Fn(&[usize], &Cell) -> bool) -> Vec<usize> {
        let all = self.cells.iter().enumerate();
        all.filter(|(_, (picks, cell))| is_one(picks, cell)).map(|(index, _)| index).collect()
    }
}

/// Returns the levels of a combination, given its number: the last factor varies fastest.
fn picks(factors: &[Factor], mut number: usize) -> Vec<usize> {
    let mut picks = vec![0; factors.len()];
    for (factor, pick) in factors.iter().zip(&mut picks).rev() {
        *pick = number % factor.levels.len();
        number /= factor.levels.len();
    }
    picks
}

fn build(factors: &[Factor], picks: &[usize], catalogues: &Catalogues) -> Result<Cell, Fault> {
    let (mut path, mut halves) = (None, [String::new(), String::new()]);
    let (mut stream, mut link_options) = (Vec::new(), Vec::new());
    let default = catalogues.testbed.as_ref().map_or(PRESETS[0].name, |testbed| testbed.link);
    let mut workload = catalogues.workload.as_str();
    let cpus = &catalogues.cpus;
    let (mut link, mut cores, mut kernel, mut settings) = (default, None, None, Vec::new());
    for (factor, level) in chosen(factors, picks) {
        match factor.kind {
            Kind::Path => path = Some(level.text.clone()),
            Kind::Half(role) => halves[role as usize].clone_from(&level.text),
            Kind::Workload => workload = &level.text,
            Kind::Link => link = &level.text,
            Kind::Cores => cores = Some(read_cores(&level.text, cpus.clone())?),
            Kind::Kernel => kernel = Some(parse_kernel(&level.text)?),
            Kind::Settings => settings = settings_of_level(&level.text)?,
            Kind::StreamOption(spec) => stream.push(format!("{}={}", spec.name, level.canonical)),
            Kind::LinkOption(spec) => {
                link_options.push(format!("{}={}", spec.name, level.canonical));
            }
        }
    }
    let path = path.unwrap_or_else(|| halves.join("+"));
    let separator = if link.contains(':') { "," } else { ":" };
    let link = format!("{link}{separator}{}", link_options.join(","));
    let cores = cores.map_or_else(|| read_cores(cpus.usual(), cpus.clone()), Ok)?;
    let (stream, kernel) = (stream.join(","), kernel.as_ref());
    let ask =
        CellRequest { workload, stream: &stream, link: &link, ..CellRequest::of(&[], &cores) };
    let mut cell = cell(&path, kernel, &ask, &catalogues.paths)?;
    if !settings.is_empty() {
        cell.id = CellId(format!("{} settings={}", cell.id, name_of_settings(&settings)));
        cell.settings = settings;
    }
    let varied = chosen(factors, picks).filter(|(factor, _)| factor.levels.len() > 1);
    cell.levels = varied.map(|(f, level)| (f.name.to_owned(), level.text.clone())).collect();
    Ok(cell)
}

fn chosen<'f, 'a>(
    factors: &'f [Factor<'a>],
    picks: &'f [usize],
) -> impl Iterator<Item = (&'f Factor<'a>, &'f Level)> {
    factors.iter().zip(picks).map(|(factor, pick)| (factor, &factor.levels[*pick]))
}

/// Formats a combination: `path = socket, gro = on`.
fn describe(factors: &[Factor], picks: &[usize]) -> String {
    let one = |(factor, level): (&Factor, &Level)| format!("{} = {}", factor.name, level.text);
    joined(chosen(factors, picks).map(one), ", ")
}
