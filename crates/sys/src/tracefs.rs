//! What tracefs says of a tracepoint: its number, and where the fields of its
//! records are. Documentation/trace/events.rst.

use std::io;
use std::path::{Path, PathBuf};

/// A tracepoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number, as perf_event_open(2) takes it.
    pub id: u64,
    format: String,
}

impl Event {
    /// Reads a tracepoint, from tracefs or where debugfs has it.
    pub fn open(sys: &Path, system: &str, name: &str) -> io::Result<Event> {
        let folders = ["kernel/tracing", "kernel/debug/tracing"];
        let paths: Vec<PathBuf> =
            folders.iter().map(|f| sys.join(f).join("events").join(system).join(name)).collect();
        let folder = paths.iter().find(|p| p.join("id").exists()).unwrap_or(&paths[0]);
        let id = std::fs::read_to_string(folder.join("id"))?;
        let format = std::fs::read_to_string(folder.join("format"))?;
        let id = id.trim().parse().map_err(|_| io::Error::from(io::ErrorKind::InvalidData))?;
        Ok(Event { id, format })
    }

    /// Offset in bytes of a field in the event's records.
    pub fn offset(&self, field: &str) -> Option<u16> {
        self.format.lines().find_map(|line| {
            let mut parts = line.trim().strip_prefix("field:")?.split(';').map(str::trim);
            let declaration = parts.next()?;
            let name = declaration.split('[').next()?.rsplit([' ', '*']).next()?;
            let offset = parts.find_map(|part| part.strip_prefix("offset:"))?;
            if name == field { offset.parse().ok() } else { None }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let format = "name: sys_enter\nformat:\n\tfield:int common_pid;\toffset:4;\tsize:4;\n\n\
            \tfield:long id;\toffset:8;\tsize:8;\tsigned:1;\n\
            \tfield:unsigned long args[6];\toffset:16;\tsize:48;\n\
            \tfield:const char *name;\toffset:64;\tsize:8;\n\
            \tfield:bad;\n";
        let event = Event { id: 1, format: format.into() };
        assert_eq!(event.offset("id"), Some(8));
        assert_eq!(event.offset("args"), Some(16));
        assert_eq!(event.offset("name"), Some(64));
        assert_eq!(event.offset("bad"), None);
        assert_eq!(event.offset("nothing"), None);
    }
}
