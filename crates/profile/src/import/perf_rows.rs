//! Parses rows of `perf report` and `perf top` by tokens, for text without intact columns: `5.97%
//! vhost-4874 [kernel.kallsyms] [k] memcpy`. A heading names the columns; without one they are
//! guessed from the rows.

use super::number::{decimal, whole};
use super::perf_report::{COLUMNS, Column, Row as Parsed};
use crate::text::quote;

/// The content of a line.
#[derive(Debug)]
pub(super) enum LineItem {
    Row(Row),
    /// Column names, which are stored in the layout.
    Heading,
    /// A share below a row, of a caller or callee, which is not added to any sum.
    CallGraph,
    Prose,
}

/// The columns that a heading names, in order; empty without a heading.
#[derive(Clone, Debug, Default)]
pub(super) struct Layout(Vec<Column>);

/// A row whose words are not yet assigned to columns.
#[derive(Debug)]
pub(super) struct Row {
    /// One share, or the shares with and without callees. perf sorts by the first.
    pub(super) shares: Vec<f64>,
    /// The text between the shares and the function.
    words: Vec<String>,
    /// The function with its mark, `[k]`, which shows where it begins and which only rows have;
    /// `None` if there is no such column.
    pub(super) symbol: Option<String>,
}

const MARKS: [&str; 5] = ["[k]", "[.]", "[g]", "[u]", "[H]"];

/// Parses a line without quotation marks into its rows, or what else it is.
pub(super) fn parse(text: &str, layout: &mut Layout) -> Result<Vec<LineItem>, String> {
    if text.starts_with('|') || text.starts_with("--") && text.contains("%--") {
        return Ok(vec![LineItem::CallGraph]);
    }
    let tokens: Vec<&str> = text.split_ascii_whitespace().collect();
    let mut found = Vec::new();
    let mut prose = false;
    let mut rest = tokens.as_slice();
    while let Some((token, after)) = rest.split_first() {
        if let Some((columns, used)) = heading(rest)? {
            *layout = Layout(columns);
            found.push(LineItem::Heading);
            rest = rest.get(used..).unwrap_or_default();
        } else if share(token).is_some() {
            let first = found.is_empty() && !prose;
            let shares: Vec<f64> = rest.iter().map_while(|token| share(token)).collect();
            let body = rest.get(shares.len()..).unwrap_or_default();
            let end = body.iter().position(|token| share(token).is_some() || *token == "#");
            let (body, next) = body.split_at(end.unwrap_or(body.len()));
            // The mark that opens or closes a callee precedes the next share.
            let body = body.strip_suffix(&["+"]).or(body.strip_suffix(&["-"])).unwrap_or(body);
            let whole_row = rest.get(..shares.len() + body.len()).unwrap_or_default().join(" ");
            let wrong = |what: String| format!("{} {what}", quote(&whole_row));
            rest = next;
            match row(shares, body, layout).map_err(wrong)? {
                Some(row) => found.push(LineItem::Row(row)),
                None if first && body.len() == 1 => found.push(LineItem::CallGraph),
                // People also begin lines with a share, but without brackets.
                None if first && body.iter().any(|token| token.starts_with('[')) => {
                    let what = "has no [k] or [.] that says where its function begins";
                    return Err(wrong(what.into()));
                }
                None => prose = true,
            }
        } else {
            prose |= !token.bytes().all(|byte| b"#.+->".contains(&byte));
            rest = after;
        }
    }
    if prose {
        found.push(LineItem::Prose);
    }
    Ok(found)
}

/// Builds a row with these shares; `None` if nothing shows where its function begins.
fn row(shares: Vec<f64>, body: &[&str], layout: &Layout) -> Result<Option<Row>, String> {
    let Some(mark) = body.iter().position(|token| MARKS.contains(token)) else {
        let whole = !layout.0.is_empty() && !layout.0.contains(&Column::Symbol);
        let words = body.iter().map(|word| (*word).to_owned()).collect();
        return Ok(whole.then_some(Row { shares, words, symbol: None }));
    };
    let (words, symbol) = body.split_at(mark);
    // The address and origin letter that `-v` prints.
    let words = match words {
        [before @ .., address, origin] if address.starts_with("0x") && origin.len() == 1 => before,
        _ => words,
    };
    let mut name = symbol.get(1..).unwrap_or_default();
    // Empty cycle columns, and the dots of truncated text.
    while let [before @ .., "-" | "..."] = name
        && !before.is_empty()
    {
        name = before;
    }
    let (first, more) = name.split_first().ok_or("has no function")?;
    let signs = if body.get(mark) == Some(&"[.]") { "(<:[~" } else { "<:" };
    let is_prose = |c: char| c.is_control() || "'\"`;!?".contains(c);
    if more.is_empty() && first.contains(is_prose) && !first.contains("::") {
        return Err(format!("ends in {}, which is not a function name", quote(first)));
    }
    // C++ and Rust names contain blanks, but then also one of these characters.
    let named = matches!(more, ["(inlined)"])
        || name.iter().any(|token| token.contains(|c| signs.contains(c)));
    if !more.is_empty() && !named && !first.starts_with("operator") {
        return Err(format!("is ambiguous: {} comes after the name", quote(more.join(" "))));
    }
    let symbol = Some(format!("{} {}", body.get(mark).unwrap_or(&""), name.join(" ")));
    let words = words.iter().map(|word| (*word).to_owned()).collect();
    Ok(Some(Row { shares, words, symbol }))
}

