//! `discard`: recv(2) with `MSG_TRUNC`, which on TCP removes bytes from the receive queue and
//! discards them without a copy (tcp(7); `tcp_recvmsg_locked` in net/ipv4/tcp.c). No application
//! sees them: an upper bound for receive paths.

use super::common::{self, LOWAT};
use super::{DataPath, HalfPath, Opened};
use crate::connection::{Connection, Flow};
use crate::workload::{Account, Call, Group, HalfConfig, Recorder, Rx};
use bytepath_record::{Facts, Fault, Manner, Support, Touch};
use bytepath_sys::memory::Region;
use bytepath_sys::tcp;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "discard",
    summary: "recv with MSG_TRUNC: discarded unread in the kernel, an upper bound",
    rx: Some(HalfPath::rx(check, open).with_options(&[LOWAT])),
    ..DataPath::EMPTY
};

fn check(job: &HalfConfig, _: &Facts) -> Support {
    match job.touch {
        Touch::None => super::reads_into_kernel_memory(job, PATH.name)
            .and(super::waits_within_messages(job, job.options.number("lowat"))),
        Touch::Read | Touch::Verify => Support::no(
            "discard drops the bytes in the kernel, so they cannot \
             be read or verified",
            "choose touch=none, or a receiver that delivers them, such as socket",
        ),
    }
}

fn open(job: &HalfConfig, connection: &dyn Connection, _: &Group) -> Opened<dyn Rx> {
    let lowat = job.options.number("lowat").map(|bytes| bytes.min(job.read_size));
    Ok(Box::new(Discarder {
        flow: connection.kernel()?,
        room: super::buffer("the read buffer", job.read_size, false)?,
        lowat,
        calls: 0,
    }))
}

struct Discarder {
    flow: Flow,
    /// Its size limits how much is discarded at once; the kernel writes nothing into it.
    room: Region,
    lowat: Option<u64>,
    calls: u64,
}

const RECV: Call = Call(0, "recv");

impl Rx for Discarder {
    fn begin(&mut self) -> Result<(), Fault> {
        common::set_lowat(&self.flow, self.lowat)
    }

    #[inline]
    fn receive(&mut self, recorder: &mut Recorder) -> Result<bool, Fault> {
        let (fd, room) = (self.flow.fd(), &mut self.room);
        let received = recorder.timed(RECV, || tcp::recv(fd, room, libc::MSG_TRUNC));
        match self.flow.completed("recv with MSG_TRUNC", received)? {
            Some(0) => return self.flow.confirm_end().map(|()| false),
            Some(n) => {
                recorder.moved(n);
                recorder.piece(n);
                self.calls += 1;
            }
            None => {}
        }
        Ok(true)
    }

    fn wait(&mut self, timeout: Duration) -> Option<Result<bool, Fault>> {
        Some(self.flow.wait(timeout))
    }

    fn account(&mut self, recorder: &mut Recorder) -> Result<Account, Fault> {
        let source = "recv(2) with MSG_TRUNC: discarded in the kernel";
        Ok(Account::of(Manner::Discarded, recorder.total(), self.calls, source))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytepath_record::{Cell, Half, Role};

    #[test]
    fn discard_refuses_touch() {
        let cell = Cell::new("a", Half::plain("socket"), Half::plain("discard"));
        let usual = HalfConfig::stream(&cell, Role::Receiver);
        let check = |touch| check(&HalfConfig { touch, ..usual.clone() }, &Facts::default());
        assert!(check(Touch::None).is_yes());
        for touch in [Touch::Read, Touch::Verify] {
            let Support::No { reason, remedy } = check(touch) else { panic!("{touch:?}") };
            assert!(reason.contains("cannot be read or verified"), "{reason}");
            assert!(remedy.contains("touch=none"), "{remedy}");
        }
    }
}
