//! A cell: one combination of levels, complete enough to be run anywhere.

use super::{Kernel, Options, Placement, Role, WantedSetting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One combination of levels. Everything an agent needs to play its role is
/// in here; nothing is read from anywhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Stable across runs and machines: the same levels give the same id.
    pub id: CellId,
    /// What is done, by an entry of the workload catalogue.
    #[serde(default)]
    pub workload: Activity,
    /// The contract of the connections, the same for every path; message and read size
    /// are those of the workload `stream`.
    pub stream: Stream,
    /// The data path of the sender.
    pub tx: Half,
    /// The data path of the receiver.
    pub rx: Half,
    /// How the link between the two hosts is set up.
    pub link: LinkSettings,
    /// Which CPUs the work runs on.
    pub placement: Placement,
    /// The kernel that its hosts boot; none leaves it to the testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// What is set on the hosts before each of its trials, and restored after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<WantedSetting>,
    /// The level of every factor that the experiment varies, as typed:
    /// "path" = "socket", "mtu" = "9000". Empty for a cell requested by flags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, String>,
    /// True for the second copy of the baseline, which exists so that the
    /// study can measure its own noise (baseline against baseline).
    #[serde(default)]
    pub null: bool,
}

impl Cell {
    /// A cell that sets only the paths.
    pub fn new(id: impl Into<String>, tx: Half, rx: Half) -> Cell {
        Cell { id: CellId(id.into()), tx, rx, ..Cell::default() }
    }

    /// Flows at a role's host: those of the contract, and at the end of a tap its queues.
    pub fn flows(&self, role: Role) -> u32 {
        match (role, self.link.descriptors()) {
            (Role::Receiver, Some(tap)) => tap.queues,
            _ => self.stream.flows,
        }
    }

    /// Threads that move bytes at a role's host: one for each flow, or as many as drive the event
    /// loop of its path.
    pub fn threads(&self, role: Role) -> u32 {
        let flows = self.flows(role);
        let of_loop = self.half(role).options.number("threads");
        of_loop.map_or(flows, |threads| flows.min(u32::try_from(threads).unwrap_or(u32::MAX)))
    }

    /// Whether both ends send a stream at once.
    pub fn goes_both_ways(&self) -> bool {
        self.workload.options.word("direction") == "both"
    }

    /// Bytes of the buffers of all threads, both ends together: a message at the sender and what
    /// reads fill at the receiver.
    pub fn buffers(&self) -> u64 {
        let [sender, receiver] = Role::ALL.map(|role| u64::from(self.threads(role)));
        sender * self.stream.message_size + receiver * self.stream.read_memory()
    }

    /// The half that a role plays.
    pub fn half(&self, role: Role) -> &Half {
        match role {
            Role::Sender => &self.tx,
            Role::Receiver => &self.rx,
        }
    }
}

/// Name of a cell: the path, then every level that differs from its default.
#[derive(
    Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct CellId(pub String);

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// One end of a path: an entry of the path catalogue and its options, all of
/// them resolved (defaults filled in).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Half {
    /// Name in the path catalogue.
    pub path: String,
    /// Resolved options of that path.
    pub options: Options,
}

impl Half {
    /// A path without options of its own.
    pub fn plain(path: impl Into<String>) -> Half {
        Half { path: path.into(), options: Options::default() }
    }

    /// Whether threads of an end share its connections, each with a loop; others have a thread for each.
    pub fn is_event_loop(&self) -> bool {
        self.options.number("threads").is_some()
    }

    /// The engine that copies for it, as typed, where its path leaves a choice.
    pub fn copy_engine(&self) -> Option<&str> {
        Some(self.options.word("copy")).filter(|engine| !matches!(*engine, "" | "none"))
    }
}

/// Whether the times of a copy engine, as typed, are those of a model and no device's: its name
/// says so.
pub fn is_model(engine: &str) -> bool {
    engine.split(':').next().is_some_and(|name| name.ends_with("-model"))
}

