//! The testbed's link as typed options on top of a named preset.

use super::options::{TypedOption, find, resolve, split, usage};
use bytepath_record::OptionKind::{AutoSize, Choice, Count, Flag, WordCount};
use bytepath_record::{
    CpuTurns, Fault, LinkSettings, Netem, OptionSpec, Options, TapSettings, joined,
};

/// The options of a link.
pub const LINK_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("adapters", Count(1, CpuTurns::MOST as u64), "1")
        .help("pairs of devices between the hosts; flow i crosses the pair i modulo their number"),
    OptionSpec::new("mtu", Count(576, 65535), "4148")
        .help("MTU in bytes (4148 carries 4096 bytes of payload)"),
    OptionSpec::new("tso", Flag, "off")
        .help("segmentation offload; off cuts packets to the MSS, as on a wire"),
    OptionSpec::new("gro", Flag, "on").help("generic receive offload"),
    OptionSpec::new("hw-gro", Flag, "off")
        .help("GRO by the device (rx-gro-hw); no virtual device has it"),
    OptionSpec::new("hds", Choice(&["auto", "on", "off"]), "auto").help(
        "header split by the receiving NIC; auto: unchanged, or as a path of the study requires",
    ),
    OptionSpec::new("gso-max", AutoSize(4096, 524_280), "auto")
        .help("largest packet before segmentation, bytes (above 64K: BIG TCP)"),
    OptionSpec::new("gro-max", AutoSize(4096, 524_280), "auto")
        .help("largest packet that GRO builds, bytes"),
    OptionSpec::new("wmem", AutoSize(4096, 1 << 30), "768K")
        .help("maximum size of an autotuned send buffer in bytes: limits the bytes in flight"),
    OptionSpec::new("qdisc", Choice(&["pfifo", "none", "fq_codel", "fq"]), "pfifo")
        .help("queue before the device; none (noqueue) drops what a full ring cannot take"),
    OptionSpec::new("queue-length", WordCount("auto", 1, 65536), "auto")
        .help("txqueuelen, packets: the length of a pfifo, and of a tap's rings"),
    OptionSpec::new("delay", Count(0, 10_000_000), "0")
        .help("microseconds that a packet takes, each way (netem, in place of qdisc)"),
    OptionSpec::new("rate", WordCount("none", 1, 4_000_000), "none")
        .help("megabits per second, each way (netem)"),
    OptionSpec::new("loss", Count(0, 1_000_000), "0")
        .help("packets of a million that are lost (netem)"),
    OptionSpec::new("reorder", Count(0, 1_000_000), "0")
        .help("packets of a million that overtake others; requires delay (netem)"),
    OptionSpec::new("queues", Count(1, 64), "1")
        .help("tap: number of queues, each with a ring and a sink thread"),
    OptionSpec::new("backpressure", Flag, "off")
        .help("tap: a full ring stops the queue instead of dropping (Linux 7.3)"),
    OptionSpec::new("vhost", Flag, "off")
        .help("guest-tap: this host's kernel moves frames to the guest (vhost-net), not its qemu"),
    OptionSpec::new("vnet-header", Flag, "off").help("tap: a virtio_net_hdr before each frame"),
    OptionSpec::new("uso", Flag, "off")
        .help("tap: UDP messages arrive unsegmented (Linux 6.2), as the virtio_net_hdr states"),
    OptionSpec::new("threaded-napi", Flag, "on")
        .help("receive in a kernel thread on the receiver's CPU"),
    OptionSpec::new("rps", WordCount("none", 0, 4095), "none")
        .help("CPU that receives packets by RPS at the receiver"),
];

/// A named set of link settings.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Name as typed by the user.
    pub name: &'static str,
    /// One line: what it imitates.
    pub summary: &'static str,
    /// Its options, as the user would type them.
    pub values: &'static [(&'static str, &'static str)],
}

/// The preset for an existing link.
const GIVEN: &str = "given";

/// The preset for a link that ends in file descriptors.
const TAP: &str = "tap";

/// The preset for a veth pair that ends in file descriptors.
const MACVTAP: &str = "macvtap";

/// The preset for a link whose receiver is a guest with a tap on the sender's host.
const GUEST_TAP: &str = "guest-tap";

/// Options that only taps have, with the presets that support each, the usual one first.
const TAP_OPTIONS: [(&str, &[&str]); 5] = [
    ("queues", &[TAP, MACVTAP]),
    ("backpressure", &[TAP, GUEST_TAP]),
    ("vhost", &[GUEST_TAP]),
    ("vnet-header", &[TAP, MACVTAP]),
    ("uso", &[TAP, MACVTAP]),
];

