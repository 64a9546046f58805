//! The meaning of well-known functions in a profile.

use crate::document::{Block, Cell, Column, Media, Section, Table};
use crate::wording::figures::percent;
use bytepath_profile::symptom::FoundSymptom;
use bytepath_record::joined;

const NOTE: &str = "Shares of the busy time, as sampled, without idle samples \
                    and foreign threads. Lines below 0.5% on every side are omitted.";

/// Shows the symptoms; `sides` are the names of the sides that the shares refer to, empty for a
/// single profile.
pub(crate) fn section(all: &[FoundSymptom], sides: &[impl AsRef<str>]) -> Section {
    let mut section = Section::new("symptoms", "Diagnosis by hot function");
    for symptom in all {
        let shares = match sides {
            [] => percent(symptom.shares.first().copied()),
            names => {
                let shares = names.iter().zip(&symptom.shares);
                let shares =
                    shares.map(|(name, share)| format!("{} {}", name.as_ref(), percent(*share)));
                joined(shares, ", ")
            }
        };
        let functions = symptom.functions.join(", ");
        for (lead, text) in [
            ("  ", format!("{}: {shares} ({functions})", symptom.name)),
            ("    ", symptom.means.to_string()),
            ("    ", format!("try: {}", symptom.remedy)),
        ] {
            section.add_on(Media::PLAIN, Block::Text(lead.into(), text));
        }
    }
    section.add_on(Media::PAGE, table(all, sides));
    section.note(NOTE)
}

fn table(all: &[FoundSymptom], sides: &[impl AsRef<str>]) -> Table {
    let mut columns = vec![Column::words("symptom", 0, None)];
    columns.extend(sides.iter().map(|side| Column::number("", side.as_ref(), 0)));
    columns.push(Column::words("what it means, what to try", 0, None));
    let cells = all.iter().map(|symptom| {
        let shares = symptom.shares.iter().take(sides.len());
        let shares = shares.map(|share| Cell::from(percent(*share)));
        let functions = symptom.functions.join(", ");
        let text = format!("{functions}: {}. Try: {}.", symptom.means, symptom.remedy);
        let name = Cell::from(symptom.name.to_string());
        [name].into_iter().chain(shares).chain([Cell::from(text)])
    });
    Table::rows(columns, cells)
}
