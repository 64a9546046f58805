//! GPU readings from NVIDIA's management library (nvml.h of the CUDA toolkit, "NVML API
//! Reference"). It is loaded on first use, so building bytepath requires nothing of it.

use crate::nvidia::Loaded;
use crate::pci::Address;
use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::fmt;
use std::io;

/// The library installed with the driver.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// `nvmlReturn_t`; 0 is success.
type Status = c_int;
/// `nvmlDevice_t`.
type Handle = *mut c_void;

/// `NVML_PCIE_UTIL_TX_BYTES`, `NVML_PCIE_UTIL_RX_BYTES`.
const PCIE: [c_uint; 2] = [0, 1];
/// `NVML_CLOCK_SM`, `NVML_CLOCK_MEM`.
const CLOCKS: [c_uint; 2] = [1, 2];
/// `NVML_DEVICE_NAME_V2_BUFFER_SIZE`.
const NAME: usize = 96;

/// `nvmlUtilization_t`, percent.
#[repr(C)]
#[derive(Default)]
struct Utilisation {
    gpu: c_uint,
    memory: c_uint,
}

/// `nvmlPciInfo_t`: numbers, and the address as text before and after them.
#[repr(C)]
struct Place {
    old_address: [u8; 16],
    numbers: [c_uint; 5],
    address: [u8; 32],
}

/// The functions of the library that are used here.
struct Functions {
    init: unsafe extern "C" fn() -> Status,
    error_string: unsafe extern "C" fn(Status) -> *const c_char,
    count: unsafe extern "C" fn(*mut c_uint) -> Status,
    handle: unsafe extern "C" fn(c_uint, *mut Handle) -> Status,
    name: unsafe extern "C" fn(Handle, *mut c_char, c_uint) -> Status,
    power: unsafe extern "C" fn(Handle, *mut c_uint) -> Status,
    energy: unsafe extern "C" fn(Handle, *mut c_ulonglong) -> Status,
    place: unsafe extern "C" fn(Handle, *mut Place) -> Status,
    pcie: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status,
    clock: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status,
    utilisation: unsafe extern "C" fn(Handle, *mut Utilisation) -> Status,
}

/// The library, initialised, with the GPUs of this machine.
pub struct Nvml {
    call: Functions,
    gpus: Vec<(Handle, String)>,
}

// SAFETY: NVML may be called from any thread, and its handles are valid in the whole process.
unsafe impl Send for Nvml {}
// SAFETY: as above; nothing in here is written after it is made.
unsafe impl Sync for Nvml {}

impl fmt::Debug for Nvml {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.gpus.iter().map(|(_, name)| name)).finish()
    }
}

/// A snapshot of one GPU. Fields that the driver does not report are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Snapshot {
    /// Watts, averaged over up to a second.
    pub watts: Option<f64>,
    /// Joules since the driver was loaded (Volta and later).
    pub joules: Option<f64>,
    /// Bytes per second sent and received by PCIe, over 20 ms.
    pub pcie: [Option<f64>; 2],
    /// Fraction of the last period (up to a second) in which its multiprocessors were busy, and in
    /// which its memory was read or written.
    pub busy: [Option<f64>; 2],
    /// Clock frequencies of multiprocessors and memory, in Hz.
    pub clocks: [Option<f64>; 2],
}

/// Loads the library of this machine. Errors name the missing library or contain its own message.
/// On success there is at least one GPU.
pub fn open() -> io::Result<Nvml> {
    let call = functions(Loaded::load(LIBRARY)?)?;
    let mut nvml = Nvml { call, gpus: Vec::new() };
    let mut count = 0;
    // SAFETY: plain calls with the signatures of nvml.h; every pointer is to a live variable.
    unsafe {
        nvml.check("nvmlInit", (nvml.call.init)())?;
        nvml.check("nvmlDeviceGetCount", (nvml.call.count)(&mut count))?;
    }
    for at in 0..count {
        let (mut handle, mut name) = (std::ptr::null_mut(), [0 as c_char; NAME]);
        // SAFETY: as above; the name is written with its terminating zero, which stays in place
        // because the length passed to the library is one byte less.
        let name = unsafe {
            nvml.check("nvmlDeviceGetHandleByIndex", (nvml.call.handle)(at, &mut handle))?;
            let room = NAME as c_uint - 1;
            nvml.check("nvmlDeviceGetName", (nvml.call.name)(handle, name.as_mut_ptr(), room))?;
            CStr::from_ptr(name.as_ptr()).to_string_lossy().into_owned()
        };
        nvml.gpus.push((handle, name));
    }
    match nvml.gpus.is_empty() {
        true => Err(io::Error::other("the NVIDIA driver reports no GPU")),
        false => Ok(nvml),
    }
}

