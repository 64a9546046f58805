//! The zero-copy ledger of both ends.

use super::plot::{self, Mark};
use super::scale::Scale;
use super::{View, cell, key};
use crate::figures::percent;
use crate::words::{evidence, label, on_a_wire};
use bytepath_record::{Manner, Role};
use bytepath_stats::Row;
use maud::{Markup, html};

/// What is known of bytes: class, name, manner.
const MANNERS: [(&str, &str, Manner); 4] = [
    ("free", "not copied", Manner::NotCopied),
    ("copied", "copied", Manner::Copied),
    ("discarded", "discarded in the kernel", Manner::Discarded),
    ("unknown", "no proof either way", Manner::Unknown),
];

/// Pixels of a row: its height, where the bar of each end begins and ends.
const HEIGHT: f64 = 34.0;
const BARS: [(Role, f64, f64); 2] = [(Role::Sender, 5.0, 16.0), (Role::Receiver, 18.0, 29.0)];

/// The ledger as bars, and what it rests on.
pub(crate) fn figure(view: &View) -> Option<Markup> {
    let kept = |row: &&Row| Role::ALL.iter().any(|role| row.end(*role).ledger.is_some());
    let rows: Vec<&Row> = view.rows.iter().copied().filter(kept).collect();
    if rows.is_empty() {
        return None;
    }
    let scale = Scale::shares();
    let discards = |row: &&Row| {
        let ledgers = Role::ALL.iter().filter_map(|role| row.end(*role).ledger.as_ref());
        ledgers.into_iter().any(|ledger| ledger.discarded > 0.0)
    };
    let discarded = rows.iter().any(discards);
    let shown = MANNERS.iter().filter(|(.., manner)| discarded || *manner != Manner::Discarded);
    Some(html! {
        figure {
            figcaption {
                "Bytes delivered at each end, by what is proven about them; the sender \
                 above, the receiver below, with the share not copied as a number. The witness page is sent first and overwritten before it is read: \
                 \u{201c}shared\u{201d} means that the receiver saw the new content, so \
                 the path passed memory by reference."
                (key(shown.map(|(class, name, _)| (*class, *name))))
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (plot::head(&scale)) }
                    th class="n" { "sender" } th class="n" { "receiver" } th { "witness" } th { "label" }
                } }
                tbody {
                    @for row in &rows {
                        tr {
                            (cell(&row.cell))
                            td class="g" {
                                (plot::row(&scale, HEIGHT, bars(row)))
                            }
                            td class="n" data-h="not copied: sender" { (share(row, Role::Sender)) }
                            td class="n" data-h="receiver" { (share(row, Role::Receiver)) }
                            td data-h="witness" { (witness(row)) }
                            td class="w" { (label(row)) }
                        }
                    }
                }
            }
        }
        @if let Some(text) = on_a_wire(view.analysis) { p class="note" { (text) } }
        details {
            summary { "Evidence for the ledger" }
            ul class="note" {
                @for row in &rows {
                    li {
                        b class="cell" { (row.cell) } ": sender (" (row.tx) ") " (evidence(&row.sender))
                        "; receiver (" (row.rx) ") " (evidence(&row.receiver)) "."
                    }
                }
            }
        }
    })
}

/// Both ends of a row, what is known of bytes side by side.
fn bars(row: &Row) -> Vec<Mark> {
    let mut marks = Vec::new();
    for (role, top, bottom) in BARS {
        let Some(shares) = &row.end(role).ledger else { continue };
        let mut from = 0.0;
        for (class, name, manner) in &MANNERS {
            let part = shares.part(*manner);
            if part > 0.0 {
                let bar = Mark::bar(class, (from, top), (from + part, bottom));
                marks.push(bar.says(format!("{role}, {name}: {}", percent(part))));
                from += part;
            }
        }
    }
    marks
}

fn share(row: &Row, role: Role) -> String {
    percent(row.end(role).ledger.as_ref().map(|l| l.not_copied))
}

fn witness(row: &Row) -> String {
    match (row.sender.witness.shared, row.sender.witness.copied) {
        (0, 0) => String::new(),
        (_, 0) => "shared".into(),
        (0, _) => "copied".into(),
        (s, c) => format!("{s}\u{d7} shared, {c}\u{d7} copied"),
    }
}
