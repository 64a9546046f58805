//! Memory of a GPU, through the CUDA driver's own library (cuda.h of the CUDA toolkit, "Driver
//! API"), which is loaded on first use: building bytepath requires nothing of CUDA, and a machine
//! without it gets a clear message.

use crate::nvidia::Loaded;
use crate::pci::Address;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd};
use std::sync::OnceLock;

/// The library installed with the driver.
const LIBRARY: &str = "libcuda.so.1";

/// `CUresult`; 0 is success.
type Status = c_int;
/// `CUdevice`, `CUcontext`, `CUdeviceptr`.
type Device = c_int;
type Context = *mut c_void;
type Pointer = u64;

/// `CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED`.
const DMA_BUF_SUPPORTED: c_int = 124;
/// `CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD`.
const DMA_BUF_FD: c_int = 1;
/// `CU_POINTER_ATTRIBUTE_SYNC_MEMOPS`: a copy is complete when its call returns.
const SYNC_MEMOPS: c_int = 6;

/// The functions of the library that are used here.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Status,
    error_string: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    count: unsafe extern "C" fn(*mut c_int) -> Status,
    device: unsafe extern "C" fn(*mut Device, c_int) -> Status,
    device_name: unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status,
    address: unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, Device) -> Status,
    retain: unsafe extern "C" fn(*mut Context, Device) -> Status,
    make_current: unsafe extern "C" fn(Context) -> Status,
    allocate: unsafe extern "C" fn(*mut Pointer, usize) -> Status,
    free: unsafe extern "C" fn(Pointer) -> Status,
    set_attribute: unsafe extern "C" fn(*const c_void, c_int, Pointer) -> Status,
    handle: unsafe extern "C" fn(*mut c_void, Pointer, usize, c_int, u64) -> Status,
    to_host: unsafe extern "C" fn(*mut c_void, Pointer, usize) -> Status,
    to_device: unsafe extern "C" fn(Pointer, *const c_void, usize) -> Status,
}

/// A GPU of this machine.
pub struct Gpu {
    /// Its model.
    pub name: String,
    pub address: Address,
    /// Its number in CUDA's list.
    pub number: i32,
    /// Whether its driver exports memory as dmabufs.
    pub exports: bool,
    call: Functions,
    device: Device,
    context: OnceLock<Result<Context, String>>,
}

// SAFETY: the driver API may be called from any thread; a context is made
// current on the calling thread before each use.
unsafe impl Send for Gpu {}
// SAFETY: as above; its context is written once.
unsafe impl Sync for Gpu {}

impl fmt::Debug for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Gpu { name, address, .. } = self;
        f.debug_struct("Gpu").field("name", name).field("address", address).finish_non_exhaustive()
    }
}

/// Returns the GPUs of this machine in the order in which CUDA lists them, at least one. The driver
/// is loaded and initialised once per process. Errors have a text but no number: which library is
/// missing, or what the driver reports.
pub fn gpus() -> io::Result<&'static [Gpu]> {
    static GPUS: OnceLock<Result<Vec<Gpu>, String>> = OnceLock::new();
    match GPUS.get_or_init(|| list().map_err(|e| e.to_string())) {
        Ok(gpus) => Ok(gpus),
        Err(words) => Err(io::Error::other(words.clone())),
    }
}

fn list() -> io::Result<Vec<Gpu>> {
    let call = functions(Loaded::load(LIBRARY)?)?;
    let mut count = 0;
    // SAFETY: plain calls with the signatures of cuda.h; the pointer is to a live variable.
    unsafe {
        call.check("cuInit", (call.init)(0))?;
        call.check("cuDeviceGetCount", (call.count)(&mut count))?;
    }
    let (mut gpus, mut failure) = (Vec::new(), None);
    for found in (0..count).map(|at| Gpu::find(call, at)) {
        match found {
            Ok(gpu) => gpus.push(gpu),
            Err(error) => failure = failure.or(Some(error)),
        }
    }
    match gpus.is_empty() {
        true => Err(failure.unwrap_or_else(|| io::Error::other("the CUDA driver lists no GPU"))),
        false => Ok(gpus),
    }
}

