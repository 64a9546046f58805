//! An event opened on CPUs, for everything that runs on them, with a ring for each.

use super::count::{Tally, tally};
use super::event::{Event, Target, switch};
use super::record::Malformed;
use super::ring::Ring;
use perf_event_open_sys::bindings as b;
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// How often to sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// This many times per second; the kernel chooses the period.
    Frequency(u64),
    Period(u64),
}

#[derive(Clone, Debug)]
pub struct Request {
    pub event: Event,
    pub rate: Rate,
    pub cpus: Vec<u32>,
}

/// The step at which sampling was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    Open,
    Map,
    /// Preparing to wait for the event.
    Wait,
}

#[derive(Debug, thiserror::Error)]
#[error("{} '{event}' on CPU {cpu}: {error}", match .step {
    Step::Open => "perf event",
    Step::Map => "ring buffer of perf event",
    Step::Wait => "waiting for perf event",
})]
pub struct Refused {
    pub step: Step,
    /// Name of the event.
    pub event: String,
    pub cpu: u32,
    /// The error that the kernel returned.
    pub error: io::Error,
}

/// An open event, not yet enabled. Dropping it closes it.
#[derive(Debug)]
pub struct Sampler {
    control: Control,
    rings: Vec<Ring>,
    epoll: OwnedFd,
    counts_lost: bool,
}

/// Enables and disables an event while another thread drains it.
#[derive(Clone, Debug)]
pub struct Control {
    events: Arc<Vec<OwnedFd>>,
    wake: Arc<OwnedFd>,
}

impl Control {
    /// Enables the event on all CPUs.
    pub fn enable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|event| switch(event, true))
    }

    /// Disables the event. After this returns, no more samples are taken.
    pub fn disable(&self) -> io::Result<()> {
        self.events.iter().try_for_each(|event| switch(event, false))
    }

    /// Wakes a [`Sampler::wait`].
    pub fn wake(&self) -> io::Result<()> {
        rustix::io::write(&*self.wake, &1u64.to_ne_bytes())?;
        Ok(())
    }
}

/// Most bytes of one sample: header and fields, and a call chain of the kernel's default limit
/// (`kernel.perf_event_max_stack`, 127) with its marks.
pub const LARGEST_SAMPLE: usize = 56 + 8 * 132;

/// Capacity of a ring in seconds of samples of the largest size: how long its reader may be kept
/// from draining it.
const RING_SECONDS: f64 = 0.5;

/// Fewest and most pages of a ring.
const PAGES: std::ops::RangeInclusive<usize> = 16..=2048;

