//! The page in a real browser: no error, no horizontal scrolling on a phone, no script of a hostile
//! study runs, and the features of its own scripts work.

use crate::html::{explained_study, hostile, page};
use crate::made_up::study;
use crate::profiles;
use bytepath::record::Study;
use bytepath::stats::{Rules, analyse};
use bytepath_testing::skip;
use std::process::Command;

/// Opens the page in frames as wide as a phone, a tablet and a desktop, and writes down what it
/// finds there.
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
    head[column].querySelector("[role=button]").dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
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

/// Returns the probe's findings, and the browser's console messages.
fn browse(browser: &str, page: &str, probe: &str) -> (String, Vec<String>) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    std::fs::write(path("report.html"), page).unwrap();
    std::fs::write(path("probe.html"), probe).unwrap();
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
        .args(["--allow-file-access-from-files", "--enable-logging=stderr", "--dump-dom"])
        // Without this feature each lookup of a name rebuilds the page's tree of names.
        .args(["--enable-blink-features=ComputedAccessibilityInfo"])
        .args(["--force-renderer-accessibility", "--virtual-time-budget=30000"])
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
    let (found, complaints) = browse(browser, &page(study), PROBE);
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

/// Uses search, zoom, keys, tips and the filter of the page, and writes down the results.
const USE: &str = include_str!("browser.html");

/// Returns the results of using the page, line by line for every frame, or `None` without a
/// browser.
fn used(page: &str) -> Option<String> {
    let Some(browser) = browser() else {
        skip!("there is no chromium");
        return None;
    };
    let (found, complaints) = browse(browser, page, USE);
    assert!(complaints.is_empty(), "{complaints:#?}");
    assert!(
        found.contains("desk dark: false\n") && found.contains("night dark: true\n"),
        "{found}"
    );
    for frame in ["phone", "desk", "night"] {
        for expected in [
            "overflow: 0",
            "owned: 0",
            "nameless: ",
            "in heads: 0",
            "roles: button combobox figure image link searchbox tree treeitem",
            "trees: 4",
            "boxes: 13",
            "elements in names: 0",
            "matches: _copy_to_iter",
            "found: 40% in 1 box",
            "not found: not found",
            "zoomed: true 6",
            "after Escape: 13 1",
            "clicked: true",
            "after Reset: 13 \"\"",
            "levels: 2 3 2 2 2",
            "texts: true",
            "pale: ",
            "by keys: true",
            "gone: true",
            "by touch: true",
            "all again: true",
            "picked: true",
        ] {
            let line = format!("{frame} {expected}");
            assert!(found.lines().any(|found| found == line), "no '{line}' in\n{found}");
        }
    }
    Some(found)
}

#[test]
fn a_browser_searches_zooms_and_filters() {
    let page = explained_study(&study(), &profiles::explanation(3, ""));
    let Some(found) = used(&page) else { return };
    for expected in [
        "desk callers: receiver main recv do_syscall_64 tcp_recvmsg",
        "desk tip: _copy_to_iter: 0.1395 CPU-s/GiB, 40%",
        "desk by name: splice,socket",
        "desk trials by name: 2",
        "desk count: 1 of 8 cells, and the baseline",
        "desk by verdict: splice,socket",
    ] {
        assert!(found.contains(expected), "no '{expected}' in\n{found}");
    }
}

#[test]
fn a_browser_runs_nothing_of_hostile_symbols() {
    let evil =
        "</script><img src=x onerror=window.owned=1><svg onload=window.owned=1>\u{202e}\u{0}";
    used(&explained_study(&hostile(), &profiles::explanation(3, evil)));
}
