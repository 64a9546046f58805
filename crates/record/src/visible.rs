//! Untrusted text, made safe to display: names and messages may come from other people's files.

use std::borrow::Cow;

/// True if a character controls or disguises text instead of being visible: control characters (C0,
/// DEL, C1), and those that change the direction of text, break lines or have no width (Unicode's
/// `Bidi_Control`, `Zl`, `Zp` and most of `Cf`).
pub fn is_unsafe_to_display(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}')
        || matches!(c, '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}')
}

/// Escapes such characters (`\u{1b}`); line feeds are kept.
pub fn visible(text: &str) -> Cow<'_, str> {
    let is_unsafe = |c: char| c != '\n' && is_unsafe_to_display(c);
    if !text.contains(is_unsafe) {
        return text.into();
    }
    let mut shown = String::with_capacity(text.len() + 64);
    for c in text.chars() {
        if is_unsafe(c) { shown.extend(c.escape_unicode()) } else { shown.push(c) }
    }
    shown.into()
}

/// Like [`visible`], but on one line, for names that may contain anything.
pub fn one_line(name: &str) -> String {
    visible(name).replace('\n', "\\n")
}

/// Escapes such characters in JSON; a parser reads the same value. All of them are in the Basic
/// Multilingual Plane and occur only within strings.
pub fn visible_json(json: String) -> String {
    let is_hidden = |c: char| c != '\n' && is_unsafe_to_display(c);
    if !json.contains(is_hidden) {
        return json;
    }
    let shown = |c| if is_hidden(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    json.chars().map(shown).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_steers_a_terminal_is_shown_and_all_else_stays() {
        assert_eq!(visible("\u{1b}[31mX\u{7}\u{9b}"), "\\u{1b}[31mX\\u{7}\\u{9b}");
        assert_eq!(visible("a\u{202e}b\u{2066}c\u{61c}"), "a\\u{202e}b\\u{2066}c\\u{61c}");
        for plain in ["two cells\nand Grüße, 試験 \u{2026}", ""] {
            assert!(matches!(visible(plain), Cow::Borrowed(text) if text == plain));
        }
    }

    #[test]
    fn a_name_is_one_line() {
        assert_eq!(one_line("a\nbytepath: b\u{1b}"), "a\\nbytepath: b\\u{1b}");
    }

    #[test]
    fn visible_json_says_the_same() {
        let value = "a\u{202e}b\u{9b}c\u{1b}\"\\\n\u{fffb}Grüße";
        let text = visible_json(serde_json::to_string_pretty(&[value]).unwrap());
        assert!(!text.contains(|c| c != '\n' && is_unsafe_to_display(c)), "{text}");
        assert_eq!(serde_json::from_str::<Vec<String>>(&text).unwrap(), [value]);
    }
}
