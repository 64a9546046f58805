//! The page: well formed by the strict rules of [`parse`] whatever the study is, with no reference
//! to the outside, and nothing that a hostile study can run. `browser.rs` opens it.

use crate::anything;
use crate::made_up;
use crate::profiles;
use crate::shared::{render, words};

use anything::any_study;
use bytepath::profile::Explanation;
use bytepath::record::{CellId, Fault, FaultKind, Reading, Role, Scope, Study, TrialStatus, Unit};
use bytepath::report::{self, Style};
use bytepath::stats::{Rules, analyse};
use made_up::{large, study};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};

pub fn page(study: &Study) -> String {
    String::from_utf8(render("html", study, &Style::default())).unwrap()
}

/// A start tag with its attributes, as read from a page.
#[derive(Debug)]
pub struct Tag {
    name: String,
    pub attributes: BTreeMap<String, String>,
}

/// The parsed content of a page.
#[derive(Debug, Default)]
pub struct Parsed {
    pub tags: Vec<Tag>,
    /// All text outside of style and script, entities resolved.
    pub text: String,
    style: String,
    scripts: Vec<String>,
    /// The data embedded for the scripts.
    pub data: serde_json::Value,
}

const VOID: [&str; 4] = ["meta", "br", "wbr", "input"];

const KNOWN: &str = "\
    html wbr head meta title style body header p h1 h2 h3 nav a main section figure figcaption \
    b strong ul li svg rect line circle polyline text table thead tbody tr th td br span div \
    details summary code pre dl dt dd script noscript label input select option button output";

/// Parses a page by rules stricter than a browser's: known elements, each closed in order,
/// attributes quoted, no character that must be an entity.
fn parse(page: &str) -> Parsed {
    let mut parsed = Parsed::default();
    let mut open: Vec<String> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a document type");
    while let Some(at) = rest.find('<') {
        parsed.text.push_str(&resolve(&rest[..at]));
        parsed.text.push(' ');
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let inside = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = inside.strip_prefix('/') {
            assert_eq!(open.pop().as_deref(), Some(name), "closed out of order");
            continue;
        }
        let tag = tag(inside);
        assert!(KNOWN.split(' ').any(|name| name == tag.name), "<{inside}>");
        if tag.name == "style" || tag.name == "script" {
            let close = format!("</{}>", tag.name);
            let (raw, after) = rest.split_once(&close).expect("raw text ends");
            assert!(!raw.contains("</"), "{tag:?} may end early");
            match (tag.name.as_str(), tag.attributes.get("type").map(String::as_str)) {
                ("style", None) => parsed.style.push_str(raw),
                ("script", None) => parsed.scripts.push(raw.to_owned()),
                ("script", Some("application/json")) => {
                    assert!(!raw.contains('<') && parsed.data.is_null(), "{raw}");
                    parsed.data = serde_json::from_str(raw).unwrap();
                }
                other => panic!("{other:?}"),
            }
            rest = after;
        } else if !VOID.contains(&tag.name.as_str()) {
            open.push(tag.name.clone());
        }
        parsed.tags.push(tag);
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} left open");
    parsed
}

fn tag(inside: &str) -> Tag {
    let (name, mut rest) = inside.split_once(' ').unwrap_or((inside, ""));
    let mut attributes = BTreeMap::new();
    while !rest.trim().is_empty() {
        let (key, value) = rest.trim_start().split_once("=\"").expect("a quoted attribute");
        assert!(key.chars().all(|c| c.is_ascii_alphanumeric() || "-:".contains(c)), "{inside}");
        let (value, after) = value.split_once('"').expect("a closed attribute");
        assert!(attributes.insert(key.to_owned(), resolve(value)).is_none(), "{key} twice");
        rest = after;
    }
    Tag { name: name.to_owned(), attributes }
}

fn resolve(text: &str) -> String {
    assert!(!text.contains(['<', '>']), "a bare sign in {text:?}");
    for (at, _) in text.match_indices('&') {
        let fine = ["&amp;", "&lt;", "&gt;", "&quot;"].iter().any(|e| text[at..].starts_with(e));
        assert!(fine, "no entity in {text:?}");
    }
    text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"").replace("&amp;", "&")
}

