//! Kinds of work, and the words and units of their rate and cost: the only place that names Gbit/s
//! or GiB.

use super::unit::GIB;
use super::{Role, Unit};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The kind of work that a trial counts.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// Bytes delivered to the receiver.
    #[default]
    Bytes,
    /// Requests that got a response.
    Exchanges,
    /// Packets that arrived.
    Packets,
}

/// The words and units of a [`Work`]. Figures are stored in units of work (bytes) per second and in
/// CPU seconds; they are multiplied by a scale for display.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Terms {
    /// Name of the rate in running text: "throughput".
    pub rate: &'static str,
    /// The same at the start of a sentence or heading.
    pub rate_heading: &'static str,
    /// Unit of the displayed rate: "Gbit/s".
    pub rate_unit: &'static str,
    /// Factor from work per second to the displayed rate.
    pub rate_scale: f64,
    /// Unit of the rate in tables for other programs: "bit/s", without a prefix.
    pub plain_unit: &'static str,
    /// Factor from work per second to `plain_unit`.
    pub plain_scale: f64,
    /// Name of the rate in tables for other programs.
    pub metric: &'static str,
    /// Amount of work in the unit of costs: 2^30 bytes.
    pub unit_size: f64,
    /// Name of that unit: "GiB".
    pub unit: &'static str,
    /// Cost of a unit in CPU time; its scale converts from CPU seconds.
    pub cost: Cost,
    /// Cost of a unit in instructions; its scale converts from instructions.
    pub instructions: Cost,
    /// Unit of energy per unit of work: "J/GiB".
    pub energy_unit: &'static str,
    /// Factor from joules per unit to `energy_unit`.
    pub energy_scale: f64,
    /// System calls per unit: "calls per GiB".
    pub calls_unit: &'static str,
    /// Participle for headings: "delivered".
    pub done: &'static str,
    /// What the paths carry: "a TCP stream".
    pub load: &'static str,
    /// The actors, in the order of `Role::ALL`.
    pub actors: [&'static str; 2],
}

/// How the cost of a unit of work is displayed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cost {
    /// Short name of its unit: "CPU-s per GiB".
    pub unit: &'static str,
    /// Long name of its unit: "CPU seconds per GiB".
    pub words: &'static str,
    /// Factor from the stored to the displayed value.
    pub scale: f64,
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
    cost: Cost { unit: "CPU-s per GiB", words: "CPU seconds per GiB", scale: 1.0 },
    instructions: Cost {
        unit: "M instructions per GiB",
        words: "million instructions per GiB",
        scale: 1e-6,
    },
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
    cost: Cost {
        unit: "CPU-us per transaction",
        words: "CPU microseconds per transaction",
        scale: 1e6,
    },
    instructions: Cost {
        unit: "instructions per transaction",
        words: "instructions per transaction",
        scale: 1.0,
    },
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
    metric: "packets",
    unit: "packet",
    cost: Cost { unit: "CPU-us per packet", words: "CPU microseconds per packet", scale: 1e6 },
    instructions: Cost {
        unit: "instructions per packet",
        words: "instructions per packet",
        scale: 1.0,
    },
    energy_unit: "mJ/packet",
    calls_unit: "calls per packet",
    done: "received",
    load: "a stream of packets",
    actors: ["generator", "sink"],
    ..EXCHANGES
};

impl Work {
    /// All of them.
    pub const ALL: [Work; 3] = [Work::Bytes, Work::Exchanges, Work::Packets];

    /// Returns its words and units.
    pub fn terms(self) -> &'static Terms {
        match self {
            Work::Bytes => &BYTES,
            Work::Exchanges => &EXCHANGES,
            Work::Packets => &PACKETS,
        }
    }

    /// Returns how to display costs that are stored in CPU seconds: as such, or as the instructions
    /// that these seconds represent, at a fixed number per second.
    pub fn cost(self, instructions_per_second: Option<f64>) -> Cost {
        let Terms { cost, instructions, .. } = *self.terms();
        instructions_per_second
            .map_or(cost, |n| Cost { scale: instructions.scale * n, ..instructions })
    }

    /// Returns the unit in which work per second is stored.
    pub fn unit_per_second(self) -> Unit {
        match self {
            Work::Bytes => Unit::BytesPerSecond,
            Work::Exchanges | Work::Packets => Unit::PerSecond,
        }
    }

    /// Returns the role whose window and count the trial takes: the client of exchanges, the
    /// receiver for everything else.
    pub fn counted_by(self) -> Role {
        match self {
            Work::Exchanges => Role::Sender,
            Work::Bytes | Work::Packets => Role::Receiver,
        }
    }

    /// Returns the name of the actor in this role: the client of an exchange plays the sender.
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
        let cost = 0.5 / (20_000.0 / exchanges.unit_size) * exchanges.cost.scale;
        assert!((cost - 25.0).abs() < 1e-9, "{cost}");
        // Where a second is 62.5 million instructions, 2 CPU seconds are 125 million.
        let counted = Work::Bytes.cost(Some(62.5e6));
        assert_eq!((2.0 * counted.scale, counted.unit), (125.0, "M instructions per GiB"));
        assert_eq!(Work::Bytes.cost(None), bytes.cost);
        assert_eq!(Work::Exchanges.actor(Role::Sender), "client");
        assert_eq!(serde_json::to_string(&Work::Packets).unwrap(), "\"packets\"");
    }
}
