//! The messages between controller and agent: one JSON object per line, over the agent's
//! standard input and output.
//!
//! The agent begins with [`SYNC`]. Then the controller sends a [`Request`], which is one of the
//! calls below, and the agent sends one [`Reply`]: the reply of that call, or [`Reply::Failed`].
//! [`Ping`] and [`ReadClock`] are answered at once, also while another call runs;
//! [`Reply::Lost`] may come unsolicited.
//!
//! [`Call`] ties each call to the type of its reply, so that neither side can mistake one for
//! another. Both ends are the same build ([`Hello`] makes sure), so this format may change freely.

use super::{
    Bytes, Cell, Contact, CopyCeiling, Facts, Fault, Finding, Hops, LinkSettings, Met, Placement,
    Ports, ProvenWitness, Reading, RestorationRow, RoleRecord, Route, SamplePrice, Series,
    SettingRecord, SysctlName, ThreadTime, WantedSetting,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufRead, Read};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// Longest line either side accepts, in bytes.
const MAX_LINE: usize = 16 << 20;

/// The end of the first line that an agent writes. What comes before it was printed by
/// whatever started the agent, a login shell for example, and is skipped.
pub const SYNC: &str = "bytepath agent begins";

/// Most bytes that may come before [`SYNC`].
pub const LONGEST_PREFACE: u64 = 64 << 10;

/// Most bytes of one part of a profile: well below `MAX_LINE` in digits.
pub const LARGEST_PART: usize = 4 << 20;

/// How long an agent may take to open one end of one flow: memory is touched page by page, and
/// first touches can be slow.
pub const OPENING: Duration = Duration::from_secs(60);

/// A line with its end. One that the other side would not accept is a fault.
pub fn line_of(what: &str, message: &impl Serialize) -> Result<Vec<u8>, Fault> {
    let mut line = serde_json::to_vec(message)
        .map_err(|e| Fault::failed(format!("cannot encode {what}: {e}")))?;
    line.push(b'\n');
    match line.len() {
        ..=MAX_LINE => Ok(line),
        longer => Err(Fault::failed(format!(
            "{what} of {} MiB is longer than the {} MiB that are read",
            longer >> 20,
            MAX_LINE >> 20
        ))
        .remedy("use fewer flows, a shorter window, or fewer meters")),
    }
}

/// One line without its end; `None` at end of file. Longer lines than 16 MiB are an error.
pub fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > MAX_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "line too long"));
    }
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        // A torn line means that the writer died in the middle of it.
        Some(_) | None => Ok(None),
    }
}

/// Secret that a data connection must show first: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

/// What the two ends of a trial encrypt with: a key of 16 bytes and an initial vector of 12 for
/// what the sender's end sends, and for what the receiver's does. It is on the wire to the
/// agents and nowhere else: no study and no message shows it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(pub [[u8; 28]; 2]);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(..)")
    }
}

/// A request that the controller sends to an agent.
pub trait Call: Into<Request> {
    /// What the agent replies if it succeeds.
    type Reply: Serialize + DeserializeOwned;

    /// The reply as it is sent.
    fn reply(reply: Self::Reply) -> Reply;

    /// The reply as it was received. The error is a reply to another call.
    fn receive(reply: Reply) -> Result<Self::Reply, Reply>;
}

