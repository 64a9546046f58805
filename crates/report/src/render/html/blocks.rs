//! Renders the blocks of a document as HTML: the same elements for every section, with rows that
//! the scripts of the page can sort and filter.

use super::plot::{self, key};
use crate::document::{Align, Block, Cell, Column, Drawing, Figure, Line, List, Point};
use crate::document::{Media, Panel, Ratios, Scale, Section, Table, Tone};
use maud::{Markup, html};

/// Renders the blocks of a section, without its title.
pub(crate) fn section(section: &Section) -> Markup {
    let blocks = section.blocks.iter().filter(|(media, _)| media.includes(Media::PAGE));
    let blocks: Vec<&Block> = blocks.map(|(_, block)| block).collect();
    // Blocks after a cell's heading are hidden together with the cell.
    let parts = blocks.chunk_by(|_, next| !matches!(next, Block::Heading(..)));
    html! {
        @for part in parts {
            @match part[0] {
                Block::Heading(_, Some(cell)) => {
                    div data-cell=(cell) { @for each in part { (block(each)) } }
                }
                _ => @for each in part { (block(each)) },
            }
        }
    }
}

fn block(block: &Block) -> Markup {
    html! {
        @match block {
            Block::Heading(title, _) => h3 { (title) },
            Block::Text(lead, text) => p class=[is_note(lead).then_some("note")] {
                @if !is_note(lead) && !lead.is_empty() { strong { (lead.trim()) } " " }
                (text)
            },
            Block::Line(pieces) => p { @for (text, _) in pieces { (text.trim_start()) } },
            Block::List(list) => (folded(&list.folded, points(list))),
            Block::Table(table) => (folded(&table.folded, sortable(table))),
            Block::Figure(each) => (figure(each)),
            Block::Code(text) => pre { (text) },
            Block::Gap => {},
        }
    }
}

/// Returns whether a paragraph is only a note on how to read something.
fn is_note(lead: &str) -> bool {
    !lead.is_empty() && lead.trim().is_empty()
}

fn folded(summary: &Option<String>, content: Markup) -> Markup {
    html! {
        @match summary {
            Some(summary) => details { summary { (summary) } (content) },
            None => (content),
        }
    }
}

fn points(list: &List) -> Markup {
    let has_leads = list.items.iter().any(|point| !point.lead.is_empty());
    html! {
        @if has_leads && !list.of_cells {
            dl class="facts" { @for Point { lead, text, .. } in &list.items { dt { (lead) } dd { (text) } } }
        } @else {
            ul {
                @for Point { lead, word, tone: of_word, text } in &list.items {
                    li {
                        @if !lead.is_empty() { strong class="cell" { (name(lead)) } ": " }
                        @match text.strip_prefix(word) {
                            Some(rest) if !word.is_empty() => {
                                span class=(tone(*of_word, "word")) { (word) } (rest)
                            }
                            _ => (text),
                        }
                    }
                }
            }
        }
    }
}

pub(crate) fn figure(figure: &Figure) -> Markup {
    let Figure { caption, key: colours, drawing, table } = figure;
    let table = table.shown_on(Media::PAGE);
    // Names of functions are long.
    let is_wide = table.columns.first().is_some_and(|column| column.title == "function");
    html! {
        figure {
            figcaption {
                (caption)
                @if !colours.is_empty() { (key(colours.iter().map(|(class, name)| (*class, name)))) }
            }
            @match drawing {
                Drawing::Rows { scale, height, marks } => {
                    table class=(if is_wide { "plot functions" } else { "plot" }) {
                        (head(&table, Some(scale)))
                        tbody {
                            @for (line, marks) in table.rows.iter().zip(marks) {
                                (row(&table, line, Some(plot::row(scale, *height, marks))))
                            }
                        }
                    }
                }
                Drawing::Panels { across, up, panels } => {
                    div class="panels" { @for each in panels { (panel(across, up, each)) } }
                }
                Drawing::Plot { across, up, titles, marks } => {
                    p class="note narrow" { "It is wider than the page: scroll it sideways." }
                    div class="scroll" {
                        div class="large" { (plot::LARGE.drawn(across, up, Some(titles), marks)) }
                    }
                }
            }
        }
        @if let Drawing::Panels { .. } = drawing {
            @if !table.columns.is_empty() { (sortable(&table)) }
        }
    }
}

fn panel(across: &Scale, up: &Scale, panel: &Panel) -> Markup {
    html! {
        div class="panel" {
            h3 class=[panel.of_cell.then_some("cell")] { (name(&panel.title)) }
            (plot::SMALL.drawn(across, up, None, &panel.marks))
            @if !panel.text.is_empty() { p { (panel.text) } }
        }
    }
}

fn sortable(table: &Table) -> Markup {
    let table = table.shown_on(Media::PAGE);
    html! {
        div class="scroll" {
            table class="sortable" {
                (head(&table, None))
                tbody { @for line in &table.rows { (row(&table, line, None)) } }
            }
        }
    }
}

