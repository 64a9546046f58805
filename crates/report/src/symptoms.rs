//! What well-known functions of a profile mean, as the formats print it.

use super::figures::percent;
use super::page::Page;
use bytepath_profile::symptom::Seen;

/// What the section is called.
pub(crate) const TITLE: &str = "What well-known functions mean";

/// What its shares are parts of.
pub(crate) const NOTE: &str = "Shares of the busy time, as sampled, without idle samples \
                        and foreign threads. Lines below 0.5% on every side are omitted.";

/// Puts them on a page. `sides` are the names of what the shares are of, none for one
/// profile alone.
pub(crate) fn print(page: &mut Page, seen: &[Seen], sides: &[impl AsRef<str>]) {
    if seen.is_empty() {
        return;
    }
    page.heading(TITLE);
    for symptom in seen {
        let shares = match sides {
            [] => percent(symptom.shares.first().copied()),
            names => {
                let shares = names.iter().zip(&symptom.shares);
                let shares =
                    shares.map(|(name, share)| format!("{} {}", name.as_ref(), percent(*share)));
                shares.collect::<Vec<String>>().join(", ")
            }
        };
        let functions = symptom.functions.join(", ");
        page.text("  ", &format!("{}: {shares} ({functions})", symptom.name));
        page.text("    ", &symptom.means);
        page.text("    ", &format!("try: {}", symptom.remedy));
    }
    page.text("  ", NOTE);
}
