//! Texts that may contain several tables, as mails do: before and after a change.

use bytepath_record::Fault;

/// Returns a note about lines that are not rows.
pub(super) fn left_out(lines: u64) -> Option<String> {
    let word = if lines == 1 { "line" } else { "lines" };
    (lines > 0).then(|| format!("left out: {lines} {word} of other text"))
}

/// Chooses one of the tables in a text; `starts` are the numbers of their first lines.
pub(super) fn chosen(title: &str, starts: &[u64], number: Option<usize>) -> Result<usize, Fault> {
    let fault = |what: String| Fault::storage(format!("{title} {what}"));
    let listed = || {
        let lines: Vec<String> = starts.iter().take(9).map(u64::to_string).collect();
        let more = if starts.len() > 9 { " and more" } else { "" };
        format!("which begin in lines {}{more}", lines.join(", "))
    };
    match (number, starts.len()) {
        (_, 0) => Err(fault("holds no row that can be read".into())),
        (None, 1) => Ok(0),
        (None, count) => Err(fault(format!("holds {count} tables, {}", listed()))
            .remedy(format!("choose one of them: {title}@1"))),
        (Some(number), count) if (1..=count).contains(&number) => Ok(number - 1),
        (Some(number), count) => {
            Err(fault(format!("has no table {number}: it holds {count}, {}", listed())))
        }
    }
}
