//! The GPU that `memory=gpu` uses.

use super::options::{is_auto, memory};
use crate::path::{self, refuse_if};
use bytepath_record::{
    Attempt, Facts, Fault, GPU, OptionKind, OptionSpec, Options, Outcome, Support, joined,
};
use bytepath_sys::cuda::{self, Gpu};
use bytepath_sys::device;
use bytepath_sys::nvml;
use bytepath_sys::pci::{Address, Nearness};
use std::cmp::Reverse;
use std::io;

pub(super) const OPTION: OptionSpec = OptionSpec::new("gpu", OptionKind::Text, "auto")
    .help("GPU of memory=gpu by its PCI address, as in 65:00.0 (auto: the one nearest to the NIC)");

/// Returns the GPUs of this host, each with its location.
pub(super) fn attempts(device: Option<&str>) -> Vec<Attempt> {
    let Ok(gpus) = by_nearness(device) else { return Vec::new() };
    let nvml = nvml::open().ok();
    let attempt = |(gpu, nearness): (&Gpu, Nearness)| {
        let outcome = match gpu.exports {
            true => {
                let number = nvml.as_ref().and_then(|nvml| nvml.number(gpu.address));
                Outcome::Works(described(gpu, number, nearness, device.unwrap_or_default()))
            }
            false => Outcome::Missing(gpu.exports_nothing()),
        };
        Attempt { name: format!("{GPU}{}", gpu.address), outcome }
    };
    gpus.into_iter().map(attempt).collect()
}

/// Describes a GPU. Its NVML number is the one in readings of the meter `nvml`.
fn described(gpu: &Gpu, number: Option<usize>, nearness: Nearness, device: &str) -> String {
    let number = number.map(|number| format!("nvml.{number}"));
    let place = match nearness {
        Nearness::Unknown => format!("number {} of CUDA", gpu.number),
        Nearness::Apart => format!("far from {device}, number {} of CUDA", gpu.number),
        Nearness::Node => format!("on the NUMA node of {device}"),
        Nearness::Root => format!("below the PCI root of {device}"),
        Nearness::Bridge(_) => format!("behind a PCI bridge of {device}"),
    };
    joined([Some(gpu.name.clone()), number, Some(place)].into_iter().flatten(), ", ")
}

/// Returns the GPUs of this host: first those whose memory can be a dmabuf, among these the nearest
/// to `device` first, otherwise in the order of CUDA.
fn by_nearness(device: Option<&str>) -> io::Result<Vec<(&'static Gpu, Nearness)>> {
    let near = |gpu: &Gpu| {
        device.map_or(Nearness::Unknown, |device| device::nearness(device, gpu.address))
    };
    let mut all: Vec<_> = cuda::gpus()?.iter().map(|gpu| (gpu, near(gpu))).collect();
    all.sort_by_key(|(gpu, nearness)| Reverse((gpu.exports, *nearness)));
    Ok(all)
}

/// Returns the GPU of this address, or the nearest to a device.
pub(super) fn find(named: Option<Address>, device: Option<&str>) -> Result<&'static Gpu, Fault> {
    let all = by_nearness(device).map_err(|e| Fault::system("the GPUs of this host", &e))?;
    let mut suiting = all.iter().filter(|(gpu, _)| named.is_none_or(|named| named == gpu.address));
    let missing = || {
        let named = named.map(|named| named.to_string()).unwrap_or_default();
        absent(&named, joined(all.iter().map(|(gpu, _)| gpu.address), ", "))
    };
    suiting.next().map(|(gpu, _)| *gpu).ok_or_else(missing)
}

/// Returns the address that options name, or `None` for the nearest.
pub(super) fn named(options: &Options) -> Result<Option<Address>, Fault> {
    match options.word(OPTION.name) {
        "" | "auto" => Ok(None),
        text => text.parse().map(Some).map_err(|e| {
            Fault::usage(format!("gpu={text}: {e}")).remedy(
                "write it as `nvidia-smi --query-gpu=pci.bus_id --format=csv` prints it, or gpu=auto",
            )
        }),
    }
}

/// Checks the value of `gpu`, also against the other options.
pub(super) fn fits(options: &Options) -> Support {
    let memory = memory(options);
    path::fits(named(options))
        .and(refuse_if(
            memory != "gpu" && !matches!(named(options), Ok(None)),
            format!("gpu={} is for memory=gpu, and memory is {memory}", options.word(OPTION.name)),
            "add memory=gpu, or leave out gpu",
        ))
        .and(refuse_if(
            // Before the study, only the GPU nearest to the link's device is determined.
            memory == "gpu"
                && !is_auto(options.word("device"))
                && matches!(named(options), Ok(None)),
            format!("device={} leaves open which GPU is meant", options.word("device")),
            "name the GPU: gpu=ADDRESS (`bytepath doctor` lists them)",
        ))
}

