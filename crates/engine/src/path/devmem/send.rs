//! The sender: the message is in a dmabuf, and sends refer to it by offset. The kernel cannot
//! access the bytes and so cannot copy them; completions arrive as for any `MSG_ZEROCOPY`.

use super::area::allocate;
use super::gpu;
use super::options::{device, memory};
use crate::connection::{Flow, WITNESS_LEN, WitnessPage};
use crate::path::Opened;
use crate::path::zerocopy_send::{Payload, ZerocopySender};
use crate::workload::{Call, HalfConfig, Pattern, Tx};
use bytepath_record::Fault;
use bytepath_sys::devmem::{self, Binding};
use bytepath_sys::dmabuf::Memory;
use std::io;

/// Opens a sender, and writes the message into the dmabuf once.
pub(super) fn open(job: &HalfConfig, flow: Flow) -> Opened<dyn Tx> {
    let (options, size) = (&job.options, sendable(job)?);
    let device = device(options, &flow)?;
    let mut memory = allocate(memory(options), gpu::named(options)?, size, &device)?;
    let pattern = Pattern::new(size);
    fill(memory.as_mut(), &pattern, size)?;
    let binding = devmem::bind_send(&device, memory.fd()).map_err(|refusal| {
        super::support::refused(format!("binding a dmabuf to {device} for sending"), &refusal)
    })?;
    // Another device than the one the dmabuf is bound to would refuse it.
    devmem::Socket(flow.fd())
        .keep_to(&device)
        .map_err(|e| flow.fault(&format!("keeping the connection to {device}"), &e))?;
    let reap = options.number("reap").map_or(16, |n| n as u32);
    let payload = InDmabuf { binding, memory, size: size as usize, pattern };
    Ok(Box::new(ZerocopySender::new(flow, payload, reap)?))
}

/// Returns the message size of a job. Errors if the witness page does not fit into it.
pub(super) fn sendable(job: &HalfConfig) -> Result<u64, Fault> {
    if job.message_size >= WITNESS_LEN as u64 {
        return Ok(job.message_size);
    }
    let text = format!("devmem cannot send messages of {} bytes", job.message_size);
    Err(Fault::usage(text).remedy("choose at least a page (4K)"))
}

/// A message in a dmabuf.
struct InDmabuf {
    // First, so that the device releases the memory before it is freed.
    binding: Binding,
    memory: Box<dyn Memory>,
    size: usize,
    pattern: Pattern,
}

impl Payload for InDmabuf {
    const SEND: Call = Call(0, "sendmsg(devmem)");
    const CALL: &'static str = "sendmsg out of a dmabuf";
    const REMEDY: &'static str = "raise net.core.optmem_max (--set 'sysctl \
         net.core.optmem_max=4194304'), or choose a smaller message";

    fn len(&self) -> usize {
        self.size
    }

    #[inline]
    fn send(&self, flow: &Flow, at: usize, len: usize) -> io::Result<usize> {
        devmem::Socket(flow.fd()).send(self.binding.dmabuf, at, len)
    }

    /// The witness page is the beginning of the message: if the memory is as large as can be bound,
    /// there is no room for another page.
    fn witness(sender: &mut ZerocopySender<InDmabuf>) -> Result<(), Fault> {
        let mut page = [0; WITNESS_LEN];
        WitnessPage::before(&mut page);
        sender.payload.overwrite(&page)?;
        sender.send_aside(WITNESS_LEN, |payload, flow, at| {
            payload.send(flow, at, WITNESS_LEN - at)
        })?;
        WitnessPage::settle(&sender.flow, |after| page = *after)?;
        sender.payload.overwrite(&page)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        let mut front = [0; WITNESS_LEN];
        self.pattern.fill(&mut front, 0);
        self.overwrite(&front)
    }
}

impl InDmabuf {
    fn overwrite(&mut self, page: &[u8; WITNESS_LEN]) -> Result<(), Fault> {
        let written = self.memory.write(0, page);
        written.map_err(|e| Fault::system("writing the front of the dmabuf", &e))
    }
}

/// Writes the message into memory that the CPU may not be able to access.
fn fill(memory: &mut dyn Memory, pattern: &Pattern, size: u64) -> Result<(), Fault> {
    let mut part = vec![0; (1 << 20).min(size as usize)];
    let mut offset = 0;
    while offset < size {
        let len = part.len().min((size - offset) as usize);
        let part = &mut part[..len];
        pattern.fill(part, offset);
        let written = memory.write(offset as usize, part);
        written.map_err(|e| Fault::system("writing the message into the dmabuf", &e))?;
        offset += len as u64;
    }
    Ok(())
}
