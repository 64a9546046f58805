//! qemu, which runs guests: its command line, and whether it can use KVM.
//!
//! `/dev/kvm` proves little: in a virtual machine it often exists but cannot run a guest. So
//! [`kvm`] runs one: a firmware of a dozen bytes that writes to a port, at which qemu exits with a
//! known code.

use bytepath_record::{Fault, Role, Support, joined};
use bytepath_sys::{launch, process};
use rustix::fs::{MemfdFlags, memfd_create};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

pub const PROGRAM: &str = concat!("qemu-system-", "x86_64");

/// Name of the serial port that carries the agents, in the guest's
/// `/sys/class/virtio-ports/*/name`.
pub const PORT: &str = "bytepath";

/// How a guest's instructions are run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accelerator {
    Kvm,
    /// By a translator (TCG): correct, and ten to fifty times slower.
    Tcg {
        /// Why KVM is not used.
        because: String,
        /// Whether the guest's clock counts instructions instead of time.
        counted: bool,
    },
}

/// Name of the accelerator with which a guest's clock counts its instructions.
pub const COUNTED: &str = "counted";

/// One instruction advances such a guest's clock by 2^4 = 16 ns (qemu's `-icount shift=4`). That is
/// about the time the emulator needs for one, so a window, which the host times, is about as long
/// in the guest.
const SHIFT: u32 = 4;

/// Instructions that a second of such a guest's CPU time represents.
pub const INSTRUCTIONS_PER_SECOND: f64 = 1e9 / (1_u32 << SHIFT) as f64;

pub fn find() -> Result<PathBuf, Fault> {
    launch::find(OsStr::new(PROGRAM), std::env::var_os("PATH")).map_err(|e| {
        Fault::unsupported(format!("there is no {PROGRAM}: {e}"))
            .remedy("install it: apt-get install qemu-system-x86, dnf install qemu-system-x86-core")
    })
}

/// Returns a qemu that emulates `device`: the installed one, or else the one that was fetched.
pub fn find_with(device: &str) -> Result<PathBuf, Fault> {
    let own = find();
    let fetched = super::kernel::cache().map(|folder| folder.join("qemu").join(PROGRAM));
    let all = [own.clone(), fetched].into_iter().flatten();
    all.into_iter().find(|program| has_device(program, device)).ok_or_else(|| match own {
        Err(fault) => fault,
        Ok(_) => Fault::unsupported(format!("this machine's {PROGRAM} has no device {device}"))
            .remedy("make vm-qemu fetches one that has it, and installs nothing"),
    })
}

/// Whether a qemu has `device`; if so, `-device DEVICE,help` lists its options.
fn has_device(program: &Path, device: &str) -> bool {
    let mut command = Command::new(program);
    command.args(["-device", &format!("{device},help")]);
    let output = process::output_tied(command);
    let listed = format!("{device} options:");
    output.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).contains(&listed))
}

/// Returns the accelerator for `wish`: `auto`, `kvm`, `tcg` or [`COUNTED`].
pub fn accelerator(wish: &str) -> Result<Accelerator, Fault> {
    let emulated = |because: String, counted| Ok(Accelerator::Tcg { because, counted });
    match wish {
        "tcg" => emulated("accel=tcg requires it".into(), false),
        COUNTED => emulated("count=instructions requires it".into(), true),
        _ => match (kvm(), wish) {
            (Support::Yes, _) => Ok(Accelerator::Kvm),
            (Support::No { reason, .. }, "auto") => emulated(reason, false),
            (Support::No { reason, remedy }, _) => Err(Fault::unsupported(reason).remedy(remedy)),
        },
    }
}

/// Whether KVM can run a guest here. Tries once and keeps the answer.
pub fn kvm() -> Support {
    static TRIED: OnceLock<Support> = OnceLock::new();
    TRIED.get_or_init(|| try_kvm("/dev/kvm", Path::new("/sys/module"))).clone()
}

/// Time limit of the guest of five instructions, which takes a tenth of a second.
const ATTEMPT: Duration = Duration::from_secs(10);

/// The value that the firmware writes, and qemu's exit code for it (`isa-debug-exit`: twice the
/// value, plus one).
const SIGN: u8 = 0x31;
const EXIT: i32 = (SIGN as i32) * 2 + 1;

