//! Ends in containers of a packaged runtime, without privileges there.

use crate::isolated::{isolated, text};
use crate::places::{Place, bytepath, join, ran};
use bytepath::study::load;
use bytepath_testing::skip;
use serde_json::{Value, json};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

#[test]
fn both_ends_run_in_containers_without_privileges() {
    isolated(module_path!(), "inside_containers");
}

#[test]
#[ignore = "started in a namespace by both_ends_run_in_containers_without_privileges"]
fn inside_containers() {
    if Command::new("runc").arg("--version").output().is_err() {
        return skip!("no runc");
    }
    let dir = tempfile::tempdir().unwrap();
    let networks = ["sender", "receiver"].map(|name| Place::new(dir.path(), name));
    join(&networks[0], &networks[1], "10.10.0");
    let containers = networks.each_ref().map(|network| Container::start(dir.path(), network));
    let [sender, receiver] = match containers {
        [Ok(sender), Ok(receiver)] => [sender, receiver],
        [sender, receiver] => {
            let why = [sender.err(), receiver.err()].into_iter().flatten().next();
            return skip!("no containers here: {}", why.unwrap_or_default());
        }
    };
    let out = dir.path().join("study");
    let study = |congestion: &str| {
        let mut command = bytepath(&["run", "--path", "socket", "--path", "splice"]);
        command.args(["--sender", &sender.host(), "--receiver", &receiver.host()]);
        command.args(["--stream", &format!("congestion={congestion}"), "--blocks", "1"]);
        command.args(["--window", "300ms", "--profile", "none", "--study"]).arg(&out);
        command.output().unwrap()
    };
    let output = study("reno");
    assert!(output.status.success(), "{}", text(&output));
    let trials = load(&out).unwrap().trials;
    assert!(trials.len() == 3 && trials.iter().all(ran), "{trials:?}");

    let allowed = fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap();
    let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control");
    let (allowed, available) = (allowed.trim(), available.unwrap());
    let refused = |name: &&str| !allowed.split(' ').any(|other| other == *name);
    let Some(name) = available.split_whitespace().find(refused) else {
        return skip!("every congestion control is allowed here: {allowed}");
    };
    let output = text(&study(name));
    let remedy = format!("needs CAP_NET_ADMIN, or one of {allowed}: --stream congestion=");
    assert!(output.split_whitespace().collect::<Vec<_>>().join(" ").contains(&remedy), "{output}");
}

/// A container of runc(8) in an existing network; dropping it ends it. Its files are those of this
/// machine that programs need, mounted read-only by runc, inside the container only: removing the
/// folder of the test finds empty folders there.
struct Container {
    /// Where runc keeps its state.
    root: PathBuf,
    name: String,
}

impl Container {
    fn start(folder: &Path, network: &Place) -> Result<Container, String> {
        let (root, bundle) = (folder.join("runc"), folder.join(format!("{}-bundle", network.name)));
        fs::create_dir_all(bundle.join("rootfs")).unwrap();
        let spec = Command::new("runc").args(["spec", "--bundle"]).arg(&bundle).output().unwrap();
        assert!(spec.status.success(), "{}", text(&spec));
        let config = bundle.join("config.json");
        let spec = serde_json::from_slice(&fs::read(&config).unwrap()).unwrap();
        fs::write(&config, configured(spec, network.pid()).to_string()).unwrap();
        let container = Container { root, name: network.name.clone() };
        let run = ["run", "--detach", "--bundle", bundle.to_str().unwrap()];
        // Standard output left open by runc would be waited for.
        let log = fs::File::create(folder.join("log")).unwrap();
        let status = container.runc(&run).stdout(log.try_clone().unwrap()).stderr(log).status();
        match status.unwrap().success() {
            true => Ok(container),
            false => Err(fs::read_to_string(folder.join("log")).unwrap()),
        }
    }

    fn runc(&self, words: &[&str]) -> Command {
        let mut command = Command::new("runc");
        command.arg("--root").arg(&self.root).args(words).arg(&self.name);
        command
    }

    /// The container's name as a host.
    fn host(&self) -> String {
        format!("exec:runc --root {} exec {}", self.root.display(), self.name)
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        let _: std::io::Result<Output> = self.runc(&["delete", "--force"]).output();
    }
}

/// Adapts what `runc spec` writes: no terminal, no limits, no control groups, and in the network
/// namespace of `pid`.
fn configured(mut spec: Value, pid: u32) -> Value {
    spec["process"]["terminal"] = json!(false);
    spec["process"]["args"] = json!(["sleep", "300"]);
    // Without CAP_SYS_RESOURCE runc cannot set them.
    spec["process"]["rlimits"] = json!([]);
    let mounts = spec["mounts"].as_array_mut().unwrap();
    mounts.retain(|mount| mount["type"] != "cgroup");
    let memory = |place: &str| json!({"destination": place, "type": "tmpfs", "source": "tmpfs"});
    let bound = |place: &str| json!({"destination": place, "type": "none", "source": place, "options": ["bind", "ro"]});
    let program = Path::new(env!("CARGO_BIN_EXE_bytepath"));
    let places = ["/usr", "/bin", "/lib", "/lib64", program.parent().unwrap().to_str().unwrap()];
    mounts.extend(["/root", "/run", "/tmp"].map(memory));
    mounts.extend(places.into_iter().filter(|place| Path::new(place).is_dir()).map(bound));
    for namespace in spec["linux"]["namespaces"].as_array_mut().unwrap() {
        if namespace["type"] == "network" {
            namespace["path"] = json!(format!("/proc/{pid}/ns/net"));
        }
    }
    spec
}
