//! The zero-copy ledger of both ends.

use super::axis::Axis;
use super::{View, name};
use crate::record::Role;
use crate::report::figures::percent;
use crate::report::words::{evidence, labels};
use crate::stats::{Row, Shares};
use maud::{Markup, html};

/// What is known of bytes: class, name.
const MANNERS: [(&str, &str); 3] =
    [("free", "not copied"), ("copied", "copied"), ("unknown", "no proof either way")];

const HEIGHT: u32 = 34;
const BAR: u32 = 11;

/// The ledger as bars, and what it rests on.
pub fn figure(view: &View) -> Option<Markup> {
    let kept = |row: &&Row| Role::ALL.iter().any(|role| row.end(*role).ledger.is_some());
    let rows: Vec<&Row> = view.rows.iter().copied().filter(kept).collect();
    if rows.is_empty() {
        return None;
    }
    let axis = Axis::shares();
    Some(html! {
        figure {
            figcaption {
                b { "Figure 4. " }
                "Bytes delivered at each end, by what is proven of them; the sender above, the \
                 receiver below, with the part not copied in numbers. The witness page is sent first and overwritten before it is read: \
                 \u{201c}shared\u{201d} means that the receiver saw the new content, so that the path \
                 passed memory by reference."
                ul class="key" {
                    @for (class, name) in MANNERS {
                        li { svg viewBox="0 0 14 10" aria-hidden="true" { rect class=(class) width="14" height="10" {} } (name) }
                    }
                }
            }
            table class="plot" {
                thead { tr {
                    th { "cell" } th class="g" { (axis.head()) }
                    th class="n" { "sender" } th class="n" { "receiver" } th { "witness" } th { "label" }
                } }
                tbody {
                    @for row in &rows {
                        tr {
                            th scope="row" { (name(&row.cell)) }
                            td class="g" {
                                svg height=(HEIGHT) aria-hidden="true" {
                                    (axis.grid(HEIGHT))
                                    (bar(&axis, row.sender.ledger.as_ref(), 5))
                                    (bar(&axis, row.receiver.ledger.as_ref(), 7 + BAR))
                                }
                            }
                            td class="n" data-h="not copied: sender" { (share(row, Role::Sender)) }
                            td class="n" data-h="receiver" { (share(row, Role::Receiver)) }
                            td data-h="witness" { (witness(row)) }
                            td class="w" { (labels(&row.labels)) }
                        }
                    }
                }
            }
        }
        details {
            summary { "What the ledger rests on" }
            ul class="note" {
                @for row in &rows {
                    li {
                        b { (row.cell) } ": sender (" (row.tx) ") " (evidence(&row.sender))
                        "; receiver (" (row.rx) ") " (evidence(&row.receiver)) "."
                    }
                }
            }
        }
    })
}

fn bar(axis: &Axis, shares: Option<&Shares>, y: u32) -> Markup {
    let parts = shares.map_or([0.0; 3], |s| [s.not_copied, s.copied, s.unknown]);
    let mut from = 0.0;
    html! {
        @for ((class, name), part) in MANNERS.iter().zip(parts) {
            @if part > 0.0 {
                rect class=(class) x=(axis.at(from)) y=(y) width=(axis.width(from, from + part)) height=(BAR) {
                    title { (name) ": " (percent(part)) }
                }
                @let () = from += part;
            }
        }
    }
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