/// Port of `isa-debug-exit`.
const EXIT_PORT: u16 = 0x501;

/// Module of a KVM that needs no hardware virtualisation, but runs only kernels built for it (PVM,
/// "pagetable-based virtual machine"). The guest of five instructions succeeds on it; an ordinary
/// kernel hangs silently.
const PARAVIRTUAL: &str = "kvm_pvm";

fn try_kvm(device: &str, modules: &Path) -> Support {
    let remedy = "accel=tcg runs guests without it, much slower; in a virtual machine, ask for \
                  nested virtualisation";
    run_firmware(device, modules)
        .map_or_else(|reason| Support::no(reason, remedy), |()| Support::Yes)
}

/// Runs the guest of five instructions. Errors with the reason if it does not run.
fn run_firmware(device: &str, modules: &Path) -> Result<(), String> {
    let opened = File::options().read(true).write(true).open(device);
    opened.map_err(|e| format!("{device} cannot be opened: {e}"))?;
    if modules.join(PARAVIRTUAL).exists() {
        return Err(format!(
            "{device} is PVM's (module {PARAVIRTUAL}), which runs only its own kernels"
        ));
    }
    let program = find().map_err(|fault| fault.message)?;
    let firmware = in_memory("firmware", &firmware());
    let firmware = firmware.map_err(|e| format!("no memory for a firmware: {e}"))?;
    let mut command = Command::new(program);
    command.args(COMMON).args(["-machine", "pc,accel=kvm", "-cpu", "host", "-m", "32"]);
    command.args(["-device", &format!("isa-debug-exit,iobase={EXIT_PORT:#x},iosize=2")]);
    command.args(["-bios", &path_of(&firmware)]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
    match run(command, &firmware).map_err(|e| format!("{device} could not be tried: {e}"))? {
        (Some(EXIT), _) => Ok(()),
        (_, output) => {
            let line = output.lines().map(str::trim).find(|line| !line.is_empty());
            let line = line.unwrap_or("qemu ended without a message");
            Err(format!("{device} exists but cannot run a guest: {line}"))
        }
    }
}

/// Runs the attempt; returns its exit code and its messages.
fn run(command: Command, firmware: &OwnedFd) -> io::Result<(Option<i32>, String)> {
    let mut child = process::spawn_tied(command, &[firmware.as_fd()])?;
    let errors = crate::Tail::of(child.stderr.take(), 4096).map_err(io::Error::other)?;
    let deadline = Instant::now() + ATTEMPT;
    loop {
        if let Some(status) = child.try_wait()? {
            errors.await_end(Duration::from_millis(200));
            return Ok((status.code(), errors.text()));
        }
        if Instant::now() > deadline {
            child.kill()?;
            child.wait()?;
            return Ok((None, format!("no answer within {} s", ATTEMPT.as_secs())));
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns 64 KiB of firmware with this code at the reset vector, 16 bytes below the end:
/// `mov al, SIGN; mov dx, EXIT_PORT; out dx, al; hlt; jmp $`.
fn firmware() -> Vec<u8> {
    let mut bytes = vec![0x90; 1 << 16];
    let [low, high] = EXIT_PORT.to_le_bytes();
    let code = [0xb0, SIGN, 0xba, low, high, 0xee, 0xf4, 0xeb, 0xfe];
    let at = bytes.len() - 16;
    bytes[at..at + code.len()].copy_from_slice(&code);
    bytes
}

/// Options of every run of qemu: no default devices, no user configuration, no display, and a
/// seccomp filter.
const COMMON: &[&str] = &[
    "-nodefaults",
    "-no-user-config",
    "-display",
    "none",
    "-no-reboot",
    "-sandbox",
    "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
];

/// CPU model of emulated guests. Without the "fast" string instructions (erms, fsrm), kernels copy
/// with loops of wide moves; the emulator runs `rep movsb` byte by byte, which makes a stream
/// several times slower. Page tables of five levels (la57) are the emulator's newest feature, and
/// guests do not need them.
const EMULATED_CPU: &str = "max,la57=off,erms=off,fsrm=off";

/// One thread emulates all CPUs in turn. With a thread for each, one CPU would change code while
/// another executes it, as kernels do to switch a static key, and QEMU 7.2 does not handle that as
/// processors do: one boot of fourteen ended with "Oops: int3". With one thread, a study takes a
/// tenth longer and a fifth less CPU time.
const EMULATOR: &str = "tcg,thread=single";

/// Parameters of a guest to start.
pub struct Start<'a> {
    pub program: PathBuf,
    /// CPUs, memory and the like.
    pub shape: Shape,
    /// How instructions are run.
    pub accelerator: &'a Accelerator,
    /// Name of the kernel in messages.
    pub name: String,
    /// The kernel, or a bootable image of it.
    pub kernel: OwnedFd,
    /// Added to the kernel's command line.
    pub cmdline: &'a str,
    /// The initial file system.
    pub initramfs: OwnedFd,
    /// qemu's end of the serial port.
    pub port: OwnedFd,
    /// qemu's end of its monitor (QMP), if there is one.
    pub monitor: Option<OwnedFd>,
    /// Network devices, to another guest, to this host, or to each other; may be empty.
    pub networks: Vec<Network>,
}

/// Returns the command line of a guest. Its console is qemu's standard output, and qemu's messages
/// are on standard error. The command refers to descriptors that the child must inherit.
pub fn command(start: &Start) -> Command {
    let Shape { cpus, memory, .. } = start.shape;
    let mut command = Command::new(&start.program);
    // Names qemu's threads, so that virtual CPUs can be told from the others.
    command.args(COMMON).args(["-name", "bytepath,debug-threads=on"]);
    match start.accelerator {
        Accelerator::Kvm => command.args(["-accel", "kvm", "-cpu", "host"]),
        Accelerator::Tcg { counted, .. } => {
            if *counted {
                // While the guest is idle, its clock follows the host's (sleep=on).
                command.args(["-icount", &format!("shift={SHIFT},sleep=on")]);
            }
            command.args(["-accel", EMULATOR, "-cpu", EMULATED_CPU])
        }
    };
    command.args(["-smp", &cpus.to_string(), "-m", &format!("{}M", memory >> 20)]);
    command.args(["-kernel", &path_of(&start.kernel)]);
    command.args(["-initrd", &path_of(&start.initramfs)]);
    command.args(["-append", &cmdline(start.accelerator, start.cmdline)]);
    command.args(["-chardev", "stdio,id=console,signal=off", "-serial", "chardev:console"]);
    let port = format!("socket,id=agents,fd={}", start.port.as_raw_fd());
    command.args(["-device", "virtio-serial-pci", "-chardev", &port]);
    command.args(["-device", &format!("virtserialport,chardev=agents,name={PORT}")]);
    if let Some(monitor) = &start.monitor {
        let monitor = format!("socket,id=monitor,fd={}", monitor.as_raw_fd());
        command.args(["-chardev", &monitor, "-mon", "chardev=monitor,mode=control"]);
    }
    if start.networks.iter().any(|network| network.in_slot) {
        command.args(["-machine", "q35"]);
    }
    let networks = start.networks.iter().enumerate();
    command.args(networks.flat_map(|(number, network)| network.arguments(number)));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Returns the kernel's command line: console on a serial port, the guest ends at once after a
/// panic, then the study's additions, which may override all of it.
fn cmdline(accelerator: &Accelerator, added: &str) -> String {
    let clocks = match accelerator {
        Accelerator::Kvm => "",
        // An emulated processor stalls while others use the real one. The kernel would either
        // panic, because the timer seems to raise no interrupts (arch/x86/kernel/apic/io_apic.c),
        // or think the TSC unstable and use a far slower clock from then on
        // (kernel/time/clocksource.c). Under KVM it allows for both by itself. cryptomgr.notests:
        // the kernel would test each of its ciphers while it boots, for nothing. norandmaps: the
        // translator caches code by address; random addresses defeat that, which doubled the time
        // of a study.
        Accelerator::Tcg { .. } => "no_timer_check tsc=reliable cryptomgr.notests norandmaps ",
    };
    let text = format!("console=ttyS0 panic=-1 loglevel=4 {clocks}{added}");
    text.trim_end().to_owned()
}

/// Writes bytes to a memfd.
pub fn in_memory(name: &str, bytes: &[u8]) -> io::Result<OwnedFd> {
    let mut file = File::from(memfd_create(name, MemfdFlags::CLOEXEC)?);
    file.write_all(bytes)?;
    Ok(file.into())
}

/// Returns a path by which a child that inherits the descriptor can open it.
fn path_of(fd: &OwnedFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

/// CPUs, memory and time limits of a guest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub cpus: u32,
    /// Memory, bytes.
    pub memory: u64,
    pub limits: Limits,
}

/// How long a guest may take before it counts as hung. The limits are generous, because only a lost
/// guest reaches them: an emulated guest on a busy host is slow but fine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// From the start of qemu until the guest's program is ready.
    pub boot: Duration,
    /// For a reply that the guest's program or an agent can give at once.
    pub silence: Duration,
}

impl Shape {
    /// For users who request nothing else.
    pub const DEFAULT: Shape = Shape {
        cpus: 2,
        memory: 1 << 30,
        limits: Limits { boot: Duration::from_secs(60), silence: Duration::from_secs(20) },
    };
}

/// The largest MTU of a tap: `MAX_MTU` without an Ethernet header (drivers/net/tun.c). The device
/// reports it to the guest, which therefore never sends what a tap would drop.
pub const TAP_MTU: u32 = 65521;

#[derive(Debug)]
pub struct Network {
    /// What the device is connected to.
    pub line: Line,
    pub mac: String,
    /// qemu's name of the device.
    pub device: &'static str,
    /// Whether the device has a PCI Express root port to itself, like a card in a slot.
    pub in_slot: bool,
}

/// What carries packets between qemu and the outside.
#[derive(Debug)]
pub enum Line {
    /// A connected socket; each message is a packet.
    Socket(OwnedFd),
    Tap {
        /// One descriptor for each of its queues.
        queues: Vec<OwnedFd>,
        /// One descriptor of `/dev/vhost-net` for each queue, if the kernel is to move the packets.
        /// If empty, qemu does.
        vhost: Vec<OwnedFd>,
    },
}

impl Network {
    /// The default network device of guests.
    pub const VIRTIO: &str = "virtio-net-pci";

    fn of(role: Role, line: Line, device: &'static str, in_slot: bool) -> Network {
        Network { line, mac: format!("52:54:00:c6:12:0{}", role as usize + 1), device, in_slot }
    }

    /// A role's end of a link to another guest or to this host.
    pub fn virtio(role: Role, line: Line) -> Network {
        Network::of(role, line, Network::VIRTIO, false)
    }

    /// Returns two devices joined by a socket pair, the sender's first.
    pub fn joined(device: &'static str, in_slot: bool) -> Result<[Network; 2], Fault> {
        let fail = |e| Fault::system("joining two network devices by sockets", &e);
        let (one, other) = UnixDatagram::pair().map_err(fail)?;
        let end = |role, socket: UnixDatagram| {
            Network::of(role, Line::Socket(socket.into()), device, in_slot)
        };
        Ok([end(Role::Sender, one), end(Role::Receiver, other)])
    }

    /// Returns the device's part of qemu's command line; `number` distinguishes several devices.
    pub fn arguments(&self, number: usize) -> Vec<String> {
        let Network { line, mac, device, in_slot } = self;
        let mut device = format!("{device},netdev=wire{number},mac={mac}");
        let mut all = Vec::new();
        if *in_slot {
            let port = format!("pcie-root-port,id=slot{number},chassis={}", number + 1);
            all.extend(["-device".to_owned(), port]);
            // Guests do not boot from the network.
            device += &format!(",bus=slot{number},romfile=");
        }
        let backend = match line {
            Line::Socket(socket) => format!("socket,id=wire{number},fd={}", socket.as_raw_fd()),
            Line::Tap { queues, vhost } => {
                device += &format!(",host_mtu={TAP_MTU}");
                if queues.len() > 1 {
                    // An interrupt for each direction of each queue, one for the control queue, one
                    // for configuration changes.
                    device += &format!(",mq=on,vectors={}", 2 * queues.len() + 2);
                }
                let mut tap = format!("tap,id=wire{number},fds={}", numbers(queues));
                if !vhost.is_empty() {
                    // Forced, because qemu would otherwise only warn and continue without vhost.
                    tap += &format!(",vhost=on,vhostforce=on,vhostfds={}", numbers(vhost));
                }
                tap
            }
        };
        all.extend(["-netdev".into(), backend, "-device".into(), device]);
        all
    }

    /// The descriptors that qemu has to inherit.
    pub fn descriptors(&self) -> Vec<BorrowedFd<'_>> {
        match &self.line {
            Line::Socket(socket) => vec![socket.as_fd()],
            Line::Tap { queues, vhost } => queues.iter().chain(vhost).map(AsFd::as_fd).collect(),
        }
    }
}

/// "5:6:7".
fn numbers(descriptors: &[OwnedFd]) -> String {
    joined(descriptors.iter().map(AsRawFd::as_raw_fd), ":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_that_is_not_kvm_is_named() {
        let none = Path::new("/no/such/folder");
        let Support::No { reason, .. } = try_kvm("/no/such/kvm", none) else { panic!("it ran") };
        assert!(reason.contains("/no/such/kvm cannot be opened"), "{reason}");
    }

    #[test]
    fn a_kvm_that_runs_only_its_own_kernels_is_not_used() {
        let modules = tempfile::tempdir().unwrap();
        std::fs::create_dir(modules.path().join(PARAVIRTUAL)).unwrap();
        // Any file that can be opened passes for the device, which is never queried.
        let Support::No { reason, .. } = try_kvm("/dev/null", modules.path()) else {
            panic!("it was used")
        };
        assert!(reason.contains("runs only its own kernels"), "{reason}");
    }

    #[test]
    fn the_firmware_begins_where_the_processor_does() {
        let bytes = firmware();
        assert_eq!(bytes.len(), 65536);
        assert_eq!(bytes[65520..65522], [0xb0, 0x31]);
    }

    #[test]
    fn appends_the_command_line_of_the_study() {
        let tcg = Accelerator::Tcg { because: String::new(), counted: false };
        for accelerator in [&Accelerator::Kvm, &tcg] {
            assert!(cmdline(accelerator, "mitigations=off").ends_with(" mitigations=off"));
        }
        assert!(cmdline(&Accelerator::Kvm, "").ends_with("loglevel=4"));
        assert!(cmdline(&tcg, "").ends_with("norandmaps"));
    }

    fn files(count: usize) -> Vec<OwnedFd> {
        (0..count).map(|_| std::fs::File::open("/dev/null").unwrap().into()).collect()
    }

    fn network(queues: usize, vhost: usize) -> Network {
        let line = Line::Tap { queues: files(queues), vhost: files(vhost) };
        Network::virtio(Role::Sender, line)
    }

    #[test]
    fn one_queue_needs_no_more_than_its_descriptor() {
        let network = network(1, 0);
        let [fd] = network.descriptors()[..] else { panic!("{network:?}") };
        let tap = format!("tap,id=wire0,fds={}", fd.as_raw_fd());
        let device = "virtio-net-pci,netdev=wire0,mac=52:54:00:c6:12:01,host_mtu=65521";
        assert_eq!(network.arguments(0), ["-netdev", &tap, "-device", device]);
    }

    #[test]
    fn each_queue_has_a_descriptor_of_the_tap_and_one_of_vhost() {
        let network = network(2, 2);
        let all: Vec<i32> = network.descriptors().iter().map(AsRawFd::as_raw_fd).collect();
        let [a, b, c, d] = all[..] else { panic!("{all:?}") };
        let [_, tap, _, device] = &network.arguments(0)[..] else { panic!() };
        let wanted = format!("tap,id=wire0,fds={a}:{b},vhost=on,vhostforce=on,vhostfds={c}:{d}");
        assert_eq!(*tap, wanted);
        assert!(device.ends_with(",mq=on,vectors=6"), "{device}");
    }

    #[test]
    fn a_socket_is_one_descriptor() {
        let socket = files(1).remove(0);
        let number = socket.as_raw_fd();
        let network = Network::of(Role::Receiver, Line::Socket(socket), "igb", true);
        assert_eq!(
            network.arguments(1).join(" "),
            format!(
                "-device pcie-root-port,id=slot1,chassis=2 -netdev socket,id=wire1,fd={number} \
                 -device igb,netdev=wire1,mac=52:54:00:c6:12:02,bus=slot1,romfile="
            )
        );
        assert_eq!(network.descriptors().len(), 1);
    }
}