fn functions(library: Loaded) -> io::Result<Functions> {
    // SAFETY: the fields have the signatures of cuda.h, where functions without
    // a suffix below are #defined to those with one.
    unsafe {
        Ok(Functions {
            init: library.find("cuInit")?,
            error_string: library.find("cuGetErrorString")?,
            count: library.find("cuDeviceGetCount")?,
            device: library.find("cuDeviceGet")?,
            device_name: library.find("cuDeviceGetName")?,
            address: library.find("cuDeviceGetPCIBusId")?,
            attribute: library.find("cuDeviceGetAttribute")?,
            retain: library.find("cuDevicePrimaryCtxRetain")?,
            make_current: library.find("cuCtxSetCurrent")?,
            allocate: library.find("cuMemAlloc_v2")?,
            free: library.find("cuMemFree_v2")?,
            set_attribute: library.find("cuPointerSetAttribute")?,
            handle: library.find("cuMemGetHandleForAddressRange")?,
            to_host: library.find("cuMemcpyDtoH_v2")?,
            to_device: library.find("cuMemcpyHtoD_v2")?,
        })
    }
}

impl Functions {
    fn check(&self, what: &str, status: Status) -> io::Result<()> {
        if status == 0 {
            return Ok(());
        }
        let mut words: *const c_char = std::ptr::null();
        // SAFETY: the call stores a pointer to a string that lives as long as the library, or
        // leaves null for a status it does not know.
        let words = unsafe {
            (self.error_string)(status, &mut words);
            if words.is_null() { None } else { Some(CStr::from_ptr(words).to_string_lossy()) }
        };
        let words = words.unwrap_or("an unknown error".into());
        Err(io::Error::other(format!("{what}: {words} (CUDA error {status})")))
    }

    /// Reads a text about a device.
    fn text(
        &self,
        what: &str,
        ask: unsafe extern "C" fn(*mut c_char, c_int, Device) -> Status,
        device: Device,
    ) -> io::Result<String> {
        let mut text = [0 as c_char; 128];
        let room = text.len() as c_int - 1;
        // SAFETY: the call writes a string of at most so many bytes into a live array, whose last
        // byte stays zero.
        unsafe {
            self.check(what, ask(text.as_mut_ptr(), room, device))?;
            Ok(CStr::from_ptr(text.as_ptr()).to_string_lossy().into_owned())
        }
    }
}

impl Gpu {
    /// Reads what CUDA reports about the GPU with this number.
    fn find(call: Functions, at: c_int) -> io::Result<Gpu> {
        let (mut device, mut exports) = (0, 0);
        // SAFETY: plain calls with the signatures of cuda.h; every pointer is to a live variable.
        unsafe {
            call.check("cuDeviceGet", (call.device)(&mut device, at))?;
            let asked = (call.attribute)(&mut exports, DMA_BUF_SUPPORTED, device);
            call.check("cuDeviceGetAttribute", asked)?;
        }
        let name = call.text("cuDeviceGetName", call.device_name, device)?;
        let address = call.text("cuDeviceGetPCIBusId", call.address, device)?;
        let address = address.parse().map_err(io::Error::other)?;
        let exports = exports != 0;
        let context = OnceLock::new();
        Ok(Gpu { name, address, number: at, exports, call, device, context })
    }

    /// Keeps the GPU awake for the lifetime of this process, with a context.
    pub fn hold(&self) -> io::Result<()> {
        self.context().map(drop)
    }

    /// Allocates `size` bytes of GPU memory.
    pub fn allocate(&'static self, size: usize) -> io::Result<Allocation> {
        self.enter()?;
        let mut pointer: Pointer = 0;
        // SAFETY: the call stores an address in a live variable.
        let status = unsafe { (self.call.allocate)(&mut pointer, size) };
        self.call.check("cuMemAlloc", status)?;
        let allocation = Allocation { gpu: self, pointer, size };
        let on: c_uint = 1;
        // SAFETY: the attribute is one live c_uint, the address is one of ours.
        let status =
            unsafe { (self.call.set_attribute)((&raw const on).cast(), SYNC_MEMOPS, pointer) };
        self.call.check("cuPointerSetAttribute(SYNC_MEMOPS)", status)?;
        Ok(allocation)
    }