/// Checks what holds for every page.
pub fn sound(page: &str) -> Parsed {
    let parsed = parse(page);
    let mut ids = BTreeSet::new();
    for tag in &parsed.tags {
        for (name, value) in &tag.attributes {
            assert!(!name.starts_with("on") && name != "style", "{tag:?}");
            // An inline colour would not follow the colour scheme.
            assert!(!["fill", "stroke", "opacity", "color"].contains(&name.as_str()), "{tag:?}");
            assert!(!["src", "action", "srcset"].contains(&name.as_str()), "{tag:?}");
            assert!(name != "href" || value.starts_with('#'), "{tag:?}");
            let numeric =
                ["x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "width", "height", "points"];
            if numeric.contains(&name.as_str()) && tag.name != "meta" {
                let fine = |c: char| c.is_ascii_digit() || "%., ".contains(c);
                assert!(!value.is_empty() && value.chars().all(fine), "{tag:?}");
            }
            assert!(name != "id" || ids.insert(value.clone()), "{value} is there twice");
        }
    }
    for link in parsed.tags.iter().filter_map(|t| t.attributes.get("href")) {
        assert!(ids.contains(&link[1..]), "{link} leads nowhere");
    }
    for c in page.chars() {
        assert!(!c.is_control() || c == '\n', "{c:?}");
        assert!(!('\u{202a}'..='\u{202e}').contains(&c), "{c:?}");
    }
    let mut words = parsed.text.split(|c: char| !c.is_ascii_alphanumeric());
    assert!(!words.any(|w| ["NaN", "inf", "Infinity"].contains(&w)));
    parsed
}

fn names(parsed: &Parsed) -> BTreeMap<&str, usize> {
    let mut counts = BTreeMap::new();
    for tag in &parsed.tags {
        *counts.entry(tag.name.as_str()).or_default() += 1;
    }
    counts
}

#[test]
fn the_page_says_what_the_study_says() {
    let parsed = sound(&page(&study()));
    let said = words(&parsed.text);
    for part in [
        "Use splice (sender: splice, receiver: tcp-zerocopy-receive) instead of socket: 33.80 against 28.04 Gbit/s, 1.21x (FASTER); 0.398 against 0.552 CPU-s per GiB, 28% less (LESS CPU).",
        "A against A",
        "/dev/udmabuf is missing",
        "killed by signal 9",
        "the flow stalled for 0.2 s",
        "AMD EPYC 9B14",
        "io_uring_enter",
        "bytepath run",
    ] {
        assert!(said.contains(part), "{part} is missing");
    }
    // The figures come before the verdicts in words, and the hosts last.
    let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(at("Each dot is one trial") < at("Every comparison in words"));
    assert!(at("the smallest to the largest transfer") < at("Settings of"));
    // Every trial that ran is a dot with its own text.
    let dots = parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "dot"));
    let ran = study().trials.iter().filter(|t| t.status == TrialStatus::Measured).count();
    assert_eq!(dots.count(), ran);
}

/// Power and ROI by end, the CPU time of both ends together, and each CPU in each idle state.
#[test]
fn the_charts_of_the_published_work_are_drawn() {
    let mut study = study();
    for trial in &mut study.trials {
        for (role, watts) in [(Role::Sender, 300.0), (Role::Receiver, 350.0)] {
            let scope = Scope::Role(role);
            trial.readings.push(Reading::mean("power.watts", Unit::Watts, watts, scope));
        }
        for cpu in 0..40 {
            let share = f64::from(cpu) / 40.0;
            trial.readings.push(Reading::mean("cstate.C6", Unit::Ratio, share, Scope::Cpu(cpu)));
        }
    }
    let parsed = sound(&page(&study));
    let tips = parsed.tags.iter().filter_map(|tag| tag.attributes.get("data-tip"));
    let tips: Vec<&str> = tips.map(String::as_str).collect();
    for tip in ["tx: 300.0, ", "rx: 350.0, ", "both: ", "both ends, system calls: 153.0 %"] {
        assert!(tips.iter().any(|t| t.starts_with(tip)), "{tip} in {tips:?}");
    }
    let cpus = tips.iter().filter(|tip| tip.starts_with("CPU ") && tip.contains(", C6: "));
    assert_eq!(cpus.count(), 40 * 6);
}