/// Returns the columns that these tokens begin with, and the number of tokens that name them.
fn heading(tokens: &[&str]) -> Result<Option<(Vec<Column>, usize)>, String> {
    let mut columns = Vec::new();
    let mut used = 0;
    while let Some(rest) = tokens.get(used..).filter(|rest| !rest.is_empty()) {
        let known = COLUMNS.iter().find(|(name, _)| {
            let words: Vec<&str> = name.split(' ').collect();
            rest.starts_with(&words)
        });
        let Some((name, column)) = known else { break };
        used += name.split(' ').count();
        columns.push(*column);
    }
    if columns.len() < 2 || !columns.first().is_some_and(is_share) {
        return Ok(None);
    }
    match tokens.get(used) {
        Some(word) if !word.starts_with(['#', '.']) && !columns.contains(&Column::Symbol) => {
            Err(format!("a heading names an unknown column: {}", quote(word)))
        }
        _ => Ok(Some((columns, used))),
    }
}

fn is_share(column: &Column) -> bool {
    matches!(column, Column::Share | Column::Other)
}

/// Parses `18,61%`: perf prints shares with decimals, people often do not.
fn share(token: &str) -> Option<f64> {
    let number = token.strip_suffix('%')?;
    number.contains(['.', ',']).then(|| decimal(number)).flatten().filter(|share| *share <= 100.0)
}

/// Assigns the words of the rows to columns.
pub(super) fn assign_columns(rows: Vec<Row>, layout: &Layout) -> Result<Vec<Parsed>, String> {
    let columns: Vec<Column> = if layout.0.is_empty() {
        guessed(&rows)
    } else {
        let fixed = |column: &&Column| !is_share(column) && **column != Column::Symbol;
        layout.0.iter().filter(fixed).copied().collect()
    };
    rows.into_iter().map(|row| in_columns(row, &columns)).collect()
}

/// Guesses the columns between share and function from the contents of all rows: sample counts and
/// periods first, then the thread's name, the file last. There is a file column if the last word of
/// any row has brackets, as for the kernel and its modules, or if no function is in the kernel.
fn guessed(rows: &[Row]) -> Vec<Column> {
    let mut columns = Vec::new();
    let least = rows.iter().map(|row| row.words.len()).min().unwrap_or_default();
    let every = |at: usize, test: &dyn Fn(&str) -> bool| {
        rows.iter().all(|row| row.words.get(at).is_some_and(|word| test(word)))
    };
    for column in [Column::Samples, Column::Period] {
        if least > columns.len() + 1 && every(columns.len(), &|word| whole(word).is_some()) {
            columns.push(column);
        }
    }
    let pid = |word: &str| word.split_once(':').is_some_and(|(id, _)| id.parse::<u32>().is_ok());
    let command = if every(columns.len(), &pid) { Column::PidCommand } else { Column::Command };
    let object = |row: &Row| row.words.last().is_some_and(|word| word.starts_with('['));
    let user = |row: &Row| row.symbol.as_deref().is_some_and(|symbol| symbol.starts_with("[.]"));
    let most = rows.iter().map(|row| row.words.len()).max().unwrap_or_default();
    let objects = rows.iter().any(object) || rows.iter().all(user);
    match most - columns.len() {
        0 => {}
        1 if objects => columns.push(Column::Object),
        _ if objects => columns.extend([command, Column::Object]),
        _ => columns.push(command),
    }
    columns
}

/// Assigns the words of a row to these columns: one word each, except for the thread's name, which
/// takes the remaining words.
fn in_columns(row: Row, columns: &[Column]) -> Result<Parsed, String> {
    let Row { shares, words, symbol } = row;
    let mut parsed = Parsed::default();
    parsed.share = shares.last().copied();
    let name = symbol.as_deref().unwrap_or_default();
    let bad =
        |what: &str| format!("the row {} {what}", quote(format!("{} {name}", words.join(" "))));
    let named = columns.iter().position(|column| column.is_command());
    let right = columns.len() - named.map_or(columns.len(), |at| at + 1);
    let mut left = words.as_slice();
    for column in columns {
        let size = match column.is_command() {
            true => left.len().checked_sub(right + joined(left)),
            false if *column == Column::Object => Some(1 + joined(left)),
            false => Some(1),
        };
        let size = size.filter(|size| (1..=left.len()).contains(size));
        let (own, rest) = left.split_at(size.ok_or_else(|| bad("has too few words"))?);
        let cell = own.join(" ");
        left = rest;
        let is_samples = *column == Column::Samples;
        let lacks = if is_samples { "has no number of samples" } else { "has no period" };
        parsed.enter(*column, &cell).ok_or_else(|| bad(lacks))?;
    }
    if !left.is_empty() {
        return Err(bad("has more words than columns"));
    }
    parsed.symbol = symbol;
    Ok(parsed)
}

/// Returns the number of words before the last that belong to the file's name: `[JIT] tid 7`,
/// `memfd:x (deleted)`.
fn joined(words: &[String]) -> usize {
    match words {
        [.., jit, tid, _] if jit == "[JIT]" && tid == "tid" => 2,
        [.., _, last] if last == "(deleted)" => 1,
        _ => 0,
    }
}
