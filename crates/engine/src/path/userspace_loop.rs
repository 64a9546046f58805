//! `userspace-loop`: an event loop over the TCP stack in this process; one thread drives all its
//! connections. Data to send is copied into the connection's buffer, from which the stack sends;
//! received data is copied out of it. No call waits for a connection: the thread sleeps until the
//! packet socket has a frame, or keeps polling.

use super::common::ReadBuffer;
use super::event_loop::{self, Counts, Output, THREADS, TURN};
use super::turns::{self, POLL, STACK};
use super::{DataPath, HalfPath, Opened, common, refuse_if};
use crate::connection::userspace::{Hold, OPTIONS as STACK_OPTIONS, Received};
use crate::connection::{Connection, USERSPACE_TCP};
use crate::workload::{Account, ENDLESS, EventLoop, Group, HalfConfig, Recorder, Service, Toucher};
use bytepath_record::{Facts, Fault, OptionSpec, Role, Scope, Support};
use bytepath_sys::memory::Region;
use std::sync::Arc;
use std::time::Duration;

pub(super) static PATH: DataPath = DataPath {
    name: "userspace-loop",
    summary: "an event loop: many connections of a TCP stack in this process, by one thread",
    tx: Some(
        HalfPath::tx(check, event_loop::open_half).with_options(&OPTIONS).over(&[USERSPACE_TCP]),
    ),
    rx: Some(
        HalfPath::rx(check, event_loop::open_half).with_options(&OPTIONS).over(&[USERSPACE_TCP]),
    ),
    event_loop: Some(open),
    ..DataPath::EMPTY
};

const OPTIONS: [OptionSpec; STACK_OPTIONS.len() + 1] = {
    let mut all = [THREADS; STACK_OPTIONS.len() + 1];
    all.split_at_mut(1).1.copy_from_slice(STACK_OPTIONS);
    all
};

fn check(job: &HalfConfig, facts: &Facts) -> Support {
    let several = job.options.number(THREADS.name).is_some_and(|threads| threads > 1);
    refuse_if(
        several,
        "all connections are those of one stack, which one thread polls",
        "choose threads=1",
    )
    .and(refuse_if(
        job.passing.is_some(),
        "the connections of the user-space TCP are made once, before the trial",
        "choose --workload rr, or an event loop over the kernel's TCP, such as epoll",
    ))
    .and(event_loop::check(job, facts))
}

fn open(
    [send, receive]: [&HalfConfig; 2],
    connections: &[Arc<dyn Connection>],
    _: &Group,
) -> Opened<dyn EventLoop> {
    let hold = |connection: &Arc<dyn Connection>| turns::hold(send, connection.as_ref());
    let holds: Vec<Hold> = connections.iter().map(hold).collect::<Result<_, _>>()?;
    let most = holds.iter().map(|hold| hold.place + 1).max().unwrap_or(0);
    let mut numbers = vec![u32::MAX; most];
    (0..).zip(&holds).for_each(|(number, hold)| numbers[hold.place] = number);
    Ok(Box::new(StackLoop {
        role: send.role,
        lines: vec![Line::default(); holds.len()].into(),
        holds: holds.into(),
        numbers: numbers.into(),
        message: common::message(send.message_size, false)?,
        buffer: ReadBuffer::of(receive)?,
        toucher: Toucher::new(receive.touch, receive.message_size),
        counts: Counts::default(),
    }))
}

struct StackLoop {
    role: Role,
    /// The connections, which share one stack; calls to the stack go through the first.
    holds: Box<[Hold]>,
    /// Index of each connection, by its place in the stack.
    numbers: Box<[u32]>,
    lines: Box<[Line]>,
    message: Region,
    buffer: ReadBuffer,
    toucher: Toucher,
    counts: Counts,
}

/// The loop's state of a connection.
#[derive(Clone, Copy, Default)]
struct Line {
    output: Output,
    /// Whether its end was reported to the service.
    over: bool,
}

impl StackLoop {
    fn first(&self) -> Result<&Hold, Fault> {
        self.holds.first().ok_or_else(|| {
            Fault::failed("an event loop without a connection").remedy("report this as a bug")
        })
    }

    /// Schedules a connection for the next turn.
    fn reschedule(&self, number: usize) {
        let hold = &self.holds[number];
        hold.stack().look_at(hold.place);
    }

    /// Copies to the stack as much as it has room for, within the connection's turn.
    #[inline]
    fn flush(
        &mut self,
        number: usize,
        mut service: Option<&mut dyn Service>,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let (hold, output) = (&self.holds[number], &mut self.lines[number].output);
        let mut turn = if output.is_endless() { TURN } else { usize::MAX };
        while output.left > 0 {
            if turn == 0 {
                self.reschedule(number);
                return Ok(());
            }
            let part = &self.message[output.part(self.message.len())];
            let part = &part[..part.len().min(turn)];
            let sent = hold.stack().send(hold.place, part).ok_or_else(|| hold.cut_off())?;
            if sent > 0 {
                recorder.moved(sent);
                self.counts.sent.enter(sent);
                output.sent(sent, self.message.len());
                turn -= sent;
                if let Some(service) = &mut service {
                    service.sent(number, sent as u64);
                }
            }
            if sent < part.len() {
                // Acknowledgements make room and schedule the connection again.
                self.counts.full += 1;
                return Ok(());
            }
        }
        Ok(())
    }

