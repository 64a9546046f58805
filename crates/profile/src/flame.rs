//! Flame graphs: the stacks of one or two sides merged by name. They become boxes for a page that
//! draws them itself, or a stand-alone SVG by inferno.
//!
//! Amounts are those of a diff, so a differential graph compares two runs per work done and not per
//! sample taken.

use super::diff::Diff;
use super::subsystem::{Classes, Rules, is_idle};
use super::text::intern;
use super::{FrameKind, Owner, Profile, Sample, StackId, Weight, normalise};
use bytepath_record::is_unsafe_to_display;
use hashbrown::{HashMap, HashSet};
use indexmap::IndexSet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::io;

/// Most boxes of one graph, so that a page with several stays small.
pub const BOXES: usize = 700;

/// Deepest stack that is drawn; deeper ones are cut off there.
const DEEPEST: usize = 200;

/// A flame graph as a layout of boxes, for a page that draws them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Chart {
    /// Title of the graph.
    pub title: String,
    /// Unit of all amounts.
    pub unit: String,
    /// Amount of all boxes of the lowest line together.
    pub total: f64,
    /// Boxes from the root up, within a line from left to right.
    pub boxes: Vec<FlameBox>,
    /// The part of the total whose stacks continue in boxes too narrow to be drawn.
    pub narrower: f64,
}

/// One function at one position in the stacks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FlameBox {
    /// Name, safe to be shown: no control characters.
    pub name: String,
    /// Line, 0 for the roots.
    pub depth: u32,
    /// Left edge, as a part of the whole width, 0 to 1.
    pub start: f64,
    /// Width, as a part of the whole width.
    pub width: f64,
    /// Amount, including all that it called.
    pub amount: f64,
    /// Amount after the change minus amount before it, whichever side gives the widths; `None` in a
    /// graph of one side.
    pub change: Option<f64>,
    /// Whether it is a function of the kernel.
    pub kernel: bool,
}

/// The side that gives the boxes their width; the discriminant is the index of the side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Widths {
    /// The profile before the change: shows what vanished.
    Without,
    /// The profile after the change: shows what appeared.
    With,
}

/// Stacks of two sides, merged from the root by function name.
#[derive(Debug)]
pub struct Flames {
    nodes: Vec<Node>,
    children: HashMap<(usize, u32), usize>,
    names: IndexSet<String>,
    unit: String,
}

#[derive(Clone, Debug, Default)]
struct Node {
    name: u32,
    kernel: bool,
    parent: usize,
    /// Amounts of stacks that end here, before and after the change.
    own: [f64; 2],
    /// Amounts of all stacks through here.
    all: [f64; 2],
}

impl Flames {
    /// Creates an empty graph with amounts in this unit.
    pub fn new(unit: &str) -> Flames {
        Flames {
            nodes: vec![Node::default()],
            children: HashMap::new(),
            names: [String::new()].into(),
            unit: unit.to_owned(),
        }
    }

    /// Adds the samples of a profile, except idle and foreign ones, to a side (0 without, 1 with
    /// the change), each weight multiplied by `scale`.
    pub fn add(&mut self, side: usize, profile: &Profile, scale: f64, rules: &Rules) {
        let classes = Classes::of(profile, rules);
        let mut name = |name: &str| intern(&mut self.names, name) as u32;
        let names: Vec<u32> =
            profile.frames().iter().map(|f| name(&label(&normalise::of_frame(f)))).collect();
        let mut stacks: HashMap<(u32, u32), f64> = HashMap::new();
        for sample in profile.samples() {
            if sample.owner.is_apart() || is_idle(profile, &classes, sample) {
                continue;
            }
            let root = root(profile, sample).map_or(0, |root| name(&root));
            *stacks.entry((root, sample.stack.0)).or_default() += sample.weight * scale;
        }
        let mut stacks: Vec<_> = stacks.into_iter().collect();
        stacks.sort_unstable_by_key(|(key, _)| *key);
        for ((root, stack), amount) in stacks {
            let mut at = 0;
            self.nodes[at].all[side] += amount;
            if root != 0 {
                at = self.child(at, root, false);
                self.nodes[at].all[side] += amount;
            }
            for id in profile.stack(StackId(stack)).iter().rev().take(DEEPEST) {
                let kernel = profile.frame(*id).kind == FrameKind::Kernel;
                at = self.child(at, names[id.0 as usize], kernel);
                self.nodes[at].all[side] += amount;
            }
            self.nodes[at].own[side] += amount;
        }
    }

    fn named(&self, node: &Node) -> &str {
        &self.names[node.name as usize]
    }