/// Returns the heading of a column including its group, for use without the group's heading.
fn title(column: &Column) -> String {
    format!("{} {}", column.group, column.heading(Ratios::Changes)).trim().to_owned()
}

fn class(column: &Column) -> Option<&'static str> {
    (column.align == Align::Right).then_some("n")
}

fn head(table: &Table, scale: Option<&Scale>) -> Markup {
    // The page's filter finds the columns of a cell by their class.
    let class = |column: &Column| if column.of_cell { Some("n cell") } else { class(column) };
    html! {
        thead { tr {
            @for (at, column) in table.columns.iter().enumerate() {
                th class=[class(column)] { (name(&title(column))) }
                @if at == 0 { @if let Some(scale) = scale { th class="g" { (plot::head(scale)) } } }
            }
        } }
    }
}

fn row(table: &Table, line: &Line, drawn: Option<Markup>) -> Markup {
    let of_cells = table.columns.first().is_some_and(|column| column.title == "path");
    let is_drawn = drawn.is_some();
    let line_class = Some(line.class).filter(|class| !class.is_empty());
    html! {
        tr id=[line.anchor.as_ref()] class=[line_class] {
            @for (at, (each, column)) in line.cells.iter().zip(&table.columns).enumerate() {
                @if at == 0 {
                    @let text = each.written(Ratios::Changes);
                    th scope="row" class=[of_cells.then_some("cell")] { (name(&text)) }
                    @if let Some(drawn) = &drawn { td class="g" { (drawn) } }
                } @else {
                    (cell(each, column, is_drawn))
                }
            }
        }
    }
}

fn cell(cell: &Cell, column: &Column, is_drawn: bool) -> Markup {
    let text = cell.written(Ratios::Changes);
    let interval = cell.written_interval(Ratios::Changes).replace(" .. ", " \u{2026} ");
    let value = (column.align == Align::Right).then(|| sort_value(&text)).flatten();
    let tone = tone(cell.tone, "");
    let text = if column.align == Align::Right { minus(&text) } else { text };
    let head = (is_drawn && column.align == Align::Right).then(|| title(column));
    let class = match column.title.as_str() {
        "path" => Some("cell"),
        _ => class(column).or((text.len() > WIDE).then_some("w")),
    };
    html! {
        td class=[class] data-h=[head] data-v=[value] {
            @match (&cell.link, tone) {
                (Some(link), _) => a href={ "#" (link) } { (text) },
                (None, "") => (text),
                (None, tone) => span class=(tone) { (text) },
            }
            @if !interval.is_empty() { br; " " span class="off" { (minus(&interval)) } }
        }
    }
}

/// Returns the class of a tone, or `otherwise` if it has none.
fn tone(tone: Tone, otherwise: &'static str) -> &'static str {
    match tone {
        Tone::Good => "word better",
        Tone::Bad => "word worse",
        Tone::Faint => "off",
        Tone::Plain | Tone::Strong => otherwise,
    }
}

/// Longest text in a column of unlimited width.
const WIDE: usize = 24;

/// Renders a name, which may be broken after a character that joins its parts.
pub(crate) fn name(text: &str) -> Markup {
    html! {
        @for (i, part) in text.split_inclusive([',', '+', ';', '/']).enumerate() {
            @if i > 0 { wbr; } (part)
        }
    }
}

/// Replaces the hyphen before a number by a minus sign, which is as wide as the plus.
pub(crate) fn minus(text: &str) -> String {
    if !text.contains(|c: char| c.is_ascii_digit()) {
        return text.to_owned();
    }
    let text = text.replace("+-", "\u{b1}").replace("..", "\u{2026}");
    let mut last = ' ';
    let mut written = String::new();
    for c in text.chars() {
        let is_sign = c == '-' && matches!(last, ' ' | '[');
        written.push(if is_sign { '\u{2212}' } else { c });
        last = c;
    }
    written
}

/// Returns the key by which a numeric cell is sorted, if that is not the text itself: `64 KiB`,
/// `9.5k`, `12%`. `None` if it is the text, or if there is none.
fn sort_value(text: &str) -> Option<String> {
    let text = text.trim_start_matches(['<', '>', '+']);
    let digits = text.find(|c: char| !(c.is_ascii_digit() || "-.".contains(c)))?;
    let number: f64 = text[..digits].parse().ok()?;
    let factor = match text[digits..].trim() {
        "k" => 1e3,
        "M" => 1e6,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => 1.0,
    };
    Some((number * factor).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sorts_by_the_number_that_a_text_stands_for() {
        let values = ["64 KiB", "9.5k", "12%", "+20.5%", "-0.5 x", "12", "-", "a"].map(sort_value);
        let values = values.map(|value| value.unwrap_or_default());
        assert_eq!(values, ["65536", "9500", "12", "20.5", "-0.5", "", "", ""]);
    }

    #[test]
    fn a_minus_is_as_long_as_a_plus() {
        assert_eq!(minus("-1.5 .. -0.2"), "\u{2212}1.5 \u{2026} \u{2212}0.2");
        assert_eq!(minus("1e-3 p-9"), "1e-3 p-9");
        assert_eq!(minus("-"), "-");
    }
}