#[test]
fn an_interval_is_drawn_whole_or_said_to_go_on() {
    let cut = "An interval that reaches an end of the axis extends beyond it.";
    assert!(!words(&sound(&page(&study())).text).contains(cut));
    // Two blocks that disagree give an interval without a usable end.
    let mut wild = study();
    wild.trials.retain(|t| t.block < 2);
    let far = wild.trials.iter_mut().find(|t| t.cell.0 == "splice" && t.block == 1).unwrap();
    far.count /= 2;
    let parsed = sound(&page(&wild));
    assert!(words(&parsed.text).contains(cut));
    let spans =
        parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "span"));
    assert!(spans.count() >= 5);
}

#[test]
fn a_rejected_trial_is_drawn_open_and_says_why() {
    let mut spoiled = study();
    let trial = spoiled.trials.iter_mut().find(|t| t.cell.0 == "splice").unwrap();
    trial.status = TrialStatus::Rejected { events: vec!["CPU 1 lost 12 % to steal".into()] };
    let parsed = sound(&page(&spoiled));
    let open = parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "out"));
    assert_eq!(open.count(), 1);
    assert!(words(&parsed.text).contains("rejected: CPU 1 lost 12 % to steal"));
}

#[test]
fn the_page_needs_nothing_and_allows_nothing() {
    let text = page(&study());
    let parsed = sound(&text);
    for word in ["http:", "https:", "//", "@import", "url(", "javascript"] {
        assert!(!text.contains(word), "{word}");
    }
    let policy = parsed
        .tags
        .iter()
        .find(|t| t.attributes.get("http-equiv").is_some_and(|v| v == "Content-Security-Policy"));
    let policy = &policy.unwrap().attributes["content"];
    let digest = |content: &String| {
        let digest = base64(&Sha256::digest(content.as_bytes()));
        format!("'sha256-{digest}'")
    };
    let scripts: Vec<String> = parsed.scripts.iter().map(digest).collect();
    let expected = format!("style-src {}; script-src {}", digest(&parsed.style), scripts.join(" "));
    assert!(policy.ends_with(&expected), "{expected} is not the end of {policy}");
    assert!(!policy.contains("inline"), "{policy}");
    assert!(policy.starts_with("default-src 'none';"), "{policy}");
}

