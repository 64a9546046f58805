//! Readers of `/proc`: a file that is read repeatedly, and one small
//! parser a format. Every parser takes any text and gives a value or an error,
//! never a panic; formats are those of proc(5) and of the kernel file each
//! parser names.

use std::borrow::Cow;
use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// A file below `/proc`, held open. Reading it again costs one or two
/// `pread(2)` and no path walk, which matters at the edges of a window.
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

    /// What the file says now. Bytes that are not UTF-8 (a thread may be called
    /// anything) are replaced. The file of a thread that has ended gives ESRCH.
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

/// Inode numbers of the sockets that a process has open, by its folder; empty if they
/// cannot be read.
pub fn sockets(process: &Path) -> Vec<u64> {
    let files = fs::read_dir(process.join("fd")).into_iter().flatten().flatten();
    files
        .filter_map(|file| {
            let target = fs::read_link(file.path()).ok()?;
            target.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
        })
        .collect()
}

/// The name of a process or thread: `DIR/comm` without the line feed, or none
/// if it has ended.
pub fn name(dir: &Path) -> Option<String> {
    let bytes = fs::read(dir.join("comm")).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    Some(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

/// The entries of a folder that are numbers, ascending: processes of `/proc`,
/// threads of `/proc/PID/task`.
pub fn numbered(dir: &Path) -> io::Result<Vec<u32>> {
    let mut ids: Vec<u32> = fs::read_dir(dir)?
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect();
    ids.sort_unstable();
    Ok(ids)
}

/// Ids of the kernel's threads as far as this PID namespace shows them: the
/// children of `kthreadd`, process 2. Without `CONFIG_PROC_CHILDREN` it is all
/// processes, so callers still have to look at names.
pub fn kernel_threads(proc: &Path) -> Vec<u32> {
    if name(&proc.join("2")).as_deref() != Some("kthreadd") {
        return Vec::new();
    }
    match fs::read_to_string(proc.join("2/task/2/children")) {
        Ok(text) => text.split_ascii_whitespace().filter_map(|id| id.parse().ok()).collect(),
        Err(_) => numbered(proc).unwrap_or_default(),
    }
}

/// The NAPI threads of a device, named `napi/DEVICE-ID` (`napi_kthread_create`,
/// net/core/dev.c): folder below `/proc`, id, name. A device of the same name in
/// another network namespace cannot be distinguished.
pub fn napi_threads(proc: &Path, device: &str) -> Vec<(PathBuf, u32, String)> {
    let prefix = format!("napi/{device}-");
    let thread = |pid: u32| {
        let dir = proc.join(pid.to_string());
        let name = name(&dir)?;
        is_napi_of(&name, &prefix).then_some((dir, pid, name))
    };
    kernel_threads(proc).into_iter().filter_map(thread).collect()
}

/// Kernels before 5.17 cut the name after 15 bytes.
fn is_napi_of(name: &str, prefix: &str) -> bool {
    name.starts_with(prefix) || (name.len() == 15 && prefix.starts_with(name))
}

/// Ticks a second in which `/proc` counts CPU time (`USER_HZ`, sysconf(3)); not
/// the rate at which the kernel samples.
pub fn user_hz() -> f64 {
    rustix::param::clock_ticks_per_second() as f64
}

/// Text that is not in the format its file is known for.
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

/// Time of one CPU since boot, in ticks of [`user_hz`].
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
    /// Nothing to run while a task that last ran here waits for I/O.
    pub iowait: u64,
    pub irq: u64,
    pub softirq: u64,
    /// Taken away by the hypervisor.
    pub steal: u64,
}

/// How many connections to a local port wait for the third packet of their handshake:
/// state SYN_RECV in `/proc/net/tcp` or `/proc/net/tcp6` (`get_openreq4`,
/// net/ipv4/tcp_ipv4.c).
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

/// `/proc/stat` (fs/proc/stat.c): one entry for each CPU that is online.
/// Columns that an old kernel lacks are zero.
pub fn parse_stat(text: &str) -> Result<Vec<CpuTicks>, Malformed> {
    const FILE: &str = "/proc/stat";
    let mut cpus = Vec::new();
    // The CPU lines come first; what follows grows with the interrupts.
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
    /// Time on a CPU, nanoseconds, up to the last tick or switch.
    pub run: u64,
    /// Time it was ready and had to wait for a CPU, nanoseconds.
    pub wait: u64,
    /// Times it was given a CPU.
    pub slices: u64,
}

/// `/proc/PID/task/TID/schedstat` (`proc_pid_schedstat`, fs/proc/base.c). Three
/// zeros are what some kernels print where scheduler statistics are off.
pub fn parse_schedstat(text: &str) -> Result<SchedStat, Malformed> {
    let mut fields = text.split_ascii_whitespace().map(str::parse::<u64>);
    match (fields.next(), fields.next(), fields.next()) {
        (Some(Ok(run)), Some(Ok(wait)), Some(Ok(slices))) => Ok(SchedStat { run, wait, slices }),
        _ => Err(Malformed::new("schedstat", first_line(text))),
    }
}

/// The parts of `/proc/PID/task/TID/stat` that are of use here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskStat<'a> {
    /// Process or thread id.
    pub id: u32,
    /// Name, without the parentheses around it.
    pub comm: &'a str,
    /// R, S, D, T, ..., Z for one that has ended and was not waited for (proc_pid_stat(5)).
    pub state: char,
    /// Id of the parent process.
    pub parent: u32,
    /// User time, ticks of [`user_hz`].
    pub user: u64,
    /// System time, ticks of [`user_hz`].
    pub system: u64,
    /// When it began, ticks of [`user_hz`] after boot: distinguishes a thread from a
    /// later one with the same id.
    pub started: u64,
    /// The CPU it runs on, or ran on last; `None` if the line ends before that.
    pub cpu: Option<u32>,
}

