//! The bytepath binary: parse, dispatch, print the error, exit.

#![warn(clippy::print_stderr, clippy::print_stdout)]

use bytepath::cli;
use bytepath::sys::allowance::Allocator;
use std::process::ExitCode;

/// The commit of this build, if `make` or a package passed it. It is here because Cargo then
/// builds only this file again after a commit.
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
    match cli::dispatch(cli::parse(COMMIT)) {
        Ok(code) => code,
        Err(fault) => {
            cli::explain(&fault);
            cli::exit_code(&fault)
        }
    }
}
