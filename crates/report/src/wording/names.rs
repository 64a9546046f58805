//! What reports for people call the cells of a study: levels that all cells have are
//! listed once, at the head, and left out of every name.

use bytepath_record::{CellId, Study, StudyHeader, joined};

/// The study with short names; `None` if the cells have no level in common, or are but one.
pub(crate) fn shortened(study: &Study) -> Option<Study> {
    let all: Vec<&str> = study.header.cells.iter().map(|cell| cell.id.0.as_str()).collect();
    let shared = shared(&all);
    if all.len() < 2 || shared.is_empty() {
        return None;
    }
    let shared: Vec<String> = shared.into_iter().map(str::to_owned).collect();
    let mut study = study.clone();
    let header = &mut study.header;
    let cells = header.cells.iter_mut().map(|cell| &mut cell.id).chain([&mut header.baseline]);
    let trials = study.trials.iter_mut().chain(&mut study.profiles).map(|trial| &mut trial.cell);
    cells.chain(trials).for_each(|CellId(id)| *id = without(id, &shared));
    Some(study)
}

/// The levels that the names of these cells leave out.
pub(crate) fn left_out<'a>(recorded: &'a StudyHeader, short: &StudyHeader) -> Vec<&'a str> {
    let (Some(recorded), Some(short)) = (recorded.cells.first(), short.cells.first()) else {
        return Vec::new();
    };
    let kept: Vec<&str> = short.id.0.split(' ').collect();
    recorded.id.0.split(' ').filter(|word| !kept.contains(word)).collect()
}

/// The words that every name has after the path.
fn shared<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let [first, others @ ..] = names else { return Vec::new() };
    let everywhere = |word: &&str| others.iter().all(|name| levels(name).any(|w| w == *word));
    levels(first).filter(everywhere).collect()
}

fn without(name: &str, words: &[String]) -> String {
    let path = name.split(' ').take(1);
    let remaining = levels(name).filter(|word| !words.iter().any(|other| other == word));
    joined(path.chain(remaining), " ")
}

fn levels(name: &str) -> impl Iterator<Item = &str> {
    name.split(' ').skip(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn omits_levels_that_all_names_share() {
        let names = [
            "socket rr:depth=8 cores=together mtu=4148",
            "zcrx:area=64M rr:depth=8 cores=apart mtu=4148",
            "socket rr:depth=8 cores=together mtu=4148 (again)",
        ];
        let words = shared(&names);
        assert_eq!(words, ["rr:depth=8", "mtu=4148"]);
        let words: Vec<String> = words.into_iter().map(str::to_owned).collect();
        assert_eq!(
            names.map(|name| without(name, &words)),
            ["socket cores=together", "zcrx:area=64M cores=apart", "socket cores=together (again)"]
        );
        assert!(shared(&["socket flows=2", "splice flows=4"]).is_empty());
        assert!(shared(&["socket", "socket (again)"]).is_empty());
        assert!(shared(&[]).is_empty());
    }
}
