//! The command line.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use ghostlight::{AgentPath, Status};

/// Runs commands over many inputs, durably: after any interruption, the same command line goes on
/// with exactly what was left.
#[derive(Debug, Parser)]
#[command(name = "ghostlight", version, max_term_width = 100)]
pub(crate) struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a command once for every input
    ///
    /// Inputs are the words before `--`, else every file under --files, else the lines of standard
    /// input. Each is one durable run. Interrupt it in any way, kill -9 and power cuts included,
    /// and start it again with the same words: what is done is not redone, and commands that
    /// outlived the program are taken over. What was printed before is printed again, from the
    /// store, so that every `map` that completes has printed everything.
    #[command(
        after_help = "Exit status: 0 all completed, 1 some did not, 2 wrong usage or environment, \
                      130 drained after Ctrl-C.",
        after_long_help = MAP_NOTES
    )]
    Map(MapArgs),
    /// List runs, oldest first
    ///
    /// ELAPSED is the time in seconds from the dispatch of a run to its end, in the queue and before
    /// an interruption included. How often a command had to be started again is in `show`. With --json, an
    /// input that is not all in `inputPreview` (no UTF-8, or cut) has its bytes in `inputBase64`, up to 1 KiB.
    Runs(RunsArgs),
    /// Show one run
    ///
    /// `restarts` is how often its command had to be started again: it had vanished without an exit
    /// status, as in a power cut, or was killed by a second Ctrl-C. Taking over a living command is none.
    /// `attempt` is not about the command but about the code that runs it, and stays 1.
    Show(OneRun),
    /// Print a run's output, and follow it while it runs
    ///
    /// With --json all its frames, as clients get them: output is in the body of chunks, as `text`, or as
    /// `base64` where it is no UTF-8.
    Tail(TailArgs),
    /// Cancel a run: TERM to its command, KILL after a grace time
    ///
    /// Of an id at least the first 8 characters are needed.
    Cancel(CancelArgs),
    /// Remove ended runs and their output; their ids are never used again
    ///
    /// The inputs of removed runs are as good as new: the next `map` of their batch executes them
    /// again. A batch of which no run is left is forgotten, with the inputs that --detach put aside.
    Clear(ClearArgs),
    /// Simulate crashes of agents that come with the program
    ///
    /// Executes each scenario once in peace, then once for every place at which the process can be
    /// killed, an agent be evicted, and an agent crash, then under plans of chance; on a simulated
    /// disk and a virtual clock, with every promise of the runtime checked after every event. What
    /// fails is printed with its timeline and the shortest plan that shows it. For agents of your
    /// own, see the documentation of the crate ghostlight-sim.
    #[command(after_help = "Exit status: 0 everything holds, 1 something does not, 2 wrong usage.")]
    Sim(SimArgs),
}

/// How often a command is started when it vanishes, where nothing else is asked for.
pub(crate) const MAX_ATTEMPTS: u32 = 10;

/// What `map --help` ends with.
const MAP_NOTES: &str = "\
With --json, standard output has one object a line, told apart by `type`:
  started     a run is known, queued or not: runId, input
  output      a line of output: runId, input, sequence, stream, text; base64 in
              place of text where it is no UTF-8; partial for a part of a long
              line, truncated where output was lost
  ended       the end of a run: runId, input, status, error, and whether that
              was before
  unreadable  an input that cannot be had: error
  read        the list of inputs is read to its end: what was left out
  note        something for people: text
  summary     the last line: how many runs ended how

Where `input` is not all of it (no UTF-8, or cut after 200 characters), started and ended have its \
bytes in inputBase64. So have `runs` and `show`, beside inputPreview, of inputs up to 1 KiB.

Exit status: 0 all completed, 1 some did not, 2 wrong usage or environment, 130 drained after Ctrl-C.";