fn explained(trials: usize, hostile: &str) -> String {
    let mut out = Vec::new();
    report::explanation_page(&profiles::explanation(trials, hostile), None, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_page_that_explains_is_sound_whatever_functions_are_called() {
    let hostile = "</svg><script>alert(1)</script>\" onload=\"x\u{202e}\u{0}";
    for (trials, names) in [(1, ""), (3, ""), (3, hostile)] {
        let page = explained(trials, names);
        let parsed = sound(&page);
        assert_eq!(parsed.scripts, parse(&self::page(&study())).scripts);
        let said = words(&parsed.text);
        let single = "0.170 CPU-s/GiB less than socket, which is not significant";
        let expected = if trials == 1 { single } else { "saves 0.170 CPU-s/GiB against" };
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("_copy_to_iter") && said.contains("Flame graph: "), "{said}");
        let count = |class: &str| {
            let of = |tag: &&Tag| {
                let classes = tag.attributes.get("class");
                classes.is_some_and(|all| all.split(' ').any(|c| c == class))
            };
            parsed.tags.iter().filter(of).count()
        };
        // Two costs; a flame graph of each cell and two of the difference, which reuse the boxes of
        // the cells; less and more in both kinds of figure.
        assert_eq!((count("cost"), count("flame")), (2, 4));
        assert!(count("less") > 2 && count("more") > 2);
        let graphs = parsed.data["flames"]["graphs"].as_array().unwrap();
        let boxes: Vec<&serde_json::Value> = graphs.iter().map(|graph| &graph["boxes"]).collect();
        assert!(boxes[0].as_array().unwrap().len() > 15 && boxes[1].is_array());
        assert_eq!((boxes[2].as_u64(), boxes[3].as_u64()), (Some(1), Some(0)));
        assert!(graphs[0]["changes"].is_null() && graphs[2]["changes"].is_array());
        let shown = bytepath::record::visible(&format!("main{names}")).into_owned();
        let all = parsed.data["flames"]["names"].as_array().unwrap();
        assert!(all.iter().any(|name| name.as_str() == Some(&shown)), "{shown} in {all:?}");
    }
}

fn base64(bytes: &[u8]) -> String {
    const SIGNS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for part in bytes.chunks(3) {
        let bits = part.iter().fold(0u32, |n, b| n << 8 | u32::from(*b)) << (8 * (3 - part.len()));
        for i in 0..4 {
            let sign = SIGNS[(bits >> (18 - 6 * i)) as usize & 63] as char;
            text.push(if i <= part.len() { sign } else { '=' });
        }
    }
    text
}

#[test]
fn every_class_has_a_rule_and_no_colour_stands_outside_of_the_palette() {
    let parsed = sound(&explained_study(&study(), &profiles::explanation(3, "")));
    let classes: BTreeSet<&str> = parsed
        .tags
        .iter()
        .filter_map(|t| t.attributes.get("class"))
        .flat_map(|c| c.split_whitespace())
        // Used by scripts only.
        .filter(|c| !["open", "sortable", "panel", "cell", "flame"].contains(c))
        .collect();
    for class in classes {
        assert!(parsed.style.contains(&format!(".{class}")), ".{class} has no rule");
    }
    let rules: Vec<&str> = parsed.style.lines().filter(|l| !l.trim().starts_with("--")).collect();
    assert!(!rules.iter().any(|l| l.contains(": #")), "a colour outside of the palette");
}

/// Relative luminance contrast of two colours, by WCAG 2.2.
fn contrast(a: &str, b: &str) -> f64 {
    let light = |hex: &str| {
        let hex: String = match hex.len() {
            4 => hex[1..].chars().flat_map(|c| [c, c]).collect(),
            _ => hex[1..].to_owned(),
        };
        let part = |at: usize| {
            let c = f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
            if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) }
        };
        0.2126 * part(0) + 0.7152 * part(2) + 0.0722 * part(4)
    };
    let (a, b) = (light(a), light(b));
    (a.max(b) + 0.05) / (a.min(b) + 0.05)
}

#[test]
fn text_and_marks_stand_out_in_every_scheme() {
    let style = parse(&page(&study())).style;
    let schemes: Vec<BTreeMap<&str, &str>> = style
        .split(":root {")
        .skip(1)
        .map(|part| {
            let block = &part[..part.find('}').unwrap()];
            let pairs =
                block.split(';').filter_map(|p| p.trim().strip_prefix("--")?.split_once(": "));
            pairs.collect()
        })
        .collect();
    assert_eq!(schemes.len(), 3, "light, dark, print");
    for scheme in schemes {
        for (names, least) in [
            (&["ink", "soft", "good", "bad", "base"][..], 4.5),
            (&["dot", "user", "system", "softirq", "free", "copied"], 3.0),
            (&["unsplit", "unknown"], 2.4),
        ] {
            for name in names {
                let found = contrast(scheme[name], scheme["paper"]);
                assert!(found >= least, "{name} {found:.2} in {scheme:?}");
            }
        }
        // Parts of one bar can be told apart without their hue.
        for (a, b) in [("user", "system"), ("system", "softirq"), ("free", "copied")] {
            let found = contrast(scheme[a], scheme[b]);
            assert!(found >= 1.3, "{a} {b} {found:.2}");
        }
    }
}

