//! Builds cells with stable ids from paths, workload, link and placement.

use super::options::{
    TypedOption, did_you_mean, differing, find, resolve, split, suggest, unknown_option, usage,
};
use super::placement::PlacementSpec;
use super::stream::{MEMORY_LIMIT, STREAM_OPTIONS};
use super::{parse_link, parse_stream};
use bytepath_record::{
    Activity, Cell, CellId, Fault, Half, Kernel, LinkSettings, OptionSpec, Role, SoftirqCpu, joined,
};

/// What a request needs to know of a path in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct PathDeclaration {
    /// Name in the catalogue.
    pub name: &'static str,
    /// Options of its sender half; `None` if it has no such half.
    pub tx: Option<&'static [OptionSpec]>,
    /// Options of its receiver half; `None` if it has no such half.
    pub rx: Option<&'static [OptionSpec]>,
}

/// A named pair of halves.
#[derive(Clone, Copy, Debug)]
pub struct PairDeclaration {
    /// Name as typed by the user.
    pub name: &'static str,
    /// Sender half.
    pub tx: &'static str,
    /// Receiver half.
    pub rx: &'static str,
}

/// What a request needs to know of a workload in the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct WorkloadDeclaration {
    /// Name in the catalogue.
    pub name: &'static str,
    /// Its options.
    pub options: &'static [OptionSpec],
    /// The largest MTU of a link with this workload if the user gives none; `None` leaves it to the
    /// preset.
    pub most_mtu: Option<u32>,
}

/// The names that a request may use.
#[derive(Clone, Debug, Default)]
pub struct PathSpec {
    /// Every workload; the first is the default.
    pub workloads: Vec<WorkloadDeclaration>,
    /// Every path of the catalogue.
    pub paths: Vec<PathDeclaration>,
    /// Every named pair.
    pub pairs: Vec<PairDeclaration>,
}

/// A request for cells.
#[derive(Clone, Debug)]
pub struct CellRequest<'a> {
    /// Paths: `PAIR`, `PAIR:key=value,...` or `TX[:...]+RX[:...]`.
    pub paths: &'a [String],
    /// Workload: `NAME[:key=value,...]`; empty takes the first of the catalogue.
    pub workload: &'a str,
    /// Connections: `key=value,...`.
    pub stream: &'a str,
    /// Link: `PRESET[:key=value,...]`.
    pub link: &'a str,
    /// Placement.
    pub cores: &'a PlacementSpec,
    /// Kernels, each combined with every path; empty leaves the kernel to the testbed.
    pub kernels: &'a [Kernel],
    /// The path that all others are compared with; `None` takes the first.
    pub baseline: Option<&'a str>,
}

impl<'a> CellRequest<'a> {
    /// Requests the default workload on default connections and the link `wire`, with these paths.
    pub fn of(paths: &'a [String], cores: &'a PlacementSpec) -> Self {
        let (workload, stream, link) = ("", "", "wire");
        CellRequest { paths, workload, stream, link, cores, kernels: &[], baseline: None }
    }
}

/// Returns the requested cells, and the id of the baseline. The baseline gets a second cell, marked
/// `null`, with which the study measures its own noise.
pub fn cells(request: &CellRequest, spec: &PathSpec) -> Result<(Vec<Cell>, CellId), Fault> {
    let mut cells: Vec<Cell> = Vec::new();
    let named = request.kernels.iter().map(Some);
    let kernels = if request.kernels.is_empty() { vec![None] } else { named.collect() };
    for text in request.paths {
        for kernel in &kernels {
            let mut cell = cell(text, *kernel, request, spec)?;
            if cells.iter().any(|known| known.id == cell.id) {
                let what = kernel.map_or(String::new(), |k| format!(" with kernel '{}'", k.name));
                return Err(usage(format!("path '{text}'{what} is requested twice")));
            }
            // With several kernels, the kernel is a factor of the study.
            if let (true, Some(kernel)) = (kernels.len() > 1, kernel) {
                cell.levels.insert("kernel".into(), kernel.to_string());
            }
            cells.push(cell);
        }
    }
    let baseline = match request.baseline {
        None => cells.first(),
        Some(text) => {
            let (_, tx, rx) = halves(text, spec)?;
            cells.iter().find(|cell| cell.tx == tx && cell.rx == rx)
        }
    };
    let Some(baseline) = baseline.cloned() else {
        let what = request.baseline.unwrap_or("nothing");
        return Err(usage(format!("the baseline '{what}' is not among the paths of this run"))
            .remedy("add it with --path"));
    };
    cells.push(null_of(&baseline));
    Ok((cells, baseline.id))
}

