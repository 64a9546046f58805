//! The `stream` workload as typed options.

use super::options::{resolve, split_values, usage};
use crate::record::{Fault, OptionKind, OptionSpec, OptionValue, Options, Protocol, Stream, Touch};

/// What can be set of a stream; the same for every path.
pub const STREAM_OPTIONS: &[OptionSpec] = &[
    OptionSpec {
        name: "protocol",
        kind: OptionKind::Choice(&["tcp", "udp"]),
        default: "tcp",
        help: "transport protocol; with UDP each message is a datagram, and a lost one fails the trial",
    },
    OptionSpec {
        name: "flows",
        kind: OptionKind::Count(1, 256),
        default: "1",
        help: "connections, each with a thread at both ends",
    },
    OptionSpec {
        name: "message-size",
        kind: OptionKind::Size(1, 1 << 30),
        default: "1M",
        help: "bytes of one application message, and of the sender's buffer",
    },
    OptionSpec {
        name: "read-size",
        kind: OptionKind::Size(1, 1 << 30),
        default: "1M",
        help: "bytes requested per read",
    },
    OptionSpec {
        name: "read-memory",
        kind: OptionKind::AutoSize(1, 1 << 30),
        default: "auto",
        help: "bytes of receiver memory that reads fill in turn; auto is one read",
    },
    OptionSpec {
        name: "touch",
        kind: OptionKind::Choice(&["none", "read", "verify"]),
        default: "none",
        help: "what the receiver does with each byte",
    },
    OptionSpec {
        name: "congestion",
        kind: OptionKind::Name,
        default: "cubic",
        help: "TCP congestion control of both ends",
    },
    OptionSpec {
        name: "send-buffer",
        kind: OptionKind::AutoSize(4096, 1 << 30),
        default: "auto",
        help: "SO_SNDBUF in bytes; auto leaves the kernel's tuning on",
    },
    OptionSpec {
        name: "receive-buffer",
        kind: OptionKind::AutoSize(4096, 1 << 30),
        default: "auto",
        help: "SO_RCVBUF in bytes; auto leaves the kernel's tuning on",
    },
];

/// Memory that all buffers of one trial may take together, bytes.
pub(super) const MEMORY_LIMIT: u64 = 8 << 30;

/// Reads `key=value,...` into a stream; also returns the resolved options.
pub fn parse_stream(text: &str) -> Result<(Stream, Options), Fault> {
    let options = resolve("the stream workload", STREAM_OPTIONS, &split_values(text)?)?;
    let required = |name: &str| options.number(name).unwrap_or_default();
    let stream = Stream {
        protocol: match options.word("protocol") {
            "udp" => Protocol::Udp,
            _ => Protocol::Tcp,
        },
        flows: required("flows") as u32,
        message_size: required("message-size"),
        read_size: required("read-size"),
        read_memory: options.number("read-memory"),
        send_buffer: options.number("send-buffer"),
        receive_buffer: options.number("receive-buffer"),
        congestion: options.word("congestion").to_owned(),
        touch: match options.word("touch") {
            "read" => Touch::Read,
            "verify" => Touch::Verify,
            _ => Touch::None,
        },
    };
    let memory = stream.buffers();
    if memory > MEMORY_LIMIT {
        let gib = memory >> 30;
        return Err(usage(format!("the buffers of all flows would take {gib} GiB"))
            .remedy("choose fewer flows, or smaller messages and reads"));
    }
    Ok((stream, options))
}

/// Reads the value of one option that has a flag of its own.
pub fn stream_value(name: &str, text: &str) -> Result<OptionValue, String> {
    declared(name).map_or_else(|| Err(format!("a stream has no {name}")), |o| o.kind.parse(text))
}

/// `key=value,...` together with options that were given as flags (`--flows 4`). One that was
/// given both ways has to be the same.
pub fn with_flags(text: &str, flags: &[(&str, Option<&OptionValue>)]) -> Result<String, Fault> {
    let mut all: Vec<String> = vec![text.to_owned()];
    let given = split_values(text)?;
    for (name, value) in flags {
        let (Some(value), Some(option)) = (value, declared(name)) else { continue };
        let printed = option.kind.print(value);
        match given.iter().find(|(key, _)| key == name) {
            None => all.push(format!("{name}={printed}")),
            Some((_, other)) if option.kind.parse(other).is_ok_and(|other| other != **value) => {
                let both = format!("--{name} {printed} contradicts --stream {name}={other}");
                return Err(usage(both).remedy("leave one of them out"));
            }
            Some(_) => {}
        }
    }
    Ok(all.join(","))
}

fn declared(name: &str) -> Option<&'static OptionSpec> {
    STREAM_OPTIONS.iter().find(|option| option.name == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_read() {
        let (s, _) = parse_stream("flows=2,touch=verify,message-size=64M").unwrap();
        assert_eq!((s.flows, s.touch, s.message_size), (2, Touch::Verify, 64 << 20));
        assert_eq!((s.read_size, s.send_buffer), (1 << 20, None));
        assert_eq!(s.congestion, "cubic");
        assert_eq!(parse_stream("").unwrap().0, Stream::default());
    }

    #[test]
    fn a_flag_and_the_same_option_must_not_contradict() {
        let four = stream_value("flows", "4").unwrap();
        let with = |text: &str| with_flags(text, &[("flows", Some(&four)), ("touch", None)]);
        assert_eq!(parse_stream(&with("touch=read").unwrap()).unwrap().0.flows, 4);
        assert_eq!(parse_stream(&with("flows=4").unwrap()).unwrap().0.flows, 4);
        let fault = with("flows=2").unwrap_err().to_string();
        assert_eq!(fault, "--flows 4 contradicts --stream flows=2 (leave one of them out)");
        assert!(parse_stream(&with("flows=many").unwrap()).unwrap_err().message.contains("many"));
    }

    #[test]
    fn nonsense_is_refused() {
        for text in
            ["flows=0", "message-size=0", "read-size=2G", "read-memory=2G", "touch=all", "mtu=9000"]
        {
            assert!(parse_stream(text).is_err(), "{text}");
        }
        assert!(parse_stream("flows=256,message-size=1G").unwrap_err().message.contains("GiB"));
    }
}