/// `/proc/PID/task/TID/stat` (`do_task_stat`, fs/proc/array.c). The name may
/// hold blanks, parentheses and line feeds, so it ends at the last `)`.
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
    /// It waited for something.
    pub voluntary: u64,
    /// It was made to make room.
    pub involuntary: u64,
}

/// The last two lines of `/proc/PID/task/TID/status` (fs/proc/array.c).
pub fn parse_status_switches(text: &str) -> Result<Switches, Malformed> {
    let value = |key: &str| {
        // From the end: the name in the first line could be anything.
        text.lines().rev().find_map(|line| line.strip_prefix(key)?.trim().parse().ok())
    };
    match (value("voluntary_ctxt_switches:"), value("nonvoluntary_ctxt_switches:")) {
        (Some(voluntary), Some(involuntary)) => Ok(Switches { voluntary, involuntary }),
        _ => Err(Malformed::new("task status", text.lines().last().unwrap_or_default())),
    }
}

/// Network softirqs of one CPU since boot. The kernel's counters are 32 bits wide
/// and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftirqRow {
    pub cpu: u32,
    /// Times that NET_TX ran there.
    pub net_tx: u32,
    /// Times that NET_RX ran there.
    pub net_rx: u32,
}

/// `/proc/softirqs` (`show_softirqs`, fs/proc/softirqs.c): a line that names every CPU
/// that there could be, then a line a softirq with a count for each.
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

/// Receive processing of one CPU since boot. The kernel's counters are 32 bits
/// wide and wrap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftnetRow {
    /// The CPU, where the kernel reports it (Linux 5.10 and later).
    pub cpu: Option<u32>,
    /// Packets taken from devices; what GRO has put together is one packet.
    pub processed: u32,
    /// Packets dropped because the backlog was full.
    pub dropped: u32,
    /// Times the softirq ended with work left, out of budget or time.
    pub squeezed: u32,
    /// Times another CPU asked this one to take packets over (RPS).
    pub received_rps: u32,
}

/// `/proc/net/softnet_stat` (`softnet_seq_show`, net/core/net-procfs.c): one
/// row for each CPU that is online, hexadecimal. Rows had 9 columns at first,
/// 10 with RPS (2.6.35), 11 (3.11), 13 with the CPU in the last (5.10), 15 since.
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
    /// Packets as the driver counts them: before GRO, and what is left to the
    /// device to cut (TSO) may be one.
    pub packets: u64,
    /// Bad packets.
    pub errors: u64,
    /// Packets dropped by device or driver (and, received, those it missed).
    pub dropped: u64,
}

/// `/proc/PID/net/dev` (`dev_seq_printf_stats`, net/core/net-procfs.c): the
/// devices of that process's network namespace.
pub fn parse_net_dev(text: &str) -> Result<Vec<NetDev<'_>>, Malformed> {
    fn device(line: &str) -> Option<NetDev<'_>> {
        // No blank has to follow the colon, and an alias has one in its name.
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
        // Made up: a listener, an open request at port 5001 and one at 5002.
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
        // "napi/bytepath-rx0-12" as an older kernel has it.
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
