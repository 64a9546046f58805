//! Checks whether two cells were given the same task. A comparison is meaningful only if they
//! differ in what the experiment varies and in nothing else.

use bytepath_record::{Cell, LinkSettings, Load, Role, Setting, SettingRecord, Trial};
use serde::Serialize;
use serde_json::Value;

/// A property of a cell's task: its name, other factors than the one of that name that may vary it,
/// and its values in the two cells if they differ.
type Property = (&'static str, &'static [&'static str], Option<[String; 2]>);

/// Returns a sentence for each difference between two cells that no factor of the experiment
/// explains; `first` is the name of the first cell in them. The path and its options are the
/// subject of every experiment and may always differ.
pub(crate) fn undeclared_differences(first: &str, baseline: &Cell, cell: &Cell) -> Vec<String> {
    let declared = |factor: &str| baseline.levels.get(factor) != cell.levels.get(factor);
    let stream = stream_properties(baseline, cell);
    let all = stream.into_iter().chain(link_properties(&baseline.link, &cell.link));
    let all = all.chain(host_properties(baseline, cell));
    all.filter(|(name, also, _)| !declared(name) && !also.iter().any(|factor| declared(factor)))
        .filter_map(|(name, _, values)| {
            let [ours, theirs] = values?;
            Some(format!("{name} is {ours} in {first} and {theirs} here"))
        })
        .collect()
}

fn differing<T: PartialEq + Serialize>(a: &T, b: &T) -> Option<[String; 2]> {
    (a != b).then(|| [plain_value(a), plain_value(b)])
}

fn stream_properties(a: &Cell, b: &Cell) -> [Property; 11] {
    // Records from before this was an option have none.
    let load = |cell: &Cell| match cell.workload.options.word("load") {
        "" => "none".to_owned(),
        load => load.to_owned(),
    };
    let load = differing(&load(a), &load(b));
    let (a, b) = (&a.stream, &b.stream);
    [
        ("load", &["workload"], load),
        ("flows", &[], differing(&a.flows, &b.flows)),
        ("protocol", &[], differing(&a.protocol, &b.protocol)),
        ("message-size", &[], differing(&a.message_size, &b.message_size)),
        ("read-size", &[], differing(&a.read_size, &b.read_size)),
        ("read-memory", &[], differing(&a.read_memory, &b.read_memory)),
        ("touch", &[], differing(&a.touch, &b.touch)),
        ("congestion", &[], differing(&a.congestion, &b.congestion)),
        ("send-buffer", &[], differing(&a.send_buffer, &b.send_buffer)),
        ("receive-buffer", &[], differing(&a.receive_buffer, &b.receive_buffer)),
        ("tls", &[], differing(&a.tls, &b.tls)),
    ]
}

fn link_properties(a: &LinkSettings, b: &LinkSettings) -> [Property; 19] {
    const LINK: &[&str] = &["link"];
    let [tap_a, tap_b] = [a, b].map(|link| link.tap.unwrap_or_default());
    let [kind_a, kind_b] = [a, b].map(|link| link.tap.map(|tap| (tap.macvtap, tap.guest)));
    [
        ("adapters", LINK, differing(&a.adapters, &b.adapters)),
        ("mtu", LINK, differing(&a.mtu, &b.mtu)),
        ("tso", LINK, differing(&a.tso, &b.tso)),
        ("gro", LINK, differing(&a.gro, &b.gro)),
        ("hw-gro", LINK, differing(&a.hw_gro, &b.hw_gro)),
        ("hds", LINK, differing(&a.hds, &b.hds)),
        ("gso-max", LINK, differing(&a.gso_max, &b.gso_max)),
        ("gro-max", LINK, differing(&a.gro_max, &b.gro_max)),
        ("wmem", LINK, differing(&a.wmem, &b.wmem)),
        ("qdisc", LINK, differing(&a.qdisc, &b.qdisc)),
        ("queue-length", LINK, differing(&a.queue_length, &b.queue_length)),
        ("link", &[], differing(&kind_a, &kind_b)),
        ("queues", LINK, differing(&tap_a.queues, &tap_b.queues)),
        ("backpressure", LINK, differing(&tap_a.backpressure, &tap_b.backpressure)),
        ("vhost", LINK, differing(&tap_a.vhost, &tap_b.vhost)),
        ("vnet-header", LINK, differing(&tap_a.vnet_header, &tap_b.vnet_header)),
        ("uso", LINK, differing(&tap_a.uso, &tap_b.uso)),
        ("threaded-napi", LINK, differing(&a.threaded_napi, &b.threaded_napi)),
        ("rps", &["link", "cores"], differing(&a.rps, &b.rps)),
    ]
}

fn host_properties(a: &Cell, b: &Cell) -> [Property; 8] {
    const CORES: &[&str] = &["cores"];
    let settings = |cell: &Cell| {
        let all = cell.settings.iter().map(|wanted| wanted.setting.to_string());
        all.collect::<Vec<_>>().join("; ")
    };
    let kernel = |cell: &Cell| cell.kernel.as_ref().map(|kernel| kernel.to_string());
    let (on_a, on_b) = (a.placement, b.placement);
    let cpus = |role| differing(&on_a.cpus(role), &on_b.cpus(role));
    [
        ("sender CPU", CORES, cpus(Role::Sender)),
        ("receiver CPU", CORES, cpus(Role::Receiver)),
        ("sender-softirq CPU", CORES, differing(&on_a.sender_softirq, &on_b.sender_softirq)),
        ("softirq CPU", CORES, differing(&on_a.softirq, &on_b.softirq)),
        ("io-wq CPU", CORES, differing(&on_a.io_wq, &on_b.io_wq)),
        ("vhost CPU", CORES, differing(&on_a.vhost, &on_b.vhost)),
        ("settings", &[], differing(&settings(a), &settings(b))),
        ("kernel", &[], differing(&kernel(a), &kernel(b))),
    ]
}

/// Returns a sentence for each property of the trials that makes two cells incomparable, whatever
/// factor varies it: different work, flows that share queues compared with flows that do not, or a
/// receiver that discards the bytes compared with one that delivers them. `first` is the name of
/// the first cell in them.
pub(crate) fn trial_differences(first: &str, ours: &[&Trial], theirs: &[&Trial]) -> Vec<String> {
    let differing = |value: fn(&[&Trial]) -> Option<&'static str>| {
        value(ours).zip(value(theirs)).filter(|(a, b)| a != b)
    };
    let units = differing(|trials| Some(first_run(trials)?.work.terms().rate))
        .map(|(a, b)| format!("the unit counted is the {a} in {first} and the {b} here"));
    let queues =
        differing(receive_queue).map(|(a, b)| format!("flows go {a} in {first} and {b} here"));
    let receivers = differing(receiver_action)
        .map(|(a, b)| format!("the receiver {a} the bytes in {first} and {b} them here"));
    [units, queues, receivers].into_iter().flatten().collect()
}

/// Explains why two cells are incomparable if their loads are parts of different peaks, for
/// instance on two links: their rates, and the latency at these, are what was requested.
pub(crate) fn other_load(loads: &[Load], first: &Cell, second: &Cell) -> Option<String> {
    let of = |cell: &Cell, pair: &Option<String>| {
        loads.iter().find(|load| load.pair == *pair && load.cells.contains(&cell.id))
    };
    let differing = loads.iter().find_map(|load| {
        let (a, b) = (of(first, &load.pair)?, of(second, &load.pair)?);
        (a.rate != b.rate).then_some((a.rate, b.rate))
    });
    differing.map(|(a, b)| format!("the load is {a}/s in {} and {b}/s here", first.id))
}

fn first_run<'a>(trials: &[&'a Trial]) -> Option<&'a Trial> {
    trials.iter().copied().find(|trial| trial.rate_even_if_rejected().is_some())
}

