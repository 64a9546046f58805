//! How the benches run iperf3: a server for one client, and the client's result.

use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};

/// An iperf3 server for one client, killed on drop.
pub struct Server(Child);

impl Server {
    /// Starts any server that is killed on drop, without waiting until it listens.
    #[allow(dead_code, reason = "not every bench has other servers")]
    pub fn started(mut command: Command) -> Result<Server> {
        Ok(Server(command.spawn().context("cannot start the server")?))
    }

    /// Starts it, and waits for the line that reports that it listens. `command` is `iperf3`, or a
    /// command that runs it elsewhere: `nsenter ... iperf3`.
    pub fn listening(mut command: Command) -> Result<Server> {
        command.args(["-s", "-1", "--forceflush"]).stdout(Stdio::piped());
        let mut server = Server(command.spawn().context("cannot start iperf3 -s")?);
        let output = server.0.stdout.take().context("no output")?;
        let mut lines = BufReader::new(output).lines();
        for line in lines.by_ref() {
            if line?.contains("Server listening") {
                // The pipe must stay open, or SIGPIPE kills the server.
                std::thread::spawn(move || lines.for_each(drop));
                return Ok(server);
            }
        }
        bail!("iperf3 -s ended before it listened")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The bit/s at the receiver, from a client's output with `-J`.
pub fn received(output: &std::process::Output) -> Result<f64> {
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).with_context(|| {
        let errors = String::from_utf8_lossy(&output.stderr);
        format!("iperf3 printed no JSON: {}", errors.lines().next().unwrap_or_default())
    })?;
    match json["end"]["sum_received"]["bits_per_second"].as_f64() {
        Some(rate) => Ok(rate),
        None => bail!("iperf3: {}", json["error"].as_str().unwrap_or("no result")),
    }
}
