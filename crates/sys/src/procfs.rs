//! Readers of `/proc`: a file that is read repeatedly, and one small parser per format. Every
//! parser accepts any text and returns a value or an error, and never panics; the formats are those
//! of proc(5) and of the kernel file that each parser names.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file below `/proc`, kept open. Reading it again costs one or two `pread(2)` calls and no path
/// walk, which matters at the edges of a window.
#[derive(Debug)]
pub struct Source {
    file: File,
    buffer: Vec<u8>,
    len: usize,
}

impl Source {
    /// Opens the file; reads nothing yet.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Source { file: File::open(path)?, buffer: vec![0; 4096], len: 0 })
    }

    /// Returns the file's current content. Bytes that are not UTF-8 (a thread may have any name)
    /// are replaced. ESRCH: it belongs to a thread that has ended.
    pub fn read(&mut self) -> io::Result<Cow<'_, str>> {
        self.len = 0;
        loop {
            if self.len == self.buffer.len() {
                self.buffer.resize(self.len * 2, 0);
            }
            match self.file.read_at(&mut self.buffer[self.len..], self.len as u64) {
                Ok(0) => return Ok(String::from_utf8_lossy(&self.buffer[..self.len])),
                Ok(more) => self.len += more,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// Returns the inode numbers of the sockets that a process has open, given its folder; empty if
/// they cannot be read.
pub fn sockets(process: &Path) -> Vec<u64> {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// Returns the name of a process or thread: `DIR/comm` without the line feed, or `None` if it has
/// ended.
pub fn name(dir: &Path) -> Option<String> {
    let bytes = fs::read(dir.join("comm")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// Returns the entries of a folder that are numbers, ascending: processes in `/proc`, threads in
/// `/proc/PID/task`.
pub fn numbered(dir: &Path) -> io::Result<Vec<u32>> {
    let mut ids: Vec<u32> = fs::read_dir(dir)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Returns the ids of those kernel threads that this PID namespace shows: the children of
/// `kthreadd`, process 2. Without `CONFIG_PROC_CHILDREN` these are all processes, so callers still
/// have to check names.
pub fn kernel_threads(proc: &Path) -> Vec<u32> {
    if name(&proc.join("2")).as_deref() != Some("kthreadd") {
        return Vec::new();
    }
    match fs::read_to_string(proc.join("2/task/2/children")) {
        Ok(text) => text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect(),
        Err(_) => numbered(proc).unwrap_or_default(),
    }
}

/// Returns the kernel threads whose names fit, as folder below `/proc`, id, and name.
pub fn kernel_threads_named(
    proc: &Path,
    fits: impl Fn(&str) -> bool,
) -> Vec<(PathBuf, u32, String)> {
    let thread = |pid: u32| {
        let dir = proc.join(pid.to_string());
        let name = name(&dir)?;
        fits(&name).then_some((dir, pid, name))
    };
    kernel_threads(proc).into_iter().filter_map(thread).collect()
}

/// Returns the NAPI threads of a device, named `napi/DEVICE-ID` (`napi_kthread_create`,
/// net/core/dev.c). Devices of the same name in other network namespaces cannot be told apart.
pub fn napi_threads(proc: &Path, device: &str) -> Vec<(PathBuf, u32, String)> {
    let prefix = format!("napi/{device}-");
    kernel_threads_named(proc, |name| is_napi_of(name, &prefix))
}

/// Kernels before 5.17 truncate the name to 15 bytes.
fn is_napi_of(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) || (name.len() == 15 && prefix.starts_with(name))
}

/// Ticks per second in which `/proc` counts CPU time (`USER_HZ`, sysconf(3)); not the rate at which
/// the kernel samples.
pub fn user_hz() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// A text that does not have the format of its file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} has an unknown format at '{at}'")]
pub struct Malformed {
    file: &'static str,
    at: String,
}

impl Malformed {
    pub(super) fn new(file: &'static str, at: &str) -> Self {
        Malformed { file, at: at.chars().take(60).collect() }
    }
}

/// Times of one CPU since boot, in ticks of [`user_hz`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTicks {
    /// Number of the CPU.
    pub cpu: u32,
    /// User space, guests included.
    pub user: u64,
    /// User space at lowered priority, guests included.
    pub nice: u64,
    /// Kernel, outside interrupts.
    pub system: u64,
    pub idle: u64,
    /// Idle while a task that last ran here waits for I/O.
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    /// Stolen by the hypervisor.
    pub steal: u64,
}

/// Counts the connections to a local port that wait for the third packet of their handshake: state
/// SYN_RECV in `/proc/net/tcp` or `/proc/net/tcp6` (`get_openreq4`, net/ipv4/tcp_ipv4.c).
pub fn parse_half_open(text: &str, port: u16) -> Result<usize, Malformed> {
    const FILE: &str = "/proc/net/tcp";
    const SYN_RECV: &str = "03";
    let mut count = 0;
    for line in text.lines().skip(1) {
        let wrong = || Malformed::new(FILE, line);
        let mut fields = line.split_ascii_whitespace().skip(1);
        let (_, own) = fields.next().and_then(|at| at.rsplit_once(':')).ok_or_else(wrong)?;
        let own = u16::from_str_radix(own, 16).map_err(|_| wrong())?;
        let state = fields.nth(1).ok_or_else(wrong)?;
        count += usize::from(own == port && state == SYN_RECV);
    }
    Ok(count)
}

/// Parses `/proc/stat` (fs/proc/stat.c): one entry for each online CPU. Columns that an old kernel
/// lacks are zero.
pub fn parse_stat(text: &str) -> Result<Vec<CpuTicks>, Malformed> {
    const FILE: &str = "/proc/stat";
    let mut cpus = Vec::new();
    // The CPU lines come first; the rest grows with the number of interrupts.
    for line in text.lines().take_while(|line| line.starts_with("cpu")) {
        let wrong = || Malformed::new(FILE, line);
        let mut fields = line.split_ascii_whitespace();
        let name = fields.next().unwrap_or_default();
        if name == "cpu" {
            continue;
        }
        let cpu = name["cpu".len()..].parse().map_err(|_| wrong())?;
        let mut ticks = [0u64; 8];
        let mut found = 0;
        for (slot, field) in ticks.iter_mut().zip(fields) {
            *slot = field.parse().map_err(|_| wrong())?;
            found += 1;
        }
        if found < 4 {
            return Err(wrong());
        }
        let [user, nice, system, idle, iowait, irq, softirq, steal] = ticks;
        cpus.push(CpuTicks { cpu, user, nice, system, idle, iowait, irq, softirq, steal });
    }
    if cpus.is_empty() { Err(Malformed::new(FILE, first_line(text))) } else { Ok(cpus) }
}

/// Run time of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedStat {
    /// Time on a CPU in ns, up to the last tick or switch.
    pub run: u64,
    /// Time it was runnable and waited for a CPU, in ns.
    pub wait: u64,
    /// Times it was scheduled on a CPU.
    pub slices: u64,
}

/// Parses `/proc/PID/task/TID/schedstat` (`proc_pid_schedstat`, fs/proc/base.c). Some kernels print
/// three zeros if scheduler statistics are off.
pub fn parse_schedstat(text: &str) -> Result<SchedStat, Malformed> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(Ok(run)), Some(Ok(wait)), Some(Ok(slices))) => Ok(SchedStat { run, wait, slices }),
        _ => Err(Malformed::new("schedstat", first_line(text))),
    }
}

