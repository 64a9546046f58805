//! Programs that get the frames of a network device before the kernel's stack does
//! (Documentation/networking/af_xdp.rst, bpf-helpers(7)): one that counts and drops them,
//! one that passes them to AF_XDP sockets, and one that sends copies of a frame
//! (Documentation/bpf/bpf_prog_run.rst). Above each is the C that it stands for.

use super::asm::{Alu, Assembler, Helper, If, Insn, Reg::*, Size};
use super::{Hook, Link, Map, MapKind, Program, Refused, TestAttr, Update, make, test_run};
use crate::bytes::u64_at;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

/// `BPF_XDP` of `enum bpf_attach_type`.
pub(super) const ATTACH_TYPE: u32 = 37;

const LINK_CREATE: libc::c_int = 28;

// Offsets in `struct xdp_md`, and return values of a program (uapi/linux/bpf.h).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;
const DROP: i32 = 1;
const PASS: i32 = 2;

/// Where a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver (`XDP_FLAGS_DRV_MODE`). EOPNOTSUPP: this one cannot.
    Native,
    /// In the stack, for any device (`XDP_FLAGS_SKB_MODE`).
    Generic,
}

/// How frames are recognised: by four of their bytes. Other frames are passed on to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Offset of these bytes from the start of the frame.
    pub at: u16,
    pub bytes: [u8; 4],
}

/// Drops the marked frames of a device and counts them; dropping this value detaches it.
#[derive(Debug)]
pub struct Dropper {
    counts: Map,
    _link: Link,
}

/// Redirects the marked frames of each queue of a device to the socket of that queue; if there is
/// none, they are passed on to the kernel. Dropping this value detaches it.
#[derive(Debug)]
pub struct Redirector {
    sockets: Map,
    _link: Link,
}

/// Makes copies of a frame and sends them through a device, in the kernel and without a socket
/// buffer: `BPF_F_TEST_XDP_LIVE_FRAMES`, Linux 5.18.
#[derive(Debug)]
pub struct LiveFrames {
    program: Program,
    frame: Vec<u8>,
}

/// Passes all frames of a device on to the kernel; dropping this value detaches it.
#[derive(Debug)]
pub struct Passer {
    _link: Link,
}

/// Frames and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Frames.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
}

/// Bytes per CPU in the map of counts, so that no two CPUs share a cache line.
const SLOT: usize = 64;

/// Number of CPUs of the largest machine that the kernel supports.
const MOST_CPUS: u32 = 8192;

impl Dropper {
    /// Attaches to the device with this interface index. EBUSY, EEXIST: it already has a program.
    pub fn attach(device: u32, mark: Mark, mode: Mode) -> Result<Dropper, Refused> {
        let cpus = possible_cpus();
        let counts = Map::new(MapKind::Array, "dropped", 4, SLOT, cpus).map_err(unloaded)?;
        let link = attach("drop", &dropping(mark, counts.as_fd()), device, mode)?;
        Ok(Dropper { counts, _link: link })
    }

    /// Returns what has been dropped so far.
    pub fn count(&self) -> io::Result<Count> {
        let mut all = Count::default();
        for (_, value) in self.counts.entries()? {
            all.frames += u64_at(&value, 0).unwrap_or(0);
            all.bytes += u64_at(&value, 8).unwrap_or(0);
        }
        Ok(all)
    }
}

impl Redirector {
    /// Attaches to the device with this interface index, with room for the sockets of `queues`
    /// queues. EBUSY, EEXIST: it already has a program.
    pub fn attach(device: u32, mark: Mark, queues: u32, mode: Mode) -> Result<Redirector, Refused> {
        let sockets = Map::new(MapKind::Sockets, "sockets", 4, 4, queues).map_err(unloaded)?;
        let link = attach("redirect", &redirecting(mark, sockets.as_fd()), device, mode)?;
        Ok(Redirector { sockets, _link: link })
    }

    /// Redirects the frames of `queue` to `socket`, which is bound to that queue, from now on.
    pub fn serve(&self, queue: u32, socket: BorrowedFd) -> io::Result<()> {
        let socket = socket.as_raw_fd() as u32;
        self.sockets.update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), Update::Any)
    }
}

impl Passer {
    /// Attaches to the device with this interface index, in its driver. EBUSY, EEXIST: it already
    /// has a program.
    pub fn attach(device: u32) -> Result<Passer, Refused> {
        let mut asm = Assembler::new();
        asm.mov(R0, PASS).exit();
        Ok(Passer { _link: attach("pass", &finished(asm), device, Mode::Native)? })
    }
}