/// Whether options name a GPU, on a host that has GPUs.
pub(super) fn is_judged(options: &Options, facts: &Facts) -> bool {
    matches!(named(options), Ok(Some(_))) && facts.gpus().next().is_some()
}

/// Whether the named GPU exists and its memory can be a dmabuf.
pub(super) fn support(options: &Options, facts: &Facts) -> Support {
    let address = match named(options) {
        Ok(None) => return Support::Yes,
        Ok(Some(address)) => address.to_string(),
        invalid => return path::fits(invalid),
    };
    match facts.gpus().any(|(gpu, _)| gpu == address) {
        true => facts.require(
            &format!("{GPU}{address}"),
            "install the NVIDIA driver with the open kernel modules, or choose another GPU",
        ),
        false => absent(&address, joined(facts.gpus().map(|(gpu, _)| gpu), ", ")).into(),
    }
}

/// Returns the GPU whose memory a half with these options uses on a host with these facts.
pub(super) fn of(options: &Options, facts: &Facts) -> Option<String> {
    let named = named(options).ok()?.map(|address| address.to_string());
    let is_it = |gpu: &str| named.as_deref().is_none_or(|named| named == gpu);
    let (gpu, _) = facts.gpus().filter(|_| memory(options) == "gpu").find(|(gpu, _)| is_it(gpu))?;
    Some(gpu.to_owned())
}

fn absent(address: &str, all: String) -> Fault {
    Fault::unsupported(format!("this host has no GPU at {address} that CUDA lists"))
        .remedy(format!("choose one of {all}, or gpu=auto"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::OptionValue;

    fn options(memory: &str, gpu: &str) -> Options {
        let word = |(name, value): (&str, &str)| (name.to_owned(), OptionValue::Word(value.into()));
        Options([("memory", memory), ("gpu", gpu)].map(word).into())
    }

    fn facts() -> Facts {
        let gpu = |(address, outcome)| Attempt { name: format!("{GPU}{address}"), outcome };
        let near = Outcome::Works("Made-up GPU, behind a PCI bridge of eth1".into());
        let closed = Outcome::Missing("the driver of Old GPU exports no dmabufs".into());
        let far = Outcome::Works("Made-up GPU".into());
        let all = [("0000:65:00.0", near), ("0000:17:00.0", far), ("0000:b3:00.0", closed)];
        Facts { attempts: all.map(gpu).into(), ..Facts::default() }
    }

    #[test]
    fn a_gpu_that_does_not_exist_is_refused_with_those_that_do() {
        let refusal = |memory, gpu| {
            let options = options(memory, gpu);
            fits(&options).and(support(&options, &facts())).refusal()
        };
        for able in ["auto", "17:00.0", "0000:65:00.0"] {
            assert_eq!(refusal("gpu", able), None, "{able}");
        }
        let absent = refusal("gpu", "66:00.0").unwrap();
        assert!(absent.message.contains("no GPU at 0000:66:00.0"), "{absent}");
        let all = "0000:65:00.0, 0000:17:00.0, 0000:b3:00.0";
        assert!(absent.remedy.unwrap().contains(all));
        let closed = refusal("gpu", "b3:00.0").unwrap();
        assert!(closed.message.contains("exports no dmabufs"), "{closed}");
        let number = refusal("gpu", "1").unwrap();
        assert!(number.message.contains("'1' is not the address"), "{number}");
        let of_host = refusal("udmabuf", "65:00.0").unwrap();
        assert!(of_host.message.contains("memory is udmabuf"), "{of_host}");
        for (gpu, is_named) in [("auto", false), ("65:00.0", true)] {
            let mut options = options("gpu", gpu);
            options.0.insert("device".into(), OptionValue::Word("eth5".into()));
            assert_eq!(fits(&options).is_yes(), is_named, "{gpu}");
        }
        assert!(!is_judged(&options("gpu", "65:00.0"), &Facts::default()), "by what memory lacks");
    }

    #[test]
    fn takes_the_nearest_unless_one_is_named() {
        let of = |memory, gpu| of(&options(memory, gpu), &facts());
        assert_eq!(of("gpu", "auto").as_deref(), Some("0000:65:00.0"));
        assert_eq!(of("gpu", "17:00.0").as_deref(), Some("0000:17:00.0"));
        assert_eq!(
            [of("udmabuf", "auto"), of("gpu", "66:00.0"), of("gpu", "1")],
            [None, None, None]
        );
    }
}
