//! The messages between controller and agent: one JSON object per line, over
//! the agent's standard input and output. The agent begins with [`SYNC`]; then the
//! controller asks and the agent answers once; only `Reply::Lost` may come unsolicited,
//! `Reply::Pong` and `Reply::Clock` at any time.

use super::{
    Bytes, Cell, CopyCeiling, Facts, Fault, Finding, Hops, LinkSettings, Placement, Ports,
    ProvenWitness, ReachReply, ReachRequest, Reading, RestorationRow, RoleRecord, Route,
    SamplePrice, Series, SettingRecord, SysctlName, ThreadTime, WantedSetting,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

/// Longest line either side accepts, in bytes.
pub const MAX_LINE: usize = 16 << 20;

/// The end of the first line that an agent writes. What comes before it was printed by
/// whatever started the agent, a login shell for example, and is skipped.
pub const SYNC: &str = "bytepath agent begins";

/// Most bytes that may come before [`SYNC`].
pub const LONGEST_PREFACE: u64 = 64 << 10;

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

/// What the controller asks of an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "ask")]
pub enum Request {
    /// First message: who are you? Answered by `Hello`.
    Hello,
    /// Are you there? Answered by `Pong`, also while another request is being worked on.
    Ping,
    /// What do your clocks say? Answered by `Clock`, likewise.
    Clock,
    /// Which route would packets to this address take? Answered by `Route`.
    Route {
        /// The address.
        to: IpAddr,
    },
    /// Something about whether bytes arrive. Answered by `Reach`.
    Reach(ReachRequest),
    /// Something about this host's settings. Answered by `Steward`.
    Steward(StewardRequest),
    /// Which device has this address? Answered by `Device`.
    Device {
        /// The address.
        address: IpAddr,
    },
    /// Which addresses has this host? Answered by `Addresses`.
    Addresses,
    /// Which hardware is this device? Answered by `Nic`.
    Nic {
        /// Its name.
        device: String,
    },
    /// Wait until a device can send, at most this long. Answered by `Done`.
    AwaitCarrier {
        /// Its name.
        device: String,
        /// Seconds to wait.
        timeout: f64,
    },
    /// Set up this end of the testbed's link. Answered by `Linked`.
    Link(Box<LinkEnd>),
    /// Sets kernel parameters where the agent's sockets are: each namespace has its own of
    /// many. Those that it has not are every namespace's, and were set where they are.
    Sysctls {
        /// Their dotted names and their values.
        values: Vec<(SysctlName, String)>,
    },
    /// Facts of this host; nothing is tried. Answered by `Facts`.
    Facts,
    /// What is this host? Answered by `Facts`. The device, if given, is the
    /// one that attempts which need a device are made on.
    Survey {
        /// Name of the network device.
        device: Option<String>,
        /// Whether to try what meters need, too: it takes half a second.
        meters: bool,
    },
    /// Measure memory copies on the given CPU. Answered by `Ceiling`.
    Ceiling {
        /// CPU to run on.
        cpu: Option<u32>,
        /// Size of the workload's buffers in bytes.
        size: u64,
    },
    /// Receiver: listen for the cell's flows. Answered by `Listening`.
    Listen {
        /// The cell to play.
        cell: Box<Cell>,
        /// Own address on the link.
        address: IpAddr,
        /// The network device of the link.
        device: Option<String>,
        /// What the peer will show.
        token: Token,
        /// Ports to choose from; none leaves it to the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ports: Option<Ports>,
        /// What the connections are encrypted with, if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// Sender: connect all flows, open the path, send the witness page.
    /// Answered by `Done`.
    Connect {
        /// The cell to play.
        cell: Box<Cell>,
        /// Where the receiver listens.
        peer: SocketAddr,
        /// The network device of the link at this end.
        device: Option<String>,
        /// What to show it.
        token: Token,
        /// Ports to connect from, one a flow, in their order; none leaves it to the kernel.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        ports: Option<Ports>,
        /// What the connections are encrypted with, if they are.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        secret: Option<Secret>,
    },
    /// Receiver: take the connections, open the path. Answered by `Done`.
    Accept,
    /// Be ready to move bytes; a sender waits for `Pace`. Answered by `Done`.
    Start {
        /// Meters to run in this agent.
        meters: Vec<MeterRequest>,
        /// True where the host has no other role: what is of its machine is seen here.
        alone: bool,
    },
    /// Sender: sleep after the message in hand, or continue. Answered by `Done`.
    Pace {
        /// True to sleep.
        hold: bool,
    },
    /// Let time pass by this host's own clock. Answered by `Done` when it has.
    Pass {
        /// How long, in seconds.
        seconds: f64,
    },
    /// The measured window begins. Answered by `Done`.
    WindowBegin {
        /// When: nanoseconds of this host's CLOCK_MONOTONIC. None, or a moment that has
        /// passed, is now.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    /// The measured window ends. Answered by `Window`.
    WindowEnd {
        /// When, likewise; sent before the window begins, it disturbs no window.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        at: Option<u64>,
    },
    /// Sender of a workload that ends by itself: wait until every engine has closed its
    /// window. Answered by `Done`.
    AwaitWindow {
        /// Seconds that may pass without anything being moved.
        timeout: f64,
    },
    /// What have this device and its queueing discipline dropped so far, and what waits
    /// there? Answered by `Hops`.
    Hops {
        /// Its name.
        device: String,
    },
    /// Sender: stop, and send end of stream; a sink of frames: take what is left. Answered
    /// by `Done`.
    Stop,
    /// Wait until the stream has drained, at most this long. Answered by `Finished`.
    Finish {
        /// Seconds to wait before the flow is cut.
        timeout: f64,
    },
    /// What does one sample cost? Answered by `SamplePrice`.
    SamplePrice {
        /// The event; none takes the best that there is.
        event: Option<String>,
        /// CPU to measure on; none takes any.
        cpu: Option<u32>,
    },
    /// Name and pack the samples of the last window. Answered by `Profile`.
    Profile {
        /// Name for people.
        title: String,
        /// Bytes that the receiver got in the window.
        bytes: u64,
        /// Packets that its device took in meanwhile, where a meter counted them.
        packets: Option<f64>,
        /// Process ids of the sender's and of the receiver's agent, as far as they run on
        /// this machine.
        agents: [Option<u32>; 2],
        /// The CPUs of the roles.
        placement: Placement,
    },
    /// A part of the packed profile. Answered by `Part`.
    Part {
        /// Where it begins, in bytes.
        at: u64,
    },
}

impl Request {
    /// The moment that it is for; none means at once.
    pub fn moment(&self) -> Option<u64> {
        match self {
            Request::WindowBegin { at } | Request::WindowEnd { at } => *at,
            _ => None,
        }
    }
}

/// An address that a host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostAddress {
    /// Name of the device that has it.
    pub device: String,
    /// The address.
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

/// Most bytes of one part of a profile: well below [`MAX_LINE`] in digits.
pub const LARGEST_PART: usize = 4 << 20;

/// What the agent answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "reply")]
pub enum Reply {
    /// Who it is.
    Hello {
        /// `SCHEMA_VERSION` of the agent.
        schema: u32,
        /// Version and build id of its binary.
        build: String,
        /// Its process id.
        pid: u32,
    },
    /// It is there.
    Pong,
    /// Its clocks, read one after the other.
    Clock {
        /// CLOCK_MONOTONIC in nanoseconds.
        monotonic: u64,
        /// CLOCK_REALTIME in nanoseconds since the Unix epoch.
        realtime: u64,
    },
    /// The route that packets would take.
    Route(Route),
    /// What was found of whether bytes arrive.
    Reach(ReachReply),
    /// What the steward says.
    Steward(StewardReply),
    /// The device that was requested.
    Device {
        /// Its name.
        name: String,
    },
    /// The addresses of the host.
    Addresses {
        /// All of them, those of the loopback device too.
        all: Vec<HostAddress>,
    },
    /// The hardware of a device.
    Nic {
        /// None where it is all software.
        nic: Option<Nic>,
    },
    /// It is done.
    Done,
    /// The link is up.
    Linked {
        /// What was requested as optional and not available.
        notes: Vec<String>,
    },
    /// What the host is.
    Facts(Box<Facts>),
    /// Memory-copy bandwidth.
    Ceiling(CopyCeiling),
    /// Where it listens.
    Listening {
        /// The address, which need not be the host's, and the port.
        address: SocketAddr,
    },
    /// What the meters said of the window.
    Window {
        /// Numbers.
        readings: Vec<Reading>,
        /// Numbers over time.
        series: Vec<Series>,
        /// Run time of the engine's threads.
        threads: Vec<ThreadTime>,
        /// What the reader should know.
        warnings: Vec<String>,
        /// When it opened and closed: nanoseconds of this host's CLOCK_MONOTONIC.
        edges: [u64; 2],
    },
    /// What was dropped at a device and its queueing discipline since there are both.
    Hops(Hops),
    /// The end of a role.
    Finished {
        /// What it saw; thread times are in `Window`.
        record: Box<RoleRecord>,
        /// Receiver: what it saw of the sender's witness page.
        witness: Option<ProvenWitness>,
        /// What the path itself counted, over the whole stream.
        #[serde(default)]
        readings: Vec<Reading>,
    },
    /// What one sample costs.
    SamplePrice(SamplePrice),
    /// The samples of the last window are named and packed.
    Profile {
        /// Size of the packed profile in bytes.
        size: u64,
        /// Samples in it.
        samples: u64,
        /// Samples that were lost.
        lost: u64,
        /// What the reader should know.
        notes: Vec<String>,
    },
    /// Part of a packed profile.
    Part {
        /// The bytes.
        bytes: Bytes,
    },
    /// The request failed.
    Failed(Fault),
    /// Unsolicited: the engine stopped before it was asked to.
    Lost(Fault),
}

/// What is asked of the steward of a host: the part of an agent that reads, writes
/// down, changes, verifies and restores settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "do")]
pub enum StewardRequest {
    /// Make these, after what an earlier run that died has left was restored. Answered
    /// by `Applied`. What is made is restored at the latest when the agent ends.
    Apply {
        /// The settings.
        wanted: Vec<WantedSetting>,
    },
    /// Make more for a while. Answered by `Records`.
    Prepare {
        /// The settings.
        wanted: Vec<WantedSetting>,
    },
    /// Restore what was prepared. Answered by `Rows`.
    Unprepare,
    /// Restore everything. Answered by `Rows`.
    Undo,
    /// Could these be made? Nothing is changed. Answered by `Done`.
    Feasible {
        /// The settings.
        wanted: Vec<WantedSetting>,
    },
    /// What would these change? Nothing is changed. Answered by `Records`.
    Preview {
        /// The settings.
        wanted: Vec<WantedSetting>,
    },
    /// What is this host set to? Answered by `Fingerprint`.
    Fingerprint,
    /// Restore what a run that died has left. Answered by `Rows`.
    Restore,
    /// What would distort a measurement here? Answered by `Findings`.
    Examine,
    /// Hold the first GPU, if there is one, until the agent ends. Answered by `Done`.
    HoldGpu,
}

/// What a steward answers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "did")]
pub enum StewardReply {
    /// The settings are made.
    Applied {
        /// From what to what.
        records: Vec<SettingRecord>,
        /// What an earlier run had left.
        rows: Vec<RestorationRow>,
    },
    /// Settings, from what to what.
    Records {
        /// One a setting.
        records: Vec<SettingRecord>,
    },
    /// What was restored.
    Rows {
        /// One a setting.
        rows: Vec<RestorationRow>,
    },
    /// What the host is set to, by name.
    Fingerprint {
        /// As the host prints it.
        settings: BTreeMap<String, String>,
    },
    /// What would distort a measurement.
    Findings {
        /// Those that block something first.
        findings: Vec<Finding>,
    },
    /// It can be done.
    Done,
}

/// A network card, as far as paths prepare it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Name of the device.
    pub device: String,
    /// Its driver, as the kernel names it.
    pub driver: String,
    /// Receive queues in use.
    pub queues: u32,
    /// Numbers of the interrupts of its queues, as `/proc/interrupts` has them; none
    /// where they are not known.
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
    /// Device to make (with a peer) or to wait for.
    pub device: String,
    /// Where a pair is made: the peer's device and the process whose namespace it goes to.
    pub peer: Option<(String, u32)>,
    /// Where the link is a tap, and this is the end of its descriptors: the process into
    /// whose namespace the device goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tap_for: Option<u32>,
    /// Where the link is a veth pair that ends in a macvtap, and this is the end of its
    /// descriptors: the device of the pair that it is put on.
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
    /// Whether the interrupts of its card are moved there, by its host's steward: RPS is
    /// not needed.
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
