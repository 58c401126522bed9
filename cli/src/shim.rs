//! shim
pub fn enter() -> Option<std::process::ExitCode> { None }
