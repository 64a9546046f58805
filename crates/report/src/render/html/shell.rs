//! The frame of every page: its style, its scripts and its policy.

use super::blocks;
use crate::document::Section;
use bytepath_record::{visible, visible_json};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde_json::Value;
use std::io::{self, Write};

const STYLE: &str = include_str!("style.css");

/// In this order: later ones use declarations of `tips.js`.
const SCRIPTS: [&str; 4] = [
    include_str!("tips.js"),
    include_str!("script.js"),
    include_str!("filter.js"),
    include_str!("flame.js"),
];

/// The content security policy: only the style and the scripts with these digests are allowed (a
/// test prints the correct digests when they change).
const POLICY: &str = "default-src 'none'; base-uri 'none'; form-action 'none'; \
     style-src 'sha256-+GaB/Y03zo0r1p1mMK0VIls8zuiKTqIQ9rjqfwSvSpg='; \
     script-src 'sha256-2SWYJhghqhSKcqjCMOI/m9s6ZnmxlEEsQ9bJMzswSsY=' \
     'sha256-+FZ3g9Thq4rQ15pc5hvpkv54nn7Z2nbg4dhMbCehZms=' \
     'sha256-yJvMyagRT8EImCPtgs2h4l2Tki+Vfu6NZsOnqc+QyOc=' \
     'sha256-8RhqJ8UeP7c06kzcdwx2IA6fm2zjQBf7eVpWI35Lg0k='";

/// Writes a page from its content and the data of its scripts. `version` is that of the program
/// that measured the numbers.
pub(crate) fn write(
    title: &str,
    version: &str,
    content: Markup,
    data: &Value,
    out: &mut dyn Write,
) -> io::Result<()> {
    // In JSON, `<` occurs only in strings, where it can be escaped: so no string can end the
    // element.
    let data = visible_json(data.to_string()).replace('<', "\\u003c");
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            (head(title, version))
            body {
                (content)
                script id="data" type="application/json" { (PreEscaped(data)) }
                @for script in SCRIPTS { script { (PreEscaped(script)) } }
            }
        }
    };
    out.write_all(visible(&page.into_string()).as_bytes())?;
    writeln!(out)
}

fn head(title: &str, version: &str) -> Markup {
    html! {
        head {
            meta charset="utf-8";
            meta http-equiv="Content-Security-Policy" content=(POLICY);
            meta name="viewport" content="width=device-width, initial-scale=1";
            meta name="color-scheme" content="light dark";
            meta name="generator" content={ "bytepath " (version) };
            title { (title) " \u{b7} bytepath" }
            style { (PreEscaped(STYLE)) }
        }
    }
}

/// Renders a section with its title.
pub(crate) fn titled(section: &Section) -> Markup {
    html! {
        section id=[Some(section.id).filter(|id| !id.is_empty())] {
            @if !section.title.is_empty() { h2 { (section.title) } }
            (blocks::section(section))
        }
    }
}