    fn child(&mut self, parent: usize, name: u32, kernel: bool) -> usize {
        let next = self.nodes.len();
        let at = *self.children.entry((parent, name)).or_insert(next);
        if at == next {
            self.nodes.push(Node { name, kernel, parent, ..Node::default() });
        }
        at
    }

    /// Lays out the graph of one side, or, if `differential`, of its difference to the other, in at
    /// most `most` boxes: the narrowest are left out.
    pub fn chart(&self, title: &str, widths: Widths, differential: bool, most: usize) -> Chart {
        let side = widths as usize;
        let total = self.nodes.first().map_or(0.0, |root| root.all[side]);
        let mut chart =
            Chart { title: title.to_owned(), unit: self.unit.clone(), total, ..Chart::default() };
        if !(total > 0.0 && total.is_finite()) {
            return chart;
        }
        let mut order = self.order(side);
        // Parents are at least as wide as their children, so no box loses its parent.
        order.sort_by(|a, b| self.nodes[*b].all[side].total_cmp(&self.nodes[*a].all[side]));
        order.retain(|node| self.nodes[*node].all[side] >= total / 1000.0);
        // Leave out all boxes that are as wide as the first one without room: which of them to keep
        // would be arbitrary.
        if let Some(first) = order.get(most) {
            let bound = self.nodes[*first].all[side];
            order.retain(|node| self.nodes[*node].all[side] > bound);
        }
        let drawn: HashSet<usize> = order.into_iter().collect();
        let mut starts: HashMap<usize, (f64, u32)> = HashMap::new();
        let mut shown = 0.0;
        for node in self.order(side).into_iter().filter(|node| drawn.contains(node)) {
            let this = &self.nodes[node];
            let (start, depth) = starts.get(&this.parent).copied().unwrap_or((0.0, 0));
            let width = this.all[side] / total;
            // The next child of the same parent begins where this one ends.
            starts.insert(this.parent, (start + width, depth));
            starts.insert(node, (start, depth + 1));
            shown += this.own[side];
            chart.boxes.push(FlameBox {
                name: self.named(this).to_owned(),
                depth,
                start,
                width,
                amount: this.all[side],
                change: differential.then(|| this.all[1] - this.all[0]),
                kernel: this.kernel,
            });
        }
        chart.narrower = (1.0 - shown / total).clamp(0.0, 1.0);
        chart.boxes.sort_by(|a, b| a.depth.cmp(&b.depth).then(a.start.total_cmp(&b.start)));
        chart
    }

    /// Lays out a graph of each side, and two of the difference: with the widths after the change,
    /// which show what appeared, and with those before it, which show what vanished.
    pub fn charts(&self, [before, after]: [&str; 2], most: usize) -> [Chart; 4] {
        let title = |widths| format!("{after} against {before}, widths of {widths}");
        [
            self.chart(before, Widths::Without, false, most),
            self.chart(after, Widths::With, false, most),
            self.chart(&title(after), Widths::With, true, most),
            self.chart(&title(before), Widths::Without, true, most),
        ]
    }

    /// Returns every node of a side, parents before children, children by name.
    fn order(&self, side: usize) -> Vec<usize> {
        let mut below: HashMap<usize, Vec<usize>> = HashMap::new();
        for (node, this) in self.nodes.iter().enumerate().skip(1) {
            if this.all[side] > 0.0 {
                below.entry(this.parent).or_default().push(node);
            }
        }
        let mut order = Vec::new();
        let mut open = vec![0];
        while let Some(node) = open.pop() {
            if node != 0 {
                order.push(node);
            }
            let mut children = below.remove(&node).unwrap_or_default();
            children.sort_by(|a, b| self.named(&self.nodes[*b]).cmp(self.named(&self.nodes[*a])));
            open.extend(children);
        }
        order
    }

    /// Writes a stand-alone differential flame graph, which can be searched and zoomed in a
    /// browser. Red took more after the change, blue less, whichever side gives the widths. Errors
    /// if `out` does, or with [`io::ErrorKind::InvalidData`] if there is nothing to draw.
    pub fn svg(&self, title: &str, widths: Widths, out: impl io::Write) -> io::Result<()> {
        let side = widths as usize;
        let (unit, fine) = self.fine_unit();
        let mut lines = Vec::new();
        for node in 1..self.nodes.len() {
            let this = &self.nodes[node];
            let own = this.own.map(|amount| (amount * fine).round() as u64);
            if own != [0, 0] {
                let (width, other) = (own[side], own[1 - side]);
                lines.push(format!("{} {other} {width}", self.path(node)));
            }
        }
        lines.sort_unstable();
        let mut options = inferno::flamegraph::Options::default();
        options.title = label(title);
        options.count_name = unit;
        // inferno computes the difference as widths minus the other side.
        options.negate_differentials = widths == Widths::Without;
        options.deterministic = true;
        options.subtitle = Some(match widths {
            Widths::With => "widths: after the change; red: more than before".to_owned(),
            Widths::Without => "widths: before the change; blue: less after it".to_owned(),
        });
        inferno::flamegraph::from_lines(&mut options, lines.iter().map(String::as_str), out)
    }

