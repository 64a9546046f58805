//! Counts of the followed threads, as read from the maps.

use super::layout::{self, WAYS, long, row, socket, thread, word};

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Observations {
    /// One entry for each thread and call.
    pub rows: Vec<Row>,
    pub threads: Vec<Thread>,
    /// Sockets that carried bytes.
    pub sockets: Vec<Socket>,
    /// Calls that were not counted for lack of room.
    pub lost_calls: u64,
    /// How often the kernel did not run the counting programs, for any thread of the machine.
    pub missed_runs: u64,
    /// Threads that were not followed.
    pub lost_threads: u64,
    /// Calls on new sockets for which there was no room; their bytes are missing.
    pub lost_sockets: u64,
    /// Bytes that the kernel's copy functions copied: to the program, from it.
    pub copies: Option<(u64, u64)>,
}

/// All calls of one number by one thread. Times in nanoseconds.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Row {
    pub tid: u32,
    /// Number of the call.
    pub number: u32,
    /// Calls that have returned.
    pub calls: u64,
    /// Calls that returned an error.
    pub errors: u64,
    /// Total duration.
    pub total: u64,
    pub min: u64,
    pub max: u64,
    /// Sum of the squares of the durations.
    pub squares: f64,
    /// Bytes they moved.
    pub bytes: u64,
    /// Number of calls that took 2^i to 2^(i+1).
    pub histogram: [u64; row::BUCKETS],
}

/// A thread. Times in nanoseconds; points in time are of the monotonic clock.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Thread {
    pub tid: u32,
    /// The process it belongs to; 0 if unknown.
    pub process: u32,
    /// The thread that created it; 0 if unknown.
    pub parent: u32,
    /// Whether it has ended.
    pub ended: bool,
    /// CPU time at its end, if the kernel reported it.
    pub used: Option<Used>,
    pub name: String,
}

/// Resources that a thread has used since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Used {
    /// User time by ticks, nanoseconds.
    pub user: u64,
    /// System time by ticks, nanoseconds.
    pub system: u64,
    /// Time on a CPU, nanoseconds.
    pub run: u64,
    /// Time it waited for a CPU, nanoseconds.
    pub wait: u64,
    pub voluntary: u64,
    pub involuntary: u64,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Socket {
    pub key: u64,
    /// Address family, as `AF_*`.
    pub family: u16,
    /// Protocol, as `IPPROTO_*`.
    pub protocol: u16,
    /// Own address and port.
    pub local: ([u8; 16], u16),
    pub remote: ([u8; 16], u16),
    /// The process that used it first.
    pub process: u32,
    /// Bytes by way.
    pub bytes: [u64; WAYS],
    pub calls: [u64; WAYS],
    /// Index of further counts; 0 if there are none.
    pub slot: u32,
    /// Whether the program has mapped it.
    pub mapped: bool,
}

