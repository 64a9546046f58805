//! The bytepath binary: parse, dispatch, print the error, exit.

use bytepath::cli;
use std::process::ExitCode;

fn main() -> ExitCode {
    match cli::dispatch(cli::parse()) {
        Ok(code) => code,
        Err(fault) => {
            cli::explain(&fault);
            cli::exit_code(&fault)
        }
    }
}