impl LiveFrames {
    /// Prepares to send copies of `frame` through the device with this interface index in this
    /// namespace.
    pub fn new(device: u32, frame: &[u8]) -> Result<LiveFrames, Refused> {
        let program = Program::load(Hook::Frames, "live", &sending(device))?;
        Ok(LiveFrames { program, frame: frame.to_owned() })
    }

    /// Makes `count` copies and hands them to the device, in batches of `batch` (1 to 256). What
    /// the device does not accept is dropped silently: only its own counter shows how many it sent.
    /// EINVAL: a frame shorter than 14 bytes or too large for a page; EPERM: no CAP_BPF and
    /// CAP_NET_ADMIN. A signal ends it early with EINTR, and how many copies it made by then is not
    /// reported.
    pub fn send(&self, count: u32, batch: u32) -> io::Result<()> {
        /// `BPF_F_TEST_XDP_LIVE_FRAMES`, uapi/linux/bpf.h.
        const LIVE: u32 = 2;
        let mut attr = TestAttr {
            program: self.program.fd.as_raw_fd() as u32,
            sizes: [self.frame.len() as u32, 0],
            data: [self.frame.as_ptr() as u64, 0],
            repeat: count,
            flags: LIVE,
            batch_size: batch,
            ..TestAttr::default()
        };
        // SAFETY: the kernel reads the frame, whose length is the one given; every other address is
        // null.
        unsafe { test_run(&mut attr) }
    }
}

/// Loads a program and attaches it to a device; it stays attached as long as the link.
fn attach(name: &str, insns: &[Insn], device: u32, mode: Mode) -> Result<Link, Refused> {
    let program = Program::load(Hook::Frames, name, insns)?;
    let flags = match mode {
        Mode::Generic => 1 << 1,
        Mode::Native => 1 << 2,
    };
    let program = program.fd.as_raw_fd() as u32;
    let attr = LinkAttr { program, device, attach_type: ATTACH_TYPE, flags };
    // SAFETY: the kernel reads the structure, which contains no address.
    let link = unsafe { make(LINK_CREATE, &attr) }.map_err(unloaded)?;
    Ok(Link { _fd: link })
}

/// `BPF_LINK_CREATE`, up to the fields that a program of a device needs.
#[repr(C)]
struct LinkAttr {
    program: u32,
    device: u32,
    attach_type: u32,
    flags: u32,
}

/// Jumps to `other` if the frame is not marked. Leaves the context in `R6` and the size of the
/// frame in `R7`.
///
/// ```c
/// bool marked(struct xdp_md *context)
/// {
///         void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
///
///         return data + AT + 4 <= end && *(u32 *)(data + AT) == MARK;
/// }
/// ```
fn require_mark(asm: &mut Assembler, mark: Mark) {
    let at = mark.at as i16;
    asm.mov(R6, R1).load(Size::Word, R2, R6, DATA).load(Size::Word, R3, R6, DATA_END);
    asm.mov(R7, R3).alu(Alu::Sub, R7, R2);
    asm.mov(R4, R2).add(R4, i32::from(at) + 4).jump_if(If::Gt, R4, R3, "other");
    asm.load(Size::Word, R5, R2, at).wide(R4, u32::from_ne_bytes(mark.bytes).into());
    asm.jump_if(If::Ne, R5, R4, "other");
}

/// ```c
/// int drop(struct xdp_md *context)
/// {
///         u32 cpu = bpf_get_smp_processor_id();
///         struct { u64 frames, bytes; } *count;
///
///         if (!marked(context))
///                 return XDP_PASS;
///         count = bpf_map_lookup_elem(&counts, &cpu);
///         if (!count)
///                 return XDP_PASS;
///         /* This CPU handles no other frame meanwhile, so nothing has to be atomic. */
///         count->frames++;
///         count->bytes += context->data_end - context->data;
///         return XDP_DROP;
/// }
/// ```
fn dropping(mark: Mark, counts: BorrowedFd) -> Vec<Insn> {
    let mut asm = Assembler::new();
    require_mark(&mut asm, mark);
    asm.call(Helper::GetSmpProcessorId).store(Size::Word, R10, -4, R0);
    asm.map(R1, counts).mov(R2, R10).add(R2, -4).call(Helper::MapLookup);
    asm.jump_if(If::Eq, R0, 0, "other");
    asm.load(Size::Double, R1, R0, 0).add(R1, 1).store(Size::Double, R0, 0, R1);
    asm.load(Size::Double, R1, R0, 8).alu(Alu::Add, R1, R7).store(Size::Double, R0, 8, R1);
    asm.mov(R0, DROP).exit().label("other").mov(R0, PASS).exit();
    finished(asm)
}