/// The fields of `/proc/PID/task/TID/stat` that are used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// Process or thread id.
    pub id: u32,
    /// Name, without the parentheses around it.
    pub comm: &'a str,
    /// R, S, D, T, ..., or Z if it has ended and was not waited for (proc_pid_stat(5)).
    pub state: char,
    /// Id of the parent process.
    pub parent: u32,
    /// User time in ticks of [`user_hz`].
    pub user: u64,
    /// System time in ticks of [`user_hz`].
    pub system: u64,
    /// Start time in ticks of [`user_hz`] after boot: distinguishes a thread from a later one with
    /// the same id.
    pub started: u64,
    /// The CPU it is running on or last ran on; `None` if the line ends before that field.
    pub cpu: Option<u32>,
}

/// Parses `/proc/PID/task/TID/stat` (`do_task_stat`, fs/proc/array.c). The name may contain blanks,
/// parentheses and line feeds, so it ends at the last `)`.
pub fn parse_task_stat(text: &str) -> Result<TaskStat<'_>, Malformed> {
    let parse = || {
        let (head, tail) = text.rsplit_once(')')?;
        let (id, comm) = head.split_once('(')?;
        // The tail begins with field 3.
        let mut fields = tail.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let parent = fields.next()?.parse().ok()?;
        let user = fields.nth(14 - 5)?.parse().ok()?;
        let system = fields.next()?.parse().ok()?;
        let started = fields.nth(22 - 16)?.parse().ok()?;
        let cpu = fields.nth(39 - 23).and_then(|cpu| cpu.parse().ok());
        let id = id.trim().parse().ok()?;
        Some(TaskStat { id, comm, state, parent, user, system, started, cpu })
    };
    parse().ok_or_else(|| Malformed::new("task stat", first_line(text)))
}

