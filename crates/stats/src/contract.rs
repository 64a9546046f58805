//! Were two cells given the same task? A comparison is meaningful only if they
//! differ in what the experiment varies and in nothing else.

use crate::record::{Cell, LinkSettings, Role, Setting, SettingRecord, Trial};
use serde::Serialize;
use serde_json::Value;

/// What two cells differ in without any factor of the experiment saying so, each
/// in words; `first` is how the words call the first. The path and its options are
/// the subject of every experiment.
pub(crate) fn undeclared(first: &str, baseline: &Cell, cell: &Cell) -> Vec<String> {
    let mut found = Vec::new();
    let (b, c) = (&baseline.stream, &cell.stream);
    let mut differs = |name: &str, also: &[&str], ours: String, theirs: String| {
        let declared = |factor: &str| baseline.levels.get(factor) != cell.levels.get(factor);
        if !declared(name) && !also.iter().any(|factor| declared(factor)) {
            found.push(format!("{name} is {ours} in {first} and {theirs} here"));
        }
    };
    macro_rules! same {
        ($name:literal, $also:expr, $first:expr, $second:expr) => {
            if $first != $second {
                differs($name, $also, shown(&$first), shown(&$second));
            }
        };
    }
    // Records before it was an option have none.
    let load = |cell: &Cell| match cell.workload.options.word("load") {
        "" => "none".to_owned(),
        load => load.to_owned(),
    };
    same!("load", &["workload"], load(baseline), load(cell));
    same!("flows", &[], b.flows, c.flows);
    same!("protocol", &[], b.protocol, c.protocol);
    same!("message-size", &[], b.message_size, c.message_size);
    same!("read-size", &[], b.read_size, c.read_size);
    same!("read-memory", &[], b.read_memory, c.read_memory);
    same!("touch", &[], b.touch, c.touch);
    same!("congestion", &[], b.congestion, c.congestion);
    same!("send-buffer", &[], b.send_buffer, c.send_buffer);
    same!("receive-buffer", &[], b.receive_buffer, c.receive_buffer);
    same!("tls", &[], b.tls, c.tls);
    let (b, c) = (&baseline.link, &cell.link);
    same!("mtu", &["link"], b.mtu, c.mtu);
    same!("tso", &["link"], b.tso, c.tso);
    same!("gro", &["link"], b.gro, c.gro);
    same!("hw-gro", &["link"], b.hw_gro, c.hw_gro);
    same!("hds", &["link"], b.hds, c.hds);
    same!("gso-max", &["link"], b.gso_max, c.gso_max);
    same!("gro-max", &["link"], b.gro_max, c.gro_max);
    same!("wmem", &["link"], b.wmem, c.wmem);
    same!("qdisc", &["link"], b.qdisc, c.qdisc);
    same!("queue-length", &["link"], b.queue_length, c.queue_length);
    let tap = |link: &LinkSettings| link.tap.unwrap_or_default();
    let (of_b, of_c) = (tap(b), tap(c));
    same!("link", &[], b.tap.map(|tap| tap.macvtap), c.tap.map(|tap| tap.macvtap));
    same!("queues", &["link"], of_b.queues, of_c.queues);
    same!("backpressure", &["link"], of_b.backpressure, of_c.backpressure);
    same!("vnet-header", &["link"], of_b.vnet_header, of_c.vnet_header);
    same!("uso", &["link"], of_b.uso, of_c.uso);
    same!("threaded-napi", &["link"], b.threaded_napi, c.threaded_napi);
    same!("rps", &["link", "cores"], b.rps, c.rps);
    let (b, c) = (baseline.placement, cell.placement);
    same!("sender CPU", &["cores"], b.sender, c.sender);
    same!("receiver CPU", &["cores"], b.receiver, c.receiver);
    same!("sender-softirq CPU", &["cores"], b.sender_softirq, c.sender_softirq);
    same!("softirq CPU", &["cores"], b.softirq, c.softirq);
    same!("io-wq CPU", &["cores"], b.io_wq, c.io_wq);
    same!("vhost CPU", &["cores"], b.vhost, c.vhost);
    let set = |cell: &Cell| {
        let all = cell.settings.iter().map(|wanted| wanted.setting.to_string());
        all.collect::<Vec<_>>().join("; ")
    };
    same!("settings", &[], set(baseline), set(cell));
    let name = |cell: &Cell| cell.kernel.as_ref().map(|kernel| kernel.to_string());
    same!("kernel", &[], name(baseline), name(cell));
    found
}