/// The presets; the first is the default.
pub const PRESETS: &[Preset] = &[
    Preset {
        name: "wire",
        summary: "packets of one MSS cross the link, GRO merges them, the receiver pays for receiving",
        values: &[],
    },
    Preset {
        name: "nic",
        summary: "a NIC as it is: TSO, GRO by its driver, its own queues",
        values: &[("tso", "on"), ("threaded-napi", "off"), ("qdisc", "none"), ("wmem", "auto")],
    },
    Preset {
        name: GIVEN,
        summary: "an existing link between your hosts: the given options are set on its devices",
        values: &[("tso", "on"), ("threaded-napi", "off"), ("qdisc", "none"), ("wmem", "auto")],
    },
    Preset {
        name: "offload",
        summary: "64 KiB packets cross whole, as between two containers of one machine",
        values: &[
            ("mtu", "1500"),
            ("tso", "on"),
            ("threaded-napi", "off"),
            ("qdisc", "none"),
            ("wmem", "auto"),
        ],
    },
    Preset {
        name: "big-tcp",
        summary: "packets of up to 512 KiB cross whole (BIG TCP)",
        values: &[
            ("mtu", "1500"),
            ("tso", "on"),
            ("threaded-napi", "off"),
            ("qdisc", "none"),
            ("gso-max", "524280"),
            ("gro-max", "524280"),
            ("wmem", "auto"),
        ],
    },
    Preset {
        name: TAP,
        summary: "a tap: the sender has the device, the receiver its descriptors; for packets only",
        values: &[("mtu", "1500"), ("threaded-napi", "off"), ("qdisc", "none"), ("wmem", "auto")],
    },
    Preset {
        name: MACVTAP,
        summary: "a veth pair with a macvtap on its other end, read through descriptors; for packets only",
        values: &[("mtu", "1500"), ("threaded-napi", "off"), ("qdisc", "none"), ("wmem", "auto")],
    },
    Preset {
        name: GUEST_TAP,
        summary: "a tap of the sender's host, and the device of a guest behind it (testbed vm:host=sender)",
        values: &[
            ("mtu", "1500"),
            ("tso", "on"),
            ("threaded-napi", "off"),
            ("qdisc", "none"),
            ("wmem", "auto"),
        ],
    },
];

/// Parses `PRESET[:key=value,...]`; also returns the part of the cell's id that names the
/// differences from the default preset (empty for the default).
pub fn parse_link(text: &str) -> Result<(LinkSettings, String), Fault> {
    let (name, typed_options) = split(text)?;
    let preset = find("link preset", &name, PRESETS, |preset| preset.name)?;
    let of_preset: Vec<TypedOption> =
        preset.values.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let kept =
        of_preset.iter().filter(|(key, _)| !typed_options.iter().any(|(mine, _)| mine == key));
    let all: Vec<TypedOption> = typed_options.iter().chain(kept).cloned().collect();
    let options = resolve(&format!("link {name}"), LINK_OPTIONS, &all)?;
    let asked = (preset.name == GIVEN).then(|| typed_options.iter().cloned().collect());
    let settings = LinkSettings { asked, ..settings(preset.name, &options) };
    let is_typed = |key: &str| typed_options.iter().any(|(typed, _)| typed == key);
    for (key, kinds) in TAP_OPTIONS {
        if is_typed(key) && !kinds.contains(&preset.name) {
            let text = format!(
                "{key} is an option of other links ({}), not of {}",
                joined(kinds, ", "),
                preset.name
            );
            return Err(usage(text).remedy(format!("choose --link {}:{key}=...", kinds[0])));
        }
    }
    if settings.adapters > 1 && settings.tap.is_some() {
        let text = format!("several adapters are for links between devices, not {}", preset.name);
        return Err(usage(text).remedy("choose --link wire:adapters=... or nic:adapters=..."));
    }
    if let Some(netem) = settings.netem {
        check_netem(netem, preset, &settings, &typed_options)?;
    }
    let tap = settings.tap.unwrap_or_default();
    if tap.uso && !tap.vnet_header {
        let text = "uso requires vnet-header, which carries the segment size";
        return Err(usage(text).remedy("add vnet-header=on"));
    }
    if settings.rps.is_some() && settings.threaded_napi {
        return Err(usage("rps and threaded-napi both move the receive work")
            .remedy("choose one: add threaded-napi=off"));
    }
    if settings.threaded_napi && !settings.gro {
        return Err(usage("threaded-napi requires gro: without it a veth has no NAPI to thread")
            .remedy("add threaded-napi=off"));
    }
    Ok((settings, difference(preset, &of_preset, &typed_options)))
}

