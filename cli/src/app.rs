//! The program's commands.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;
use clap::error::{ContextKind, ErrorKind};

use crate::args::{Cli, Command};
use crate::fatal::Fatal;
use crate::look;

/// Runs the program, and returns its exit status.
pub fn main() -> ExitCode {
    // Ignored by whoever starts us, it would hide how our children end.
    crate::sys::restore_child_signal();
    // What cannot be written is an error to be told.
    crate::sys::ignore_size_signal();
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(mut error) => {
            if error.kind() == ErrorKind::UnknownArgument {
                // To write it after `--`: what follows that is the command.
                error.remove(ContextKind::Suggested);
            }
            // Help goes to standard output and is no error; clap knows which is which.
            let _ = error.print();
            return if error.use_stderr() { ExitCode::from(2) } else { ExitCode::SUCCESS };
        }
    };
    if let Command::Map(map) = &cli.command
        && map.session
    {
        // Fails only for the leader of a group, which has a session of its own already or is run by
        // hand.
        let _ = rustix::process::setsid();
        // Else it is the last part of `/proc/self/exe`. Nothing rests on it.
        let _ = rustix::thread::set_name(c"ghostlight");
    }
    let ended = log().and_then(|()| match &cli.command {
        // Every simulated life has a runtime of its own.
        Command::Sim(args) => crate::sim::sim(args),
        _ => in_a_runtime(cli),
    });
    match ended {
        Ok(code) => code,
        Err(fatal) => {
            // Where that cannot be said either, the exit status says it.
            let _ = writeln!(std::io::stderr(), "ghostlight: {fatal}");
            ExitCode::from(fatal.code)
        }
    }
}

fn in_a_runtime(cli: Cli) -> Result<ExitCode, Fatal> {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Fatal::from).and_then(
        |runtime| {
            let ended = runtime.block_on(run(cli));
            // A thread may be waiting for standard input; it is nobody's business any more.
            runtime.shutdown_background();
            ended
        },
    )
}

async fn run(cli: Cli) -> Result<ExitCode, Fatal> {
    match cli.command {
        Command::Map(args) => crate::map::map(args).await,
        Command::Runs(args) => look::list(args).await,
        Command::Show(args) => look::show(args).await,
        Command::Tail(args) => look::tail(args).await,
        Command::Cancel(args) => look::cancel(args).await,
        Command::Clear(args) => look::clear(args).await,
        Command::Sim(args) => crate::sim::sim(&args),
    }
}

/// What is logged by default: errors, and what the store finds missing. That it has failed is said by
/// the command itself, in its last line.
const LOGGED: &str = "error,ghostlight_storage=warn,ghostlight_actors::node=off";

/// Logs to standard error what `GHOSTLIGHT_LOG` asks for.
///
/// # Errors
/// It asks for something that is not understood.
fn log() -> Result<(), Fatal> {
    let asked = std::env::var("GHOSTLIGHT_LOG").unwrap_or_default();
    let filter = match asked.trim() {
        "" => LOGGED,
        asked => asked,
    };
    let filter = tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| {
        let hint = "write a level, such as debug, or a filter, such as ghostlight_actors=debug";
        Fatal::new(format!("GHOSTLIGHT_LOG={asked:?} is not understood ({error}); {hint}"))
    })?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
    Ok(())
}
