use super::*;
use crate::FaultKind;

/// One of each kind: as typed, and the equivalent command.
const EXAMPLES: &[(&str, &str)] = &[
    (
        "sysctl net.ipv4.tcp_rmem=4096 131072 67108864",
        "sysctl -w net.ipv4.tcp_rmem='4096 131072 67108864'",
    ),
    ("sysctl kernel.numa_balancing=0", "sysctl -w kernel.numa_balancing='0'"),
    ("feature eth0 rx-gro=off", "ethtool -K eth0 rx-gro off"),
    (
        "rings eth0 rx=4096 tx=1024 rx-buf-len=32768 tcp-data-split=on hds-thresh=0",
        "ethtool -G eth0 rx 4096 tx 1024 rx-buf-len 32768 tcp-data-split on hds-thresh 0",
    ),
    ("channels eth0 combined=8", "ethtool -L eth0 combined 8"),
    ("coalescing eth0 rx-usecs=30 adaptive-rx=off", "ethtool -C eth0 rx-usecs 30 adaptive-rx off"),
    (
        "napi eth0 defer-hard-irqs=50 gro-flush-timeout=20000",
        "ynl --family netdev --do napi-set --json '{\"id\": ID, \"defer-hard-irqs\": 50, \
         \"gro-flush-timeout\": 20000}' # each of eth0",
    ),
    ("spread eth0 queues=7", "ethtool -X eth0 equal 7"),
    ("spread eth0 queues=7 start=1", "ethtool -X eth0 start 1 equal 7"),
    ("flow eth0 dst-port=5201 queue=7", "ethtool -N eth0 flow-type tcp4 dst-port 5201 action 7"),
    (
        "flow eth0 dst-port=5201 ipv6 queue=7",
        "ethtool -N eth0 flow-type tcp6 dst-port 5201 action 7",
    ),
    (
        "flow eth0 src=fd00::1 dst=fd00::2 queue=0",
        "ethtool -N eth0 flow-type tcp6 src-ip fd00::1 dst-ip fd00::2 action 0",
    ),
    ("mtu eth0 4148", "ip link set dev eth0 mtu 4148"),
    (
        "packet-limits eth0 gso=65536 gro-ipv4=185000",
        "ip link set dev eth0 gso_max_size 65536 gro_ipv4_max_size 185000",
    ),
    ("qdisc eth0 fq_codel", "tc qdisc replace dev eth0 root fq_codel"),
    ("irq 45 2-3", "echo 2-3 > /proc/irq/45/smp_affinity_list"),
    ("rps eth0 0 1,33", "echo 2,00000002 > /sys/class/net/eth0/queues/rx-0/rps_cpus"),
    ("rps eth0 none", "echo 0 | tee /sys/class/net/eth0/queues/rx-*/rps_cpus"),
    ("xps eth0 3 3", "echo 8 > /sys/class/net/eth0/queues/tx-3/xps_cpus"),
    ("governor all performance", "cpupower -c all frequency-set -g performance"),
    ("governor 0-3 schedutil", "cpupower -c 0-3 frequency-set -g schedutil"),
    ("idle all slower-than=10us", "cpupower -c all idle-set -D 11"),
    ("idle 2 without=C6", "cpupower -c 2 idle-set -d STATE  # the one called C6"),
    ("hugepages 2M 512", "echo 512 > /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"),
    (
        "hugepages 1G node=1 4",
        "echo 4 > /sys/devices/system/node/node1/hugepages/hugepages-1048576kB/nr_hugepages",
    ),
    (
        "hugepages 2M node=eth0 128",
        "echo 128 > /sys/devices/system/node/node$(cat /sys/class/net/eth0/device/numa_node)\
         /hugepages/hugepages-2048kB/nr_hugepages",
    ),
    ("threaded-napi eth0 on", "echo 1 > /sys/class/net/eth0/threaded"),
    ("dsa wq0.0 size=128", "echo 128 > /sys/bus/dsa/devices/wq0.0/size"),
    ("dsa engine0.3 group_id=0", "echo 0 > /sys/bus/dsa/devices/engine0.3/group_id"),
    ("dsa wq0.0 state=enabled", "echo wq0.0 > /sys/bus/dsa/drivers/user/bind"),
    ("dsa dsa0 state=disabled", "echo dsa0 > /sys/bus/dsa/drivers/idxd/unbind"),
    ("tap tap0 backpressure=on", "# ioctl(TUNSETIFF) on tap0 with backpressure=on"),
];