/// Builds the cell of one path and kernel, without levels.
pub(super) fn cell(
    path: &str,
    kernel: Option<&Kernel>,
    request: &CellRequest,
    spec: &PathSpec,
) -> Result<Cell, Fault> {
    let (workload, workload_difference) = activity(request.workload, spec)?;
    let (stream, stream_options) = parse_stream(request.stream)?;
    let (link, link_difference) = link_for(&workload.name, request.link, spec)?;
    let (name, tx, rx) = halves(path, spec)?;
    agree(&link, request.cores)?;
    let mut levels = vec![workload_difference];
    levels.extend(differing(STREAM_OPTIONS, &stream_options));
    levels.extend([link_difference, request.cores.difference.clone()]);
    levels.extend(kernel.map(|kernel| format!("kernel={}", kernel.name)));
    levels.retain(|level| !level.is_empty());
    let cell = Cell {
        id: CellId([vec![name], levels].concat().join(" ")),
        workload,
        stream,
        tx,
        rx,
        link,
        placement: request.cores.placement,
        kernel: kernel.cloned(),
        ..Cell::default()
    };
    limit(&cell)?;
    take_turns(&cell)?;
    Ok(cell)
}

/// Errors if an adapter would have no flow, or a CPU no turn.
fn take_turns(cell: &Cell) -> Result<(), Fault> {
    let (flows, adapters) = (cell.stream.flows, cell.link.adapters);
    if flows < adapters {
        let text =
            format!("{adapters} adapters need at least as many flows, and there are {flows}");
        return Err(usage(text).remedy(format!("choose --stream flows={adapters}, or more")));
    }
    for role in Role::ALL {
        let idle = |of: &str, turns: usize, count: u32| {
            let fault = || {
                let text = format!("{turns} CPUs are named for {of}, of which there are {count}");
                usage(text).remedy("name fewer CPUs, or choose more flows or adapters")
            };
            if turns > count as usize { Err(fault()) } else { Ok(()) }
        };
        let threads = cell.placement.turns(role).cpus().len();
        idle(&format!("the {role}'s threads"), threads, cell.threads(role))?;
        let softirqs = cell.placement.softirq(role).cpus().len();
        idle(&format!("softirqs of the {role}'s adapters"), softirqs, adapters)?;
    }
    Ok(())
}

/// Most threads of an end.
const MOST_THREADS: u32 = 256;

/// Errors if a cell requests more than any machine should be asked for.
fn limit(cell: &Cell) -> Result<(), Fault> {
    for role in Role::ALL {
        let (threads, path) = (cell.threads(role), &cell.half(role).path);
        if threads > MOST_THREADS {
            let text =
                format!("path '{path}' has a thread for each of the {role}'s {threads} flows");
            return Err(usage(text).remedy(format!(
                "choose at most {MOST_THREADS} flows, or an event loop, such as epoll+epoll"
            )));
        }
    }
    let memory = cell.buffers();
    if memory > MEMORY_LIMIT {
        let gib = memory >> 30;
        return Err(usage(format!("the buffers of all flows would take {gib} GiB"))
            .remedy("choose fewer flows, or smaller messages and reads"));
    }
    Ok(())
}

