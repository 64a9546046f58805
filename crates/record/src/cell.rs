//! A cell: one combination of levels, complete enough to be run anywhere.

use super::{Kernel, Options, Placement, Role, WantedSetting};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// One combination of levels. It contains everything an agent needs to play its role; nothing is
/// read from anywhere else.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Cell {
    /// Stable across runs and machines: the same levels give the same id.
    pub id: CellId,
    /// The activity over the connections: an entry of the workload catalogue.
    #[serde(default)]
    pub workload: Activity,
    /// The contract of the connections, the same for every path; message and read size apply to the
    /// workload `stream`.
    pub stream: Stream,
    /// The data path of the sender.
    pub tx: Half,
    /// The data path of the receiver.
    pub rx: Half,
    /// How the link between the two hosts is set up.
    pub link: LinkSettings,
    /// Which CPUs the work runs on.
    pub placement: Placement,
    /// The kernel that its hosts boot; `None` leaves it to the testbed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Kernel>,
    /// Settings made on the hosts before each of its trials, and restored after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub settings: Vec<WantedSetting>,
    /// The level of every factor that the experiment varies, as typed:
    /// "path" = "socket", "mtu" = "9000". Empty for a cell requested by flags.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub levels: BTreeMap<String, String>,
    /// True for the second copy of the baseline, by which the study measures its own noise
    /// (baseline against baseline).
    #[serde(default)]
    pub null: bool,
}

impl Cell {
    /// A cell that sets only the paths.
    pub fn new(id: impl Into<String>, tx: Half, rx: Half) -> Cell {
        Cell { id: CellId(id.into()), tx, rx, ..Cell::default() }
    }

    /// Number of flows at the host of `role`: those of the contract, or the queues at the end of a
    /// tap.
    pub fn flows(&self, role: Role) -> u32 {
        match (role, self.link.descriptors()) {
            (Role::Receiver, Some(tap)) => tap.queues,
            _ => self.stream.flows,
        }
    }

    /// Number of threads that move bytes at the host of `role`: one per flow, or those of the event
    /// loop of its path.
    pub fn threads(&self, role: Role) -> u32 {
        let flows = self.flows(role);
        let of_loop = self.half(role).options.number("threads");
        of_loop.map_or(flows, |threads| flows.min(u32::try_from(threads).unwrap_or(u32::MAX)))
    }

    /// True if both ends send a stream at once.
    pub fn goes_both_ways(&self) -> bool {
        self.workload.options.word("direction") == "both"
    }

    /// Returns the total size in bytes of the buffers of all threads at both ends: one message per
    /// thread of the sender, and the memory that reads fill per thread of the receiver.
    pub fn buffers(&self) -> u64 {
        let [sender, receiver] = Role::ALL.map(|role| u64::from(self.threads(role)));
        sender * self.stream.message_size + receiver * self.stream.read_memory()
    }

    /// Returns the half that `role` plays.
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
    /// A half without options.
    pub fn plain(path: impl Into<String>) -> Half {
        Half { path: path.into(), options: Options::default() }
    }

    /// True if the threads of this end share its connections, each with an event loop. Otherwise
    /// each connection has a thread.
    pub fn is_event_loop(&self) -> bool {
        self.options.number("threads").is_some()
    }

    /// Returns the copy engine, as typed, if the path offers a choice and one was chosen.
    pub fn copy_engine(&self) -> Option<&str> {
        Some(self.options.word("copy")).filter(|engine| !matches!(*engine, "" | "none"))
    }
}

/// True if the times of a copy engine, given as typed, are those of a model and not of a device;
/// the names of models end so.
pub fn is_model(engine: &str) -> bool {
    engine.split(':').next().is_some_and(|name| name.ends_with("-model"))
}

/// An activity over the connections: an entry of the workload catalogue and its options, all of
/// them resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Activity {
    /// Name in the workload catalogue.
    pub name: String,
    /// Resolved options of that workload.
    pub options: Options,
}

/// One end sends as fast as it can. Records that name no workload mean this one.
impl Default for Activity {
    fn default() -> Self {
        Activity { name: "stream".into(), options: Options::default() }
    }
}

/// Largest number of connections: they go to one port of the receiver, from one port of the sender
/// each.
pub const MOST_FLOWS: u64 = 60_000;

/// Connections and what flows over them. The contract is the same for every path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stream {
    /// The protocol of both ends; earlier records do not contain it and mean TCP.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub protocol: Protocol,
    /// Number of connections. Each has its own thread at an end whose path is not an event loop.
    pub flows: u32,
    /// Bytes of one application message; also the size of the sender's buffer,
    /// which is filled once and sent repeatedly.
    pub message_size: u64,
    /// Bytes that the receiver requests per read.
    pub read_size: u64,
    /// Bytes of the receiver's memory that reads fill in turn: its working set. `None` means that
    /// of one read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_memory: Option<u64>,
    /// `SO_SNDBUF` in bytes; `None` leaves autotuning on.
    pub send_buffer: Option<u64>,
    /// `SO_RCVBUF` in bytes; `None` leaves autotuning on.
    pub receive_buffer: Option<u64>,
    /// `TCP_CONGESTION` of both ends.
    pub congestion: String,
    /// What the receiver does with each byte.
    pub touch: Touch,
    /// Who encrypts, if anyone does.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub tls: Tls,
}

