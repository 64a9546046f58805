//! The table of settings: how each kind is read and changed. A new kind of setting needs an arm
//! here, a helper in `files`, `device` or `loan`, and an entry in `bytepath_record`.

use super::access::{Access, Means, no_device};
use super::{device, files, loan};
use bytepath_record::Setting;

pub(super) fn access(setting: &Setting) -> Access<'_> {
    match setting {
        Setting::Sysctl { name, value } => files::sysctl(name, value),
        Setting::Mtu { device, bytes } => files::mtu(device, *bytes),
        Setting::ThreadedNapi { device, on } => {
            files::attribute(device, "threaded", u8::from(*on).to_string())
        }
        Setting::IrqAffinity { irq, cpus } => files::irq(*irq, cpus),
        Setting::Rps { device, queue, cpus } => files::steering(device, "rx", "rps", *queue, cpus),
        Setting::Xps { device, queue, cpus } => files::steering(device, "tx", "xps", *queue, cpus),
        Setting::Governor { cpus, governor } => files::governor(cpus, governor),
        Setting::IdleStates { cpus, disable } => files::idle_states(cpus, disable),
        Setting::HugePages { size, node, count } => Access {
            missing: format!("there are no {}", setting.subject()),
            ..files::huge_pages(*size, node, *count)
        },
        Setting::Dsa { part, attribute, value } => files::dsa(setting, part, attribute, value),
        Setting::Feature { device, feature, on } => device::feature(device, feature, *on),
        Setting::Rings { device, .. } => device::rings(setting, device),
        Setting::Channels { device, .. } => device::channels(setting, device),
        Setting::Coalescing { device, .. } => device::coalescing(setting, device),
        Setting::Napi { device, .. } => device::napi(setting, device),
        Setting::Spread { device, queues, start } => device::spread(device, *queues, *start),
        Setting::Flow { device, rule } => device::flow(device, rule),
        Setting::PacketLimits { device, limits } => device::packet_limits(device, limits),
        Setting::Qdisc { device, discipline } => device::qdisc(device, discipline),
        Setting::TapFlags { device, flags } => device::tap_flags(setting, device, flags),
        Setting::Loan { device, beside } => Access {
            follows: |_, name, [was, _, now]| loan::is_on_the_way_back(name, was, now),
            ..Access::new(Means::Loan(device, beside.as_ref()), loan::same, no_device(device))
        },
    }
}