/// Parses the link for a workload.
fn link_for(workload: &str, text: &str, spec: &PathSpec) -> Result<(LinkSettings, String), Fault> {
    let (mut link, difference) = parse_link(text)?;
    let declared = spec.workloads.iter().find(|declared| declared.name == workload);
    let is_typed = split(text)?.1.iter().any(|(key, _)| key == "mtu");
    if let Some(most) = declared.and_then(|declared| declared.most_mtu).filter(|_| !is_typed) {
        link.mtu = link.mtu.min(most);
    }
    Ok((link, difference))
}

/// Parses `NAME[:key=value,...]` into a workload and its difference from the default one, as typed.
pub(super) fn activity(text: &str, spec: &PathSpec) -> Result<(Activity, String), Fault> {
    let (name, typed_options) = split(text)?;
    let Some(default) = spec.workloads.first() else { return Ok(Default::default()) };
    let name = if name.is_empty() { default.name } else { &name };
    let declared = find("workload", name, &spec.workloads, |declared| declared.name)?;
    let options = resolve(&format!("workload {name}"), declared.options, &typed_options)?;
    let difference = differing(declared.options, &options);
    let is_default = name == default.name && difference.is_empty();
    let as_typed = if is_default { String::new() } else { typed(name, &difference) };
    Ok((Activity { name: name.to_owned(), options }, as_typed))
}

/// Errors if link and placement name different CPUs for the kernel's receive work.
fn agree(link: &LinkSettings, cores: &PlacementSpec) -> Result<(), Fault> {
    let (Some(rps), softirq) = (link.rps, cores.placement.softirq) else { return Ok(()) };
    if softirq == SoftirqCpu::Link || softirq.cpus() == [rps] {
        return Ok(());
    }
    let text = format!("the link's rps={rps} and the placement's softirq contradict each other");
    Err(usage(text).remedy("give only one of rps and softirq"))
}

/// Returns the second copy of the baseline, with which a study measures its own noise.
pub(super) fn null_of(baseline: &Cell) -> Cell {
    let id = CellId(format!("{} (again)", baseline.id));
    Cell { id, null: true, ..baseline.clone() }
}

/// Splits `TX+RX` at the first plus that is not between double quotes.
fn two_halves(text: &str) -> Option<(&str, &str)> {
    let mut quoted = false;
    let (at, _) = text.char_indices().find(|(_, c)| {
        quoted ^= *c == '"';
        *c == '+' && !quoted
    })?;
    Some((&text[..at], &text[at + 1..]))
}

/// Parses a path request into its canonical name and both halves.
pub(super) fn halves(text: &str, spec: &PathSpec) -> Result<(String, Half, Half), Fault> {
    if let Some((tx, rx)) = two_halves(text) {
        let (tx, rx) = (read_half(Role::Sender, tx, spec)?, read_half(Role::Receiver, rx, spec)?);
        return Ok(name_both(tx, rx, spec));
    }
    let (name, typed_options) = split(text)?;
    let Some(pair) = spec.pairs.iter().find(|pair| pair.name == name) else {
        return Err(unknown_pair(&name, spec));
    };
    let declared = [options(Role::Sender, pair.tx, spec)?, options(Role::Receiver, pair.rx, spec)?];
    let declares = |specs: &[OptionSpec], key: &str| specs.iter().any(|s| s.name == key);
    if let Some((stray, _)) =
        typed_options.iter().find(|(key, _)| !declared.iter().any(|specs| declares(specs, key)))
    {
        return Err(unknown_option(&format!("path {name}"), &declared.concat(), stray));
    }
    // An option of a pair applies to every half that declares it.
    let half = |path: &str, declared: &[OptionSpec]| {
        let own = typed_options.iter().filter(|(key, _)| declares(declared, key));
        resolve_half(path, declared, &own.cloned().collect::<Vec<_>>())
    };
    Ok(name_both(half(pair.tx, declared[0])?, half(pair.rx, declared[1])?, spec))
}