/// A study in which everything that a person can name contains markup or control characters.
pub fn hostile() -> Study {
    let evil = "\"><script>window.owned=1;document.title='owned'</script>\
                <img src=x onerror=\"window.owned=1\"><svg onload='window.owned=1'></svg>\
                </title></style>\u{202e}\u{0}\x1b[2J&lt;b&gt;'`";
    let mut hostile = study();
    let rename = |id: &mut CellId| id.0 = format!("{}{evil}", id.0);
    hostile.header.cells.iter_mut().for_each(|c| {
        rename(&mut c.id);
        c.tx.path += evil;
        c.link.preset += evil;
        c.stream.congestion += evil;
        c.levels.insert(evil.into(), evil.into());
    });
    rename(&mut hostile.header.baseline);
    hostile.header.title = evil.into();
    hostile.header.bytepath = evil.into();
    hostile.header.testbed = evil.into();
    hostile.header.meters.push(evil.into());
    for facts in &mut hostile.header.facts {
        facts.kernel_release = evil.into();
        facts.kernel_version = evil.into();
        facts.cpu_model = evil.into();
        facts.settings.insert(evil.into(), evil.into());
        facts.privileges.capabilities.push(evil.into());
    }
    for (i, trial) in hostile.trials.iter_mut().enumerate() {
        rename(&mut trial.cell);
        trial.label = evil.into();
        trial.warnings.push(evil.into());
        for reading in &mut trial.readings {
            reading.metric += evil;
        }
        for role in &mut trial.roles {
            role.notes.push(evil.into());
            role.calls.iter_mut().for_each(|c| c.name += evil);
            role.threads.iter_mut().for_each(|t| t.name += evil);
            role.ledger.evidence.iter_mut().for_each(|e| e.source += evil);
        }
        match i % 9 {
            3 => {
                let fault = Fault::new(FaultKind::System, evil).remedy(evil);
                trial.status = TrialStatus::Failed { fault };
            }
            5 => trial.status = TrialStatus::Rejected { events: vec![evil.into()] },
            7 => {
                let (reason, remedy) = (evil.to_owned(), evil.to_owned());
                trial.status = TrialStatus::Unavailable { reason, remedy };
            }
            _ => {}
        }
    }
    hostile.remarks.push(evil.into());
    hostile
}

#[test]
fn a_hostile_study_is_text_and_nothing_else() {
    let parsed = sound(&page(&hostile()));
    let counts = names(&parsed);
    assert_eq!((counts["style"], counts["title"], counts.get("img")), (1, 1, None));
    let said = words(&parsed.text);
    assert!(said.contains("<script>window.owned=1;document.title='owned'</script>"));
    assert!(said.contains("\\u{202e}\\u{0}\\u{1b}[2J&lt;b&gt;"), "shown, not obeyed");
    assert_eq!(parsed.scripts, parse(&page(&study())).scripts);
}

#[test]
fn a_hundred_trials_make_a_small_page() {
    let page = page(&large(20, 5));
    sound(&page);
    assert!(page.len() < 600 << 10, "{} KiB", page.len() >> 10);
}

#[test]
fn the_page_of_a_default_study_with_profiles_is_small() {
    let study = large(9, 10);
    let explanation = profiles::realistic(2);
    let boxes: usize = explanation.charts.iter().map(|chart| chart.boxes.len()).sum();
    assert!(explanation.charts.len() == 7 && boxes > 2500, "{boxes}");
    let page = explained_study(&study, &explanation);
    sound(&page);
    assert!(page.len() < 400_000, "{} bytes", page.len());
}

/// The page of a study with this explanation.
pub fn explained_study(study: &Study, explanation: &Explanation) -> String {
    let analysis = analyse(study, &Rules::default());
    let subject = report::Subject::of(study, &analysis, Some(explanation));
    let mut out = Vec::new();
    report::find("html").unwrap().render(&subject, &Style::default(), &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_study_without_a_number_is_a_page_too() {
    let mut none = study();
    none.trials.clear();
    let parsed = sound(&page(&none));
    assert!(words(&parsed.text).contains("No trial was measured"));
    none.header.cells.clear();
    none.header.facts.clear();
    none.header.ceiling = None;
    sound(&page(&none));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, failure_persistence: None, ..Default::default() })]

    #[test]
    fn any_study_is_a_sound_page(study in any_study()) {
        sound(&page(&study));
    }
}