/// Declares calls with their arguments and replies, and the two enums of all of them.
macro_rules! calls {
    ($(
        $(#[$doc:meta])*
        $call:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty),* $(,)? } -> $reply:ty;
    )*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
            pub struct $call { $($(#[$field_doc])* pub $field: $type),* }

            impl From<$call> for Request {
                fn from(call: $call) -> Request {
                    Request::$call(call)
                }
            }

            impl Call for $call {
                type Reply = $reply;

                fn reply(reply: $reply) -> Reply {
                    Reply::$call(reply)
                }

                fn receive(reply: Reply) -> Result<$reply, Reply> {
                    match reply {
                        Reply::$call(reply) => Ok(reply),
                        other => Err(other),
                    }
                }
            }
        )*

        /// What the controller sends.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "call")]
        pub enum Request { $($call($call)),* }

        /// What the agent sends.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "reply", content = "value")]
        pub enum Reply {
            $($call($reply),)*
            /// The call failed.
            Failed(Fault),
            /// Unsolicited: an engine stopped too early.
            Lost(Fault),
        }
    };
}

calls! {
    /// Opens the conversation.
    Hello {} -> Identity;

    /// Checks that the agent lives, even while another call runs.
    Ping {} -> ();

    /// Reads the clocks of the host, even while another call runs.
    ReadClock {} -> ClockReading;

    /// The route that packets to an address would take.
    FindRoute { to: IpAddr } -> Route;

    /// Receiver: answers connections that show the token, until [`EndProbe`]. `ports` are those to
    /// choose from, any if `None`. The reply is the TCP port.
    ListenForProbe { address: IpAddr, ports: Option<Ports>, token: Token } -> u16;

    /// Sender: connects to the receiver's address, and sends and fetches data in large packets.
    Probe {
        address: IpAddr,
        port: u16,
        token: Token,
        /// MTU in bytes of the devices that the routes go by: the sender's, the receiver's.
        mtu: [u32; 2],
    } -> Contact;

    /// Receiver: ends listening; what arrived?
    EndProbe {} -> Met;

    /// The name of the device that has an address.
    FindDevice { address: IpAddr } -> String;

    /// Fails if the host has no device of this name.
    CheckDevice { device: String } -> ();

    /// All addresses of the host, those of the loopback device too.
    ListAddresses {} -> Vec<HostAddress>;

    /// The hardware of a device; `None` if it is all software.
    FindNic { device: String } -> Option<Nic>;

    /// Waits until a device can send, for at most so many seconds.
    AwaitCarrier { device: String, timeout: f64 } -> ();

    /// Sets up this end of the testbed's link. The reply lists what was optional and not
    /// available.
    SetUpLink { end: Box<LinkEnd> } -> Vec<String>;

    /// Sets kernel parameters in the agent's network namespace. Those that are not per namespace
    /// were set on the host.
    SetSysctls { values: Vec<(SysctlName, String)> } -> ();

    /// Sets those that the namespace has of its own and the agent may set there. The reply names the
    /// ones that hold now.
    TrySysctls { values: Vec<(SysctlName, String)> } -> Vec<SysctlName>;

    /// Facts of the host; nothing is tried.
    ReadFacts {} -> Box<Facts>;

    /// Facts of the host, and what its paths can do.
    Survey {
        /// The network device for attempts that need one.
        device: Option<String>,
        /// Whether to try what meters need, too: it takes half a second.
        meters: bool,
    } -> Box<Facts>;

    /// Measures memory copies on a CPU with buffers of so many bytes.
    MeasureCeiling { cpu: Option<u32>, size: u64 } -> CopyCeiling;

    /// Receiver: listens for the cell's flows. The reply is the address, which need not be the
    /// host's, and the port.
    Listen {
        cell: Box<Cell>,
        /// Own address on the link; with several adapters any of the host's.
        address: IpAddr,
        /// The network devices of the link.
        devices: Vec<String>,
        token: Token,
        /// Ports to choose from; any if `None`.
        ports: Option<Ports>,
        /// What the connections are encrypted with, if they are.
        secret: Option<Secret>,
    } -> SocketAddr;

    /// Sender: connects all flows, opens the path, sends the witness page.
    Connect {
        cell: Box<Cell>,
        /// Where the receiver listens, by the number of the adapter.
        peers: Vec<SocketAddr>,
        /// The network devices of the link at this end.
        devices: Vec<String>,
        token: Token,
        /// Ports to connect from, one a flow, in their order; any if `None`.
        ports: Option<Ports>,
        /// What the connections are encrypted with, if they are.
        secret: Option<Secret>,
    } -> ();

    /// Receiver: accepts the connections, opens the path.
    Accept {} -> ();

    /// Gets ready to move bytes; a sender waits for [`Pace`].
    Start {
        /// Meters to run in this agent.
        meters: Vec<MeterRequest>,
        /// True if the host has no other role, so that this agent measures its machine.
        alone: bool,
        /// Process id of the qemu that runs the peer, if that is a guest of this host.
        qemu: Option<u32>,
    } -> ();

    /// Sender: sleeps after the message in hand if `hold`, or continues.
    Pace { hold: bool } -> ();

    /// Lets so many seconds pass by this host's own clock.
    Pass { seconds: f64 } -> ();

    /// Opens the measured window, at a time in nanoseconds of this host's CLOCK_MONOTONIC; at
    /// once if it is `None` or has passed.
    OpenWindow { at: Option<u64> } -> ();

    /// Closes the measured window, likewise. Sent before the window opens, it disturbs none.
    CloseWindow { at: Option<u64> } -> WindowRecord;

    /// Sender of a workload that ends by itself: waits until every engine has closed its window.
    /// So many seconds may pass without progress.
    AwaitWindow { timeout: f64 } -> ();

    /// What a device and its qdisc have dropped since they exist, and what is queued there.
    CountFrames { device: String } -> Box<Hops>;

    /// Sender: stops, and sends end of stream; a sink of frames: takes what is left.
    Stop {} -> ();

    /// Waits until the stream has drained; after so many seconds the flow is cut.
    Finish { timeout: f64 } -> RoleEnd;

    /// The cost of one sample of an event (the best there is if `None`) on a CPU (any if `None`).
    PriceSample { event: Option<String>, cpu: Option<u32> } -> SamplePrice;

    /// Symbolizes and packs the samples of the last window.
    PackProfile {
        title: String,
        /// Bytes that the receiver got in the window.
        bytes: u64,
        /// Packets that its device received meanwhile, if a meter counted them.
        packets: Option<f64>,
        /// Process ids of the sender's and of the receiver's agent; `None` if it runs on another
        /// machine.
        agents: [Option<u32>; 2],
        /// The CPUs of the roles.
        placement: Box<Placement>,
    } -> ProfileSize;

    /// The part of the packed profile that begins at this byte.
    FetchPart { at: u64 } -> Bytes;

    /// Makes settings, after restoring what an earlier run that died has left: the records of the
    /// former, the rows of the latter. They are restored at the latest when the agent ends.
    ApplySettings { settings: Vec<WantedSetting> } -> (Vec<SettingRecord>, Vec<RestorationRow>);

    /// Makes more settings until [`UndoPrepared`].
    PrepareSettings { settings: Vec<WantedSetting> } -> Vec<SettingRecord>;

    /// Restores what was prepared.
    UndoPrepared {} -> Vec<RestorationRow>;

    /// Restores everything.
    UndoAll {} -> Vec<RestorationRow>;

    /// Restores what a run that died has left.
    RestoreLeftBehind {} -> Vec<RestorationRow>;

    /// Fails if these settings could not be made. Nothing is changed.
    CheckSettings { settings: Vec<WantedSetting> } -> ();

    /// What these settings would change. Nothing is changed.
    PreviewSettings { settings: Vec<WantedSetting> } -> Vec<SettingRecord>;

    /// What the host is set to, by name.
    ReadFingerprint {} -> BTreeMap<String, String>;

    /// What would distort a measurement on the host, what blocks something first.
    Examine {} -> Vec<Finding>;

    /// Keeps the first GPU awake, if there is one, until the agent ends.
    HoldGpu {} -> ();
}

impl Request {
    /// When it is carried out (see [`OpenWindow`]); `None` if at once.
    pub fn at(&self) -> Option<u64> {
        match self {
            Request::OpenWindow(OpenWindow { at }) | Request::CloseWindow(CloseWindow { at }) => {
                *at
            }
            _ => None,
        }
    }
}

/// Who an agent is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// `SCHEMA_VERSION` of the agent.
    pub schema: u32,
    /// Version and build id of its binary.
    pub build: String,
    /// Its process id.
    pub pid: u32,
}