impl Sampler {
    /// Opens an event. Rings are as large as the rate requires, or smaller if the limits on locked
    /// memory demand it (`kernel.perf_event_mlock_kb`, `RLIMIT_MEMLOCK`).
    pub fn open(request: &Request) -> Result<Sampler, Refused> {
        let refused = |step, cpu: u32, error: io::Error| Refused {
            step,
            event: request.event.name.clone(),
            cpu,
            error,
        };
        let first = request.cpus.first().copied().unwrap_or_default();
        let wait = |e: rustix::io::Errno| refused(Step::Wait, first, e.into());
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(wait)?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK).map_err(wait)?;
        let add = |fd: &OwnedFd| {
            let data = epoll::EventData::new_u64(0);
            epoll::add(&epoll, fd, data, epoll::EventFlags::IN)
        };
        add(&wake).map_err(wait)?;
        let mut pages = pages(request.rate);
        let mut counts_lost = true;
        let (mut events, mut rings) = (Vec::new(), Vec::new());
        for cpu in request.cpus.iter().copied() {
            let open = |lost| open(request, pages * rustix::param::page_size() / 4, cpu, lost);
            let event = match open(counts_lost) {
                // Kernels before 6.0 do not know this read format.
                Err(e) if counts_lost && e.raw_os_error() == Some(libc::EINVAL) => {
                    counts_lost = false;
                    open(false)
                }
                other => other,
            };
            let event = event.map_err(|e| refused(Step::Open, cpu, e))?;
            let ring = loop {
                match Ring::map(&event, pages) {
                    Err(e) if e.raw_os_error() == Some(libc::EPERM) && pages > *PAGES.start() => {
                        pages /= 2;
                    }
                    other => break other.map_err(|e| refused(Step::Map, cpu, e))?,
                }
            };
            add(&event).map_err(|e| refused(Step::Wait, cpu, e.into()))?;
            events.push(event);
            rings.push(ring);
        }
        let control = Control { events: Arc::new(events), wake: Arc::new(wake) };
        Ok(Sampler { control, rings, epoll, counts_lost })
    }

    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// Bytes that each ring can hold.
    pub fn ring_size(&self) -> usize {
        self.rings.iter().map(Ring::size).min().unwrap_or_default()
    }

    /// Waits until a ring is a quarter full, [`Control::wake`] is called, or `timeout` has passed.
    pub fn wait(&self, timeout: Duration) -> io::Result<()> {
        let timeout =
            Timespec::try_from(timeout).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
        let nothing =
            epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) };
        let mut ready = [nothing; 8];
        match epoll::wait(&self.epoll, &mut ready, Some(&timeout)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let mut count = [0u8; 8];
        // If `wake` was not called, there is nothing to read.
        let _ = rustix::io::read(&*self.control.wake, &mut count);
        Ok(())
    }

    /// Hands over the whole records of each ring, with the index of its CPU, in one or two pieces,
    /// and frees their space. Allocates nothing.
    pub fn drain(&mut self, mut take: impl FnMut(usize, &[u8], &[u8])) -> Result<(), Malformed> {
        for (index, ring) in self.rings.iter_mut().enumerate() {
            ring.drain(|first, second| take(index, first, second))?;
        }
        Ok(())
    }

    /// Returns the kernel's counts for each CPU's event.
    pub fn tallies(&self) -> io::Result<Vec<Tally>> {
        let lost = |tally: Tally| Tally { lost: tally.lost.filter(|_| self.counts_lost), ..tally };
        self.control.events.iter().map(|event| tally(event.as_fd()).map(lost)).collect()
    }
}

fn pages(rate: Rate) -> usize {
    let per_second = match rate {
        Rate::Frequency(rate) => rate as f64,
        // The rate of a count is unknown; assume the highest permitted sampling rate.
        Rate::Period(_) => 10_000.0,
    };
    let bytes = per_second * RING_SECONDS * LARGEST_SAMPLE as f64;
    let pages = (bytes / rustix::param::page_size() as f64) as usize;
    pages.next_power_of_two().clamp(*PAGES.start(), *PAGES.end())
}

fn open(request: &Request, watermark: usize, cpu: u32, counts_lost: bool) -> io::Result<OwnedFd> {
    let event = &request.event;
    let mut attr = b::perf_event_attr {
        sample_type: (b::PERF_SAMPLE_IP
            | b::PERF_SAMPLE_TID
            | b::PERF_SAMPLE_TIME
            | b::PERF_SAMPLE_CPU
            | b::PERF_SAMPLE_PERIOD
            | b::PERF_SAMPLE_CALLCHAIN)
            .into(),
        read_format: (b::PERF_FORMAT_TOTAL_TIME_ENABLED | b::PERF_FORMAT_TOTAL_TIME_RUNNING).into(),
        // For times that can be compared with those of other meters.
        clockid: libc::CLOCK_MONOTONIC,
        ..event.attributes()
    };
    if counts_lost {
        attr.read_format |= u64::from(b::PERF_FORMAT_LOST);
    }
    match request.rate {
        Rate::Frequency(rate) => {
            attr.set_freq(1);
            attr.__bindgen_anon_1.sample_freq = rate;
        }
        Rate::Period(period) => attr.__bindgen_anon_1.sample_period = period,
    }
    attr.set_watermark(1);
    attr.__bindgen_anon_2.wakeup_watermark = watermark as u32;
    attr.set_disabled(1);
    attr.set_exclude_user(u64::from(!event.user));
    attr.set_exclude_kernel(u64::from(!event.kernel));
    attr.set_precise_ip(event.precise.into());
    attr.set_use_clockid(1);
    attr.set_sample_id_all(1);
    // Names of threads, and files of processes, that start within the window.
    attr.set_comm(1);
    attr.set_comm_exec(1);
    attr.set_mmap(1);
    attr.set_mmap2(1);
    attr.set_task(1);
    super::event::open(attr, Target::Cpu(cpu))
}
