//! What a data path requires of this host's NIC before a stream uses it, without a study:
//! `bytepath settings --path`.

use bytepath_engine::path::{self, Wire};
use bytepath_host as host;
use bytepath_record::wire::Nic;
use bytepath_record::{Fault, FaultKind, Role, WantedSetting};
use bytepath_spec::{resolve, split, usage};
use bytepath_sys::device;
use std::net::IpAddr;

/// Settings that a path requires, in this order.
pub struct NicSettings {
    pub device: String,
    pub wanted: Vec<WantedSetting>,
}

/// The requirements of `PATH[:key=value,...]` for a flow between this host's address and the
/// peer's, to a port (`None`: all TCP from the peer). Nothing is changed.
pub fn nic_settings(
    text: &str,
    role: Role,
    [own, peer]: [IpAddr; 2],
    port: Option<u16>,
) -> Result<NicSettings, Fault> {
    let (name, given) = split(text)?;
    let path = path::find(path::CATALOG, &name).ok_or_else(|| {
        let fault = usage(format!("there is no path '{name}'"));
        fault.remedy("'bytepath paths' lists them")
    })?;
    let half = path.half(role).ok_or_else(|| {
        usage(format!("path '{name}' has no {role} half"))
            .remedy("'bytepath paths' lists the halves")
    })?;
    let options = resolve(&format!("path {name}"), half.options, &given)?;
    let name = device::of_address(own)
        .map_err(|e| Fault::system(format!("cannot find the device with address {own}"), &e))?;
    let Some(Nic { driver, queues, .. }) = host::nic(&name)? else {
        let text = format!("{name}, which has the address {own}, is a software device");
        let fault = Fault::new(FaultKind::Unsupported, text);
        return Err(fault.remedy("there is nothing to prepare; only NICs need that"));
    };
    let wire =
        Wire { device: &name, driver: &driver, queues, own, peer, port, flows: 1, connects: false };
    let settings = (half.prepare)(&options, &wire)?;
    let wanted = settings.into_iter().map(WantedSetting::from).collect();
    Ok(NicSettings { device: name, wanted })
}