/// The clocks of a host, read one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockReading {
    /// CLOCK_MONOTONIC in nanoseconds.
    pub monotonic: u64,
    /// CLOCK_REALTIME in nanoseconds since the Unix epoch.
    pub realtime: u64,
}

/// What the meters of an agent measured in a window.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WindowRecord {
    pub readings: Vec<Reading>,
    pub series: Vec<Series>,
    /// Run time of the engine's threads.
    pub threads: Vec<ThreadTime>,
    /// Warnings for the report.
    pub warnings: Vec<String>,
    /// When it opened and closed: nanoseconds of this host's CLOCK_MONOTONIC.
    pub edges: [u64; 2],
}

/// How a role ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleEnd {
    /// What it counted; thread times are in the [`WindowRecord`].
    pub record: Box<RoleRecord>,
    /// Receiver: the witness page of the sender, if it was sent one.
    pub witness: Option<ProvenWitness>,
    /// What the path itself counted, over the whole stream.
    pub readings: Vec<Reading>,
}

/// A packed profile, which is fetched in parts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProfileSize {
    /// Size of the packed profile in bytes.
    pub bytes: u64,
    /// Samples in it.
    pub samples: u64,
    /// Samples that were lost.
    pub lost: u64,
    /// Warnings for the report.
    pub notes: Vec<String>,
}