/// What the trials of two cells show that makes them incomparable, whatever factor
/// says so: another work, or a receiver that discards the bytes compared with one that
/// delivers them. Each in words; `first` is how the words call the first.
pub(crate) fn unlike(first: &str, ours: &[&Trial], theirs: &[&Trial]) -> Vec<String> {
    let mut found = Vec::new();
    let work = |trials: &[&Trial]| trials.iter().find(|t| t.ran_at().is_some()).map(|t| t.work);
    if let (Some(a), Some(b)) = (work(ours), work(theirs))
        && a != b
    {
        found.push(format!(
            "the unit counted is the {} in {first} and the {} here",
            a.terms().rate,
            b.terms().rate
        ));
    }
    // Where both ends receive, either may discard.
    let receivers = |trials: &[&Trial]| -> Option<bool> {
        let mut ran = trials.iter().filter(|t| {
            t.role(Role::Receiver).is_some_and(|receiver| receiver.ledger.delivered > 0)
        });
        ran.next().map(|t| t.roles.iter().any(|role| role.ledger.discarded > 0))
    };
    let steered = |trials: &[&Trial]| {
        let mut ran = trials.iter().filter(|t| t.ran_at().is_some());
        let flow = |record: &SettingRecord| matches!(record.setting, Setting::Flow { .. });
        ran.next().map(|t| t.prepared.iter().any(flow))
    };
    let go = |steered| if steered { "to one receive queue" } else { "to any receive queue" };
    if let (Some(a), Some(b)) = (steered(ours), steered(theirs))
        && a != b
    {
        found.push(format!("flows go {} in {first} and {} here", go(a), go(b)));
    }
    let does = |discards| if discards { "discards" } else { "delivers" };
    if let (Some(a), Some(b)) = (receivers(ours), receivers(theirs))
        && a != b
    {
        found.push(format!(
            "the receiver {} the bytes in {first} and {} them here",
            does(a),
            does(b)
        ));
    }
    found
}

/// A value as its record has it, in plain words.
pub(super) fn shown(value: &impl Serialize) -> String {
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
    use crate::pool::tests::{cell, trial};
    use crate::record::{Manner, OptionValue, SettingValue, Touch, Work};

    #[test]
    fn what_no_factor_varies_must_be_the_same() {
        let baseline = cell("a");
        let mut other = cell("b");
        assert_eq!(undeclared("a", &baseline, &other), [""; 0]);
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
            undeclared("a", &baseline, &other),
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
        assert_eq!(unlike("a", &[&copied], &[&mapped]), [""; 0]);
        assert_eq!(unlike("a", &[&discarded], &[&discarded]), [""; 0]);
        assert_eq!(
            unlike("a", &[&copied], &[&discarded]),
            ["the receiver delivers the bytes in a and discards them here"]
        );
        assert_eq!(unlike("a", &[], &[&discarded]), [""; 0], "nothing is known of the first");
        // A client that discards long answers discards, whatever its server does.
        let mut client = with(Manner::Copied);
        client.roles[0].ledger.enter(Manner::Discarded, 10, 1, "recv(2) with MSG_TRUNC");
        assert_eq!(unlike("a", &[&copied], &[&client]).len(), 1);
    }

    #[test]
    fn bytes_are_not_compared_with_exchanges() {
        let bytes = trial("a", 0, 1.0, 1000);
        let exchanges = Trial { work: Work::Exchanges, ..bytes.clone() };
        assert_eq!(
            unlike("a", &[&bytes], &[&exchanges]),
            ["the unit counted is the throughput in a and the transaction rate here"]
        );
    }

    #[test]
    fn a_flow_by_a_queue_of_its_own_is_not_compared_with_one_that_shares() {
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
            unlike("a", &[&plain], &[&steered]),
            ["flows go to any receive queue in a and to one receive queue here"]
        );
        assert_eq!(unlike("a", &[&steered], &[&steered]), [""; 0]);
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
        assert_eq!(undeclared("a", &baseline, &other), [""; 0]);
        // The same level at both says that they are meant to be the same.
        other.levels.insert("read-size".into(), "1M".into());
        assert_eq!(undeclared("a", &baseline, &other), ["read-size is 1048576 in a and 4096 here"]);
    }
}