/// What is done over the connections: an entry of the workload catalogue and its
/// options, all of them resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Name in the workload catalogue.
    pub name: String,
    /// Resolved options of that workload.
    pub options: Options,
}

/// One end sends as fast as it can: all that records knew before they named a workload.
impl Default for Activity {
    fn default() -> Self {
        Activity { name: "stream".into(), options: Options::default() }
    }
}

/// Most connections: they go to one port of the receiver, from as many ports of the sender.
pub const MOST_FLOWS: u64 = 60_000;

/// Connections and what flows over them. The contract is the same for every path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// The protocol of the two ends; records of earlier versions are of TCP.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub protocol: Protocol,
    /// Number of connections. Each has a thread of its own at an end whose path is no event loop.
    pub flows: u32,
    /// Bytes of one application message; also the size of the sender's buffer,
    /// which is filled once and sent repeatedly.
    pub message_size: u64,
    /// Bytes the receiver requests at once.
    pub read_size: u64,
    /// Bytes of the receiver's memory that reads fill in turn: its working set. None is
    /// one read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_memory: Option<u64>,
    /// `SO_SNDBUF` in bytes; none leaves the kernel's autotuning on.
    pub send_buffer: Option<u64>,
    /// `SO_RCVBUF` in bytes; none leaves the kernel's autotuning on.
    pub receive_buffer: Option<u64>,
    /// `TCP_CONGESTION` of both ends.
    pub congestion: String,
    /// What the receiver does with each byte.
    pub touch: Touch,
    /// Who encrypts, if anyone does.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub tls: Tls,
}

/// What a path is required to do by default; `spec::STREAM_OPTIONS` has the
/// same for the user.
impl Default for Stream {
    fn default() -> Self {
        Stream {
            protocol: Protocol::Tcp,
            flows: 1,
            message_size: 1 << 20,
            read_size: 1 << 20,
            read_memory: None,
            send_buffer: None,
            receive_buffer: None,
            congestion: "cubic".into(),
            touch: Touch::None,
            tls: Tls::None,
        }
    }
}

impl Stream {
    /// Bytes that reads fill in turn, at least one read.
    pub fn read_memory(&self) -> u64 {
        self.read_memory.unwrap_or(0).max(self.read_size)
    }
}

/// The protocol between two ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::Display, strum::EnumString)]
#[strum(serialize_all = "UPPERCASE", ascii_case_insensitive)]
pub enum Protocol {
    /// A stream: all bytes, in order.
    #[default]
    Tcp,
    /// Messages, each whole or lost.
    Udp,
    /// Frames of a link, each whole or lost; no peer has to be there.
    #[strum(serialize = "frames")]
    Frames,
}

/// What the receiving application does with the bytes it was given.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Touch {
    /// Nothing: the bytes are delivered and forgotten.
    #[default]
    None,
    /// Every byte is read once.
    Read,
    /// Every byte is compared with the pattern that was sent.
    Verify,
}

/// Who makes TLS records of the bytes of a connection, and bytes of records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Tls {
    /// No one: the bytes go in the clear.
    #[default]
    None,
    /// The program, before it sends and after it has received.
    User,
    /// The kernel, or a card on its behalf (Documentation/networking/tls.rst).
    Kernel,
}