/// The default contract; `spec::STREAM_OPTIONS` has the same defaults for the user.
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
    /// Returns the bytes that reads fill in turn: at least one read.
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
    /// Messages, each delivered whole or lost.
    Udp,
    /// Frames of a link, each delivered whole or lost; no peer has to be there.
    #[strum(serialize = "frames")]
    Frames,
}

/// What the receiving application does with the bytes it receives.
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

/// Who encrypts the bytes of a connection into TLS records and decrypts them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
#[derive(strum::EnumString)]
#[strum(serialize_all = "kebab-case")]
pub enum Tls {
    /// No one: the bytes are sent in the clear.
    #[default]
    None,
    /// The program, before it sends and after it has received.
    User,
    /// The kernel, or a NIC on its behalf (Documentation/networking/tls.rst).
    Kernel,
}

/// Settings of the testbed's link, the same at both ends unless noted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkSettings {
    /// Name of the preset these settings started from.
    pub preset: String,
    /// Pairs of devices between the hosts, each with its own network. Flow i crosses pair i modulo
    /// their number.
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
    /// Whether the receiving NIC puts headers into separate buffers (`tcp-data-split`); `None`
    /// leaves it as it is, or as the paths of the study need it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hds: Option<bool>,
    /// Largest packet that the stack builds before segmentation, in bytes (BIG TCP above 65536).
    /// `None` keeps the device's default.
    pub gso_max: Option<u32>,
    /// Largest packet that GRO builds, in bytes. `None` keeps the default.
    pub gro_max: Option<u32>,
    /// Largest send buffer of TCP's autotuning, in bytes: roughly twice the payload that can be in
    /// flight (`tcp_wmem` of both namespaces). `None` keeps the kernel's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wmem: Option<u32>,
    /// Qdisc of both ends: "pfifo", "fq_codel", "fq", or "none" as a veth has it (`noqueue`). With
    /// a queue, a full ring holds the sender back (Linux 6.16) where a veth would drop.
    pub qdisc: String,
    /// `txqueuelen` of both ends, in packets: the length of a pfifo, and of a tap's rings. `None`
    /// keeps the device's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue_length: Option<u32>,
    /// Impairment of packets in each direction, in place of `qdisc`; `None` means none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub netem: Option<Netem>,
    /// The tap that the frames go into. `None` means a link between two devices.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap: Option<TapSettings>,
    /// Whether the receiving device polls in its own kernel thread, on the receiver's CPU if that
    /// is available.
    pub threaded_napi: bool,
    /// CPU that receives packets by RPS at the receiver; `None` leaves RPS off.
    pub rps: Option<u32>,
    /// For a link that already exists: the settings that were requested, by name and as typed. All
    /// other settings are as they were found, whatever this struct contains. `None` if the testbed
    /// creates the link with all of them.
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

    /// True if the setting `name` is in force because it was requested.
    pub fn is_requested(&self, name: &str) -> bool {
        self.asked.as_ref().is_none_or(|asked| asked.contains_key(name))
    }

    /// Returns the tap or macvtap whose descriptors are the receiver's end, or `None` if that end
    /// is a device.
    pub fn descriptors(&self) -> Option<TapSettings> {
        self.tap.filter(|tap| !tap.guest)
    }
}

/// A long, slow or bad link, emulated at both ends by the qdisc netem (tc-netem(8)).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Netem {
    /// Delay of a packet in microseconds, in each direction.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub delay: u32,
    /// Rate in megabits per second, in each direction; `None` means no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<u32>,
    /// Packets lost per million.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub loss: u32,
    /// Packets per million that are not delayed, and so overtake others.
    #[serde(default, skip_serializing_if = "crate::is_default")]
    pub reorder: u32,
}

/// A link that ends in descriptors of the receiver: of a tap, which is the sender's device, or of a
/// macvtap; or a tap behind which a guest has a network device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TapSettings {
    /// Queues, each with its own descriptor and ring.
    pub queues: u32,
    /// Whether a full ring stops the queue (`IFF_BACKPRESSURE`, Linux 7.3) instead of dropping.
    pub backpressure: bool,
    /// Whether a `struct virtio_net_hdr` precedes each frame (`IFF_VNET_HDR`).
    pub vnet_header: bool,
    /// Whether it accepts UDP messages that have to be segmented, and passes them on whole
    /// (`TUN_F_USO4`, Linux 6.2).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub uso: bool,
    /// Whether the descriptors belong to a macvtap on the receiver's end of a veth pair.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub macvtap: bool,
    /// Whether a guest holds the descriptors, and the receiver uses the guest's network device.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub guest: bool,
    /// Whether the kernel moves the frames to that guest (vhost-net) instead of qemu.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vhost: bool,
}

/// The wire-like link, the first of `spec::PRESETS`.
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
