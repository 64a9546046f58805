//! The content of a report, whatever its format: titled sections of texts, lists, tables and
//! figures, built once and without layout. [`crate::render`] writes them as plain text (`text`,
//! `netdev` and the output of other commands) and as HTML.
//!
//! To add a table to the report of a study, write it in one place, a file in `sections/`:
//! 1. `let cost = (Column::number("", "us", 0), |row: &&Row| number(row.cost, 1));`
//! 2. `let table = Table::of(view.rows.clone(), [(Column::path(), |row| row.cell.to_string()), cost]);`
//! 3. `Section::new("id", "Title").with(table).note("How to read it.")`
//! 4. Add the function that returns this to the list in `sections::study`.
//! 5. Every format now shows it; [`Section::on`] and [`Column::on`] restrict that.

mod mark;
mod scale;

pub(crate) use mark::{Form, Mark};
pub(crate) use scale::Scale;

use crate::wording::figures::{NONE, change, interval, ratio};
use bytepath_stats::{Comparison, Effect, Row, Verdict};

/// Sections in reading order.
#[derive(Debug, Default)]
pub struct Document {
    pub(crate) sections: Vec<Section>,
}

/// A titled part of a document.
#[derive(Debug)]
pub(crate) struct Section {
    /// Anchor in an HTML page; empty if nothing links to it.
    pub id: &'static str,
    /// Empty if the section continues the previous one.
    pub title: String,
    pub media: Media,
    /// Whether plain text shows it only with `--details`, and then every column of its tables.
    pub detail: bool,
    pub blocks: Vec<(Media, Block)>,
}

#[derive(Clone, Debug)]
pub(crate) enum Block {
    /// A title within the section, and the cell that the following blocks belong to. Plain text
    /// prints it instead of the section's title if it is the first block.
    Heading(String, Option<String>),
    /// A paragraph, with the lead before it ("kernel    ").
    Text(String, String),
    /// A separate line, which is never wrapped.
    Line(Vec<(String, Tone)>),
    List(List),
    /// Preformatted text.
    Code(String),
    Table(Table),
    Figure(Figure),
    /// An empty line in plain text.
    Gap,
}

/// List items, each after its lead unless the leads are empty.
#[derive(Clone, Debug, Default)]
pub(crate) struct List {
    pub items: Vec<Point>,
    /// Whether the leads are names of cells.
    pub of_cells: bool,
    /// Summary under which an HTML page folds the list, if it does.
    pub folded: Option<String>,
}

/// A list item; its lead may be empty.
#[derive(Clone, Debug)]
pub(crate) struct Point {
    pub lead: String,
    /// First word of the text, if that has a tone.
    pub word: &'static str,
    pub tone: Tone,
    pub text: String,
}

