//! The messages between controller and agent: one JSON object per line, over the agent's
//! standard input and output.
//!
//! The agent begins with [`SYNC`]. Then the controller sends a [`Request`], which is one of the
//! calls below, and the agent replies with one [`Reply`]: that call's, or [`Reply::Failed`].
//! [`Ping`] and [`ReadClock`] are answered at once, even while another call runs; [`Reply::Lost`]
//! may arrive unsolicited.
//!
//! [`Call`] ties each call to the type of its reply, so that neither side can mistake one for
//! another. Both ends are the same build ([`Hello`] makes sure), so this format may change freely.

use super::{
    Bytes, Cell, Contact, CopyCeiling, Facts, Fault, Finding, Hops, LinkSettings, Placement, Ports,
    ProbeResult, ProvenWitness, Reading, RestorationRow, Role, RoleRecord, Route, SamplePrice,
    Series, SettingRecord, SysctlName, ThreadTime, WantedSetting,
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

/// The end of the first line that an agent writes. Everything before it was printed by whatever
/// started the agent, such as a login shell, and is skipped.
pub const SYNC: &str = "bytepath agent begins";

/// Largest number of bytes accepted before [`SYNC`].
pub const LONGEST_PREFACE: u64 = 64 << 10;

/// Largest part of a profile in bytes, so that its hexadecimal digits stay well below `MAX_LINE`.
pub const LARGEST_PART: usize = 4 << 20;

/// Time limit for an agent to open one end of one flow: memory is touched page by page, and first
/// touches can be slow.
pub const OPENING: Duration = Duration::from_secs(60);

/// Encodes a message as a line with its line feed. Errors if it is longer than the peer accepts.
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

/// Reads one line, without its line feed; `None` at end of file. Errors if it exceeds `MAX_LINE`.
pub fn read_line(input: &mut impl BufRead) -> io::Result<Option<Vec<u8>>> {
    let mut line = Vec::new();
    input.by_ref().take(MAX_LINE as u64 + 1).read_until(b'\n', &mut line)?;
    if line.len() > MAX_LINE {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "line too long"));
    }
    match line.pop() {
        Some(b'\n') => Ok(Some(line)),
        // A torn line means that the writer died while writing it.
        Some(_) | None => Ok(None),
    }
}

/// Secret that a data connection must present first: 32 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Token(pub String);

/// Encryption keys of a trial: a 16-byte key and a 12-byte initialization vector for each
/// direction, the sender's first. They exist only on the wire to the agents: no study and no
/// message contains them.
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
    /// The agent's reply on success.
    type Reply: Serialize + DeserializeOwned;

    /// Wraps the reply for sending.
    fn reply(reply: Self::Reply) -> Reply;

    /// Unwraps a received reply. The error is a reply to another call.
    fn receive(reply: Reply) -> Result<Self::Reply, Reply>;
}

