//! The `ghostlight` program.

use std::process::ExitCode;

fn main() -> ExitCode {
    // First of all: a shim must fork before any thread or runtime exists.
    if let Some(code) = ghostlight_cli::shim::enter() {
        return code;
    }
    ghostlight_cli::app::main()
}
