//! The pipe to one agent, from the controller's side.

use super::agent::read_line;
use bytepath_host::AgentPipe;
use bytepath_record::wire::{LONGEST_PREFACE, Reply, Request, SYNC};
use bytepath_record::{Fault, FaultKind};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc::Sender;

/// What comes from an agent.
pub(super) enum News {
    Said(Reply),
    Garbled(String),
    Gone,
}

/// Writes to an agent.
pub(super) struct Line(Box<dyn Write + Send>);

impl Line {
    /// Begins to read what the agent writes; each piece of news goes to `news`, marked
    /// with whose it is.
    pub(crate) fn open<T: Copy + Send + 'static>(
        pipe: AgentPipe,
        whose: T,
        news: Sender<(T, News)>,
    ) -> Result<Line, Fault> {
        let AgentPipe { to_agent, from_agent } = pipe;
        std::thread::Builder::new()
            .name("agent-pipe".into())
            .spawn(move || read_replies(from_agent, &|said| news.send((whose, said)).is_ok()))
            .map_err(|e| Fault::system("cannot start a thread", &e))?;
        Ok(Line(to_agent))
    }

    /// Sends a request; an error means that the agent is gone.
    pub(crate) fn send(&mut self, request: &Request) -> Result<io::Result<()>, Fault> {
        let mut line = serde_json::to_vec(request)
            .map_err(|e| Fault::new(FaultKind::System, format!("cannot encode a request: {e}")))?;
        line.push(b'\n');
        Ok(self.0.write_all(&line).and_then(|()| self.0.flush()))
    }
}

fn read_replies(from_agent: Box<dyn Read + Send>, tell: &dyn Fn(News) -> bool) {
    let mut from_agent = BufReader::new(from_agent);
    match pass_preface(&mut from_agent) {
        Ok(()) => {}
        Err(Some(printed)) => {
            tell(News::Garbled(format!("no agent started; the output was: {printed}")));
            return;
        }
        Err(None) => {
            tell(News::Gone);
            return;
        }
    }
    while let Ok(Some(line)) = read_line(&mut from_agent) {
        let said = match serde_json::from_slice(&line) {
            Ok(reply) => News::Said(reply),
            Err(error) => News::Garbled(error.to_string()),
        };
        if !tell(said) {
            return;
        }
    }
    tell(News::Gone);
}

/// Skips whatever comes before the agent's first line. The error is what was
/// printed instead, or none where the pipe ended.
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
    fn what_a_login_shell_prints_is_passed_over() {
        let shell = format!("Welcome!\n\nLast login: today\nuser@host$ {SYNC}\nrest");
        assert_eq!(passed(&shell), (Ok(()), "rest".into()));
        assert_eq!(passed(&format!("{SYNC}\r\n")).0, Ok(()));
        assert_eq!(passed("").0, Err(None));
        assert_eq!(passed("Connection refused\n").0, Err(None));
    }

    #[test]
    fn what_goes_on_for_ever_is_not_an_agent() {
        let flood = "yes\n".repeat(LONGEST_PREFACE as usize);
        assert_eq!(passed(&flood).0, Err(Some("yes".into())));
        let (line, rest) = passed(&"x".repeat(2 * LONGEST_PREFACE as usize));
        assert!(line.unwrap_err().unwrap().starts_with("xxx"));
        assert_eq!(rest.len(), LONGEST_PREFACE as usize, "no more than that was read");
    }
}
