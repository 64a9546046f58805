//! The bytepath binary: parse, dispatch, print the error, exit.

#![warn(clippy::print_stderr, clippy::print_stdout)]

use bytepath::cli;
use bytepath::record::Fault;
use bytepath::sys::allowance::Allocator;
use bytepath::sys::process;
use std::process::ExitCode;
use std::thread;

/// The commit of this build, if `make` or a package passed it. It is in this file so that Cargo
/// rebuilds nothing else after a commit.
const COMMIT: Option<&str> = match option_env!("BYTEPATH_COMMIT") {
    Some(commit) if !commit.is_empty() => Some(commit),
    _ => option_env!("BYTEPATH_PACKAGED"),
};

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

fn main() -> ExitCode {
    if cli::is_guest_init() {
        return cli::guest_init();
    }
    let ended = with_stack(|| cli::dispatch(cli::parse(COMMIT)));
    ended.unwrap_or_else(|fault| {
        cli::explain(&fault);
        cli::exit_code(&fault)
    })
}

/// Runs the command, on a separate thread if the stack of the main thread is limited to less than
/// usual (`ulimit -s`).
fn with_stack<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, Fault> + Send + 'static,
) -> Result<T, Fault> {
    if process::stack_limit().is_none_or(|limit| limit >= STACK as u64) {
        return run();
    }
    let thread = thread::Builder::new().stack_size(STACK).spawn(run);
    let thread = thread.map_err(|e| Fault::not_started("a thread", &e))?;
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Usual stack size of a main thread in bytes.
const STACK: usize = 8 << 20;
