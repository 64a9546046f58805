//! Another program: its server and its client in the namespaces and on the CPUs of an open testbed,
//! and its client's output.

use crate::namespace::inside;
use anyhow::{Context, Result, bail, ensure};
use bytepath::record::{Cell, Role};
use bytepath::study::OpenTestbed;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

/// How long a server may take until a client can connect.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of one run.
#[allow(dead_code, reason = "not every bench compares latency")]
#[derive(Clone, Copy, Default)]
pub struct Run {
    pub rate: f64,
    /// Round trip in microseconds; `None` if the program does not report it.
    pub p50: Option<f64>,
    pub p99: Option<f64>,
}

/// The programs and arguments of its server and its client, and a function that reads the client's
/// output. ADDRESS is replaced by the server's, and other words as the caller requests.
pub struct Peer {
    pub name: &'static str,
    pub server: &'static str,
    pub client: &'static str,
    pub read: fn(&str) -> Option<Run>,
    /// Content of the file `config` in the folder in which both start, with the same replacements.
    pub config: &'static str,
}

impl Peer {
    /// A peer without a file.
    pub const PLAIN: Peer = Peer { name: "", server: "", client: "", read: |_| None, config: "" };

    pub fn is_there(&self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let programs = [self.server, self.client].map(|text| text.split(' ').next());
        programs
            .into_iter()
            .flatten()
            .all(|program| std::env::split_paths(&path).any(|folder| folder.join(program).exists()))
    }

    pub fn run(
        &self,
        stand: &OpenTestbed,
        cell: &Cell,
        words: &[(&'static str, String)],
    ) -> Result<Run> {
        let address = stand.address(Role::Receiver).to_string();
        let filled = |text: &str| {
            let text = text.replace("ADDRESS", &address);
            words.iter().fold(text, |text, (word, value)| text.replace(word, value))
        };
        // neper writes logs to the folder in which it was started.
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("config"), filled(self.config))?;
        let mut server = inside(stand, cell, Role::Receiver);
        server.current_dir(folder.path()).args(filled(self.server).split_whitespace());
        server.stdout(Stdio::null()).stderr(Stdio::null());
        let _server =
            Server(server.spawn().with_context(|| format!("cannot start {}", self.name))?);
        let arguments = filled(self.client);
        let begin = Instant::now();
        // Retries until the server listens.
        loop {
            let mut client = inside(stand, cell, Role::Sender);
            client.current_dir(folder.path());
            let output = client.args(arguments.split_whitespace()).output()?;
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            if output.status.success()
                && let Some(run) = (self.read)(&text)
            {
                ensure!(run.rate > 0.0, "{} exchanged nothing", self.name);
                return Ok(run);
            }
            if begin.elapsed() > TIMEOUT {
                bail!("{}: {text}{}", self.name, String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Reads the output of a neper client.
pub fn neper(text: &str) -> Option<Run> {
    let microseconds = |name| Some(number(text, name)? * 1e6);
    Some(Run {
        rate: number(text, "throughput=")?,
        p50: microseconds("latency_p50="),
        p99: microseconds("latency_p99="),
    })
}

/// Reads netperf's output of a test of requests, without its heading: the rate is the sixth number.
pub fn netperf(text: &str) -> Option<Run> {
    let rate = text.split_whitespace().nth(5)?.parse().ok()?;
    Some(Run { rate, ..Run::default() })
}

/// Reads the bytes a second received by the server, from the output of a streaming neper client.
#[allow(dead_code, reason = "not every bench streams")]
pub fn neper_stream(text: &str) -> Option<Run> {
    Some(Run { rate: number(text, "remote_throughput=")? / 8.0, ..Run::default() })
}

/// Reads the output of wrk; `None` unless every response was good.
#[allow(dead_code, reason = "not every bench has it")]
pub fn wrk(text: &str) -> Option<Run> {
    if text.contains("Non-2xx") || text.contains("Socket errors") {
        return None;
    }
    Some(Run { rate: number(text, "Requests/sec:")?, ..Run::default() })
}

/// Returns the number after these words.
pub fn number(text: &str, after: &str) -> Option<f64> {
    let rest = text.split(after).nth(1)?.trim_start();
    let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
    rest[..end].parse().ok()
}
