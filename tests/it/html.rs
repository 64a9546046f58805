//! The page: well formed by the strict rules of [`parse`] whatever the study is,
//! nothing that reaches out of it, nothing that a hostile study can run, and in a
//! real browser no error and no scrolling sideways on a phone.

use crate::anything;
use crate::made_up;
use crate::profiles;
use crate::shared::{render, words};
use bytepath_testing::skip;

use anything::any_study;
use bytepath::record::{CellId, Fault, FaultKind, Study, TrialStatus};
use bytepath::report::{self, Style};
use bytepath::stats::{Rules, analyse};
use made_up::{large, study};
use proptest::prelude::*;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn page(study: &Study) -> String {
    String::from_utf8(render("html", study, &Style::default())).unwrap()
}

/// A start tag with its attributes, as read from a page.
#[derive(Debug)]
struct Tag {
    name: String,
    attributes: BTreeMap<String, String>,
}

/// The parts of a page.
#[derive(Debug, Default)]
struct Parsed {
    tags: Vec<Tag>,
    /// All text outside of style and script, entities resolved.
    text: String,
    style: String,
    script: String,
}

const VOID: [&str; 3] = ["meta", "br", "wbr"];

const KNOWN: &str = "\
    html wbr head meta title style body header p h1 h2 h3 nav a main section figure figcaption \
    b strong ul li svg rect line circle polyline text table thead tbody tr th td br span div \
    details summary code pre dl dt dd script";

/// Reads a page by rules stricter than a browser's: known elements, each closed
/// in order, attributes quoted, no sign that ought to be an entity.
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
            let to = if tag.name == "style" { &mut parsed.style } else { &mut parsed.script };
            assert!(to.is_empty(), "a second <{}>", tag.name);
            to.push_str(raw);
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