/// Errors for settings that netem does not support, and for links that bytepath does not create.
fn check_netem(
    netem: Netem,
    preset: &Preset,
    settings: &LinkSettings,
    typed_options: &[TypedOption],
) -> Result<(), Fault> {
    if preset.name == GIVEN || settings.tap.is_some() {
        let text = format!(
            "delay, rate, loss and reorder are for links that are made, not {}",
            preset.name
        );
        return Err(usage(text).remedy("choose --link wire:delay=... or nic:delay=..."));
    }
    if netem.reorder > 0 && netem.delay == 0 {
        let text = "reorder lets packets overtake those that are delayed, and delay is 0";
        return Err(usage(text).remedy("add delay=MICROSECONDS"));
    }
    if typed_options.iter().any(|(key, _)| key == "qdisc") {
        let text = "delay, rate, loss and reorder take the place of the queueing discipline";
        return Err(usage(text).remedy("leave out qdisc"));
    }
    Ok(())
}

fn settings(preset: &str, options: &Options) -> LinkSettings {
    let number = |name: &str| options.number(name).map(|n| n as u32);
    let count = |name: &str| number(name).unwrap_or(0);
    let netem = Netem {
        delay: count("delay"),
        rate: number("rate"),
        loss: count("loss"),
        reorder: count("reorder"),
    };
    let tap = TapSettings {
        queues: number("queues").unwrap_or(1),
        backpressure: options.flag("backpressure"),
        vnet_header: options.flag("vnet-header"),
        uso: options.flag("uso"),
        macvtap: preset == MACVTAP,
        guest: preset == GUEST_TAP,
        vhost: options.flag("vhost"),
    };
    LinkSettings {
        preset: preset.to_owned(),
        adapters: number("adapters").unwrap_or(1),
        mtu: number("mtu").unwrap_or(1500),
        tso: options.flag("tso"),
        gro: options.flag("gro"),
        hw_gro: options.flag("hw-gro"),
        hds: match options.word("hds") {
            "on" => Some(true),
            "off" => Some(false),
            _ => None,
        },
        qdisc: options.word("qdisc").to_owned(),
        queue_length: number("queue-length"),
        netem: (netem != Netem::default()).then_some(netem),
        tap: [TAP, MACVTAP, GUEST_TAP].contains(&preset).then_some(tap),
        gso_max: number("gso-max"),
        gro_max: number("gro-max"),
        wmem: number("wmem"),
        threaded_napi: options.flag("threaded-napi"),
        rps: number("rps"),
        asked: None,
    }
}

