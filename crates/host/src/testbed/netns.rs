//! The embedded testbed: two network namespaces on this machine and a veth pair between them. The
//! traffic crosses a whole TCP stack twice, and no byte leaves the machine.

use super::{Deployment, Properties, Site, Testbed, ends};
use crate::{Adapter, ProcessHost, pair_of_agents, remedy};
use bytepath_record::{CpuTurns, Fault, Role, Support};
use bytepath_sys::Roots;
use bytepath_sys::namespace::{self, Refused, Step};
use bytepath_sys::netlink::{Veth, veth_message};

/// Two network namespaces and a veth pair.
pub(super) struct Netns;

impl Testbed for Netns {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn summary(&self) -> &'static str {
        "two network namespaces and a veth pair on this machine"
    }

    fn properties(&self) -> Properties {
        Properties { holds_taps: true, adapters: CpuTurns::MOST as u32, ..Properties::default() }
    }

    fn probe(&self) -> Support {
        let pair = Veth {
            name: ends::device(Role::Sender).into(),
            peer: ends::device(Role::Receiver).into(),
            peer_process: None,
            mtu: None,
            queues: 1,
        };
        let tried = veth_message(&pair)
            .map_err(|error| Refused { step: Step::Device, error })
            .and_then(namespace::rehearse);
        match tried {
            Ok(()) => Support::Yes,
            Err(refused) => Support::no(refused.to_string(), remedy(&refused, &Roots::real())),
        }
    }

    fn raise(&self, site: &Site) -> Result<Deployment, Fault> {
        site.refuse_kernel(self.name())?;
        let [sender, receiver] = pair_of_agents(site.program, None)?;
        let [one, other] = ends::beside([&sender, &receiver].map(|agent| agent.process.id()));
        let host = |agent, attachment| ProcessHost { agent, attachment, adapter: Adapter::Virtual };
        Ok(Deployment::of([host(sender, one), host(receiver, other)]))
    }
}