    /// Returns a unit in which amounts are readable whole numbers, and how many of it make up one
    /// of the amounts.
    fn fine_unit(&self) -> (String, f64) {
        let total = self.nodes.first().map_or(0.0, |root| root.all[0].max(root.all[1]));
        match self.unit.strip_prefix("CPU-s") {
            Some(per) => (format!("CPU-us{per}"), 1e6),
            None if total >= 1e5 => (self.unit.clone(), 1.0),
            None => (format!("thousandths of {}", self.unit), 1e3),
        }
    }

    /// Returns the names from the root to a node, in folded form.
    fn path(&self, node: usize) -> String {
        let mut names = Vec::new();
        let mut at = node;
        while at != 0 {
            let this = &self.nodes[at];
            names.push(self.named(this).replace(';', ":"));
            at = this.parent;
        }
        names.reverse();
        let path = names.join(";");
        // inferno treats a line that begins like this as a comment.
        if path.starts_with("# ") { path.replacen("# ", "#_", 1) } else { path }
    }
}

/// Lays out the graph of one profile, in CPU seconds if its weights are times.
pub fn chart(profile: &Profile, rules: &Rules) -> Chart {
    let (unit, scale) = match profile.header.weight {
        Weight::Nanoseconds => ("CPU-s", 1e-9),
        Weight::Delay => ("s", 1e-9),
        Weight::Percent => ("%", 1.0),
        counted => (counted.into(), 1.0),
    };
    let mut flames = Flames::new(unit);
    flames.add(0, profile, scale, rules);
    flames.chart(&profile.header.title, Widths::Without, false, BOXES)
}

/// Merges the stacks of two sides, with the amounts of their diff.
pub fn flames(without: &[Profile], with: &[Profile], diff: &Diff, rules: &Rules) -> Flames {
    let mut flames = Flames::new(&diff.unit);
    for (side, profiles) in [without, with].into_iter().enumerate() {
        for (profile, scale) in profiles.iter().zip(&diff.scales[side]) {
            flames.add(side, profile, *scale, rules);
        }
    }
    flames
}

/// Returns the root of a stack: the owner of the time if known, else the thread.
fn root(profile: &Profile, sample: &Sample) -> Option<String> {
    match sample.owner {
        Owner::Unknown => {
            let name = normalise::thread(&profile.thread(sample.thread).name);
            (!name.is_empty()).then(|| label(&name))
        }
        owner => Some(owner.name().to_owned()),
    }
}