/// A drawing for media that support one; other media show its table.
#[derive(Clone, Debug)]
pub(crate) struct Figure {
    /// How to read the drawing.
    pub caption: String,
    /// Legend: classes and names of the colours.
    pub key: Vec<(&'static str, String)>,
    pub drawing: Drawing,
    pub table: Table,
}

#[derive(Clone, Debug)]
pub(crate) enum Drawing {
    /// Marks in every row of the table, on one scale; the height of a row in pixels.
    Rows { scale: Scale, height: f64, marks: Vec<Vec<Mark>> },
    /// Small plots with the same axes.
    Panels { across: Scale, up: Scale, panels: Vec<Panel> },
    /// One large plot with the titles of its axes, drawn in HTML pages only.
    Plot { across: Scale, up: Scale, titles: [String; 2], marks: Vec<Mark> },
}

/// A small plot: its title, the cell it belongs to if any, marks, and a text below.
#[derive(Clone, Debug, Default)]
pub(crate) struct Panel {
    pub title: String,
    pub of_cell: bool,
    pub marks: Vec<Mark>,
    pub text: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Table {
    pub columns: Vec<Column>,
    pub rows: Vec<Line>,
    /// Number of blanks before each line of plain text.
    pub indent: usize,
    /// Summary under which an HTML page folds the table, if it does.
    pub folded: Option<String>,
}

/// Makes a column's cell from a row.
type CellOf<T, C> = fn(&T) -> C;

/// A row of a table: one cell per column.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub cells: Vec<Cell>,
    pub media: Media,
    /// Class and anchor in an HTML page; may be empty.
    pub class: &'static str,
    pub anchor: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct Column {
    /// Heading shared by neighbouring columns of the same group; may be empty.
    pub group: &'static str,
    pub title: String,
    pub align: Align,
    /// Order in which plain text drops columns if the line is too narrow: highest first, equal
    /// ranks together, 0 never.
    pub rank: u8,
    /// Least width if the column may be wrapped; `None` if it must not be.
    pub wrap: Option<usize>,
    /// Rank of the intervals of its cells, which plain text prints in a separate column; `None` if
    /// they have none.
    pub interval: Option<u8>,
    /// Whether its cells are ratios to the baseline.
    pub is_ratio: bool,
    /// Whether its title is a cell, which it belongs to.
    pub of_cell: bool,
    pub media: Media,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Align {
    Left,
    Right,
}

/// A value of a table, with its interval.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    value: Value,
    interval: Option<Range>,
    pub tone: Tone,
    /// Anchor in the HTML page that it links to.
    pub link: Option<String>,
}

#[derive(Clone, Debug)]
enum Value {
    Text(String),
    /// A ratio to the baseline; `None` if unknown.
    Ratio(Option<f64>),
    /// The baseline itself.
    One,
}

#[derive(Clone, Debug)]
enum Range {
    Text(String),
    Ratios(f64, f64),
}

/// How the ratios of a table are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ratios {
    /// `1.21x [1.19, 1.23]`
    Factors,
    /// `+21% .. +23%`
    Changes,
}

/// Weight of a piece of text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Tone {
    #[default]
    Plain,
    /// Headings, the baseline.
    Strong,
    /// Less important.
    Faint,
    /// Better than the baseline.
    Good,
    /// Worse than the baseline, or failed.
    Bad,
}

impl Tone {
    /// Returns the tone; `better` is `None` if it is neither better nor worse.
    pub(crate) fn of(better: Option<bool>) -> Tone {
        match better {
            Some(true) => Tone::Good,
            Some(false) => Tone::Bad,
            None => Tone::Plain,
        }
    }
}

/// Set of the media that show a section, block, column or row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Media(u8);

impl Media {
    pub(crate) const NONE: Media = Media(0);
    pub(crate) const TERMINAL: Media = Media(1);
    pub(crate) const MAIL: Media = Media(2);
    pub(crate) const PAGE: Media = Media(4);
    pub(crate) const PLAIN: Media = Media(1 | 2);
    pub(crate) const ALL: Media = Media(1 | 2 | 4);

    pub(crate) fn includes(self, medium: Media) -> bool {
        self.0 & medium.0 != 0
    }

    pub(crate) const fn or(self, other: Media) -> Media {
        Media(self.0 | other.0)
    }
}

impl Document {
    /// Creates a document from those sections that are not empty.
    pub(crate) fn of(sections: impl IntoIterator<Item = Section>) -> Document {
        let mut document = Document::default();
        document.push(sections);
        document
    }

    /// Begins a section.
    pub(crate) fn heading(&mut self, title: impl Into<String>) {
        self.sections.push(Section::new("", title));
    }

    /// Adds a section of texts with the same lead; nothing if there are no texts.
    pub(crate) fn texts(&mut self, title: &str, lead: &str, texts: &[String]) {
        let mut section = Section::new("", title);
        texts.iter().for_each(|text| section.text(lead, text));
        self.push([section]);
    }

    /// Returns the last section; begins one if there is none.
    fn last(&mut self) -> &mut Section {
        if self.sections.is_empty() {
            self.heading("");
        }
        let last = self.sections.len() - 1;
        &mut self.sections[last]
    }

    pub(crate) fn text(&mut self, lead: &str, text: impl Into<String>) {
        self.last().text(lead, text);
    }

    pub(crate) fn line(&mut self, text: &str, tone: Tone) {
        self.add(Block::Line(vec![(text.to_owned(), tone)]));
    }

    /// Adds a block, unless it is an empty table or list.
    pub(crate) fn add(&mut self, block: impl Into<Block>) {
        self.last().add(block);
    }

    /// Adds a block for these media only.
    pub(crate) fn add_on(&mut self, media: Media, block: impl Into<Block>) {
        self.last().add_on(media, block);
    }

    pub(crate) fn gap(&mut self) {
        self.add(Block::Gap);
    }