/// Declares the calls with their arguments and replies, and the enums [`Request`] and [`Reply`].
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

        /// Sent by the controller.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(rename_all = "kebab-case", tag = "call")]
        pub enum Request { $($call($call)),* }

        /// Sent by the agent.
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
    /// Opens the session.
    Hello {} -> Identity;

    /// Checks that the agent is alive, even while another call runs.
    Ping {} -> ();

    /// Reads the clocks of the host, even while another call runs.
    ReadClock {} -> ClockReading;

    /// The route that packets to an address would take.
    FindRoute { to: IpAddr } -> Route;

    /// Receiver: answers connections that present the token, until [`EndProbe`]. `ports`: the ports
    /// to choose from, any if `None`. The reply is the TCP port.
    ListenForProbe { address: IpAddr, ports: Option<Ports>, token: Token } -> u16;

    /// Sender: connects to the receiver's address, then sends and fetches data in large packets.
    Probe {
        address: IpAddr,
        port: u16,
        token: Token,
        /// MTU in bytes of the devices that the routes use: the sender's, the receiver's.
        mtu: [u32; 2],
    } -> Contact;

    /// Receiver: stops listening. The reply describes what arrived.
    EndProbe {} -> ProbeResult;

    /// The name of the device that has an address.
    FindDevice { address: IpAddr } -> String;

    /// Fails if the host has no device of this name.
    CheckDevice { device: String } -> ();

    /// All addresses of the host, including those of the loopback device.
    ListAddresses {} -> Vec<HostAddress>;

    /// The hardware of a device; `None` if it is a software device.
    FindNic { device: String } -> Option<Nic>;

    /// Waits until a device can send, for at most `timeout` seconds.
    AwaitCarrier { device: String, timeout: f64 } -> ();

    /// Sets up this end of the testbed's link. The reply lists optional settings that were not
    /// available.
    SetUpLink { end: Box<LinkEnd> } -> Vec<String>;

    /// Steers what this end receives, once more: its device has other queues than when it was set up.
    SteerLink { end: Box<LinkEnd> } -> Vec<String>;

    /// Sets kernel parameters in the agent's network namespace. Those that are not per namespace
    /// were set on the host.
    SetSysctls { values: Vec<(SysctlName, String)> } -> ();

    /// Sets those parameters that are per namespace and that the agent may set. The reply names
    /// those that are in force now.
    TrySysctls { values: Vec<(SysctlName, String)> } -> Vec<SysctlName>;

    /// Facts of the host, without trying anything.
    ReadFacts {} -> Box<Facts>;

    /// Facts of the host, and the result of trying what its paths need.
    Survey {
        /// The network device for attempts that need one.
        device: Option<String>,
        /// Whether to try what meters need, too, which takes half a second.
        meters: bool,
    } -> Box<Facts>;

    /// Measures memory copies on a CPU with buffers of `size` bytes.
    MeasureCeiling { cpu: Option<u32>, size: u64 } -> CopyCeiling;

    /// Receiver: listens for the cell's flows. The reply is the address, which may differ from the
    /// host's, and the port.
    Listen {
        cell: Box<Cell>,
        /// Own address on the link; with several adapters, any of the host's.
        address: IpAddr,
        /// The network devices of the link.
        devices: Vec<String>,
        token: Token,
        /// Ports to choose from; any if `None`.
        ports: Option<Ports>,
        /// Keys of the connections; `None` if they are not encrypted.
        secret: Option<Secret>,
    } -> SocketAddr;

    /// Sender: connects all flows, opens the path, sends the witness page.
    Connect {
        cell: Box<Cell>,
        /// Addresses at which the receiver listens, indexed by adapter.
        peers: Vec<SocketAddr>,
        /// The network devices of the link at this end.
        devices: Vec<String>,
        token: Token,
        /// Ports to connect from, one per flow in order; any if `None`.
        ports: Option<Ports>,
        /// Keys of the connections; `None` if they are not encrypted.
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
        /// Process id of the peer's qemu, if the peer is a guest of this host.
        qemu: Option<u32>,
    } -> ();

    /// Sender: with `hold`, sleeps after the current message; otherwise continues.
    Pace { hold: bool } -> ();

    /// Sleeps for `seconds` by this host's own clock.
    Pass { seconds: f64 } -> ();

    /// Opens the measured window at a time in nanoseconds of this host's CLOCK_MONOTONIC; at once
    /// if it is `None` or has passed.
    OpenWindow { at: Option<u64> } -> ();

    /// Closes the measured window, likewise. Sent before the window opens, it disturbs no window.
    CloseWindow { at: Option<u64> } -> WindowRecord;

    /// Sender of a workload that ends by itself: waits until every engine has closed its window.
    /// Fails after `timeout` seconds without progress.
    AwaitWindow { timeout: f64 } -> ();

    /// Frames that a device and its qdisc have dropped since they were created, and those queued
    /// now.
    CountFrames { device: String } -> Box<Hops>;

    /// Sender: stops and ends the stream. A sink of frames: takes what is left.
    Stop {} -> ();

    /// Waits until the stream has drained; after `timeout` seconds the flow is cut.
    Finish { timeout: f64 } -> RoleEnd;

    /// The cost of one sample of an event (`None`: the best available) on a CPU (`None`: any).
    PriceSample { event: Option<String>, cpu: Option<u32> } -> SamplePrice;

    /// Symbolizes and packs the samples of the last window.
    PackProfile {
        title: String,
        /// Bytes that the receiver received in the window.
        bytes: u64,
        /// Packets that its device received in the window, if a meter counted them.
        packets: Option<f64>,
        /// Process ids of the sender's and of the receiver's agent; `None` if it runs on another
        /// machine.
        agents: [Option<u32>; 2],
        /// The role that a guest of this host plays, and the process id of its qemu.
        guest: Option<(Role, u32)>,
        /// The CPUs of the roles.
        placement: Box<Placement>,
    } -> ProfileSize;

    /// The part of the packed profile that begins at byte `at`.
    FetchPart { at: u64 } -> Bytes;

    /// Restores what an earlier run that died has left, then makes settings. The reply has a record
    /// for each setting made and a row for each one restored. The settings are restored when the
    /// agent ends, at the latest.
    ApplySettings { settings: Vec<WantedSetting> } -> (Vec<SettingRecord>, Vec<RestorationRow>);

    /// Makes more settings until [`UndoPrepared`].
    PrepareSettings { settings: Vec<WantedSetting> } -> Vec<SettingRecord>;

    /// Restores what [`PrepareSettings`] has changed.
    UndoPrepared {} -> Vec<RestorationRow>;

    /// Restores all settings.
    UndoAll {} -> Vec<RestorationRow>;

    /// Restores the settings of a run that died.
    RestoreLeftBehind {} -> Vec<RestorationRow>;

    /// Fails if these settings could not be made; changes nothing.
    CheckSettings { settings: Vec<WantedSetting> } -> ();

    /// Returns what these settings would change; changes nothing.
    PreviewSettings { settings: Vec<WantedSetting> } -> Vec<SettingRecord>;

    /// The current settings of the host, by name.
    ReadFingerprint {} -> BTreeMap<String, String>;

    /// Whatever would distort a measurement on the host, blocking findings first.
    Examine {} -> Vec<Finding>;

    /// Keeps the GPU at this PCI address awake, if there is one, until the agent ends.
    HoldGpu { gpu: String } -> ();
}