/// Parses a request for one half (`uring:depth=8`) into its canonical form.
pub(super) fn one_half(role: Role, text: &str, spec: &PathSpec) -> Result<String, Fault> {
    Ok(read_half(role, text, spec)?.1)
}

/// Formats a name as a user would type it, with its differences from the defaults.
pub(super) fn typed(name: &str, difference: &[String]) -> String {
    match difference {
        [] => name.to_owned(),
        some => format!("{name}:{}", some.join(",")),
    }
}

/// Parses one half; returns it with all of its options, and its canonical form.
fn read_half(role: Role, text: &str, spec: &PathSpec) -> Result<(Half, String), Fault> {
    let (path, typed_options) = split(text)?;
    resolve_half(&path, options(role, &path, spec)?, &typed_options)
}

fn resolve_half(
    path: &str,
    declared: &[OptionSpec],
    typed_options: &[TypedOption],
) -> Result<(Half, String), Fault> {
    let options = resolve(&format!("path {path}"), declared, typed_options)?;
    let text = typed(path, &differing(declared, &options));
    Ok((Half { path: path.to_owned(), options }, text))
}

/// Returns both halves and the canonical name of the two.
fn name_both(
    (tx, tx_text): (Half, String),
    (rx, rx_text): (Half, String),
    spec: &PathSpec,
) -> (String, Half, Half) {
    let pair = spec.pairs.iter().find(|pair| pair.tx == tx_text && pair.rx == rx_text);
    let name = pair.map_or_else(|| format!("{tx_text}+{rx_text}"), |pair| pair.name.to_owned());
    (name, tx, rx)
}

/// Returns the options of a role's half of a path.
fn options(role: Role, path: &str, spec: &PathSpec) -> Result<&'static [OptionSpec], Fault> {
    let half = |declared: &PathDeclaration| match role {
        Role::Sender => declared.tx,
        Role::Receiver => declared.rx,
    };
    let with_half = spec.paths.iter().filter(|declared| half(declared).is_some());
    let names: Vec<&str> = with_half.map(|declared| declared.name).collect();
    match spec.paths.iter().find(|declared| declared.name == path) {
        Some(declared) => half(declared).ok_or_else(|| {
            usage(format!("path '{path}' has no {role} half"))
                .remedy(format!("choose from {}", names.join(", ")))
        }),
        None => Err(suggest(usage(format!("there is no path '{path}'")), path, names)),
    }
}

fn unknown_pair(name: &str, spec: &PathSpec) -> Fault {
    let names: Vec<&str> = spec.pairs.iter().map(|pair| pair.name).collect();
    let is_half = spec.paths.iter().any(|path| path.name == name);
    let fault = usage(format!("there is no path '{name}'"));
    match did_you_mean(name, names.iter().copied()) {
        _ if is_half => usage(format!("'{name}' is one half of a path"))
            .remedy(format!("name both, sender first: {name}+RX or TX+{name}")),
        _ if name.contains(',') => {
            let each = name.split(',').filter(|one| !one.is_empty());
            let each = joined(each.map(|one| format!("--path {one}")), " ");
            fault.remedy(format!("give each path its own --path: {each}"))
        }
        Some(near) => fault.remedy(format!("did you mean '{near}'?")),
        None => fault.remedy(format!("choose from {}, or TX+RX", names.join(", "))),
    }
}

#[cfg(test)]
mod tests {
    use super::super::parse_cores;
    use super::*;
    use bytepath_record::OptionKind;

    const DEPTH: &[OptionSpec] =
        &[OptionSpec::new("depth", OptionKind::Count(1, 64), "4").help("requests in flight")];

    const THREADS: &[OptionSpec] = &[OptionSpec::new("threads", OptionKind::Count(1, 256), "1")];

