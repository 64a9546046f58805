//! The pipe to one agent, from the controller's side.

use bytepath_host::AgentPipe;
use bytepath_record::wire::{LONGEST_PREFACE, Reply, Request, SYNC, read_line};
use bytepath_record::{Fault, FaultKind, Role};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::Sender;

/// What comes from an agent.
pub(super) enum AgentEvent {
    Reply(Reply),
    /// A line that is no reply.
    Malformed(String),
    Disconnected,
}

/// Writes to an agent.
pub(super) struct Line(Box<dyn Write + Send>);

impl Line {
    /// Begins to read what the agent of a role writes; each event goes to `events`.
    pub(super) fn open(
        pipe: AgentPipe,
        role: Role,
        events: Sender<(Role, AgentEvent)>,
    ) -> Result<Line, Fault> {
        let AgentPipe { to_agent, from_agent } = pipe;
        std::thread::Builder::new()
            .name("agent-pipe".into())
            .spawn(move || read_replies(from_agent, &|event| events.send((role, event)).is_ok()))
            .map_err(|e| Fault::system("cannot start a thread", &e))?;
        Ok(Line(to_agent))
    }

    /// Sends a request; an I/O error means that the agent is gone.
    pub(super) fn send(&mut self, request: &Request) -> Result<io::Result<()>, Fault> {
        let mut line = serde_json::to_vec(request)
            .map_err(|e| Fault::new(FaultKind::System, format!("cannot encode a request: {e}")))?;
        line.push(b'\n');
        Ok(self.0.write_all(&line).and_then(|()| self.0.flush()))
    }
}

fn read_replies(from_agent: Box<dyn Read + Send>, notify: &dyn Fn(AgentEvent) -> bool) {
    let mut from_agent = BufReader::new(from_agent);
    if let Err(printed) = pass_preface(&mut from_agent) {
        notify(printed.map_or(AgentEvent::Disconnected, |printed| {
            AgentEvent::Malformed(format!("no agent started; the output was: {printed}"))
        }));
        return;
    }
    while let Ok(Some(line)) = read_line(&mut from_agent) {
        let reply = serde_json::from_slice(&line);
        let event = reply.map_or_else(|e| AgentEvent::Malformed(e.to_string()), AgentEvent::Reply);
        if !notify(event) {
            return;
        }
    }
    notify(AgentEvent::Disconnected);
}

/// Skips whatever comes before the agent's first line. The error is what was
/// printed instead, or `None` if the pipe ended.
fn pass_preface(from_agent: &mut impl BufRead) -> Result<(), Option<String>> {
    let mut preface = from_agent.take(LONGEST_PREFACE);
    let mut first = None;
    loop {
        let mut line = Vec::new();
        match preface.read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ if preface.limit() == 0 => return Err(Some(first.unwrap_or_default())),
            _ => return Err(None),
        }
        let line = line.trim_ascii_end();
        // A prompt may precede it.
        if line.ends_with(SYNC.as_bytes()) {
            return Ok(());
        }
        let shown = || String::from_utf8_lossy(line).chars().take(80).collect();
        first.get_or_insert_with(shown);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn passed(text: &str) -> (Result<(), Option<String>>, String) {
        let mut reader = text.as_bytes();
        let passed = pass_preface(&mut reader);
        (passed, String::from_utf8_lossy(reader).into_owned())
    }

    #[test]
    fn skips_the_output_of_a_login_shell() {
        let shell = format!("Welcome!\n\nLast login: today\nuser@host$ {SYNC}\nrest");
        assert_eq!(passed(&shell), (Ok(()), "rest".into()));
        assert_eq!(passed(&format!("{SYNC}\r\n")).0, Ok(()));
        assert_eq!(passed("").0, Err(None));
        assert_eq!(passed("Connection refused\n").0, Err(None));
    }

    #[test]
    fn endless_output_is_not_an_agent() {
        let flood = "yes\n".repeat(LONGEST_PREFACE as usize);
        assert_eq!(passed(&flood).0, Err(Some("yes".into())));
        let (line, rest) = passed(&"x".repeat(2 * LONGEST_PREFACE as usize));
        assert!(line.unwrap_err().unwrap().starts_with("xxx"));
        assert_eq!(rest.len(), LONGEST_PREFACE as usize, "no more than that was read");
    }
}