/// Context switches of one thread since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Switches {
    /// Switches because it waited for something.
    pub voluntary: u64,
    /// Switches because it was preempted.
    pub involuntary: u64,
}

/// Parses the last two lines of `/proc/PID/task/TID/status` (fs/proc/array.c).
pub fn parse_status_switches(text: &str) -> Result<Switches, Malformed> {
    let value = |key: &str| {
        // From the end: the name in the first line may contain anything.
        text.lines().rev().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    match (value("voluntary_ctxt_switches:"), value("nonvoluntary_ctxt_switches:")) {
        (Some(voluntary), Some(involuntary)) => Ok(Switches { voluntary, involuntary }),
        _ => Err(Malformed::new("task status", text.lines().last().unwrap_or_default())),
    }
}

/// Counts of network softirqs on one CPU since boot. The kernel's counters are 32 bits wide and
/// wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftirqRow {
    pub cpu: u32,
    /// Runs of NET_TX.
    pub net_tx: u32,
    /// Runs of NET_RX.
    pub net_rx: u32,
}

/// Parses `/proc/softirqs` (`show_softirqs`, fs/proc/softirqs.c): a line with the names of all
/// possible CPUs, then a line per softirq with a count for each CPU.
pub fn parse_softirqs(text: &str) -> Result<Vec<SoftirqRow>, Malformed> {
    let counts = |name: &str| -> Option<Vec<u32>> {
        let line = text.lines().find_map(|line| line.trim_start().strip_prefix(name))?;
        line.split_ascii_whitespace().map(|count| count.parse().ok()).collect()
    };
    let rows = || -> Option<Vec<SoftirqRow>> {
        let head = text.lines().next()?.split_ascii_whitespace();
        let cpus: Option<Vec<u32>> =
            head.map(|cpu| cpu.strip_prefix("CPU")?.parse().ok()).collect();
        let (cpus, tx, rx) = (cpus?, counts("NET_TX:")?, counts("NET_RX:")?);
        let complete = tx.len() == cpus.len() && rx.len() == cpus.len();
        let each = cpus.into_iter().zip(tx).zip(rx);
        complete
            .then(|| each.map(|((cpu, net_tx), net_rx)| SoftirqRow { cpu, net_tx, net_rx }))
            .map(Iterator::collect)
    };
    rows().ok_or_else(|| Malformed::new("/proc/softirqs", first_line(text)))
}

/// Receive processing on one CPU since boot. The kernel's counters are 32 bits wide and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftnetRow {
    /// The CPU; `None` if the kernel does not report it (before Linux 5.10).
    pub cpu: Option<u32>,
    /// Packets taken from devices; packets merged by GRO count as one.
    pub processed: u32,
    /// Packets dropped because the backlog was full.
    pub dropped: u32,
    /// Times the softirq ended with work left, out of budget or time.
    pub squeezed: u32,
    /// Times another CPU made this one process packets (RPS).
    pub received_rps: u32,
}

/// Parses `/proc/net/softnet_stat` (`softnet_seq_show`, net/core/net-procfs.c): one row for each
/// online CPU, hexadecimal. Rows had 9 columns at first, 10 with RPS (2.6.35), 11 (3.11), 13 with
/// the CPU in the last (5.10), 15 since.
pub fn parse_softnet(text: &str) -> Result<Vec<SoftnetRow>, Malformed> {
    let row = |line: &str| {
        let mut columns = [0u32; 13];
        let mut found = 0;
        for (slot, field) in columns.iter_mut().zip(line.split_ascii_whitespace()) {
            *slot = u32::from_str_radix(field, 16).ok()?;
            found += 1;
        }
        (found >= 3).then_some(SoftnetRow {
            cpu: (found == 13).then_some(columns[12]),
            processed: columns[0],
            dropped: columns[1],
            squeezed: columns[2],
            received_rps: columns[9],
        })
    };
    text.lines()
        .map(|line| row(line).ok_or_else(|| Malformed::new("/proc/net/softnet_stat", line)))
        .collect()
}

/// Counters of one network device since it was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetDev<'a> {
    /// Name of the device.
    pub name: &'a str,
    pub rx: LinkCounts,
    pub tx: LinkCounts,
}