/// Makes a name safe to show anywhere: characters that control a terminal, break XML or change the
/// direction of text are escaped.
pub fn label(name: &str) -> String {
    let is_unsafe = |c: char| is_unsafe_to_display(c) || matches!(c, '\u{fffc}'..='\u{ffff}');
    let name = name.trim();
    if name.is_empty() {
        return "[unknown]".to_owned();
    }
    let mut label = String::with_capacity(name.len());
    for c in name.chars() {
        if is_unsafe(c) { label.extend(c.escape_unicode()) } else { label.push(c) }
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{self, Options};
    use crate::{Builder, Frame, Header, Thread};

    fn profile(stacks: &[(&[&str], f64)]) -> Vec<Profile> {
        let mut builder = Builder::new(Header::default());
        let thread = builder.thread(Thread { name: "worker/7".into(), ..Thread::default() });
        for (stack, weight) in stacks {
            let frame = |name: &&str| Frame { function: (*name).into(), ..Frame::default() };
            let frames: Vec<_> = stack.iter().map(|name| builder.frame(frame(name))).collect();
            let (stack, weight) = (builder.stack(&frames), *weight);
            let owner = Owner::Unknown;
            builder.add(Sample { stack, thread, owner, cpu: None, time: None, count: 1, weight });
        }
        vec![builder.build()]
    }

    fn made(without: &[Profile], with: &[Profile]) -> Flames {
        let diff = diff::diff(without, with, &Options::default()).unwrap();
        flames(without, with, &diff, Rules::built_in())
    }

    fn boxes(chart: &Chart) -> Vec<(&str, u32, f64, f64, Option<f64>)> {
        chart
            .boxes
            .iter()
            .map(|b| (b.name.as_str(), b.depth, b.start, b.amount, b.change))
            .collect()
    }

    #[test]
    fn boxes_stand_on_their_callers_with_the_change() {
        let without = profile(&[(&["f", "main"], 2.0), (&["h", "main"], 1.0)]);
        let with = profile(&[(&["f", "main"], 6.0), (&["g", "main"], 1.0), (&["main"], 1.0)]);
        let flames = made(&without, &with);
        let chart = flames.chart("t", Widths::With, true, 100);
        assert_eq!(
            boxes(&chart),
            [
                ("worker/*", 0, 0.0, 8.0, Some(5.0)),
                ("main", 1, 0.0, 8.0, Some(5.0)),
                ("f", 2, 0.0, 6.0, Some(4.0)),
                ("g", 2, 0.75, 1.0, Some(1.0)),
            ]
        );
        assert_eq!((chart.total, chart.narrower, chart.unit.as_str()), (8.0, 0.0, "samples"));
        let before = flames.chart("t", Widths::Without, false, 100);
        assert_eq!(before.boxes.last().map(|b| (b.name.as_str(), b.change)), Some(("h", None)));
        // There is no room for g: its part is reported, and f stays in its place.
        let few = flames.chart("t", Widths::With, true, 3);
        assert_eq!(few.boxes.len(), 3);
        assert!((few.narrower - 1.0 / 8.0).abs() < 1e-12);
        assert!(made(&profile(&[]), &with).chart("t", Widths::Without, true, 9).boxes.is_empty());
    }

    #[test]
    fn hostile_names_harm_neither_graph() {
        let names = [
            "<script>alert(1)</script>",
            "a;b\"'&]]>",
            "line\nbreak\u{0}\u{202e}x",
            "# comment",
            "tail 12 34",
            "",
            "--",
        ];
        let stacks: Vec<(&[&str], f64)> = names.chunks(1).map(|n| (n, 5.0)).collect();
        let flames = made(&profile(&stacks), &profile(&[(&names, 9.0)]));
        for widths in [Widths::With, Widths::Without] {
            let mut out = Vec::new();
            flames.svg("<b>&\u{7}", widths, &mut out).unwrap();
            let svg = String::from_utf8(out).unwrap();
            assert_eq!(svg.matches("<script").count(), 1, "inferno's own");
            assert!(svg.contains("&lt;script&gt;alert(1)") && svg.contains("&lt;b&gt;&amp;"));
            assert!(svg.contains("a:b&quot;"), "what separates frames is replaced");
            assert!(!svg.contains(|c: char| c.is_control() && c != '\n' && c != '\t'));
            assert!(!svg.contains('\u{202e}') && svg.contains("tail 12 34 ("));
            assert!(svg.contains("comment"), "no line is taken for a comment");
        }
        let chart = flames.chart("t", Widths::With, true, 100);
        assert_eq!(chart.boxes.len(), names.len() + 1);
        assert!(chart.boxes.iter().all(|b| !b.name.contains(char::is_control)));
    }

    #[test]
    fn red_is_more_in_both_directions() {
        let flames = made(
            &profile(&[(&["f"], 1.0), (&["g"], 4.0)]),
            &profile(&[(&["f"], 4.0), (&["g"], 1.0)]),
        );
        for widths in [Widths::With, Widths::Without] {
            let mut out = Vec::new();
            flames.svg("t", widths, &mut out).unwrap();
            let svg = String::from_utf8(out).unwrap();
            let colour = |name: &str| {
                let from = svg.find(&format!("<title>{name} (")).expect("its box");
                let fill = &svg[from + svg[from..].find("rgb(").expect("a colour")..];
                fill[..fill.find(')').expect("its end")].to_owned()
            };
            assert!(colour("f").starts_with("rgb(255,"), "{}", colour("f"));
            assert!(colour("g").ends_with(",255"), "{}", colour("g"));
        }
        let nothing = made(&profile(&[]), &profile(&[]));
        let error = nothing.svg("t", Widths::With, io::sink()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    }

    #[test]
    fn deep_stacks_are_cut_at_a_limit() {
        let deep: Vec<String> = (0..5000).map(|i| format!("f{i}")).collect();
        let deep: Vec<&str> = deep.iter().map(String::as_str).collect();
        let flames = made(&profile(&[]), &profile(&[(&deep, 1.0)]));
        let chart = flames.chart("t", Widths::With, true, 10_000);
        assert_eq!(chart.boxes.len(), DEEPEST + 1);
    }
}