fn receive_queue(trials: &[&Trial]) -> Option<&'static str> {
    let is_flow = |record: &SettingRecord| matches!(record.setting, Setting::Flow { .. });
    let is_steered = first_run(trials)?.prepared.iter().any(is_flow);
    Some(if is_steered { "to one receive queue" } else { "to any receive queue" })
}

fn receiver_action(trials: &[&Trial]) -> Option<&'static str> {
    let delivered = |t: &&&Trial| t.role(Role::Receiver).is_some_and(|r| r.ledger.delivered > 0);
    // If both ends receive, either may discard.
    let mut roles = trials.iter().find(delivered)?.roles.iter();
    Some(if roles.any(|role| role.ledger.discarded > 0) { "discards" } else { "delivers" })
}

/// Returns a value as recorded, in plain words.
pub(crate) fn plain_value(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::Bool(on)) => if on { "on" } else { "off" }.into(),
        Ok(Value::String(word)) => word,
        Ok(Value::Null) | Err(_) => "left to the kernel".into(),
        Ok(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::{cell, trial};
    use bytepath_record::{Manner, OptionValue, SettingValue, Touch, Work};

    #[test]
    fn reports_differences_that_no_factor_declares() {
        let baseline = cell("a");
        let mut other = cell("b");
        assert_eq!(undeclared_differences("a", &baseline, &other), [""; 0]);
        let mut baseline = baseline;
        for (cell, load) in [(&mut baseline, "none"), (&mut other, "trickle")] {
            let load = OptionValue::Word(load.into());
            cell.workload.options.0.insert("load".into(), load);
        }
        other.stream.touch = Touch::Read;
        other.link.tso = true;
        other.stream.send_buffer = Some(4096);
        other.link.hds = Some(true);
        assert_eq!(
            undeclared_differences("a", &baseline, &other),
            [
                "load is none in a and trickle here",
                "touch is none in a and read here",
                "send-buffer is left to the kernel in a and 4096 here",
                "tso is off in a and on here",
                "hds is left to the kernel in a and on here",
            ]
        );
    }

    #[test]
    fn a_receiver_that_discards_is_not_compared_with_one_that_delivers() {
        let with = |manner| {
            let mut trial = trial("a", 0, 1.0, 1000);
            trial.roles[1].ledger.enter(manner, 1000, 1, "recv(2)");
            trial
        };
        let (copied, mapped) = (with(Manner::Copied), with(Manner::NotCopied));
        let discarded = with(Manner::Discarded);
        assert_eq!(trial_differences("a", &[&copied], &[&mapped]), [""; 0]);
        assert_eq!(trial_differences("a", &[&discarded], &[&discarded]), [""; 0]);
        assert_eq!(
            trial_differences("a", &[&copied], &[&discarded]),
            ["the receiver delivers the bytes in a and discards them here"]
        );
        assert_eq!(
            trial_differences("a", &[], &[&discarded]),
            [""; 0],
            "nothing is known of the first"
        );
        // A client that discards long answers discards, whatever its server does.
        let mut client = with(Manner::Copied);
        client.roles[0].ledger.enter(Manner::Discarded, 10, 1, "recv(2) with MSG_TRUNC");
        assert_eq!(trial_differences("a", &[&copied], &[&client]).len(), 1);
    }

    #[test]
    fn bytes_are_not_compared_with_exchanges() {
        let bytes = trial("a", 0, 1.0, 1000);
        let exchanges = Trial { work: Work::Exchanges, ..bytes.clone() };
        assert_eq!(
            trial_differences("a", &[&bytes], &[&exchanges]),
            ["the unit counted is the throughput in a and the transaction rate here"]
        );
    }

    #[test]
    fn steered_flows_are_not_compared_with_unsteered_ones() {
        let plain = trial("a", 0, 1.0, 1000);
        let mut steered = plain.clone();
        steered.prepared.push(SettingRecord {
            setting: "flow eth1 src=10.0.0.1 queue=3".parse().unwrap(),
            profile: None,
            before: SettingValue::default(),
            after: SettingValue::default(),
            skipped: None,
            host: None,
        });
        assert_eq!(
            trial_differences("a", &[&plain], &[&steered]),
            ["flows go to any receive queue in a and to one receive queue here"]
        );
        assert_eq!(trial_differences("a", &[&steered], &[&steered]), [""; 0]);
    }

    #[test]
    fn a_declared_factor_may_differ() {
        let (mut baseline, mut other) = (cell("a"), cell("b"));
        other.stream.read_size = 4096;
        other.placement.receiver = Some(0);
        other.link.mtu = 9000;
        for (factor, levels) in [
            ("read-size", ["1M", "4K"]),
            ("cores", ["two", "one"]),
            ("link", ["wire", "wire:mtu=9000"]),
        ] {
            baseline.levels.insert(factor.into(), levels[0].into());
            other.levels.insert(factor.into(), levels[1].into());
        }
        assert_eq!(undeclared_differences("a", &baseline, &other), [""; 0]);
        // The same level at both indicates that they are meant to be the same.
        other.levels.insert("read-size".into(), "1M".into());
        assert_eq!(
            undeclared_differences("a", &baseline, &other),
            ["read-size is 1048576 in a and 4096 here"]
        );
    }
}
