//! What a workload does, and the words and units of its rate and its cost: the one
//! place that says Gbit/s or GiB of a result.

use super::unit::GIB;
use super::{Role, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What is counted in a trial.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    Serialize,
    Deserialize,
    JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Bytes delivered to the receiver.
    #[default]
    Bytes,
    /// Requests that were answered.
    Exchanges,
    /// Packets that arrived.
    Packets,
}

/// The words and units of a [`Work`]. Figures are kept in units of work (bytes) a
/// second and in CPU seconds; what is shown is that times a scale.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// The rate in words: "throughput".
    pub rate: &'static str,
    /// The same where it opens a sentence or a heading.
    pub rate_heading: &'static str,
    /// Unit of the shown rate: "Gbit/s".
    pub rate_unit: &'static str,
    /// From work a second to the shown rate.
    pub rate_scale: f64,
    /// Unit of the rate in tables for other programs: "bit/s", without a prefix.
    pub plain_unit: &'static str,
    /// From work a second to that.
    pub plain_scale: f64,
    /// Name of the rate in tables for other programs.
    pub metric: &'static str,
    /// How much work one unit is that costs are given for: 2^30 bytes.
    pub unit_size: f64,
    /// Its name: "GiB".
    pub unit: &'static str,
    /// Unit of the shown cost, in short: "CPU-s per GiB".
    pub cost_unit: &'static str,
    /// The same in full: "CPU seconds per GiB".
    pub cost_words: &'static str,
    /// From CPU seconds per unit to the shown cost.
    pub cost_scale: f64,
    /// Unit of energy per unit of work: "J/GiB".
    pub energy_unit: &'static str,
    /// From joules per unit to that.
    pub energy_scale: f64,
    /// System calls per unit: "calls per GiB".
    pub calls_unit: &'static str,
    /// What has happened to a unit, for a heading: "delivered".
    pub done: &'static str,
    /// What the paths carry: "a TCP stream".
    pub load: &'static str,
    /// Who acts, in the order of `Role::ALL`.
    pub actors: [&'static str; 2],
}

const BYTES: Terms = Terms {
    rate: "throughput",
    rate_heading: "Throughput",
    rate_unit: "Gbit/s",
    rate_scale: 8e-9,
    plain_unit: "bit/s",
    plain_scale: 8.0,
    metric: "throughput",
    unit_size: GIB,
    unit: "GiB",
    cost_unit: "CPU-s per GiB",
    cost_words: "CPU seconds per GiB",
    cost_scale: 1.0,
    energy_unit: "J/GiB",
    energy_scale: 1.0,
    calls_unit: "calls per GiB",
    done: "delivered",
    load: "a TCP stream",
    actors: ["sender", "receiver"],
};

const EXCHANGES: Terms = Terms {
    rate: "transaction rate",
    rate_heading: "Transaction rate",
    rate_unit: "transactions/s",
    rate_scale: 1.0,
    plain_unit: "1/s",
    plain_scale: 1.0,
    metric: "transactions",
    unit_size: 1.0,
    unit: "transaction",
    cost_unit: "CPU-us per transaction",
    cost_words: "CPU microseconds per transaction",
    cost_scale: 1e6,
    energy_unit: "mJ/transaction",
    energy_scale: 1e3,
    calls_unit: "calls per transaction",
    done: "answered",
    load: "request/response",
    actors: ["client", "server"],
};

const PACKETS: Terms = Terms {
    rate: "packet rate",
    rate_heading: "Packet rate",
    rate_unit: "Mpps",
    rate_scale: 1e-6,
    plain_unit: "1/s",
    plain_scale: 1.0,
    metric: "packets",
    unit_size: 1.0,
    unit: "packet",
    cost_unit: "CPU-us per packet",
    cost_words: "CPU microseconds per packet",
    cost_scale: 1e6,
    energy_unit: "mJ/packet",
    energy_scale: 1e3,
    calls_unit: "calls per packet",
    done: "received",
    load: "a stream of packets",
    actors: ["generator", "sink"],
};

impl Work {
    /// All of them.
    pub const ALL: [Work; 3] = [Work::Bytes, Work::Exchanges, Work::Packets];

    /// Its words and units.
    pub fn terms(self) -> &'static Terms {
        match self {
            Work::Bytes => &BYTES,
            Work::Exchanges => &EXCHANGES,
            Work::Packets => &PACKETS,
        }
    }

    /// Unit of work a second, as it is kept.
    pub fn unit_per_second(self) -> Unit {
        match self {
            Work::Bytes => Unit::BytesPerSecond,
            Work::Exchanges | Work::Packets => Unit::PerSecond,
        }
    }

    /// The role whose window and count are a trial's: the client of exchanges, the
    /// receiver of everything else.
    pub fn counted_by(self) -> Role {
        match self {
            Work::Exchanges => Role::Sender,
            Work::Bytes | Work::Packets => Role::Receiver,
        }
    }

    /// Who acts in this role: the client of an exchange is in the sender's.
    pub fn actor(self, role: Role) -> &'static str {
        self.terms().actors[role as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_and_a_cost_are_shown_in_their_units() {
        let bytes = Work::Bytes.terms();
        assert_eq!((1.25e9 * bytes.rate_scale, 1.25e9 * bytes.plain_scale), (10.0, 1e10));
        // Half a CPU for 20,000 exchanges a second: 25 us each.
        let exchanges = Work::Exchanges.terms();
        let cost = 0.5 / (20_000.0 / exchanges.unit_size) * exchanges.cost_scale;
        assert!((cost - 25.0).abs() < 1e-9, "{cost}");
        assert_eq!(Work::Exchanges.actor(Role::Sender), "client");
        assert_eq!(serde_json::to_string(&Work::Packets).unwrap(), "\"packets\"");
    }
}
