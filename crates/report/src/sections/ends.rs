//! The cost of a packet at each end, from its own profile.

use crate::document::{Block, Column, Section, Table};
use crate::wording::figures::{digits, number};
use bytepath_profile::waterfall::Metered;
use bytepath_profile::{CellEnds, Ends};
use bytepath_record::{Role, Work};

/// Adds a table for each cell: the cost of a packet at either end, by subsystem.
pub(crate) fn add(section: &mut Section, ends: &Ends) {
    for cell in &ends.cells {
        let title = format!("Per-packet cost by endpoint (from profiles): {}", cell.cell);
        section.heading(title);
        section.add(table(cell));
        section.add(Block::Text("  ".into(), note(cell)));
    }
}

fn decimals(of: &CellEnds) -> usize {
    digits(of.total[0].mean.max(of.total[1].mean), 3)
}

fn table(of: &CellEnds) -> Table {
    let decimals = decimals(of);
    let mut columns = vec![Column::words(&of.unit, 0, Some(14))];
    for actor in Role::ALL.map(|role| Work::Packets.actor(role)) {
        columns.extend([Column::number(actor, "amount", 0), Column::number(actor, "+-", 0)]);
    }
    let parts = of.parts.iter().map(|part| (part.subsystem.title(), &part.amounts));
    let rows = std::iter::once(("all", &of.total)).chain(parts).map(|(title, amounts)| {
        let texts = amounts.iter().flat_map(|amount: &Metered| {
            let half = amount.half_width.map(|half| number(half, decimals));
            [number(amount.mean, decimals), half.unwrap_or_default()]
        });
        std::iter::once(title.to_owned()).chain(texts)
    });
    Table::rows(columns, rows).without_empty()
}

fn note(of: &CellEnds) -> String {
    let functions = |role: Role| {
        let functions = of.functions[role as usize].iter().filter(|(_, amount)| *amount > 0.0);
        let named =
            functions.map(|(name, amount)| format!("{name} {}", number(*amount, decimals(of))));
        let named = named.reduce(|all, one| format!("{all}, {one}")).unwrap_or("none".to_owned());
        format!("{}: {named}", Work::Packets.actor(role))
    };
    format!(
        "Kernel threads that work for an end are included. Top functions: {}; {}.",
        functions(Role::Sender),
        functions(Role::Receiver)
    )
}
