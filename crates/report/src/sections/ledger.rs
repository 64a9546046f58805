//! The zero-copy ledger of both ends, and the evidence for the labels.

use super::cost::{BARS, HEIGHT};
use super::view::View;
use crate::document::{Cell, Column, Figure, List, Mark, Media, Scale, Section, Table};
use crate::wording::figures::percent;
use crate::wording::text::{evidence, label, on_a_wire};
use bytepath_record::{Manner, Role};
use bytepath_stats::{End, Row};

/// How bytes were moved: class, name, manner.
const MANNERS: [(&str, &str, Manner); 4] = [
    ("free", "not copied", Manner::NotCopied),
    ("copied", "copied", Manner::Copied),
    ("discarded", "discarded in the kernel", Manner::Discarded),
    ("unknown", "no proof either way", Manner::Unknown),
];

pub(crate) fn section(view: &View) -> Section {
    let has_ledger = |row: &&Row| Role::ALL.iter().any(|role| row.end(*role).ledger.is_some());
    let rows: Vec<&Row> = view.rows.iter().copied().filter(has_ledger).collect();
    let mut section = Section::new("ledger", "Zero-copy evidence (whole trials, with warm-up)");
    if rows.is_empty() {
        return section;
    }
    let not_terminal = Media::MAIL.or(Media::PAGE);
    section.add_on(not_terminal, figure(&rows));
    section = section.note_on(not_terminal, on_a_wire(view.analysis).unwrap_or_default());
    let items = rows.iter().map(|row| {
        let (tx, rx) = (evidence(&row.sender), evidence(&row.receiver));
        (row.cell.to_string(), format!("tx {} {tx}; rx {} {rx}", row.tx, row.rx))
    });
    let evidence = List::of_cells(items).folded("Evidence for the ledger");
    section.add_on(Media::TERMINAL.or(Media::PAGE), evidence);
    section
}

fn figure(rows: &[&Row]) -> Figure {
    let ends = rows.iter().flat_map(|row| [&row.sender, &row.receiver]);
    let mut ledgers = ends.filter_map(|end| end.ledger.as_ref());
    let has_discards = ledgers.any(|ledger| ledger.discarded > 0.0);
    let key = MANNERS.iter().filter(|(.., manner)| has_discards || *manner != Manner::Discarded);
    let key = key.map(|(class, name, _)| (*class, (*name).to_owned())).collect();
    let table = Table::of(
        rows,
        [
            (Column::path(), |row| Cell::path(row)),
            (Column::number("not copied", "tx", 0), |row| not_copied(&row.sender).into()),
            (Column::number("not copied", "rx", 0), |row| not_copied(&row.receiver).into()),
            (Column::words("witness page", 1, None), |row| witness(row).into()),
            (Column::words("label", 0, Some(18)), |row| label(row).into()),
        ],
    );
    let caption = "Bytes delivered at each end, by what is proven about them; the sender above, \
                   the receiver below. The witness page is sent first and overwritten before it \
                   is read: \u{201c}shared\u{201d} means that the receiver saw the new content, \
                   so the path passed memory by reference.";
    let marks = rows.iter().map(|row| bars(row));
    Figure { key, ..Figure::rows(caption, table, (Scale::shares(), HEIGHT), marks) }
}

/// Returns the share of an end's bytes that was not copied.
pub(super) fn not_copied(end: &End) -> String {
    percent(end.ledger.as_ref().map(|ledger| ledger.not_copied))
}

/// Draws the bars for both ends of a row, with the manners side by side.
fn bars(row: &Row) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (role, top, bottom) in BARS {
        let Some(shares) = &row.end(role).ledger else { continue };
        let mut from = 0.0;
        for (class, name, manner) in &MANNERS {
            let part = shares.part(*manner);
            if part > 0.0 {
                let bar = Mark::bar(class, (from, top), (from + part, bottom));
                marks.push(bar.tip(format!("{role}, {name}: {}", percent(part))));
                from += part;
            }
        }
    }
    marks
}

fn witness(row: &Row) -> String {
    match (row.sender.witness.shared, row.sender.witness.copied) {
        (0, 0) => String::new(),
        (_, 0) => "shared".into(),
        (0, _) => "copied".into(),
        (s, c) => format!("{s}\u{d7} shared, {c}\u{d7} copied"),
    }
}
