//! The fuzz targets: each takes any bytes and panics if a property does not hold. The tests call
//! every target with its seeds (`tests/it/fuzz.rs`).

mod devmem;
mod experiment;
mod frame;
mod guest;
mod history;
mod journal;
mod meters;
mod option;
mod perf_ring;
mod procfs;
mod profile;
mod round_trip;
mod slurm;
mod study;
mod symbols;
mod tcp_sockets;
mod trial;
mod wire;
mod zcrx;

/// Checks a property of any bytes, or panics.
pub type Check = fn(&[u8]);

/// Every target with its name, which is also that of its folder of seeds.
pub static TARGETS: &[(&str, Check)] = &[
    ("devmem", devmem::check),
    ("experiment", experiment::check),
    ("frame", frame::check),
    ("guest", guest::check),
    ("history", history::check),
    ("journal", journal::check),
    ("meters", meters::check),
    ("option", option::check),
    ("perf_ring", perf_ring::check),
    ("procfs", procfs::check),
    ("profile", profile::check),
    ("slurm", slurm::check),
    ("study", study::check),
    ("symbols", symbols::check),
    ("tcp_sockets", tcp_sockets::check),
    ("trial", trial::check),
    ("wire", wire::check),
    ("zcrx", zcrx::check),
];