/// Where the runs are.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// The folder that holds the runs
    #[arg(long, value_name = "DIR", default_value = ".ghostlight", global = false)]
    pub(crate) data: PathBuf,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ghostlight map`.
#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    /// Where to keep the runs, and how to print
    #[command(flatten)]
    pub(crate) place: Place,
    /// The name of the batch; by default it is made from the command, the working directory and the
    /// kind of input
    #[arg(long, value_name = "NAME", value_parser = parse_batch)]
    pub(crate) batch: Option<String>,
    /// How many commands run at the same time [default: number of cores]
    #[arg(long, short, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) jobs: Option<u32>,
    /// Try failed and cancelled inputs again
    #[arg(long)]
    pub(crate) retry_failed: bool,
    /// Take every file under this file or folder as an input; may be repeated. Left out are hidden
    /// entries, the data folder, folders that hold a CACHEDIR.TAG, links to folders, and broken links
    #[arg(long, value_name = "PATH")]
    pub(crate) files: Vec<PathBuf>,
    /// Standard input is NUL-separated
    #[arg(short = '0', long = "null")]
    pub(crate) null: bool,
    /// How often a command is started when it vanishes without an exit status [default: 10]
    #[arg(long, value_name = "N", value_parser = at_least_one, allow_negative_numbers = true)]
    pub(crate) max_attempts: Option<u32>,
    /// Survive a killed process, not a power cut: no waiting for the disk
    #[arg(long)]
    pub(crate) no_sync: bool,
    /// Put the inputs aside, beside those of before that are not done, go on in the background, and
    /// return once that has begun; `tail` and `runs` show what it does
    #[arg(long)]
    pub(crate) detach: bool,
    /// Serve HTTP on this address, too, such as 127.0.0.1:8080: to look at runs, not to change them,
    /// and only under a local name
    #[arg(long, value_name = "ADDR", value_parser = parse_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// Be a session of its own: how --detach starts the program again
    #[arg(long, hide = true)]
    pub(crate) session: bool,
    /// The inputs; if there are none, and no --files, the lines of standard input
    #[arg(value_name = "INPUT")]
    pub(crate) inputs: Vec<OsString>,
    /// The command and its arguments; `{}` in an argument is the input. No shell is involved. May be
    /// left out with --batch, to go on with a batch that --detach has begun
    #[arg(last = true, value_name = "COMMAND")]
    pub(crate) command: Vec<OsString>,
}

/// `ghostlight runs`.
#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Where the runs are, and how to print
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only runs of this batch
    #[arg(long, value_name = "NAME", value_parser = parse_batch)]
    pub(crate) batch: Option<String>,
    /// Only runs in this status: starting, running, completed, error, aborted or interrupted; may be
    /// repeated. What is shown as queued, suspended or cancelling is starting or running
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Vec<Status>,
}

/// One run.
#[derive(Debug, Args)]
pub(crate) struct OneRun {
    /// Where the runs are, and how to print
    #[command(flatten)]
    pub(crate) place: Place,
    /// The batch that the run is of, where several have one of this id
    #[arg(long, value_name = "NAME", value_parser = parse_batch)]
    pub(crate) batch: Option<String>,
    /// The run's id, the beginning of it, or its address (`Batch:NAME/Command:ID`)
    #[arg(value_name = "RUN", value_parser = parse_run)]
    pub(crate) run: String,
}

/// `ghostlight tail`.
#[derive(Debug, Args)]
pub(crate) struct TailArgs {
    /// Which run
    #[command(flatten)]
    pub(crate) run: OneRun,
    /// Go on after the frame of this number
    #[arg(long, value_name = "N", value_parser = parse_number, allow_negative_numbers = true)]
    pub(crate) after: Option<u64>,
}

/// `ghostlight cancel`.
#[derive(Debug, Args)]
pub(crate) struct CancelArgs {
    /// Which run
    #[command(flatten)]
    pub(crate) run: OneRun,
    /// Why
    #[arg(long, value_name = "TEXT", default_value = "cancelled from the command line")]
    pub(crate) reason: String,
}

/// `ghostlight sim`.
#[derive(Debug, Args)]
pub(crate) struct SimArgs {
    /// How many plans of chance to execute for each scenario
    #[arg(
        long,
        value_name = "N",
        default_value_t = 200,
        value_parser = parse_number,
        allow_negative_numbers = true
    )]
    pub(crate) seeds: u64,
    /// Only this scenario
    #[arg(long, value_name = "NAME")]
    pub(crate) scenario: Option<String>,
    /// Only this plan, as a failure prints it, such as `seed=7 latency=4 kill-before@12`
    #[arg(long, value_name = "PLAN", requires = "scenario", conflicts_with = "seeds")]
    pub(crate) plan: Option<String>,
    /// List the scenarios, and simulate nothing
    #[arg(long)]
    pub(crate) list: bool,
    /// Print one JSON object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// `ghostlight clear`.
#[derive(Debug, Args)]
pub(crate) struct ClearArgs {
    /// Where the runs are, and how to print
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only runs of this batch
    #[arg(long, value_name = "NAME", value_parser = parse_batch)]
    pub(crate) batch: Option<String>,
    /// Only runs that were recorded at least so long ago, such as 90s, 15m, 12h or 7d
    #[arg(long, value_name = "AGE", value_parser = parse_age)]
    pub(crate) older_than: Option<std::time::Duration>,
    /// Only runs in this status: completed, error or aborted; may be repeated
    #[arg(long, value_name = "STATUS")]
    pub(crate) status: Vec<Status>,
}

fn parse_number(text: &str) -> Result<u64, String> {
    text.parse().map_err(|_| "write a whole number, such as 7".to_owned())
}

fn at_least_one(text: &str) -> Result<u32, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err(format!("write a whole number from 1 to {}", u32::MAX)),
    }
}

fn parse_address(text: &str) -> Result<SocketAddr, String> {
    let hint = "write an IP address and a port, such as 127.0.0.1:8080 or [::1]:8080";
    text.parse().map_err(|_| hint.to_owned())
}

fn parse_batch(text: &str) -> Result<String, String> {
    let batch = AgentPath::root("Batch", text);
    batch.map(|_| text.to_owned()).map_err(|error| error.to_string())
}

fn parse_run(text: &str) -> Result<String, String> {
    match text.trim() {
        "" => Err("a blank text is the beginning of every id; write more of it".to_owned()),
        text => Ok(text.to_owned()),
    }
}

fn parse_age(text: &str) -> Result<std::time::Duration, String> {
    let hint = || format!("{text:?} is no age; write a number and s, m, h or d, such as 7d");
    let unit = text.chars().next_back().ok_or_else(hint)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(hint()),
    };
    let number: u64 = text[..text.len() - unit.len_utf8()].parse().map_err(|_| hint())?;
    let seconds = number.checked_mul(seconds).ok_or_else(hint)?;
    Ok(std::time::Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }

    #[test]
    fn ages_have_a_unit() {
        assert_eq!(parse_age("7d").unwrap().as_secs(), 7 * 86_400);
        assert_eq!(parse_age("90s").unwrap().as_secs(), 90);
        for bad in ["", "7", "d", "-1d", "1.5h", "7w", "99999999999999999999d", "1ö"] {
            assert!(parse_age(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_after_the_dashes_are_the_command() {
        let cli = Cli::parse_from(["ghostlight", "map", "a", "b", "--", "echo", "--json", "{}"]);
        let Command::Map(map) = cli.command else { panic!("not map") };
        assert_eq!(map.inputs, ["a", "b"]);
        assert_eq!(map.command, ["echo", "--json", "{}"]);
        assert!(!map.place.json);
    }
}