impl Row {
    /// Decodes an entry of the map.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Row {
        let at = |offset| long(value, offset);
        let unit = layout::row::LONG_UNIT as f64;
        Row {
            tid: word(key, 0),
            number: word(key, 4),
            calls: at(row::CALLS),
            errors: at(row::ERRORS),
            total: at(row::TOTAL),
            min: at(row::MIN),
            max: at(row::MAX),
            squares: at(row::SQUARES) as f64 + at(row::LONG_SQUARES) as f64 * unit * unit,
            bytes: at(row::BYTES),
            histogram: layout::longs(value, row::HISTOGRAM),
        }
    }

    /// Decodes a row that has an index, and therefore contains its key.
    pub(crate) fn decode_slot(value: &[u8]) -> Row {
        Row::decode(value.get(row::KEY as usize..).unwrap_or_default(), value)
    }

    /// Merges rows to one per thread and call: a thread has several rows of one call if it called
    /// execve, or if its id was used before.
    pub(crate) fn merged(mut rows: Vec<Row>) -> Vec<Row> {
        // A row that was just created has no call yet, and maybe no key.
        rows.retain(|row| row.calls > 0);
        rows.sort_unstable_by_key(|row| (row.tid, row.number));
        rows.dedup_by(|row, before| {
            let is_same = (row.tid, row.number) == (before.tid, before.number);
            if is_same {
                before.merge(row);
            }
            is_same
        });
        rows
    }

    fn merge(&mut self, other: &Row) {
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.squares += other.squares;
        for (count, more) in [
            (&mut self.calls, other.calls),
            (&mut self.errors, other.errors),
            (&mut self.total, other.total),
            (&mut self.bytes, other.bytes),
        ] {
            *count = count.saturating_add(more);
        }
        for (count, more) in self.histogram.iter_mut().zip(other.histogram) {
            *count = count.saturating_add(more);
        }
    }

    /// Returns the standard deviation of the mean relative to the mean, as in `perf trace -s`;
    /// `None` for fewer than two calls or a total of zero.
    pub(crate) fn relative_deviation(&self) -> Option<f64> {
        let (n, total) = (self.calls as f64, self.total as f64);
        if self.calls < 2 || self.total == 0 {
            return None;
        }
        // Rounding may make it slightly negative.
        let variance = ((self.squares - total * total / n) / (n - 1.0)).max(0.0);
        Some((variance / n).sqrt() / (total / n))
    }
}

impl Thread {
    /// Decodes an entry of the map.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Thread {
        let name = thread::NAME as usize..thread::WAIT as usize;
        let name = value.get(name).unwrap_or_default();
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(name.len());
        let ended = long(value, thread::END) != 0;
        let at = |offset| long(value, offset);
        let used = Used {
            user: at(thread::USER),
            system: at(thread::SYSTEM),
            run: at(thread::RUN),
            wait: at(thread::WAIT),
            voluntary: at(thread::VOLUNTARY),
            involuntary: at(thread::INVOLUNTARY),
        };
        Thread {
            tid: word(key, 0),
            process: word(value, thread::PROCESS),
            parent: word(value, thread::PARENT),
            ended,
            used: ended.then_some(used),
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
        }
    }
}

impl Socket {
    /// Decodes an entry of the map.
    pub(crate) fn decode(key: &[u8], value: &[u8]) -> Socket {
        let family = layout::half(value, socket::FAMILY);
        let address = |v4: i16, v6: i16| {
            let mut address = [0; 16];
            let (at, length) = if i32::from(family) == libc::AF_INET6 { (v6, 16) } else { (v4, 4) };
            let bytes = value.get(at as usize..at as usize + length).unwrap_or_default();
            address[..bytes.len()].copy_from_slice(bytes);
            address
        };
        let port = |at| layout::half(value, at);
        Socket {
            key: long(key, 0),
            family,
            protocol: layout::half(value, socket::PROTOCOL),
            local: (address(socket::LOCAL, socket::LOCAL6), port(socket::LOCAL_PORT)),
            remote: (
                address(socket::REMOTE, socket::REMOTE6),
                u16::from_be(port(socket::REMOTE_PORT)),
            ),
            process: word(value, socket::PROCESS),
            bytes: layout::longs(value, socket::BYTES),
            calls: layout::longs(value, socket::CALLS),
            slot: word(value, socket::SLOT),
            mapped: word(value, socket::MAPPED) != 0,
        }
    }

