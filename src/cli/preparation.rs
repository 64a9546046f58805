//! `bytepath settings --path`: what a data path requires of a NIC before a
//! stream uses it, as settings that a run makes and restores.

use bytepath_engine::path::{self, HalfPath, Wire};
use bytepath_host as host;
use bytepath_record::wire::Nic;
use bytepath_record::{Fault, FaultKind, Options, Role, SettingRecord, WantedSetting};
use bytepath_settings::{self as engine, ThisMachine};
use bytepath_spec::{resolve, split};
use bytepath_sys::{Roots, device};
use clap::Args;
use std::fmt::Write as _;
use std::net::IpAddr;

/// Which path, and between which addresses its flows go.
#[derive(Debug, Args)]
pub(super) struct PreparationArguments {
    /// Show what this path requires of the NIC with --address instead
    ///
    /// With options: PATH[:key=value,...].
    #[arg(long, value_name = "PATH", requires = "address", requires = "peer")]
    path: Option<String>,
    /// Local address of the flows, on this host's NIC
    #[arg(long, requires = "path")]
    address: Option<IpAddr>,
    /// Peer's address
    #[arg(long, requires = "path")]
    peer: Option<IpAddr>,
    /// Port that the flows go to [default: all TCP from the peer]
    #[arg(long, requires = "path")]
    port: Option<u16>,
    /// Role of this host: receiver or sender
    #[arg(long, requires = "path", default_value = "receiver")]
    role: String,
}

/// What a path requires of a NIC here: the device, and each setting from what to what.
pub(super) struct Preparation {
    pub device: String,
    pub records: Vec<SettingRecord>,
}

/// The requirements; none if no path was named. Nothing is changed.
pub(super) fn preparation(asked: &PreparationArguments) -> Result<Option<Preparation>, Fault> {
    let (Some(text), Some(own), Some(peer)) = (&asked.path, asked.address, asked.peer) else {
        return Ok(None);
    };
    let role = match asked.role.as_str() {
        "receiver" => Role::Receiver,
        "sender" => Role::Sender,
        other => {
            let text = format!("'{other}' is not a role");
            return Err(Fault::new(FaultKind::Usage, text).remedy("receiver or sender"));
        }
    };
    let (half, options) = half(text, role)?;
    let name = device::of_address(own)
        .map_err(|e| Fault::system(format!("cannot find the device with address {own}"), &e))?;
    let Some(Nic { driver, queues, .. }) = host::nic(&name)? else {
        let text = format!("{name}, which has the address {own}, is a software device");
        let fault = Fault::new(FaultKind::Unsupported, text);
        return Err(fault.remedy("there is nothing to prepare; only NICs need that"));
    };
    let wire = Wire {
        device: &name,
        driver: &driver,
        queues,
        own,
        peer,
        port: asked.port,
        flows: 1,
        connects: false,
    };
    let settings = (half.prepare)(&options, &wire)?;
    let wanted: Vec<WantedSetting> = settings.into_iter().map(WantedSetting::from).collect();
    let records = engine::preview(ThisMachine::new(Roots::real()), &wanted);
    Ok(Some(Preparation { device: name, records }))
}

/// The settings as text: from what to what, and the option by which a run makes them.
pub(super) fn text(preparation: &Preparation) -> String {
    let mut text = String::new();
    if preparation.records.is_empty() {
        return format!("nothing needs to be set on {} for this role\n", preparation.device);
    }
    // Writing to a String cannot fail.
    for record in &preparation.records {
        let _ = writeln!(text, "  {record}\n    as   {}", record.setting.command());
    }
    text.push_str("\nA run makes and restores them with:\n");
    for record in &preparation.records {
        let _ = writeln!(text, "  --set \"{}\" \\", record.setting);
    }
    text
}

/// A path with its options, as they are typed.
fn half(text: &str, role: Role) -> Result<(HalfPath, Options), Fault> {
    let (name, given) = split(text)?;
    let found = path::find(path::CATALOG, &name).ok_or_else(|| {
        let fault = Fault::new(FaultKind::Usage, format!("there is no path '{name}'"));
        fault.remedy("'bytepath paths' lists them")
    })?;
    let half = found.half(role).ok_or_else(|| {
        Fault::new(FaultKind::Usage, format!("path '{name}' has no {role} half"))
            .remedy("'bytepath paths' lists the halves")
    })?;
    let options = resolve(&format!("path {name}"), half.options, &given)?;
    Ok((half, options))
}