/// Settings of the testbed's link, the same at both ends unless noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSettings {
    /// Name of the preset these settings started from.
    pub preset: String,
    /// Pairs of devices between the hosts, each with a network of its own. Flow i crosses the
    /// pair i modulo their number.
    #[serde(default = "LinkSettings::one", skip_serializing_if = "LinkSettings::is_one")]
    pub adapters: u32,
    /// MTU in bytes.
    pub mtu: u32,
    /// TCP segmentation offload at both ends. Off means that the stack cuts
    /// the stream into MSS-sized packets before they reach the device.
    pub tso: bool,
    /// Generic receive offload at both ends.
    pub gro: bool,
    /// Whether the devices merge received packets themselves (`rx-gro-hw`).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hw_gro: bool,
    /// Whether the receiving card puts headers into buffers of their own
    /// (`tcp-data-split`); none leaves it as it is, or as the paths of the study need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hds: Option<bool>,
    /// Largest packet that the stack builds before segmentation, in bytes
    /// (BIG TCP above 65536). None keeps the device's default.
    pub gso_max: Option<u32>,
    /// Largest packet that GRO builds, in bytes. None keeps the default.
    pub gro_max: Option<u32>,
    /// Most memory that TCP's own tuning gives to a send buffer, in bytes, so
    /// roughly twice the payload that can be in flight (`tcp_wmem` of both
    /// namespaces). None keeps the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wmem: Option<u32>,
    /// Queueing discipline of both ends: "pfifo", "fq_codel", "fq", or "none" as a veth
    /// has it (`noqueue`). With a queue, a full ring holds the sender back (Linux 6.16)
    /// where a veth would drop.
    pub qdisc: String,
    /// `txqueuelen` of both ends, in packets: the length of a pfifo, and of a tap's rings.
    /// None keeps the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<u32>,
    /// What the link does to packets on their way, each way, in place of `qdisc`. None is nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netem: Option<Netem>,
    /// What the tap is like that the frames go into. None is a link between two devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapSettings>,
    /// Whether the receiving device polls in a kernel thread of its own, on the
    /// receiver's CPU where that is available.
    pub threaded_napi: bool,
    /// CPU that receives packets by RPS at the receiver; none leaves RPS off.
    pub rps: Option<u32>,
    /// Of a link that already exists: those settings that were requested, by name and as
    /// typed. Everything else is as it was found, whatever it says here. `None` if the
    /// link is made, and has all of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub asked: Option<BTreeMap<String, String>>,
}

impl LinkSettings {
    fn one() -> u32 {
        1
    }

    fn is_one(adapters: &u32) -> bool {
        *adapters == 1
    }

    /// Whether one of the settings is in force because it was requested.
    pub fn is_asked(&self, name: &str) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.contains_key(name))
    }

    /// The tap or macvtap whose descriptors are the receiver's end; `None` if that is a device.
    pub fn descriptors(&self) -> Option<TapSettings> {
        self.tap.filter(|tap| !tap.guest)
    }
}

/// A long, slow or bad link, as the discipline netem makes it (tc-netem(8)), at both ends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Netem {
    /// Microseconds that a packet takes, each way.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub delay: u32,
    /// Megabits per second, each way; none is no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Packets of a million that are lost.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub loss: u32,
    /// Packets of a million that are not delayed, and so overtake others.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub reorder: u32,
}

/// A link that ends in descriptors of the receiver's: those of a tap, which is the sender's
/// device, or of a macvtap; or a tap that a guest's network device is behind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TapSettings {
    /// Queues, each with a descriptor and a ring of its own.
    pub queues: u32,
    /// Whether a full ring stops the queue (`IFF_BACKPRESSURE`, Linux 7.3) and drops nothing.
    pub backpressure: bool,
    /// Whether a `struct virtio_net_hdr` precedes each frame (`IFF_VNET_HDR`).
    pub vnet_header: bool,
    /// Whether it takes UDP messages that have to be segmented, and passes them on whole
    /// (`TUN_F_USO4`, Linux 6.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uso: bool,
    /// Whether the descriptors are those of a macvtap on the receiver's end of a veth pair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub macvtap: bool,
    /// Whether a guest has the descriptors, and the receiver its network device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guest: bool,
    /// Whether the kernel moves the frames to that guest (vhost-net), and not its qemu.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vhost: bool,
}

/// The wire-like link, `spec::PRESETS`' first.
impl Default for LinkSettings {
    fn default() -> Self {
        LinkSettings {
            preset: "wire".into(),
            adapters: 1,
            mtu: 4148,
            tso: false,
            gro: true,
            hw_gro: false,
            hds: None,
            gso_max: None,
            gro_max: None,
            wmem: Some(768 << 10),
            qdisc: "pfifo".into(),
            queue_length: None,
            netem: None,
            tap: None,
            threaded_napi: true,
            rps: None,
            asked: None,
        }
    }
}