    pub(crate) fn push(&mut self, sections: impl IntoIterator<Item = Section>) {
        self.sections.extend(sections.into_iter().filter(|section| !section.is_empty()));
    }
}

impl Section {
    pub(crate) fn new(id: &'static str, title: impl Into<String>) -> Section {
        Section { id, title: title.into(), media: Media::ALL, detail: false, blocks: Vec::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Restricts the section to some media.
    pub(crate) fn on(self, media: Media) -> Section {
        Section { media, ..self }
    }

    pub(crate) fn in_detail(self) -> Section {
        Section { detail: true, ..self }
    }

    /// Adds a block, unless it is an empty table or list.
    pub(crate) fn add(&mut self, block: impl Into<Block>) {
        self.add_on(Media::ALL, block);
    }

    pub(crate) fn add_on(&mut self, media: Media, block: impl Into<Block>) {
        let block = block.into();
        let is_empty = match &block {
            Block::Table(table) => table.rows.is_empty(),
            Block::List(list) => list.items.is_empty(),
            Block::Text(lead, text) => lead.is_empty() && text.is_empty(),
            _ => false,
        };
        if !is_empty {
            self.blocks.push((media, block));
        }
    }

    pub(crate) fn text(&mut self, lead: &str, text: impl Into<String>) {
        self.add(Block::Text(lead.to_owned(), text.into()));
    }

    pub(crate) fn heading(&mut self, title: impl Into<String>) {
        self.add(Block::Heading(title.into(), None));
    }

    pub(crate) fn with(mut self, block: impl Into<Block>) -> Section {
        self.add(block);
        self
    }

    /// Adds a note on how to read the section, unless the section or the note is empty.
    pub(crate) fn note(self, text: impl AsRef<str>) -> Section {
        self.note_on(Media::ALL, text)
    }

    pub(crate) fn note_on(mut self, media: Media, text: impl AsRef<str>) -> Section {
        if !self.is_empty() && !text.as_ref().is_empty() {
            self.add_on(media, Block::Text("  ".into(), text.as_ref().to_owned()));
        }
        self
    }
}

impl From<Table> for Block {
    fn from(table: Table) -> Block {
        Block::Table(table)
    }
}

impl From<List> for Block {
    fn from(list: List) -> Block {
        Block::List(list)
    }
}

impl From<Figure> for Block {
    fn from(figure: Figure) -> Block {
        Block::Figure(figure)
    }
}

impl Figure {
    /// Creates a figure with marks in every table row, on one scale; `height` of a row is in
    /// pixels.
    pub(crate) fn rows(
        caption: impl Into<String>,
        table: Table,
        (scale, height): (Scale, f64),
        marks: impl IntoIterator<Item = Vec<Mark>>,
    ) -> Figure {
        let drawing = Drawing::Rows { scale, height, marks: marks.into_iter().collect() };
        Figure { caption: caption.into(), key: Vec::new(), drawing, table }
    }

    /// Creates a figure with a single plot, with the titles of its axes.
    pub(crate) fn plot(
        caption: String,
        [across, up]: [Scale; 2],
        titles: [String; 2],
        marks: Vec<Mark>,
    ) -> Figure {
        let drawing = Drawing::Plot { across, up, titles, marks };
        Figure { caption, key: Vec::new(), drawing, table: Table::default() }
    }
}

impl Point {
    pub(crate) fn new(lead: &str, text: impl Into<String>) -> Point {
        Point { lead: lead.to_owned(), word: "", tone: Tone::Plain, text: text.into() }
    }
}

impl List {
    pub(crate) fn of_cells(items: impl IntoIterator<Item = (String, String)>) -> List {
        let items = items.into_iter().map(|(cell, text)| Point::new(&cell, text)).collect();
        List { items, of_cells: true, folded: None }
    }

    /// Creates a list without leads.
    pub(crate) fn of(points: impl IntoIterator<Item = String>) -> List {
        let items = points.into_iter().map(|point| Point::new("", point)).collect();
        List { items, ..List::default() }
    }

    pub(crate) fn folded(self, summary: &str) -> List {
        List { folded: Some(summary.to_owned()), ..self }
    }
}

impl Column {
    pub(crate) fn number(group: &'static str, title: &str, rank: u8) -> Column {
        Column {
            group,
            title: title.to_owned(),
            align: Align::Right,
            rank,
            wrap: None,
            interval: None,
            is_ratio: false,
            of_cell: false,
            media: Media::ALL,
        }
    }

    pub(crate) fn words(title: &str, rank: u8, wrap: Option<usize>) -> Column {
        Column { align: Align::Left, wrap, ..Column::number("", title, rank) }
    }

    /// Creates the column with the cells of a study.
    pub(crate) fn path() -> Column {
        Column::words("path", 0, Some(14))
    }

    /// Creates a column of ratios to the baseline.
    pub(crate) fn ratio(group: &'static str, rank: u8) -> Column {
        Column { is_ratio: true, ..Column::number(group, "ratio", rank) }
    }

    /// Hides the column together with the cell in its title.
    pub(crate) fn of_cell(self) -> Column {
        Column { of_cell: true, ..self }
    }

    /// Returns its heading below that of its group.
    pub(crate) fn heading(&self, ratios: Ratios) -> &str {
        match ratios {
            Ratios::Changes if self.is_ratio => "change",
            _ => &self.title,
        }
    }

    /// Returns whether it may be part of a row's name.
    pub(crate) fn is_name(&self) -> bool {
        self.align == Align::Left && self.rank == 0
    }

    /// Adds the intervals of its cells.
    pub(crate) fn interval(self, rank: u8) -> Column {
        Column { interval: Some(rank), ..self }
    }

    /// Restricts the column to some media.
    pub(crate) fn on(self, media: Media) -> Column {
        Column { media, ..self }
    }
}

impl Table {
    pub(crate) fn new(columns: Vec<Column>) -> Table {
        Table { columns, rows: Vec::new(), indent: 2, folded: None }
    }

    /// Creates a table from rows, with a function for each column that makes its cell from a row.
    pub(crate) fn of<T, C: Into<Cell>, const N: usize>(
        rows: impl IntoIterator<Item = T>,
        columns: [(Column, CellOf<T, C>); N],
    ) -> Table {
        let (columns, cells): (Vec<Column>, Vec<CellOf<T, C>>) = columns.into_iter().unzip();
        let cells = |row: T| cells.iter().map(|cell| cell(&row)).collect::<Vec<C>>();
        Table::rows(columns, rows.into_iter().map(cells))
    }

    /// Creates a table from rows with one cell per column.
    pub(crate) fn rows<C: Into<Cell>, R: IntoIterator<Item = C>>(
        columns: impl IntoIterator<Item = Column>,
        rows: impl IntoIterator<Item = R>,
    ) -> Table {
        let mut table = Table::new(columns.into_iter().collect());
        rows.into_iter().for_each(|row| _ = table.row(row));
        table
    }

    /// Adds a row with one cell per column.
    pub(crate) fn row<C: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = C>) -> &mut Line {
        let cells: Vec<Cell> = cells.into_iter().map(Into::into).collect();
        debug_assert_eq!(cells.len(), self.columns.len());
        let at = self.rows.len();
        self.rows.push(Line { cells, media: Media::ALL, class: "", anchor: None });
        &mut self.rows[at]
    }

    /// Removes the indent.
    pub(crate) fn flush(self) -> Table {
        Table { indent: 0, ..self }
    }

    pub(crate) fn folded(self, summary: &str) -> Table {
        Table { folded: Some(summary.to_owned()), ..self }
    }

    /// Keeps only the first column and those of a group.
    pub(crate) fn group(&self, group: &str) -> Table {
        self.filtered(|at, column| at == 0 || column.group == group)
    }

    /// Removes the number columns that are empty in every row.
    pub(crate) fn without_empty(self) -> Table {
        let is_empty = |at: usize| self.rows.iter().all(|row| row.cells[at].is_empty());
        self.filtered(|at, column| column.align == Align::Left || !is_empty(at))
    }

    /// Returns the part of the table that a medium shows.
    pub(crate) fn shown_on(&self, medium: Media) -> Table {
        let mut table = self.filtered(|_, column| column.media.includes(medium));
        table.rows.retain(|row| row.media.includes(medium));
        table
    }

    fn filtered(&self, keep: impl Fn(usize, &Column) -> bool) -> Table {
        let mut table = self.clone();
        for at in (0..self.columns.len()).rev().filter(|at| !keep(*at, &self.columns[*at])) {
            table.columns.remove(at);
            table.rows.iter_mut().for_each(|row| _ = row.cells.remove(at));
        }
        table
    }
}

impl Cell {
    fn new(value: Value) -> Cell {
        Cell { value, interval: None, tone: Tone::Plain, link: None }
    }

