//! The hosts that a command examines: a testbed and the kernel that it boots, or a device.

use super::testbed_args::TestbedArgs;
use bytepath_record::Fault;
use bytepath_spec::{TestbedChoice, parse_kernel};
use bytepath_study::{HostSelection, default_testbed};
use clap::Args;

#[derive(Debug, Args)]
pub(super) struct DeploymentArgs {
    #[command(flatten)]
    testbed: TestbedArgs,
    /// Kernel that the testbed vm boots: [NAME=]SOURCE [COMMAND LINE]
    #[arg(long, hide_short_help = true, value_name = "KERNEL")]
    kernel: Option<String>,
    /// Check over this device of this host, not on a testbed
    #[arg(long, value_name = "DEVICE", conflicts_with_all = ["testbed", "sender", "receiver", "kernel"])]
    device: Option<String>,
}

impl DeploymentArgs {
    /// Returns the named testbed, if any.
    pub(super) fn testbed(&self) -> Result<Option<TestbedChoice>, Fault> {
        self.testbed.resolve()
    }

    pub(super) fn resolve(&self) -> Result<HostSelection, Fault> {
        if let Some(device) = &self.device {
            return Ok(HostSelection::Device(device.clone()));
        }
        let choice = self.testbed()?.map_or_else(default_testbed, Ok)?;
        HostSelection::on(choice, self.kernel.as_deref().map(parse_kernel).transpose()?)
    }
}