    fn spec() -> PathSpec {
        PathSpec {
            workloads: vec![
                WorkloadDeclaration { name: "stream", options: &[], most_mtu: None },
                WorkloadDeclaration { name: "rr", options: DEPTH, most_mtu: Some(1500) },
            ],
            paths: vec![
                PathDeclaration { name: "socket", tx: Some(&[]), rx: Some(&[]) },
                PathDeclaration { name: "uring", tx: Some(DEPTH), rx: Some(&[]) },
                PathDeclaration { name: "splice", tx: Some(&[]), rx: None },
                PathDeclaration { name: "epoll", tx: Some(THREADS), rx: Some(THREADS) },
            ],
            pairs: vec![
                PairDeclaration { name: "socket", tx: "socket", rx: "socket" },
                PairDeclaration { name: "uring", tx: "uring", rx: "uring" },
            ],
        }
    }

    fn ids(paths: &[&str], stream: &str, link: &str) -> Result<Vec<String>, Fault> {
        let paths: Vec<String> = paths.iter().map(|p| (*p).to_owned()).collect();
        let cores = parse_cores("two", [0, 1])?;
        let request = CellRequest { stream, link, ..CellRequest::of(&paths, &cores) };
        let (cells, baseline) = cells(&request, &spec())?;
        assert_eq!(cells[0].id, baseline);
        Ok(cells.into_iter().map(|c| c.id.0).collect())
    }

    #[test]
    fn a_sign_between_quotes_is_part_of_a_value() {
        let two = two_halves("uring:a=\"wq0.0+wq1.0\",b=1+socket").unwrap();
        assert_eq!(two, ("uring:a=\"wq0.0+wq1.0\",b=1", "socket"));
        assert_eq!(two_halves("socket:a=\"x+y\""), None);
    }

    #[test]
    fn a_workload_is_named_in_ids_where_it_is_not_the_usual_one() {
        let of = |text: &str| activity(text, &spec());
        assert_eq!(of("").unwrap(), (Activity::default(), String::new()));
        assert_eq!(of("stream").unwrap().1, "");
        let (rr, as_typed) = of("rr:depth=8").unwrap();
        assert_eq!((rr.name.as_str(), rr.options.number("depth")), ("rr", Some(8)));
        assert_eq!(as_typed, "rr:depth=8");
        assert_eq!(of("rrr").unwrap_err().remedy.unwrap(), "did you mean 'rr'?");
        assert!(of("rr:flows=2").unwrap_err().message.contains("has no option 'flows'"));
    }

    #[test]
    fn ids_name_what_differs_from_the_default() {
        assert_eq!(
            ids(&["socket", "uring:depth=8", "splice+socket"], "", "wire").unwrap(),
            ["socket", "uring:depth=8+uring", "splice+socket", "socket (again)"]
        );
        assert_eq!(
            ids(&["socket+socket"], "flows=2", "offload").unwrap(),
            ["socket flows=2 link=offload", "socket flows=2 link=offload (again)"]
        );
        assert_eq!(ids(&["uring:depth=4"], "flows=1", "wire").unwrap()[..1], ["uring"]);
    }

    #[test]
    fn refuses_more_threads_or_memory_than_a_machine_has() {
        let refused = |path: &str, stream: &str| ids(&[path], stream, "wire").unwrap_err();
        let fault = refused("epoll+socket", "flows=300").to_string();
        assert!(fault.contains("'socket' has a thread for each of the receiver's 300"), "{fault}");
        assert!(fault.contains("at most 256 flows, or an event loop"), "{fault}");
        ids(&["epoll+epoll:threads=4"], "flows=60000", "wire").unwrap();
        assert!(refused("socket", "flows=256,message-size=1G").message.contains("GiB"));
        assert!(refused("epoll+epoll:threads=9", "flows=9,read-size=1G").message.contains("GiB"));
        ids(&["epoll+epoll:threads=9"], "flows=2,read-size=1G", "wire").unwrap();
    }