/// Returns the typed options that differ from the preset, in canonical form.
fn difference(preset: &Preset, of_preset: &[TypedOption], typed_options: &[TypedOption]) -> String {
    let canonical = |(key, value): &TypedOption| {
        let spec = LINK_OPTIONS.iter().find(|spec| spec.name == key)?;
        let default = of_preset.iter().find(|(name, _)| name == key);
        let default = spec.kind.parse(default.map_or(spec.default, |(_, value)| value)).ok()?;
        let value = spec.kind.parse(value).ok()?;
        // An existing link has no defaults.
        let counts = value != default || preset.name == GIVEN;
        counts.then(|| format!("{key}={}", spec.kind.print(&value)))
    };
    let mut parts: Vec<String> = typed_options.iter().filter_map(canonical).collect();
    parts.sort();
    if preset.name != PRESETS[0].name {
        parts.insert(0, format!("link={}", preset.name));
    }
    parts.join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_is_valid_and_the_default_has_no_name_in_ids() {
        for preset in PRESETS {
            let (settings, difference) = parse_link(preset.name).unwrap();
            assert_eq!(settings.preset, preset.name);
            assert_eq!(difference.is_empty(), preset.name == "wire");
        }
        assert_eq!(parse_link("wire").unwrap().0, LinkSettings::default());
    }

    #[test]
    fn options_go_over_the_preset() {
        let (settings, difference) = parse_link("offload:mtu=9000,gro=off").unwrap();
        assert!(settings.tso && !settings.gro && settings.mtu == 9000);
        assert_eq!(difference, "link=offload,gro=off,mtu=9000");
        let (settings, difference) = parse_link("nic:hds=on").unwrap();
        assert_eq!((settings.hds, &*difference), (Some(true), "link=nic,hds=on"));
        let (settings, difference) = parse_link("offload:mtu=1500,gro=yes,tso=0").unwrap();
        assert!(!settings.tso);
        assert_eq!(difference, "link=offload,tso=off", "values of the preset have no name in ids");
    }

    #[test]
    fn existing_link_uses_only_named_options() {
        let (as_it_is, none) = parse_link("given").unwrap();
        assert_eq!(none, "link=given");
        assert!(!as_it_is.is_requested("mtu") && as_it_is.asked == Some([].into()));
        let (settings, difference) = parse_link("given:mtu=4148,hw-gro=on").unwrap();
        assert!(
            settings.is_requested("mtu")
                && settings.is_requested("hw-gro")
                && !settings.is_requested("gro")
        );
        assert_eq!(difference, "link=given,hw-gro=on,mtu=4148", "the usual value is another cell");
        assert!(
            parse_link("nic").unwrap().0.is_requested("gro"),
            "one that is made has everything"
        );
    }

    #[test]
    fn options_of_taps_are_refused_elsewhere() {
        let (settings, difference) =
            parse_link("tap:qdisc=fq_codel,backpressure=on,queue-length=1000").unwrap();
        let tap = settings.tap.unwrap();
        assert!(tap.backpressure && !tap.vnet_header && tap.queues == 1);
        assert_eq!((settings.qdisc.as_str(), settings.queue_length), ("fq_codel", Some(1000)));
        assert_eq!(difference, "link=tap,backpressure=on,qdisc=fq_codel,queue-length=1000");
        assert!(parse_link("wire").unwrap().0.tap.is_none());
        let macvtap = parse_link("macvtap:queues=2,vnet-header=on,uso=on").unwrap().0.tap.unwrap();
        assert!(macvtap.macvtap && macvtap.uso && macvtap.queues == 2 && !tap.macvtap);
        for (link, words) in [
            ("offload:backpressure=on", "of other links (tap, guest-tap), not of offload"),
            ("tap:vhost=on", "vhost is an option of other links (guest-tap)"),
            ("guest-tap:vnet-header=on", "of other links (tap, macvtap), not of guest-tap"),
            // It drops frames that do not fit into its ring.
            ("macvtap:backpressure=on", "of other links (tap, guest-tap), not of macvtap"),
            ("tap:uso=on", "uso requires vnet-header"),
        ] {
            let fault = parse_link(link).unwrap_err();
            assert!(fault.message.contains(words) && fault.remedy.is_some(), "{fault}");
        }
    }

    #[test]
    fn a_tap_of_a_guest_ends_in_a_device() {
        let (settings, difference) =
            parse_link("guest-tap:vhost=on,backpressure=on,qdisc=fq_codel").unwrap();
        let tap = settings.tap.unwrap();
        assert!(tap.guest && tap.vhost && tap.backpressure && settings.descriptors().is_none());
        assert_eq!(difference, "link=guest-tap,backpressure=on,qdisc=fq_codel,vhost=on");
        assert!(parse_link("tap").unwrap().0.descriptors().is_some());
    }

    #[test]
    fn a_long_and_bad_link_is_one_that_is_made() {
        let (settings, difference) =
            parse_link("wire:delay=5000,rate=1000,loss=100,reorder=1000,wmem=auto").unwrap();
        let netem = Netem { delay: 5000, rate: Some(1000), loss: 100, reorder: 1000 };
        assert_eq!(settings.netem, Some(netem));
        assert_eq!(difference, "delay=5000,loss=100,rate=1000,reorder=1000,wmem=auto");
        assert_eq!(parse_link("wire:delay=0,loss=0").unwrap().0.netem, None);
        for (link, words) in [
            ("given:delay=5", "links that are made"),
            ("tap:loss=5", "links that are made"),
            ("wire:reorder=5", "delay is 0"),
            ("wire:delay=5,qdisc=fq", "take the place of the queueing discipline"),
        ] {
            let fault = parse_link(link).unwrap_err();
            assert!(fault.message.contains(words) && fault.remedy.is_some(), "{fault}");
        }
    }

    #[test]
    fn several_adapters_are_of_a_link_between_devices() {
        let (settings, difference) = parse_link("nic:adapters=4,mtu=1500").unwrap();
        assert_eq!((settings.adapters, &*difference), (4, "link=nic,adapters=4,mtu=1500"));
        assert_eq!(parse_link("wire:adapters=1").unwrap(), parse_link("wire").unwrap());
        for (link, words) in [
            ("tap:adapters=2", "links between devices, not tap"),
            ("wire:adapters=17", "outside 1 to 16"),
        ] {
            let fault = parse_link(link).unwrap_err();
            assert!(fault.message.contains(words) && fault.remedy.is_some(), "{fault}");
        }
    }

    #[test]
    fn an_mtu_out_of_range_and_a_slip_are_refused() {
        assert!(parse_link("wire:mtu=70000").unwrap_err().message.contains("outside 576 to 65535"));
        assert!(parse_link("wier").unwrap_err().remedy.unwrap().contains("'wire'"));
        assert!(parse_link("wire:rps=1").is_err());
        assert!(parse_link("wire:gro=off").unwrap_err().remedy.unwrap().contains("napi=off"));
    }
}
