//! The bytepath binary: parse, dispatch, print the error, exit.

use bytepath::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    if cli::is_guest_init() {
        return cli::guest_init();
    }
    match cli::dispatch(cli::parse()) {
        Ok(code) => code,
        Err(fault) => {
            cli::explain(&fault);
            cli::exit_code(&fault)
        }
    }
}