    /// Adds the counts that are found by index.
    pub(crate) fn add_slot(&mut self, value: &[u8]) {
        for (counts, begin) in [(&mut self.bytes, 0), (&mut self.calls, socket::SLOT_CALLS)] {
            for (count, more) in counts.iter_mut().zip(layout::longs::<WAYS>(value, begin)) {
                *count = count.saturating_add(more);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    impl Row {
        /// A row without calls.
        fn new(tid: u32, number: u32) -> Row {
            Row::decode(&[tid.to_ne_bytes(), number.to_ne_bytes()].concat(), &[])
        }

        /// Adds a call: its duration in nanoseconds, whether it failed, and the bytes it moved.
        fn add(&mut self, duration: u64, failed: bool, bytes: u64) {
            self.min = if self.calls == 0 { duration } else { self.min.min(duration) };
            self.max = self.max.max(duration);
            self.calls += 1;
            self.errors += u64::from(failed);
            self.total = self.total.saturating_add(duration);
            self.squares += (duration as f64).powi(2);
            self.bytes = self.bytes.saturating_add(bytes);
            let bucket = (duration.max(1).ilog2() as usize).min(row::BUCKETS - 1);
            self.histogram[bucket] += 1;
        }
    }

    #[test]
    fn deviation_is_that_of_the_mean() {
        let mut row = Row::new(1, 0);
        assert_eq!(row.relative_deviation(), None);
        for duration in [100, 200, 300, 400] {
            row.add(duration, false, 10);
        }
        // Variance 16666.7, of the mean 4166.7, its root 64.55; the mean is 250.
        let deviation = row.relative_deviation().unwrap();
        assert!((deviation - 0.258_199).abs() < 1e-6, "{deviation}");
        assert_eq!((row.calls, row.total, row.min, row.max, row.bytes), (4, 1000, 100, 400, 40));
    }

    #[test]
    fn long_calls_are_squared_in_their_own_unit() {
        let mut value = vec![0; row::SIZE];
        let mut put = |at: i16, number: u64| {
            value[at as usize..at as usize + 8].copy_from_slice(&number.to_ne_bytes());
        };
        put(row::CALLS, 2);
        put(row::TOTAL, 2 << 30);
        put(row::LONG_SQUARES, 2 << 40);
        let row = Row::decode(&[0; 8], &value);
        assert_eq!(row.relative_deviation(), Some(0.0), "two calls of one duration");
    }

    #[test]
    fn rows_of_one_thread_and_call_become_one() {
        let mut rows = [Row::new(1, 0), Row::new(1, 0), Row::new(1, 7), Row::new(2, 0)];
        rows[0].add(100, false, 10);
        rows[1].add(50, true, 0);
        rows[1].add(400, false, 5);
        rows[2].add(1, false, 1);
        let mut together = Row::new(1, 0);
        for (duration, failed, bytes) in [(100, false, 10), (50, true, 0), (400, false, 5)] {
            together.add(duration, failed, bytes);
        }
        // The last has no call, so it is dropped.
        assert_eq!(Row::merged(rows.to_vec()), [together, rows[2].clone()]);
    }

    #[test]
    fn counts_of_a_socket_are_those_of_its_entry_and_its_slot() {
        let mut socket = Socket::default();
        socket.bytes[2] = 5;
        let slot: Vec<u8> = (0..16u64).flat_map(u64::to_ne_bytes).collect();
        socket.add_slot(&slot);
        assert_eq!((socket.bytes[2], socket.bytes[7]), (7, 7));
        assert_eq!((socket.calls[0], socket.calls[7]), (8, 15));
    }

    proptest! {
        #[test]
        fn rows_are_in_order(durations in prop::collection::vec(0u64..1 << 50, 1..50)) {
            let mut row = Row::new(1, 2);
            durations.iter().for_each(|d| row.add(*d, false, 0));
            let mean = row.total as f64 / row.calls as f64;
            prop_assert!(row.min as f64 <= mean && mean <= row.max as f64);
            prop_assert_eq!(row.histogram.iter().sum::<u64>(), row.calls);
            prop_assert!(row.relative_deviation().is_none_or(|d| d >= 0.0));
        }

        #[test]
        fn no_entry_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            Row::decode(&bytes, &bytes);
            Row::decode_slot(&bytes);
            Thread::decode(&bytes, &bytes);
            Socket::decode(&bytes, &bytes);
        }
    }
}