/// Counters of one direction of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    /// Bytes, link-layer headers included.
    pub bytes: u64,
    /// Packets as counted by the driver: before GRO; a packet that the device itself segments (TSO)
    /// may count as one.
    pub packets: u64,
    /// Packets with errors.
    pub errors: u64,
    /// Packets dropped by the device or driver (on receive, including missed ones).
    pub dropped: u64,
}

/// Parses `/proc/PID/net/dev` (`dev_seq_printf_stats`, net/core/net-procfs.c): the devices of that
/// process's network namespace.
pub fn parse_net_dev(text: &str) -> Result<Vec<NetDev<'_>>, Malformed> {
    fn device(line: &str) -> Option<NetDev<'_>> {
        // There may be no blank after the colon, and the name of an alias contains a colon.
        let (name, counters) = line.rsplit_once(':')?;
        let mut values = [0u64; 16];
        let mut fields = counters.split_ascii_whitespace();
        for slot in &mut values {
            *slot = fields.next()?.parse().ok()?;
        }
        let counts = |at: usize| LinkCounts {
            bytes: values[at],
            packets: values[at + 1],
            errors: values[at + 2],
            dropped: values[at + 3],
        };
        Some(NetDev { name: name.trim(), rx: counts(0), tx: counts(8) })
    }
    text.lines()
        .skip(2)
        .map(|line| device(line).ok_or_else(|| Malformed::new("net/dev", line)))
        .collect()
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_of_a_kernel_without_steal() {
        let text = "cpu  1 2 3 4 5 6 7\ncpu0 1 2 3 4 5 6 7\ncpu12 1 0 0 9\nintr 5 cpu9\n";
        let cpus = parse_stat(text).unwrap();
        let first = CpuTicks {
            cpu: 0,
            user: 1,
            nice: 2,
            system: 3,
            idle: 4,
            iowait: 5,
            irq: 6,
            softirq: 7,
            steal: 0,
        };
        assert_eq!(cpus, [first, CpuTicks { cpu: 12, user: 1, idle: 9, ..CpuTicks::default() }]);
    }

    #[test]
    fn stat_that_is_none_is_an_error() {
        for text in ["", "intr 1\n", "cpu 1 2 3 4\n", "cpuX 1 2 3 4", "cpu0 1 2 3", "cpu0 1 2 -3 4"]
        {
            assert!(parse_stat(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_thread_may_be_called_anything() {
        let text = "7 (a) S 1 (b) c) R 1 1 1 0 -1 64 5 0 0 0 42 43 3 2 20 0 4 0 999 1 1\n";
        let stat = parse_task_stat(text).unwrap();
        let comm = "a) S 1 (b) c";
        let expected = TaskStat {
            id: 7,
            comm,
            state: 'R',
            parent: 1,
            user: 42,
            system: 43,
            started: 999,
            cpu: None,
        };
        assert_eq!(stat, expected);
        // Fields 25 to 38, then the CPU.
        let long = format!("{} {} 3 0 0\n", text.trim_end(), "9 ".repeat(14).trim_end());
        assert_eq!(parse_task_stat(&long).unwrap(), TaskStat { cpu: Some(3), ..expected });
        for text in
            ["", "7 (a", "7 a) R", ")(", "7 (a) R 1 2 3", "x (a) R 1 1 1 0 -1 64 5 0 0 0 1 1"]
        {
            assert!(parse_task_stat(text).is_err(), "{text}");
        }
    }

    #[test]
    fn schedstat() {
        let expected = SchedStat { run: 35_540_549, wait: 98_286_010, slices: 1141 };
        assert_eq!(parse_schedstat("35540549 98286010 1141\n"), Ok(expected));
        assert!(parse_schedstat("1 2\n").is_err());
        assert!(parse_schedstat("1 2 99999999999999999999").is_err());
    }

    #[test]
    fn switches_are_not_taken_from_the_name() {
        let text = "Name:\tvoluntary_ctxt_switches:\t9\nvoluntary_ctxt_switches:\t5\n\
                    nonvoluntary_ctxt_switches:\t6\n";
        assert_eq!(parse_status_switches(text), Ok(Switches { voluntary: 5, involuntary: 6 }));
        assert!(parse_status_switches("Name:\tx\nvoluntary_ctxt_switches:\t5\n").is_err());
    }

    #[test]
    fn softnet_of_every_age() {
        let columns = |n: usize| (1..=n).map(|i| format!("{i:08x} ")).collect::<String>() + "\n";
        let row = SoftnetRow { cpu: None, processed: 1, dropped: 2, squeezed: 3, received_rps: 0 };
        assert_eq!(parse_softnet(&columns(9)), Ok(vec![row]));
        let row = SoftnetRow { received_rps: 10, ..row };
        assert_eq!(parse_softnet(&columns(10)), Ok(vec![row]));
        assert_eq!(parse_softnet(&columns(11)), Ok(vec![row]));
        let row = SoftnetRow { cpu: Some(13), ..row };
        assert_eq!(parse_softnet(&columns(13)), Ok(vec![row]));
        assert_eq!(parse_softnet(&columns(15)), Ok(vec![row]));
        assert!(parse_softnet("00000001 0000000g 00000000\n").is_err());
        assert!(parse_softnet("00000001 00000002\n").is_err());
    }

    #[test]
    fn net_dev_without_a_blank_after_the_colon() {
        let text = "Inter-|\n face |\n  eth0:1 2 3 4 0 0 0 0 5 6 7 8 0 0 0 0\n eth0:1: 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
        let devices = parse_net_dev(text).unwrap();
        let rx = LinkCounts { bytes: 1, packets: 2, errors: 3, dropped: 4 };
        let tx = LinkCounts { bytes: 5, packets: 6, errors: 7, dropped: 8 };
        assert_eq!(devices[0], NetDev { name: "eth0", rx, tx });
        assert_eq!((devices[1].name, devices[1].rx.bytes), ("eth0:1", 9));
        assert!(parse_net_dev("h\nh\neth0: 1 2 3\n").is_err());
        assert_eq!(parse_net_dev(""), Ok(vec![]));
    }

    #[test]
    fn errors_quote_little() {
        let error = parse_schedstat(&"é".repeat(5000)).unwrap_err().to_string();
        assert!(error.chars().count() < 120, "{error}");
    }

    #[test]
    fn a_source_reads_what_the_file_says_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("file");
        fs::write(&path, "x".repeat(10_000)).unwrap();
        let mut source = Source::open(&path).unwrap();
        assert_eq!(source.read().unwrap().len(), 10_000);
        fs::write(&path, b"a\xffb").unwrap();
        assert_eq!(source.read().unwrap(), "a\u{fffd}b");
    }

    #[test]
    fn half_open_connections_of_a_port() {
        // A constructed example: a listener, an open request at port 5001 and one at 5002.
        let text = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when\n   \
                    0: 0200090A:1389 00000000:0000 0A 00000000:00000000 00:00000000\n   \
                    1: 0200090A:1389 0100090A:D431 03 00000000:00000000 01:00000063\n   \
                    2: 0200090A:138A 0100090A:D432 03 00000000:00000000 01:00000063\n";
        assert_eq!(parse_half_open(text, 5001), Ok(1));
        assert_eq!(parse_half_open(text, 80), Ok(0));
        assert!(parse_half_open("sl\n 0: 0200090A 0100090A:D431 03\n", 80).is_err());
        let real = fs::read_to_string("/proc/net/tcp").unwrap();
        parse_half_open(&real, 80).unwrap();
    }

    #[test]
    fn napi_threads_go_by_the_whole_device_name() {
        assert!(is_napi_of("napi/veth0-8193", "napi/veth0-"));
        assert!(!is_napi_of("napi/veth01-8193", "napi/veth0-"));
        assert!(!is_napi_of("napi/veth0", "napi/veth0-"));
        // "napi/bytepath-rx0-12" as truncated by an older kernel.
        assert!(is_napi_of("napi/bytepath-r", "napi/bytepath-rx0-"));
    }

    #[test]
    fn softirqs_by_cpu() {
        let text = "                    CPU0       CPU3       \n          HI:          0          1\n      \
                    NET_TX:         12          0\n      NET_RX:     914082 4294967295\n";
        let row = |cpu, net_tx, net_rx| SoftirqRow { cpu, net_tx, net_rx };
        assert_eq!(parse_softirqs(text).unwrap(), [row(0, 12, 914_082), row(3, 0, u32::MAX)]);
        let cut = text.replace(" 4294967295", "");
        for wrong in ["", "CPU0\n", "CPUx\nNET_TX: 1\nNET_RX: 1\n", cut.as_str()] {
            let error = parse_softirqs(wrong).unwrap_err().to_string();
            assert!(error.contains("/proc/softirqs"), "{error}");
        }
    }
}