    /// Creates the cell with the name of a row.
    pub(crate) fn path(row: &Row) -> Cell {
        Cell::from(row.cell.to_string()).strong_if(row.baseline)
    }

    /// Creates a ratio to the baseline, with its interval.
    pub(crate) fn ratio(effect: Option<&Effect>) -> Cell {
        let interval = effect.and_then(|e| e.interval).map(|i| Range::Ratios(i.low, i.high));
        Cell { interval, ..Cell::new(Value::Ratio(effect.map(|e| e.ratio))) }
    }

    /// Creates the cells of a row's comparison with the baseline: the ratio, and the word of the
    /// verdict.
    pub(crate) fn comparison(row: &Row, comparison: Option<&Comparison>) -> [Cell; 2] {
        match comparison {
            Some(c) => [Cell::ratio(c.effect.as_ref()), Cell::verdict(&c.verdict)],
            None if row.baseline => {
                [Cell::new(Value::One), Cell::from("baseline").tone(Tone::Faint)]
            }
            None => [Cell::new(Value::Ratio(None)), Cell::from("")],
        }
    }

    pub(crate) fn verdict(verdict: &Verdict) -> Cell {
        Cell::from(verdict.word()).tone(Tone::of(verdict.better()))
    }

    /// Creates a ratio with its interval, written as a factor in every medium.
    pub(crate) fn factor(effect: Option<&Effect>) -> Cell {
        let range = effect.and_then(|e| e.interval).map(|i| interval(i.low, i.high));
        Cell::from(ratio(effect.map(|e| e.ratio))).within(range)
    }