fn functions(library: Loaded) -> io::Result<Functions> {
    // SAFETY: the fields have the signatures of nvml.h, where functions without a suffix below
    // are #defined to those with one.
    unsafe {
        Ok(Functions {
            init: library.find("nvmlInit_v2")?,
            error_string: library.find("nvmlErrorString")?,
            count: library.find("nvmlDeviceGetCount_v2")?,
            handle: library.find("nvmlDeviceGetHandleByIndex_v2")?,
            name: library.find("nvmlDeviceGetName")?,
            power: library.find("nvmlDeviceGetPowerUsage")?,
            energy: library.find("nvmlDeviceGetTotalEnergyConsumption")?,
            place: library.find("nvmlDeviceGetPciInfo_v3")?,
            pcie: library.find("nvmlDeviceGetPcieThroughput")?,
            clock: library.find("nvmlDeviceGetClockInfo")?,
            utilisation: library.find("nvmlDeviceGetUtilizationRates")?,
        })
    }
}

impl Nvml {
    /// Returns the names of the GPUs, by number.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.gpus.iter().map(|(_, name)| name.as_str())
    }

    /// Returns the PCI address of a GPU.
    pub fn address(&self, gpu: usize) -> Option<Address> {
        let (handle, _) = self.gpus.get(gpu)?;
        let mut place = Place { old_address: [0; 16], numbers: [0; 5], address: [0; 32] };
        // SAFETY: the call fills one structure that is live; the handle is the library's.
        let status = unsafe { (self.call.place)(*handle, &mut place) };
        let text = CStr::from_bytes_until_nul(&place.address).ok().filter(|_| status == 0)?;
        text.to_str().ok()?.parse().ok()
    }

    /// Returns the number of the GPU at this address.
    pub fn number(&self, address: Address) -> Option<usize> {
        (0..self.gpus.len()).find(|gpu| self.address(*gpu) == Some(address))
    }

    /// Reads a GPU, which takes about 40 ms, because PCIe is sampled for that long. All fields of a
    /// missing GPU are `None`.
    pub fn snapshot(&self, gpu: usize) -> Snapshot {
        let Some((handle, _)) = self.gpus.get(gpu) else { return Snapshot::default() };
        let (call, handle) = (&self.call, *handle);
        let mut milliwatts = 0;
        let mut busy = Utilisation::default();
        let chosen = |ask: unsafe extern "C" fn(Handle, c_uint, *mut c_uint) -> Status, which| {
            let mut number = 0;
            // SAFETY: the call stores one c_uint in a live variable; the handle is the library's.
            (unsafe { ask(handle, which, &mut number) } == 0).then_some(f64::from(number))
        };
        // SAFETY: as above, one structure of two numbers and one number.
        let (utilised, powered) = unsafe {
            ((call.utilisation)(handle, &mut busy) == 0, (call.power)(handle, &mut milliwatts) == 0)
        };
        Snapshot {
            watts: powered.then_some(f64::from(milliwatts) * 1e-3),
            joules: self.joules(gpu),
            // In KB, which nvml.h does not define; the driver's tools take them as 1000 bytes.
            pcie: PCIE.map(|which| chosen(call.pcie, which).map(|kilobytes| kilobytes * 1e3)),
            busy: [busy.gpu, busy.memory]
                .map(|percent| utilised.then_some(f64::from(percent) / 100.0)),
            clocks: CLOCKS.map(|which| chosen(call.clock, which).map(|megahertz| megahertz * 1e6)),
        }
    }

    /// Joules that a GPU consumed since the driver was loaded.
    pub fn joules(&self, gpu: usize) -> Option<f64> {
        let (handle, _) = self.gpus.get(gpu)?;
        let mut millijoules = 0;
        // SAFETY: the call stores one number in a live variable; the handle is the library's.
        let status = unsafe { (self.call.energy)(*handle, &mut millijoules) };
        (status == 0).then_some(millijoules as f64 * 1e-3)
    }

    fn check(&self, what: &str, status: Status) -> io::Result<()> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the call returns a string that lives as long as the library, or null.
        let words = unsafe {
            let words = (self.call.error_string)(status);
            if words.is_null() { None } else { Some(CStr::from_ptr(words).to_string_lossy()) }
        };
        let words = words.unwrap_or("an unknown error".into());
        Err(io::Error::other(format!("{what}: {words} (NVML error {status})")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn without_a_driver_the_reason_is_in_words() {
        match open() {
            Ok(nvml) => assert!(nvml.names().all(|name| !name.is_empty())),
            Err(e) => {
                skip!("NVML: {e}");
                assert!(e.raw_os_error().is_none() && e.to_string().len() > 20, "{e}");
            }
        }
    }
}