    /// Receives what is queued, within the connection's turn.
    fn receive(
        &mut self,
        number: usize,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        let mut turn = 0;
        while turn < TURN {
            let hold = &self.holds[number];
            let room = self.buffer.room();
            let bytes = match hold.stack().receive(hold.place, room) {
                Received::Bytes(0) => return Ok(()),
                Received::Bytes(bytes) => bytes,
                Received::End => {
                    let output = &mut self.lines[number].output;
                    output.ended = true;
                    output.left = if output.is_endless() { 0 } else { output.left };
                    return Ok(());
                }
                Received::Cut => return Err(hold.cut_off()),
            };
            self.toucher.deliver(&room[..bytes], bytes, recorder)?;
            self.counts.received.enter(bytes);
            turn += bytes;
            self.buffer.advance();
            let answer = service.received(number, bytes as u64);
            if answer > 0 {
                self.lines[number].output.left += answer;
                self.flush(number, Some(&mut *service), recorder)?;
            }
        }
        self.reschedule(number);
        Ok(())
    }

    /// Serves a connection that has events.
    fn serve(
        &mut self,
        number: usize,
        service: &mut dyn Service,
        recorder: &mut Recorder,
    ) -> Result<(), Fault> {
        if self.lines[number].over {
            return Ok(());
        }
        self.flush(number, Some(&mut *service), recorder)?;
        if !self.lines[number].output.ended {
            self.receive(number, service, recorder)?;
        }
        let Output { left, ended, .. } = self.lines[number].output;
        let hold = &self.holds[number];
        // In LAST-ACK, smoltcp (0.14) overlooks a window that opens: data that waits for one would
        // wait for window probes, so this end's stream does not end before that data is
        // acknowledged.
        if ended && left == 0 && hold.stack().unacknowledged(hold.place) == 0 {
            self.lines[number].over = true;
            return service.ended(number);
        }
        Ok(())
    }
}

impl EventLoop for StackLoop {
    fn witness(&mut self) -> Result<(), Fault> {
        turns::witness(self.first()?)
    }

    fn begin(&mut self) -> Result<(), Fault> {
        // Data that arrived earlier is not reported again.
        (0..self.holds.len()).for_each(|number| self.reschedule(number));
        self.holds.first_mut().into_iter().for_each(Hold::attend);
        Ok(())
    }

    #[inline]
    fn send(&mut self, number: usize, bytes: u64, recorder: &mut Recorder) -> Result<(), Fault> {
        self.lines[number].output.left += bytes;
        self.flush(number, None, recorder)
    }

    fn stream(&mut self, number: usize) -> Result<(), Fault> {
        self.lines[number].output.left = ENDLESS;
        self.reschedule(number);
        Ok(())
    }

    fn stop(&mut self) -> Result<bool, Fault> {
        let endless = self.lines.iter_mut().filter(|line| line.output.is_endless());
        endless.for_each(|line| line.output.left = 0);
        Ok(true)
    }

    fn turn(
        &mut self,
        service: &mut dyn Service,
        recorder: &mut Recorder,
        limit: Option<Duration>,
    ) -> Result<(), Fault> {
        let hold = self.first()?;
        let arrived = recorder.timed_with(STACK, || hold.stack().take_in(), |_| 0);
        let arrived = arrived.map_err(|e| hold.fault(&e))?;
        if arrived > 0 {
            self.counts.waits += 1;
            self.counts.events += arrived as u64;
        }
        // Connections scheduled again have their next turn after the others.
        for _ in 0..arrived {
            let Some(place) = self.first()?.stack().next_arrived() else { break };
            let Some(number) = self.numbers.get(place).filter(|number| **number != u32::MAX) else {
                continue;
            };
            // Serving all of them may take long.
            recorder.phase();
            self.serve(*number as usize, service, recorder)?;
        }
        let hold = self.first()?;
        let sent = recorder.timed_with(STACK, || hold.stack().send_out(), |()| 0);
        sent.map_err(|e| hold.fault(&e))?;
        if arrived == 0 && !hold.spins {
            let limit = limit.unwrap_or(Duration::MAX);
            recorder.timed_with(POLL, || hold.wait(limit), |_| 0)?;
        }
        Ok(())
    }

    fn account(&mut self) -> Result<Account, Fault> {
        let hold = self.first()?;
        let memory = self.message.len() + self.buffer.len() + hold.stack().memory();
        let each = size_of::<Hold>() + size_of::<Line>() + size_of::<u32>();
        let memory = memory + self.holds.len() * each;
        let sources = [
            "copied to the user-space TCP's buffer, and twice more on output",
            "copied from the user-space TCP's buffer, and twice before on input",
        ];
        let mut account = self.counts.account(self.role, sources, [self.holds.len(), memory]);
        turns::enter_counts(&mut account, hold, &Scope::Role(self.role))?;
        Ok(account)
    }
}