/// What holds of every page.
fn sound(page: &str) -> Parsed {
    let parsed = parse(page);
    let mut ids = BTreeSet::new();
    for tag in &parsed.tags {
        for (name, value) in &tag.attributes {
            assert!(!name.starts_with("on") && name != "style", "{tag:?}");
            // What has a colour of its own has it in one scheme only.
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
        "Use splice instead of socket: 33.80 against 28.04 Gbit/s, 1.21x (FASTER); 0.398 against 0.552 CPU-s per GiB, 28% less (LESS CPU).",
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
    // The verdicts come before the figures, the hosts last.
    let at = |part: &str| said.find(part).unwrap_or_else(|| panic!("{part} is missing"));
    assert!(at("Verdicts, against socket") < at("Each dot is one trial"));
    assert!(at("the smallest to the largest transfer") < at("Settings of"));
    // Every trial that ran is a dot with its own words.
    let dots = parsed.tags.iter().filter(|t| t.attributes.get("class").is_some_and(|c| c == "dot"));
    let ran = study().trials.iter().filter(|t| t.status == TrialStatus::Measured).count();
    assert_eq!(dots.count(), ran);
}

#[test]
fn an_interval_is_drawn_whole_or_said_to_go_on() {
    let cut = "An interval that reaches an end of the axis extends beyond it.";
    assert!(!words(&sound(&page(&study())).text).contains(cut));
    // Two blocks that disagree have an interval without a useful end.
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
    assert!(!parsed.style.contains("</") && !parsed.script.contains("</"));
    let policy = parsed
        .tags
        .iter()
        .find(|t| t.attributes.get("http-equiv").is_some_and(|v| v == "Content-Security-Policy"));
    let policy = &policy.unwrap().attributes["content"];
    for (what, content) in [("style", &parsed.style), ("script", &parsed.script)] {
        let digest = base64(&Sha256::digest(content.as_bytes()));
        assert!(
            policy.contains(&format!("{what}-src 'sha256-{digest}'")),
            "the {what} has the digest sha256-{digest}; the page's policy says {policy}"
        );
    }
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
        assert!(page.len() < 2 << 20);
        let parsed = sound(&page);
        assert!(!parsed.script.contains("alert"));
        let said = words(&parsed.text);
        let single = "differ by 0.170 CPU-s/GiB by the CPU meter, which is not resolved";
        let expected = if trials == 1 { single } else { "saves 0.170 CPU-s/GiB against" };
        assert!(said.contains(expected), "{said}");
        assert!(said.contains("_copy_to_iter") && said.contains("Flame graph: "), "{said}");
        let count = |class: &str| {
            let of = |tag: &&Tag| tag.attributes.get("class").is_some_and(|c| c == class);
            parsed.tags.iter().filter(of).count()
        };
        // Two costs; a flame graph of each cell and two of the difference; less and more in
        // both kinds of figure.
        assert_eq!((count("cost"), count("flame")), (2, 4));
        assert!(count("kernel") > 5 && count("less") > 5 && count("more") > 5);
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
    let parsed = sound(&page(&study()));
    let classes: BTreeSet<&str> = parsed
        .tags
        .iter()
        .filter_map(|t| t.attributes.get("class"))
        .flat_map(|c| c.split_whitespace())
        .filter(|c| !["open", "sortable", "panel"].contains(c))
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
        // Parts of one bar are distinguishable without their hue.
        for (a, b) in [("user", "system"), ("system", "softirq"), ("free", "copied")] {
            let found = contrast(scheme[a], scheme[b]);
            assert!(found >= 1.3, "{a} {b} {found:.2}");
        }
    }
}

/// A study in which everything a person can name tries to be something else.
fn hostile() -> Study {
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
    assert_eq!((counts["script"], counts["style"], counts.get("img")), (1, 1, None));
    assert_eq!(counts["title"], parsed.tags.iter().filter(|t| t.name == "title").count());
    let said = words(&parsed.text);
    assert!(said.contains("<script>window.owned=1;document.title='owned'</script>"));
    assert!(said.contains("\\u{202e}\\u{0}\\u{1b}[2J&lt;b&gt;"), "shown, not obeyed");
    assert_eq!(parsed.script, parse(&page(&study())).script);
}

#[test]
fn a_hundred_trials_make_a_small_page() {
    let page = page(&large(20, 5));
    sound(&page);
    assert!(page.len() < 600 << 10, "{} KiB", page.len() >> 10);
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

/// Opens the page in frames as wide as a phone, a tablet and a desk, and writes down
/// what it finds there.
const PROBE: &str = r##"<!DOCTYPE html><meta charset="utf-8"><pre id="found"></pre>
<iframe id="phone" src="report.html" style="width:400px;height:800px;border:0"></iframe>
<iframe id="tablet" src="report.html" style="width:760px;height:800px;border:0"></iframe>
<iframe id="desk" src="report.html" style="width:1200px;height:800px;border:0"></iframe>
<script>
addEventListener("load", () => {
  const found = [];
  for (const name of ["phone", "tablet", "desk"]) {
    const frame = document.getElementById(name), page = frame.contentDocument;
    const root = page.documentElement;
    found.push(name + " overflow " + (root.scrollWidth - root.clientWidth));
    const wide = [...page.querySelectorAll("body *:not(.scroll *, pre *)")].filter((part) => {
      return part.getBoundingClientRect().right > root.clientWidth + 1;
    });
    found.push(name + " wide " + wide.slice(0, 4).map((part) => part.outerHTML.slice(0, 60)).join(" "));
    for (const part of page.querySelectorAll("details")) part.open = true;
    found.push(name + " opened overflow " + (root.scrollWidth - root.clientWidth));
    const drawn = [...page.querySelectorAll("figure svg")].filter((svg) => {
      const box = svg.getBoundingClientRect();
      return box.width > 5 && box.height > 5;
    });
    found.push(name + " drawings " + drawn.length);
    const paint = (mark) => {
      const { fill, stroke } = frame.contentWindow.getComputedStyle(mark);
      return fill !== "none" ? fill : stroke;
    };
    // A mark without a rule of its own is black on any paper, or not seen at all.
    const plain = [...page.querySelectorAll(".chart :is(circle, rect, line, polyline)")].filter((mark) => {
      return ["rgb(0, 0, 0)", "none"].includes(paint(mark));
    });
    found.push(name + " plain " + plain.slice(0, 4).map((mark) => mark.outerHTML).join(" "));
    const outside = [...page.querySelectorAll(".chart :is(circle, rect)")].filter((mark) => {
      const box = mark.getBoundingClientRect(), chart = mark.closest("svg").getBoundingClientRect();
      return box.left < chart.left - 1 || box.right > chart.right + 1 || box.top < chart.top - 1 || box.bottom > chart.bottom + 1;
    });
    found.push(name + " outside " + outside.slice(0, 4).map((mark) => mark.outerHTML).join(" "));
    const heights = [...page.querySelectorAll(".chart text")].map((text) => text.getBoundingClientRect().height);
    found.push(name + " text " + (heights.length > 10 && heights.every((height) => 11 < height && height < 17)));
    found.push(name + " owned " + (frame.contentWindow.owned ?? 0) + " " + (page.title === "owned"));
    const table = page.querySelector("#trials table"), head = [...table.tHead.rows[0].cells];
    const column = head.findIndex((cell) => cell.textContent === "Gbit/s");
    const values = () => [...table.tBodies[0].rows].map((row) => Number(row.cells[column].textContent));
    head[column].querySelector("button").click();
    const numbers = values().filter((value) => !Number.isNaN(value));
    const falling = numbers.every((value, i) => i === 0 || numbers[i - 1] >= value);
    found.push(name + " sorted " + (falling && numbers.length > 5) + " " + head[column].getAttribute("aria-sort"));
  }
  document.getElementById("found").textContent = found.join("\n");
});
</script>"##;

fn browser() -> Option<&'static str> {
    let works = |name: &&str| Command::new(name).arg("--version").output().is_ok();
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(works)
}

/// What the probe found, and what the browser complained of.
fn browse(browser: &str, page: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("report.html"), page).unwrap();
    std::fs::write(path("probe.html"), PROBE).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--allow-file-access-from-files", "--enable-logging=stderr", "--dump-dom"])
        .arg(format!("--user-data-dir={}", path("profile").display()))
        .arg(format!("file://{}", path("probe.html").display()))
        .output()
        .unwrap();
    let dom = String::from_utf8_lossy(&output.stdout);
    let found =
        dom.split_once("<pre id=\"found\">").and_then(|(_, rest)| rest.split_once("</pre>"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    let complaints = stderr.lines().filter(|l| l.contains("CONSOLE")).map(str::to_owned).collect();
    (found.map(|(found, _)| found.to_owned()).unwrap_or_default(), complaints)
}

fn in_a_browser(study: &Study) {
    let Some(browser) = browser() else {
        skip!("there is no chromium");
        return;
    };
    let (found, complaints) = browse(browser, &page(study));
    assert!(complaints.is_empty(), "{complaints:#?}");
    let rows = analyse(study, &Rules::default()).rows.len();
    for frame in ["phone", "tablet", "desk"] {
        let value = |what: &str| {
            let lead = format!("{frame} {what} ");
            let line = found.lines().find_map(|line| line.strip_prefix(&lead));
            line.unwrap_or_else(|| panic!("no '{lead}' in:\n{found}"))
        };
        assert_eq!(value("overflow"), "0", "{found}");
        assert_eq!(value("opened overflow"), "0", "{found}");
        assert_eq!(value("owned"), "0 false", "{found}");
        assert_eq!(value("sorted"), "true descending", "{found}");
        assert_eq!((value("plain"), value("outside")), ("", ""), "{found}");
        assert_eq!(value("text"), "true", "{found}");
        assert!(value("drawings").parse::<usize>().unwrap() >= 4 * rows.min(6), "{found}");
    }
}

#[test]
fn a_browser_opens_the_page_without_complaint() {
    in_a_browser(&study());
}

#[test]
fn a_browser_runs_nothing_of_a_hostile_study() {
    in_a_browser(&hostile());
}
