//! Hosts of tests: network and mount namespaces, and links between them.

use bytepath::record::{Cell, Role, Scope, Study, Trial, TrialStatus};
use bytepath::sys::lasting_namespace::within;
use bytepath::sys::netlink::{Netlink, Veth};
use bytepath::sys::procfs::parse_task_stat;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A network and a mount namespace, kept by a process that sleeps; or the namespaces of the test.
pub struct Place {
    keeper: Option<Child>,
    /// Its name.
    pub name: String,
    /// A folder for its journal.
    pub state: PathBuf,
}

impl Place {
    /// Makes new namespaces, with their own `/sys`.
    pub fn new(folder: &Path, name: &str) -> Place {
        let mut command = Command::new("unshare");
        command.args(["--net", "--mount", "sh", "-c"]);
        command.arg("mount -t sysfs sysfs /sys && echo ready && exec sleep 300");
        let mut keeper = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(keeper.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        Place { keeper: Some(keeper), name: name.to_owned(), state: folder.join(name) }
    }

    /// The namespaces in which the test itself runs.
    pub fn here(folder: &Path, name: &str) -> Place {
        Place { keeper: None, name: name.to_owned(), state: folder.join(name) }
    }

    /// A process in the namespaces.
    pub fn pid(&self) -> u32 {
        self.keeper.as_ref().map_or_else(std::process::id, Child::id)
    }

    /// A command that runs in the namespaces.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.pid())).args(["--net", "--mount", program]);
        command
    }

    /// Its name as a host: a command that runs a program there, and prints something first.
    pub fn host(&self) -> String {
        let state = self.state.display();
        format!(
            "exec:nsenter --target={} --net --mount env BYTEPATH_STATE={state} sh -c \
             'echo Welcome; exec $0'",
            self.pid()
        )
    }

    /// Runs `work` in its network namespace.
    pub fn within<T: Send>(&self, work: impl FnOnce(&mut Netlink) -> T + Send) -> T {
        let namespace = File::open(format!("/proc/{}/ns/net", self.pid())).unwrap();
        within(namespace.as_fd(), || work(&mut Netlink::new())).unwrap()
    }

    /// Process ids of the agents that a command started in it, in order of their start.
    pub fn agents(&self) -> Vec<u32> {
        let namespace = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/net")).ok();
        let own = namespace(&self.pid().to_string());
        let all = fs::read_dir("/proc").unwrap().flatten();
        let names = all.filter_map(|entry| entry.file_name().into_string().ok());
        let is_agent = |pid: &String| {
            let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            line.ends_with("\0agent\0--away\0") && namespace(pid) == own
        };
        let started = |pid: &String| {
            let line = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            parse_task_stat(&line).map_or(u64::MAX, |stat| stat.started)
        };
        let mut agents: Vec<String> = names.filter(is_agent).collect();
        agents.sort_by_cached_key(started);
        agents.into_iter().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// The MTU of one of its devices.
    pub fn mtu(&self, device: &str) -> u32 {
        self.within(|netlink| netlink.link(device).unwrap().unwrap().mtu)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if let Some(keeper) = &mut self.keeper {
            let _ = keeper.kill();
            let _ = keeper.wait();
        }
    }
}

/// Joins two places by a veth pair: `to-OTHER` with NETWORK.1 in the first, and NETWORK.2 in the
/// other.
pub fn join(one: &Place, other: &Place, network: &str) {
    join_by(one, other, network, 1);
}

/// Like [`join`], with `queues` queues in each direction.
pub fn join_by(one: &Place, other: &Place, network: &str, queues: u32) {
    let names = [format!("to-{}", other.name), format!("to-{}", one.name)];
    join_with(one, other, names.each_ref().map(String::as_str), network, queues);
}

/// Like [`join`], with devices of these names.
pub fn join_as(one: &Place, other: &Place, names: [&str; 2], network: &str) {
    join_with(one, other, names, network, 1);
}

fn join_with(one: &Place, other: &Place, names: [&str; 2], network: &str, queues: u32) {
    let [name, peer] = names.map(str::to_owned);
    let pair = Veth { name, peer, peer_process: Some(other.pid()), mtu: None, queues };
    one.within(|netlink| netlink.create_veth(&pair).unwrap());
    for (place, device, number) in [(one, names[0], 1), (other, names[1], 2)] {
        let address = format!("{network}.{number}").parse().unwrap();
        place.within(|netlink| {
            let index = netlink.link(device).unwrap().unwrap().index;
            netlink.add_address(index, address, 24).unwrap();
            netlink.set_up(index).unwrap();
        });
    }
}

/// Checks that a study between two machines has the shape of one on the embedded testbed: the same
/// cells, work and labels, and for each host the readings that the embedded one has of its machine.
pub fn assert_shaped_like_embedded(apart: &Study, embedded: &Study) {
    let cells = |study: &Study| -> BTreeSet<(String, Option<String>)> {
        let label = |cell: &Cell| {
            let mut of_cell = study.trials.iter().filter(|trial| trial.cell == cell.id);
            of_cell
                .find(|trial| ran(trial))
                .map(|trial| format!("{:?} {}", trial.work, trial.label))
        };
        let level = |id: &str| id.replace(" link=given", "");
        study.header.cells.iter().map(|cell| (level(&cell.id.0), label(cell))).collect()
    };
    assert_eq!(cells(apart), cells(embedded));
    assert_eq!(apart.header.meters, embedded.header.meters);
    let metrics = |study: &Study, of: &dyn Fn(&Scope) -> bool| -> BTreeSet<String> {
        let readings = study.trials.iter().filter(|trial| ran(trial)).flat_map(|t| &t.readings);
        // A thread that polls for the device belongs to the link, the cost of a machine's meter is
        // read wherever it runs, and whether a CPU wakes too early or too late is chance.
        let by_chance = |metric: &str| metric.ends_with(".above") || metric.ends_with(".below");
        let counts = |metric: &str| {
            metric != "softirqs.napi" && !metric.starts_with("cost.") && !by_chance(metric)
        };
        let here = readings.filter(|r| of(&r.scope) && counts(&r.metric));
        here.map(|r| r.metric.clone()).collect()
    };
    let of_machine = |scope: &Scope| scope.is_machine() || scope.cpu().is_some();
    let of_machines = metrics(embedded, &of_machine);
    assert!(of_machines.contains("cpu.wall") && of_machines.contains("softirqs.net_rx"));
    for role in Role::ALL {
        let here = |scope: &Scope| of_machine(scope) && scope.is_on_host_of(role);
        assert_eq!(metrics(apart, &here), of_machines, "of the {role}'s host");
        let of_role = |scope: &Scope| *scope == Scope::Role(role);
        assert_eq!(metrics(apart, &of_role), metrics(embedded, &of_role), "of the {role}");
    }
}

/// Whether a trial has run to its end. On a busy machine some are rejected, because the windows of
/// the two hosts were out of step.
pub fn ran(trial: &Trial) -> bool {
    matches!(trial.status, TrialStatus::Measured | TrialStatus::Rejected { .. })
}

/// A command line of the built binary.
pub fn bytepath(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_bytepath"));
    command.args(arguments);
    command
}