/// An address of a host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// Name of the device that has it.
    pub device: String,
    pub address: IpAddr,
    /// Length of its network's prefix in bits.
    pub prefix: u8,
}

/// A meter that is requested, and how.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeterRequest {
    /// Its name in the catalogue.
    pub name: String,
    /// Its options, in the form that this meter alone reads; null for its defaults.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// The meter of this name with its defaults.
impl<T: Into<String>> From<T> for MeterRequest {
    fn from(name: T) -> Self {
        MeterRequest { name: name.into(), options: Value::Null }
    }
}

/// A network interface card, as far as paths prepare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Name of the device.
    pub device: String,
    /// Receive queues in use.
    pub queues: u32,
    /// Numbers of the interrupts of its queues, as `/proc/interrupts` lists them; empty
    /// if they are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<u32>,
}

/// One end of a link that the testbed asks an agent to set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// Whether it is the end that is set up second: it waits until both ends can send,
    /// and steers what it receives.
    #[serde(default)]
    pub second: bool,
    /// Device to create (with a peer) or to wait for.
    pub device: String,
    /// The peer's device and the process whose namespace it goes to; `None` if no pair is
    /// created.
    pub peer: Option<(String, u32)>,
    /// The process into whose namespace the device of a tap goes, if this is the end with its
    /// descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap_for: Option<u32>,
    /// The device of a veth pair that a macvtap is put on, if this is the end with its
    /// descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub macvtap_on: Option<String>,
    /// Own address.
    pub address: IpAddr,
    /// Length of its prefix in bits.
    pub prefix: u8,
    /// Settings of the link.
    pub settings: LinkSettings,
    /// CPU that the device's receive processing should run on.
    pub softirq_cpu: Option<u32>,
    /// Whether that CPU was requested by name. Otherwise it is best effort: not everyone
    /// may pin kernel threads.
    #[serde(default)]
    pub softirq_required: bool,
    /// Whether the steward of its host moves the interrupts of its NIC there: RPS is not
    /// needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupts_there: bool,
    /// Seconds that the carrier may take to come. A cable's two ends agree for some.
    #[serde(default = "LinkEnd::moment")]
    pub timeout: f64,
    /// Peer's address and hardware address, to avoid neighbour discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<(IpAddr, [u8; 6])>,
}

impl LinkEnd {
    /// An end with nothing special, as it is set up first.
    pub fn plain(device: impl Into<String>, address: IpAddr, prefix: u8) -> LinkEnd {
        LinkEnd {
            second: false,
            device: device.into(),
            peer: None,
            tap_for: None,
            macvtap_on: None,
            address,
            prefix,
            settings: LinkSettings::default(),
            softirq_cpu: None,
            softirq_required: false,
            interrupts_there: false,
            timeout: LinkEnd::moment(),
            neighbour: None,
        }
    }

    /// How long a virtual link takes at most, in seconds.
    pub fn moment() -> f64 {
        2.0
    }
}