#[test]
fn each_kind_is_typed_printed_and_stored_without_loss() {
    let mut tried = std::collections::BTreeSet::new();
    for (line, command) in EXAMPLES {
        let setting: Setting = line.parse().unwrap_or_else(|e| panic!("{line}: {e}"));
        assert_eq!(setting.to_string(), *line);
        assert_eq!(setting.command(), *command);
        let json = serde_json::to_string(&setting).unwrap();
        assert_eq!(serde_json::from_str::<Setting>(&json).unwrap(), setting, "{json}");
        tried.insert(line.split(' ').next().unwrap());
    }
    for (form, example) in SETTING_FORMS {
        let name = form.split(' ').next().unwrap();
        assert!(tried.contains(name), "no example of '{name}'");
        let (_, example) = example.rsplit_once(": ").unwrap();
        example.parse::<Setting>().unwrap_or_else(|e| panic!("{example}: {e}"));
    }
}

/// One of each kind: as typed, and as stored in studies and journals.
const STORED: &[(&str, &str)] = &[
    ("sysctl vm.swappiness=1", r#"{"kind":"sysctl","name":"vm.swappiness","value":"1"}"#),
    (
        "feature eth0 rx-gro=off",
        r#"{"kind":"feature","device":"eth0","feature":"rx-gro","on":false}"#,
    ),
    (
        "rings eth0 rx=4096 tcp-data-split=on hds-thresh=0",
        r#"{"kind":"rings","device":"eth0","rx":4096,"tcp-data-split":"on","hds-thresh":0}"#,
    ),
    ("channels eth0 combined=8", r#"{"kind":"channels","device":"eth0","combined":8}"#),
    (
        "coalescing eth0 rx-usecs=30 adaptive-rx=off",
        r#"{"kind":"coalescing","device":"eth0","rx-usecs":30,"adaptive-rx":false}"#,
    ),
    (
        "napi eth0 irq-suspend-timeout=20000000 threaded=2",
        r#"{"kind":"napi","device":"eth0","irq-suspend-timeout":20000000,"threaded":2}"#,
    ),
    ("spread eth0 queues=7", r#"{"kind":"spread","device":"eth0","queues":7}"#),
    (
        "flow eth0 dst-port=5201 queue=7",
        r#"{"kind":"flow","device":"eth0","destination-port":5201,"ipv6":false,"queue":7}"#,
    ),
    ("mtu eth0 4148", r#"{"kind":"mtu","device":"eth0","bytes":4148}"#),
    ("packet-limits eth0 gro=65536", r#"{"kind":"packet-limits","device":"eth0","gro":65536}"#),
    ("qdisc eth0 fq", r#"{"kind":"qdisc","device":"eth0","discipline":"fq"}"#),
    ("irq 45 2-3", r#"{"kind":"irq-affinity","irq":45,"cpus":"2-3"}"#),
    ("rps eth0 0 1", r#"{"kind":"rps","device":"eth0","queue":0,"cpus":"1"}"#),
    ("xps eth0 none", r#"{"kind":"xps","device":"eth0","cpus":"none"}"#),
    ("governor all performance", r#"{"kind":"governor","governor":"performance"}"#),
    (
        "idle 0-3,8 slower-than=10us",
        r#"{"kind":"idle-states","cpus":"0-3,8","disable":{"slower-than":10}}"#,
    ),
    ("hugepages 2M 512", r#"{"kind":"huge-pages","size":2097152,"count":512}"#),
    ("threaded-napi eth0 on", r#"{"kind":"threaded-napi","device":"eth0","on":true}"#),
    ("tap tap0 backpressure=on", r#"{"kind":"tap-flags","device":"tap0","backpressure":true}"#),
    ("dsa wq0.0 size=128", r#"{"kind":"dsa","part":"wq0.0","attribute":"size","value":"128"}"#),
    ("loan eth0", r#"{"kind":"loan","device":"eth0"}"#),
];

#[test]
fn stored_form_of_each_kind_is_kept() {
    assert_eq!(STORED.len(), <Setting as strum::EnumCount>::COUNT);
    for (line, json) in STORED {
        let setting: Setting = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
        assert_eq!(setting.to_string(), *line);
        assert_eq!(serde_json::to_string(&setting).unwrap(), *json);
        assert_eq!(setting.is_of_testbed(), line.parse::<Setting>().is_err());
    }
}

#[test]
fn where_a_spread_begins_is_stored_unless_it_is_at_the_first_queue() {
    let setting: Setting = "spread eth0 queues=7 start=1".parse().unwrap();
    let json = r#"{"kind":"spread","device":"eth0","queues":7,"start":1}"#;
    assert_eq!(serde_json::to_string(&setting).unwrap(), json);
    assert_eq!(serde_json::from_str::<Setting>(json).unwrap(), setting);
}

#[test]
fn a_node_is_stored_as_its_number_or_its_device() {
    for (line, json) in [
        ("hugepages 2M node=1 4", r#"{"kind":"huge-pages","size":2097152,"node":1,"count":4}"#),
        (
            "hugepages 2M node=eth0 4",
            r#"{"kind":"huge-pages","size":2097152,"node":"eth0","count":4}"#,
        ),
    ] {
        let setting: Setting = line.parse().unwrap();
        assert_eq!(serde_json::to_string(&setting).unwrap(), json);
        assert_eq!(serde_json::from_str::<Setting>(json).unwrap(), setting);
        assert!(!setting.is_of_namespace(), "the memory is the machine's");
    }
    let numbered = r#"{"kind":"huge-pages","size":2097152,"node":"1","count":4}"#;
    let numbered: Setting = serde_json::from_str(numbered).unwrap();
    assert!(numbered.checked().is_err(), "it would read back as the node's number");
}

#[test]
fn names_that_lead_elsewhere_are_refused() {
    for line in [
        "sysctl net/../kernel.core_pattern=x",
        "sysctl net...kernel=x",
        "sysctl net.//.core_pattern=x",
        "sysctl kernel.core_pattern=|/bin/sh",
        "sysctl kernel.modprobe=/tmp/x",
        "sysctl net.ipv4.ip_forward=1",
        "sysctl net.ipv4.conf.all.rp_filter=1",
        "sysctl net.ipv4.route.flush=1",
        "sysctl net=1",
        "mtu ../../x 1500",
        "mtu .. 1500",
        "mtu sixteen-bytes-12 1500",
        "mtu eth0:1 1500",
        "governor all ../../x",
        "qdisc eth0 -x",
    ] {
        let fault = line.parse::<Setting>().unwrap_err();
        assert_eq!(fault.kind, FaultKind::Usage, "{line}");
        assert!(fault.remedy.is_some(), "{line}: {fault}");
    }
    // The same names, read from a journal or a file.
    for json in [
        r#"{"kind":"mtu","device":"../x","bytes":1500}"#,
        r#"{"kind":"mtu","device":"eth0=","bytes":1500}"#,
        r#"{"kind":"sysctl","name":"kernel.core_pattern","value":"x"}"#,
        r#"{"kind":"irq-affinity","irq":1,"cpus":"0-4000000000"}"#,
    ] {
        assert!(serde_json::from_str::<Setting>(json).is_err(), "{json}");
    }
}

#[test]
fn refusals_name_the_form() {
    for (line, reason) in [
        ("", "there is no setting"),
        ("nonsense eth0", "choose from sysctl"),
        ("sysctl net.core.rmem_max", "sysctl NAME=VALUE"),
        ("sysctl net.core.rmem_max= ", "no value"),
        ("rings eth0", "sets nothing"),
        ("rings eth0 rx=1 rx=2", "twice"),
        ("rings eth0 rx=4294967296", "not a whole number"),
        ("rings eth0 speed=1", "'speed' is unexpected"),
        ("mtu eth0 1279", "IPv6"),
        ("mtu eth0", "it lacks the bytes"),
        ("mtu eth0 1500 9000", "'9000' is unexpected"),
        ("spread eth0 queues=0", "at least one queue"),
        ("flow eth0 queue=1", "every flow"),
        ("flow eth0 src=10.0.0.1 dst=fd00::1 queue=1", "one family"),
        ("irq 4 none", "needs a CPU"),
        ("governor none performance", "names no CPU"),
        ("hugepages 3M 1", "no pages of"),
        ("hugepages 2M node=../x 1", "not a name of a network device"),
        ("idle all", "any states"),
        ("threaded-napi eth0 yes", "not on or off"),
        ("rps eth0 8192", "list of CPUs"),
        ("dsa wq0.0", "sets no attribute"),
        ("dsa wq0 size=1", "wq0 is not dsaD, engineD.N or wqD.N"),
        ("dsa dsa0.0 state=enabled", "is not dsaD"),
        ("dsa engine0.0 size=1", "of engine0.0 can be set: group_id"),
        ("dsa wq0.0 state=on", "enabled or disabled"),
        ("dsa .. state=enabled", "'..'"),
    ] {
        let text = line.parse::<Setting>().unwrap_err().to_string();
        assert!(text.contains(reason), "{line}: {text}");
    }
}

#[test]
fn built_settings_are_checked_like_typed_ones() {
    let json = r#"{"kind":"sysctl","name":"net.core.rmem_max","value":" 1"}"#;
    let built: Setting = serde_json::from_str(json).unwrap();
    assert!(built.checked().unwrap_err().message.contains("surrounding blanks"));
}

#[test]
fn masks_and_lists_of_cpus() {
    for (list, mask) in [
        ("none", "0"),
        ("0", "1"),
        ("0-3,8", "10f"),
        ("31-32", "1,80000000"),
        ("64", "1,00000000,00000000"),
    ] {
        let cpus: Cpus = list.parse().unwrap();
        assert_eq!((cpus.to_string().as_str(), cpus.mask().as_str()), (list, mask));
        assert_eq!(Cpus::from_mask(mask), Some(cpus));
    }
    assert_eq!(Cpus::from_mask("00000000,00000003\n"), Some("0-1".parse().unwrap()));
    for text in ["", "x", "1,,2", "123456789", "+1"] {
        assert_eq!(Cpus::from_mask(text), None, "{text}");
    }
}

#[test]
fn values_are_shortened() {
    let text = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        SettingValue(pairs.collect()).to_string()
    };
    assert_eq!(text(&[("value", "4096\t131072\t6291456\n")]), "4096 131072 6291456");
    assert_eq!(text(&[("rx", "512"), ("tx", "256")]), "rx 512, tx 256");
    let cpus = [("cpu0", "a"), ("cpu1", "a"), ("cpu2", "a"), ("cpu3", "b")];
    assert_eq!(text(&cpus), "cpu0 and 2 others a, cpu3 b");
    assert_eq!(text(&cpus[..2]), "a");
    assert_eq!(text(&[]), "nothing");
}

#[test]
fn records_and_restorations_are_one_line() {
    let value = |pairs: &[(&str, &str)]| {
        let pairs = pairs.iter().map(|(name, text)| (name.to_string(), text.to_string()));
        SettingValue(pairs.collect())
    };
    let row = |line: &str, before: &[(&str, &str)], after: &[(&str, &str)]| {
        let record = SettingRecord {
            setting: line.parse().unwrap(),
            profile: None,
            before: value(before),
            after: value(after),
            skipped: None,
            host: None,
        };
        record.to_string()
    };
    assert_eq!(
        row("mtu eth0 4148", &[("mtu", "1500\n")], &[("mtu", "4148\n")]),
        "mtu eth0: 1500 -> 4148"
    );
    let (before, after) = ([("rx", "512"), ("tx", "512")], [("rx", "4096"), ("tx", "512")]);
    assert_eq!(row("rings eth0 rx=4096", &before, &after), "rings eth0 rx: 512 -> 4096");
    assert_eq!(
        row("rings eth0 rx=4096 tx=1024", &before, &[("rx", "4096"), ("tx", "1024")]),
        "rings eth0: 512 -> rx 4096, tx 1024"
    );
    assert_eq!(row("rings eth0 rx=512", &before, &before), "rings eth0: 512 already");
    let back = RestorationRow {
        setting: "rings eth0 rx=4096".parse().unwrap(),
        before: value(&before),
        set: value(&after),
        outcome: Restoration::Restored,
        note: String::new(),
        host: Some(crate::Role::Sender),
    };
    assert_eq!(back.to_string(), "sender: rings eth0 rx: restored: 512 (was set to 4096)");
}

#[test]
fn a_setting_follows_its_device_to_another_name() {
    let device = DeviceName::new("moved.5").unwrap();
    for (line, expected) in [
        ("mtu eth0 4148", "mtu moved.5 4148"),
        ("rps eth0 0 1", "rps moved.5 0 1"),
        ("sysctl net.ipv4.conf.eth0/7.rp_filter=2", "sysctl net.ipv4.conf.moved/5.rp_filter=2"),
        ("sysctl net.ipv6.neigh.eth0.locktime=2", "sysctl net.ipv6.neigh.moved/5.locktime=2"),
        ("sysctl net.core.somaxconn=1", "sysctl net.core.somaxconn=1"),
        ("irq 24 1", "irq 24 1"),
    ] {
        let setting: Setting = line.parse().unwrap();
        assert_eq!(setting.on_device(&device).to_string(), expected);
    }
    let own = |name: &str| SysctlName::new(name).unwrap().device();
    assert_eq!(own("net.ipv4.conf.eth0/7.rp_filter"), Some(DeviceName::new("eth0.7").unwrap()));
    assert_eq!(own("net.ipv4.neigh.default.gc_thresh1"), None);
}
