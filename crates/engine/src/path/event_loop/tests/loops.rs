//! The list of loops, with options, that the tests of all workloads run.

pub(crate) type Given = &'static [(&'static str, &'static str)];
pub(crate) type Loop = (&'static str, Given);

/// Over the kernel's TCP, with one thread.
pub(crate) const LOOPS: &[Loop] = &[
    ("epoll", &[]),
    ("epoll", &[("events", "1"), ("optimistic", "on")]),
    ("epoll", &[("optimistic", "off")]),
    ("epoll", &[("trigger", "edge")]),
    ("epoll", &[("trigger", "edge"), ("optimistic", "on"), ("events", "1")]),
    ("epoll", &[("trigger", "edge"), ("optimistic", "off")]),
    ("epoll", &[("trigger", "oneshot")]),
    ("epoll", &[("trigger", "oneshot"), ("optimistic", "off")]),
    ("epoll", &[("busy-poll", "50"), ("busy-poll-budget", "16")]),
    ("epoll", &[("trigger", "edge"), ("busy-poll", "50"), ("prefer-busy-poll", "on")]),
    ("poll", &[]),
    ("poll", &[("optimistic", "off")]),
    ("uring-loop", &[]),
    ("uring-loop", &[("buffers", "1"), ("buffer-size", "64")]),
    ("uring-loop", &[("wait", "8"), ("min-wait", "200")]),
    ("uring-loop", &[("task-run", "defer"), ("bundle", "on")]),
    ("uring-loop", &[("task-run", "coop"), ("incremental", "on")]),
    ("uring-loop", &[("task-run", "coop"), ("bundle", "on"), ("incremental", "on")]),
    ("uring-loop", &[("task-run", "default")]),
    ("uring-loop", &[("buffers", "3"), ("buffer-size", "64"), ("bundle", "on")]),
    ("uring-loop", &[("buffers", "2"), ("buffer-size", "70"), ("incremental", "on")]),
    ("uring-loop", &[("buffers", "2"), ("buffer-size", "1000")]),
    ("uring-loop", &[("buffers", "3"), ("buffer-size", "1000"), ("bundle", "on")]),
    ("uring-loop", &[("buffers", "3"), ("buffer-size", "1000"), ("incremental", "on")]),
    ("uring-loop", &[("sqpoll", "on")]),
    ("uring-loop", &[("sqpoll", "on"), ("bundle", "on"), ("incremental", "on")]),
    ("uring-loop", &[("sqpoll", "on"), ("buffers", "1"), ("buffer-size", "64")]),
    ("uring-loop", &[("busy-poll", "50"), ("prefer-busy-poll", "on")]),
    ("uring-loop", &[("busy-poll", "50"), ("task-run", "coop"), ("bundle", "on")]),
];

/// Over the TCP stack in this process, with lasting connections.
pub(crate) const STACK_LOOPS: &[Loop] = &[
    ("userspace-loop", &[]),
    ("userspace-loop", &[("wait", "spin")]),
    ("userspace-loop", &[("loss", "10")]),
];

/// Several threads: two that share the connections, or one per connection.
pub(crate) const THREADED_LOOPS: &[Loop] = &[
    ("epoll", &[("threads", "2")]),
    ("poll", &[("threads", "2")]),
    ("uring-loop", &[("threads", "2")]),
    ("socket", &[]),
];

/// For lasting connections: a thread per connection that waits in another way, and a fixed list of
/// queues to poll.
pub(crate) const WAITING: &[Loop] = &[
    ("socket", &[("wait", "epoll")]),
    ("socket", &[("wait", "epoll"), ("busy-poll", "50"), ("prefer-busy-poll", "on")]),
    ("socket", &[("busy-poll", "50"), ("prefer-busy-poll", "on"), ("busy-poll-budget", "16")]),
    ("uring-loop", &[("busy-poll", "50"), ("napi-tracking", "static")]),
];

/// Returns the loops of several lists, one after the other.
pub(crate) fn all(lists: &[&'static [Loop]]) -> impl Iterator<Item = &'static Loop> {
    lists.iter().flat_map(|list| list.iter())
}

/// True if a loop has too few buffers for `at_once` bytes, and so must run out of them. With a
/// kernel thread that receives concurrently (sqpoll), buffers may be returned in time.
pub(crate) fn is_short(given: Given, at_once: u64) -> bool {
    let number = |name: &str| {
        let value = given.iter().find(|(option, _)| *option == name)?.1;
        value.parse::<u64>().ok()
    };
    let room = number("buffers").zip(number("buffer-size")).map(|(buffers, size)| buffers * size);
    room.is_some_and(|room| room < at_once) && !given.contains(&("sqpoll", "on"))
}