    #[test]
    fn every_adapter_has_a_flow_and_every_cpu_its_turn() {
        let of = |stream: &str, link: &str, cores: &str| {
            let (paths, cores) = (["socket".to_owned()], parse_cores(cores, [0, 1])?);
            let request = CellRequest { stream, link, ..CellRequest::of(&paths, &cores) };
            cells(&request, &spec()).map(|(cells, _)| cells[0].id.0.clone())
        };
        let id = of("flows=4", "wire:adapters=2", "sender=0,receiver=0+1,softirq=0+1").unwrap();
        assert_eq!(id, "socket flows=4 adapters=2 cores=none/sender=0/receiver=0+1/softirq=0+1");
        for (stream, link, cores, words) in [
            (
                "flows=3",
                "wire:adapters=4",
                "two",
                "4 adapters need at least as many flows, and there are 3",
            ),
            (
                "flows=4",
                "wire",
                "two,softirq=0+1",
                "2 CPUs are named for softirqs of the receiver's adapters, of which there are 1",
            ),
            (
                "",
                "wire",
                "receiver=0+1",
                "2 CPUs are named for the receiver's threads, of which there are 1",
            ),
        ] {
            let fault = of(stream, link, cores).unwrap_err();
            assert!(fault.message.contains(words) && fault.remedy.is_some(), "{fault}");
        }
    }

    #[test]
    fn every_path_is_run_on_every_kernel() {
        let cores = parse_cores("two", [0, 1]).unwrap();
        let kernels = [Kernel::named("old", "./a"), Kernel::named("new", "./b")];
        let paths = ["socket".to_owned(), "uring".to_owned()];
        let request = |kernels| CellRequest { kernels, ..CellRequest::of(&paths, &cores) };
        let (all, baseline) = cells(&request(&kernels), &spec()).unwrap();
        let ids: Vec<&str> = all.iter().map(|cell| cell.id.0.as_str()).collect();
        assert_eq!(
            ids,
            [
                "socket kernel=old",
                "socket kernel=new",
                "uring kernel=old",
                "uring kernel=new",
                "socket kernel=old (again)"
            ]
        );
        assert_eq!(baseline.0, "socket kernel=old");
        assert_eq!(all[1].levels["kernel"], "new=./b");
        assert_eq!(all[1].kernel, Some(kernels[1].clone()));
        let (one, _) = cells(&request(&kernels[..1]), &spec()).unwrap();
        assert_eq!((one[0].id.0.as_str(), one[0].levels.len()), ("socket kernel=old", 0));
        let twice = [kernels[0].clone(), kernels[0].clone()];
        assert!(
            cells(&request(&twice), &spec()).unwrap_err().message.contains("with kernel 'old'")
        );
    }

    #[test]
    fn wrong_paths_are_explained() {
        let text = |p: &str| ids(&[p], "", "wire").unwrap_err().to_string();
        assert_eq!(text("sockte"), "there is no path 'sockte' (did you mean 'socket'?)");
        assert!(text("splice").contains("one half of a path"));
        assert!(text("socket,uring").contains("its own --path: --path socket --path uring"));
        assert!(text("socket+splice").contains("no receiver half"));
        assert!(text("uring:dpth=1").contains("did you mean 'depth'"));
        assert!(text("socket:x=1").contains("no options"));
        assert!(ids(&["socket", "socket"], "", "wire").unwrap_err().message.contains("twice"));
    }

    #[test]
    fn the_baseline_must_be_there() {
        let paths = ["socket".to_owned()];
        let cores = parse_cores("two", [0, 1]).unwrap();
        let request = CellRequest { baseline: Some("uring"), ..CellRequest::of(&paths, &cores) };
        assert!(cells(&request, &spec()).unwrap_err().message.contains("not among"));
    }
}
