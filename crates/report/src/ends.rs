//! What formats share of the cost of each end by itself.

use super::figures::{digits, number};
use super::grid::Grid;
use bytepath_profile::waterfall::Metered;
use bytepath_profile::{CellEnds, Ends};
use bytepath_record::{Role, Work};

/// A table for each cell: what a packet costs at either end, by subsystem.
pub(crate) fn grids(ends: &Ends) -> Vec<Grid> {
    ends.cells.iter().map(grid).collect()
}

fn grid(of: &CellEnds) -> Grid {
    let decimals = digits(of.total[0].mean.max(of.total[1].mean), 3);
    let both = |amounts: &[Metered; 2]| {
        let figures = |amount: &Metered| {
            let half = amount.half_width.map(|half| number(half, decimals));
            [number(amount.mean, decimals), half.unwrap_or_default()]
        };
        amounts.iter().flat_map(figures).collect::<Vec<String>>()
    };
    let row = |title: &str, amounts: &[Metered; 2]| {
        let mut texts = vec![title.to_owned()];
        texts.extend(both(amounts));
        texts
    };
    let total = row("all", &of.total);
    let parts = of.parts.iter().map(|part| row(part.subsystem.title(), &part.amounts));
    let mut heads = vec![("", of.unit.clone())];
    for role in Role::ALL {
        let actor = Work::Packets.actor(role);
        heads.extend([(actor, "amount".to_owned()), (actor, "+-".to_owned())]);
    }
    let functions = |role: Role| {
        let functions = of.functions[role as usize].iter();
        let functions = functions.filter(|(_, amount)| *amount > 0.0);
        let named = functions.map(|(name, amount)| format!("{name} {}", number(*amount, decimals)));
        let named: Vec<String> = named.collect();
        let named = if named.is_empty() { "nothing seen".to_owned() } else { named.join(", ") };
        format!("{}: {named}", Work::Packets.actor(role))
    };
    Grid {
        title: format!("What a packet costs at each end, by its own profile: {}", of.cell),
        note: format!(
            "Kernel threads that work for an end are included. Top functions: {}; {}.",
            functions(Role::Sender),
            functions(Role::Receiver)
        ),
        words: 1,
        heads,
        rows: std::iter::once(total).chain(parts).collect(),
    }
    .without_empty()
}