/// ```c
/// int redirect(struct xdp_md *context)
/// {
///         if (!marked(context))
///                 return XDP_PASS;
///         return bpf_redirect_map(&sockets, context->rx_queue_index, XDP_PASS);
/// }
/// ```
fn redirecting(mark: Mark, sockets: BorrowedFd) -> Vec<Insn> {
    let mut asm = Assembler::new();
    require_mark(&mut asm, mark);
    asm.map(R1, sockets).load(Size::Word, R2, R6, QUEUE).mov(R3, PASS);
    asm.call(Helper::RedirectMap).exit().label("other").mov(R0, PASS).exit();
    finished(asm)
}

/// ```c
/// int live(struct xdp_md *context)
/// {
///         return bpf_redirect(DEVICE, 0);
/// }
/// ```
fn sending(device: u32) -> Vec<Insn> {
    let mut asm = Assembler::new();
    asm.wide(R1, device.into()).mov(R2, 0).call(Helper::Redirect).exit();
    finished(asm)
}

fn finished(asm: Assembler) -> Vec<Insn> {
    asm.finish().expect("labels of fixed programs fit")
}

/// An error that does not come from the verifier.
fn unloaded(error: io::Error) -> Refused {
    Refused { error, log: String::new() }
}

/// Returns one more than the highest number that a CPU may ever have.
fn possible_cpus() -> u32 {
    let list = crate::attribute::text("/sys/devices/system/cpu/possible".as_ref());
    let last = crate::attribute::list(&list.unwrap_or_default()).into_iter().max();
    last.map_or(MOST_CPUS, |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_net::{MARK, Port, frame, pair};
    use bytepath_testing::skip;
    use std::time::{Duration, Instant};

    /// Returns the count once it is `wanted` frames, or after ten seconds.
    fn dropped(dropper: &Dropper, wanted: u64) -> Count {
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let count = dropper.count().unwrap();
            if count.frames >= wanted || Instant::now() > deadline {
                return count;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn marked_frames_are_counted_and_dropped_and_others_pass() {
        let Some([one, other]) = pair() else { return };
        for mode in [Mode::Native, Mode::Generic] {
            let dropper = match Dropper::attach(other, MARK, mode) {
                Ok(dropper) => dropper,
                Err(refused) => return skip!("no XDP here: {refused}"),
            };
            let (sender, receiver) = (Port::of(one), Port::of(other));
            let unmarked = {
                let mut frame = frame(7, 90);
                frame[14] = 1;
                frame
            };
            (0..100).for_each(|number| sender.send(&frame(number, 60 + number as usize)));
            sender.send(&unmarked);
            assert_eq!(receiver.receive().unwrap(), unmarked, "{mode:?}");
            let bytes = (0..100).map(|number| 60 + number).sum();
            assert_eq!(dropped(&dropper, 100), Count { frames: 100, bytes }, "{mode:?}");
            drop(dropper);
            sender.send(&frame(3, 60));
            assert_eq!(receiver.receive().unwrap(), frame(3, 60), "nothing drops any more");
        }
    }

    #[test]
    fn live_frames_arrive_as_often_as_they_were_requested() {
        let Some([one, other]) = pair() else { return };
        let dropper = match Dropper::attach(other, MARK, Mode::Native) {
            Ok(dropper) => dropper,
            Err(refused) => return skip!("no XDP here: {refused}"),
        };
        let live = LiveFrames::new(one, &frame(1, 60)).unwrap();
        if let Err(e) = live.send(1, 1) {
            return skip!("no live frames: {e}");
        }
        for (count, batch) in [(1, 64), (1000, 1), (5000, 64), (10_000, 256)] {
            let before = dropper.count().unwrap().frames;
            live.send(count, batch).unwrap();
            let (wanted, got) = (before + u64::from(count), dropped(&dropper, before + 1));
            // If the peer's ring is full, it drops frames.
            assert!(got.frames <= wanted && got.frames > before, "{got:?} of {wanted}");
            assert_eq!(got.bytes, 60 * got.frames);
        }
        assert_eq!(live.send(1, 257).unwrap_err().raw_os_error(), Some(libc::E2BIG));
        let short = LiveFrames::new(one, &[0; 13]).unwrap();
        assert_eq!(short.send(1, 1).unwrap_err().raw_os_error(), Some(libc::EINVAL));
    }

    #[test]
    fn a_device_has_one_program_at_a_time() {
        let Some([_, other]) = pair() else { return };
        let Ok(_first) = Dropper::attach(other, MARK, Mode::Native) else {
            return skip!("no XDP here");
        };
        let refused = Dropper::attach(other, MARK, Mode::Native).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(libc::EBUSY), "{refused}");
        let refused = Dropper::attach(9999, MARK, Mode::Native).unwrap_err();
        assert_eq!(refused.error.raw_os_error(), Some(libc::EINVAL), "{refused}");
    }
}