impl Request {
    /// Returns when to carry out the request (see [`OpenWindow`]), or `None` for at once.
    pub fn at(&self) -> Option<u64> {
        match self {
            Request::OpenWindow(OpenWindow { at }) | Request::CloseWindow(CloseWindow { at }) => {
                *at
            }
            _ => None,
        }
    }
}

/// Identity of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The agent's `SCHEMA_VERSION`.
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
    /// When the window opened and closed, in nanoseconds of this host's CLOCK_MONOTONIC.
    pub edges: [u64; 2],
}

/// Final result of a role.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RoleEnd {
    /// What the role counted; thread times are in the [`WindowRecord`].
    pub record: Box<RoleRecord>,
    /// Receiver: result of the sender's witness page, if one was sent.
    pub witness: Option<ProvenWitness>,
    /// What the path itself counted, over the whole stream.
    pub readings: Vec<Reading>,
}

/// Size of a packed profile, which is fetched in parts.
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

/// A requested meter and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MeterRequest {
    /// Its name in the catalogue.
    pub name: String,
    /// Its options, in the form that this meter parses; null for its defaults.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub options: Value,
}

/// Requests the meter of this name with its defaults.
impl<T: Into<String>> From<T> for MeterRequest {
    fn from(name: T) -> Self {
        MeterRequest { name: name.into(), options: Value::Null }
    }
}

/// A network interface card: what paths need to prepare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Name of the device.
    pub device: String,
    /// Receive queues in use.
    pub queues: u32,
    /// How many of them are not paired with a queue that sends.
    #[serde(default)]
    pub unpaired: u32,
    /// Numbers of the interrupts of its queues, as listed in `/proc/interrupts`; empty if unknown.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub interrupts: Vec<u32>,
}

/// One end of a link for an agent to set up.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkEnd {
    /// True for the end that is set up second: it waits until both ends can send, and steers what
    /// it receives.
    #[serde(default)]
    pub second: bool,
    /// Device to create (with a peer) or to wait for.
    pub device: String,
    /// The peer's device, and the process whose namespace it is moved to; `None` if no pair is
    /// created.
    pub peer: Option<(String, u32)>,
    /// The process whose namespace the device of a tap is moved to, if this end holds the tap's
    /// descriptors.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap_for: Option<u32>,
    /// The device of a veth pair on which a macvtap is created, if this end holds the macvtap's
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
    /// Whether that CPU was requested by name. Otherwise it is best effort: not every user may pin
    /// kernel threads.
    #[serde(default)]
    pub softirq_required: bool,
    /// Whether the steward of its host moves the interrupts of its NIC to that CPU, so that RPS is
    /// not needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub interrupts_there: bool,
    /// Seconds to wait for the carrier. The two ends of a cable need some to negotiate.
    #[serde(default = "LinkEnd::virtual_link_timeout")]
    pub timeout: f64,
    /// The peer's address and hardware address, to avoid neighbour discovery.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbour: Option<(IpAddr, [u8; 6])>,
}

impl LinkEnd {
    /// An end with default settings, to be set up first.
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
            timeout: LinkEnd::virtual_link_timeout(),
            neighbour: None,
        }
    }

    /// Longest time in seconds that a virtual link takes to come up.
    pub fn virtual_link_timeout() -> f64 {
        2.0
    }
}