    /// Adds an interval in the format of the value; `None` if there is none.
    pub(crate) fn within(self, interval: Option<String>) -> Cell {
        Cell { interval: interval.map(Range::Text), ..self }
    }

    pub(crate) fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    pub(crate) fn link(self, link: Option<String>) -> Cell {
        Cell { link, ..self }
    }

    pub(crate) fn strong_if(self, is_strong: bool) -> Cell {
        if is_strong { self.tone(Tone::Strong) } else { self }
    }

    pub(crate) fn written(&self, ratios: Ratios) -> String {
        match (&self.value, ratios) {
            (Value::Text(text), _) => text.clone(),
            (Value::Ratio(value), Ratios::Factors) => ratio(*value),
            (Value::Ratio(value), Ratios::Changes) => change(*value),
            (Value::One, Ratios::Factors) => "1".into(),
            (Value::One, Ratios::Changes) => String::new(),
        }
    }

    /// Returns its formatted interval; empty if it has none.
    pub(crate) fn written_interval(&self, ratios: Ratios) -> String {
        match (&self.interval, ratios) {
            (None, _) => String::new(),
            (Some(Range::Text(text)), _) => text.clone(),
            (Some(Range::Ratios(low, high)), Ratios::Factors) => interval(*low, *high),
            (Some(Range::Ratios(low, high)), Ratios::Changes) => {
                format!("{} .. {}", change(*low), change(*high))
            }
        }
    }

    fn is_empty(&self) -> bool {
        let text = self.written(Ratios::Factors);
        text.is_empty() || text == NONE
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Cell {
        Cell::new(Value::Text(text))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Cell {
        Cell::from(text.to_owned())
    }
}

impl From<(String, Tone)> for Cell {
    fn from((text, tone): (String, Tone)) -> Cell {
        Cell::from(text).tone(tone)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_columns_without_figures() {
        let columns = ["a", "b", "c"].map(|title| Column::number("", title, 0));
        let mut table = Table::new([vec![Column::path()], columns.to_vec()].concat());
        table.row(["", "1", "-", ""]);
        table.row(["", "-", "-", "2"]);
        let table = table.without_empty();
        let titles: Vec<&str> = table.columns.iter().map(|c| c.title.as_str()).collect();
        assert_eq!(titles, ["path", "a", "c"]);
        let texts = table.rows[1].cells.iter().map(|cell| cell.written(Ratios::Factors));
        assert_eq!(texts.collect::<Vec<_>>(), ["", "-", "2"]);
    }
}