    /// Makes the context current on the calling thread: engines run on their own threads, and the
    /// current context is a property of a thread.
    fn enter(&self) -> io::Result<()> {
        // SAFETY: the context was retained and is never released.
        let status = unsafe { (self.call.make_current)(self.context()?) };
        self.call.check("cuCtxSetCurrent", status)
    }

    /// Returns its context, which is created on first use: it takes memory, and keeps the GPU
    /// awake.
    fn context(&self) -> io::Result<Context> {
        let retain = || {
            if !self.exports {
                return Err(self.exports_nothing());
            }
            let mut context: Context = std::ptr::null_mut();
            // SAFETY: the call stores a pointer in a live variable; the device is the library's.
            let status = unsafe { (self.call.retain)(&mut context, self.device) };
            let checked = self.call.check("cuDevicePrimaryCtxRetain", status);
            checked.map(|()| context).map_err(|e| e.to_string())
        };
        self.context.get_or_init(retain).clone().map_err(io::Error::other)
    }

    /// Returns why its memory cannot be a dmabuf, for a GPU that exports none.
    pub fn exports_nothing(&self) -> String {
        format!(
            "the driver of {} exports no dmabufs (this requires the open kernel modules)",
            self.name
        )
    }
}

/// Memory of a GPU.
#[derive(Debug)]
pub struct Allocation {
    gpu: &'static Gpu,
    pointer: Pointer,
    /// Its size in bytes.
    pub size: usize,
}

impl Allocation {
    /// Exports all of it as a dmabuf. The memory must start and end at a page of the host, as
    /// allocations of whole megabytes do.
    pub fn export(&self) -> io::Result<OwnedFd> {
        self.gpu.enter()?;
        let mut fd: c_int = -1;
        let call = &self.gpu.call;
        // SAFETY: for this type of handle the call stores one c_int, a
        // descriptor, in a live variable.
        let status =
            unsafe { (call.handle)((&raw mut fd).cast(), self.pointer, self.size, DMA_BUF_FD, 0) };
        call.check("cuMemGetHandleForAddressRange", status)?;
        if fd < 0 {
            return Err(io::Error::other("the CUDA driver returned no descriptor"));
        }
        // SAFETY: the driver has just made this descriptor for us.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// Copies bytes to the host. EINVAL: the range extends beyond the memory.
    pub fn read(&self, offset: usize, into: &mut [u8]) -> io::Result<()> {
        let from = self.at(offset, into.len())?;
        self.gpu.enter()?;
        // SAFETY: the range of the GPU is within our allocation, the slice is
        // live and exclusively ours, and the copy is done when the call returns.
        let status = unsafe { (self.gpu.call.to_host)(into.as_mut_ptr().cast(), from, into.len()) };
        self.gpu.call.check("cuMemcpyDtoH", status)
    }

    /// Copies bytes from the host. EINVAL: the range extends beyond the memory.
    pub fn write(&mut self, offset: usize, from: &[u8]) -> io::Result<()> {
        let to = self.at(offset, from.len())?;
        self.gpu.enter()?;
        // SAFETY: as above, and the slice is only read.
        let status = unsafe { (self.gpu.call.to_device)(to, from.as_ptr().cast(), from.len()) };
        self.gpu.call.check("cuMemcpyHtoD", status)
    }

    fn at(&self, offset: usize, len: usize) -> io::Result<Pointer> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(self.pointer + offset as u64),
            _ => Err(io::Error::from_raw_os_error(libc::EINVAL)),
        }
    }
}

impl Drop for Allocation {
    fn drop(&mut self) {
        if self.gpu.enter().is_ok() {
            // SAFETY: the memory is ours and is freed once. A dmabuf of it keeps the memory alive
            // for as long as a device needs it.
            let _ = unsafe { (self.gpu.call.free)(self.pointer) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_testing::skip;

    #[test]
    fn without_a_driver_the_reason_is_in_words() {
        match gpus() {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| !gpu.name.is_empty())),
            Err(e) => {
                skip!("the CUDA driver: {e}");
                assert!(e.raw_os_error().is_none() && e.to_string().len() > 20, "{e}");
            }
        }
    }
}
