//! The `stream` workload as typed options.

use super::options::{resolve, split_values, usage};
use bytepath_record::OptionKind::{AutoSize, Choice, Count, Name, Size};
use bytepath_record::{Fault, MOST_FLOWS, OptionSpec, OptionValue, Options, Protocol, Stream, Tls};

/// The options of a stream; the same for every path.
pub const STREAM_OPTIONS: &[OptionSpec] = &[
    OptionSpec::new("protocol", Choice(&["tcp", "udp"]), "tcp").help(
        "transport protocol; with UDP each message is a datagram, and a lost one fails the trial",
    ),
    OptionSpec::new("flows", Count(1, MOST_FLOWS), "1").help(
        "connections; each has a thread at an end whose path is no event loop (256 threads at most)",
    ),
    OptionSpec::new("message-size", Size(1, 1 << 30), "1M")
        .help("bytes of one application message, and of the sender's buffer"),
    OptionSpec::new("read-size", Size(1, 1 << 30), "1M").help("bytes requested per read"),
    OptionSpec::new("read-memory", AutoSize(1, 1 << 30), "auto")
        .help("bytes of receiver memory that reads fill in turn; auto is one read"),
    OptionSpec::new("touch", Choice(&["none", "read", "verify"]), "none")
        .help("what the receiver does with each byte"),
    OptionSpec::new("congestion", Name, "cubic").help("TCP congestion control of both ends"),
    OptionSpec::new("send-buffer", AutoSize(4096, 1 << 30), "auto")
        .help("SO_SNDBUF in bytes; auto leaves the kernel's tuning on"),
    OptionSpec::new("receive-buffer", AutoSize(4096, 1 << 30), "auto")
        .help("SO_RCVBUF in bytes; auto leaves the kernel's tuning on"),
    OptionSpec::new("tls", Choice(&["none", "user", "kernel"]), "none")
        .help("who encrypts (TLS 1.3, AES-128-GCM): no one, the program, or the kernel (kTLS)"),
];

/// Most memory of all buffers of one trial, in bytes.
pub const MEMORY_LIMIT: u64 = 8 << 30;

/// Parses `key=value,...` into a stream; also returns the resolved options.
pub fn parse_stream(text: &str) -> Result<(Stream, Options), Fault> {
    let options = resolve("the stream workload", STREAM_OPTIONS, &split_values(text)?)?;
    let required = |name: &str| options.number(name).unwrap_or_default();
    let stream = Stream {
        protocol: options.word("protocol").parse().unwrap_or_default(),
        flows: required("flows") as u32,
        message_size: required("message-size"),
        read_size: required("read-size"),
        read_memory: options.number("read-memory"),
        send_buffer: options.number("send-buffer"),
        receive_buffer: options.number("receive-buffer"),
        congestion: options.word("congestion").to_owned(),
        touch: options.word("touch").parse().unwrap_or_default(),
        tls: options.word("tls").parse().unwrap_or_default(),
    };
    if stream.tls != Tls::None && stream.protocol != Protocol::Tcp {
        return Err(usage(format!("TLS takes a connection, and {} has none", stream.protocol))
            .remedy("choose protocol=tcp, or leave tls out"));
    }
    Ok((stream, options))
}

/// Parses the value of an option that has its own flag.
pub fn stream_value(name: &str, text: &str) -> Result<OptionValue, String> {
    declared(name).map_or_else(|| Err(format!("a stream has no {name}")), |o| o.kind.parse(text))
}

/// Adds options that were given as flags (`--flows 4`) to `key=value,...`. Errors if an option is
/// given both ways with different values.
pub fn with_flags(text: &str, flags: &[(&str, Option<&OptionValue>)]) -> Result<String, Fault> {
    let mut all: Vec<String> = vec![text.to_owned()];
    let typed_options = split_values(text)?;
    for (name, value) in flags {
        let (Some(value), Some(option)) = (value, declared(name)) else { continue };
        let printed = option.kind.print(value);
        match typed_options.iter().find(|(key, _)| key == name) {
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
    use bytepath_record::Touch;

    #[test]
    fn a_stream_is_read() {
        let (s, _) = parse_stream("flows=2,touch=verify,message-size=64M").unwrap();
        assert_eq!((s.flows, s.touch, s.message_size), (2, Touch::Verify, 64 << 20));
        assert_eq!((s.read_size, s.send_buffer), (1 << 20, None));
        assert_eq!(s.congestion, "cubic");
        assert_eq!(parse_stream("").unwrap().0, Stream::default());
    }

    #[test]
    fn who_encrypts_is_read() {
        for (text, tls) in [("", Tls::None), ("tls=user", Tls::User), ("tls=kernel", Tls::Kernel)] {
            assert_eq!(parse_stream(text).unwrap().0.tls, tls, "{text}");
        }
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
        let of = |text| parse_stream(text).unwrap_err().to_string();
        let who = "(it takes none|user|kernel: who encrypts (TLS 1.3, AES-128-GCM): no one, the program, or the kernel (kTLS))";
        assert!(of("tls=card").ends_with(who), "{}", of("tls=card"));
        let udp =
            "TLS takes a connection, and UDP has none (choose protocol=tcp, or leave tls out)";
        assert_eq!(of("tls=user,protocol=udp"), udp);
    }
}
