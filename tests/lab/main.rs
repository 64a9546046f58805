//! Everything that moves bytes on this machine: over loopback, in network namespaces, as the whole
//! program. Tests that lack privileges or devices report that and are skipped.

mod agents;
#[path = "../double/calls.rs"]
#[allow(dead_code, reason = "the double calls it")]
mod calls;
#[path = "../../crates/engine/tests/support/dsa_model.rs"]
mod dsa_model;
mod ends;
mod host;
mod isolated;
mod places;
mod running;
mod threads;
mod whole;

mod busy_poll;
mod conduct;
mod containers;
mod cpu;
mod crr;
mod end_to_end;
mod experiments;
mod faults;
mod generators;
mod given;
mod gpu;
mod hosts;
mod interrupted;
mod live;
mod lost;
mod observe;
mod observe_cases;
mod observe_programs;
mod observe_tcp;
mod observe_uncommon;
mod offload;
mod packets;
mod pairs;
mod paths;
mod placement;
mod ports;
mod power;
mod preparation;
mod quota;
mod reach;
mod restored;
mod rr;
mod sampler;
mod sampling;
mod servers;
mod settings;
mod shipped;
mod sinks;
mod slurm;
mod ssh;
mod stops;
mod testbed;
mod tls;
mod uring;
mod userspace;
mod userspace_loop;
mod waits;
mod zcrx;
