//! One input: finds or dispatches its run, and reports what becomes of it.

use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use ghostlight::frame::FrameEvent;
use ghostlight::{After, AgentHandle, Error, Lookup, Run, RunFilter, Status, Tail};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::report::{Event, RunEnd};
use crate::batch::{Batch, Command, CommandInput, Text};
use crate::fatal::Fatal;
use crate::inputs::{InputError, RunIds};
use crate::lines::LineChunk;

/// The most characters of an input that are shown.
const SHOWN_MAX: usize = 200;

/// One input that becomes a run.
pub(super) struct Job {
    base_id: String,
    input: Text,
    refused: Option<String>,
}

impl Job {
    pub(super) fn input(ids: &mut RunIds, input: OsString) -> Self {
        let base_id = ids.next_id(&input);
        Self { base_id, input: Text::from(input.as_os_str()), refused: None }
    }

    /// An input that cannot be run fails at once, once; what is no input is only reported.
    pub(super) fn refused(ids: &mut RunIds, error: InputError) -> Result<Self, String> {
        match &error {
            InputError::TooLong { start, hash, .. } => Ok(Self {
                base_id: ids.next_id_of_hash(hash),
                input: Text::from(start.as_os_str()),
                refused: Some(error.to_string()),
            }),
            _ => Err(error.to_string()),
        }
    }
}

#[derive(Clone)]
pub(super) struct Watcher {
    pub(super) agent: AgentHandle<Batch>,
    pub(super) command: Vec<Text>,
    pub(super) cwd: Text,
    pub(super) retry_failed: bool,
    pub(super) batch: String,
    pub(super) events: mpsc::Sender<Event>,
}

impl Watcher {
    /// Reports a run from its first line to its end; dispatches it first, unless it is known.
    pub(super) async fn watch(&self, job: Job) -> Result<(), Fatal> {
        let shown = shorten(&job.input.display());
        let (run, before) = match self.find_or_start(job).await {
            Ok(found) => found,
            Err(Problem::Stopped) => return Ok(()),
            Err(Problem::Fatal(fatal)) => return Err(fatal),
        };
        self.follow(run.id().into(), shown.into(), run.tail(After::START), before).await
    }

    /// The run of an input, and whether it had ended before.
    async fn find_or_start(&self, job: Job) -> Result<(Run<Command>, bool), Problem> {
        let mut highest = None;
        let mut next = 0u32;
        loop {
            match self.agent.agent_ref().lookup(&format!("{}~{next}", job.base_id)).await? {
                Lookup::Unknown => break,
                Lookup::Cleared => {}
                Lookup::Run(run) => highest = Some(run),
            }
            next += 1;
        }
        if let Some(run) = highest {
            let failed = matches!(run.status, Status::Error | Status::Aborted);
            if !(failed && self.retry_failed)
                && let Some(found) = self.agent.attach::<Command>(&run.run_id).await?
            {
                return Ok((found, run.status.is_hard()));
            }
        }
        let id = format!("{}~{next}", job.base_id);
        let input = CommandInput {
            command: self.command.clone(),
            input: job.input,
            cwd: self.cwd.clone(),
            refused: job.refused,
        };
        match self.dispatch(&id, input.clone()).await {
            Err(Problem::Fatal(_)) if input.refused.is_none() && is_large(&input) => {
                let refused =
                    format!("the input has {} bytes as JSON, more than 1 MiB", size(&input));
                let start: String = input.input.display().chars().take(256).collect();
                let input = Text::from(OsStr::new(&start));
                let command = self.command.clone();
                let cwd = self.cwd.clone();
                let input = CommandInput { command, input, cwd, refused: Some(refused) };
                Ok((self.dispatch(&id, input).await?, false))
            }
            result => Ok((result?, false)),
        }
    }

    async fn dispatch(&self, id: &str, input: CommandInput) -> Result<Run<Command>, Problem> {
        let preview = serde_json::Value::String(shorten(&input.input.display()));
        let started = self.agent.start::<Command>(input).id(id).input_preview(preview).await;
        started.map_err(|error| match error {
            Error::DifferentInput { .. } => Problem::Fatal(Fatal::new(format!(
                "{} was made with another command or working directory; give this one another --batch",
                self.batch
            ))),
            error => error.into(),
        })
    }

    /// Watches the runs of the batch that are alive although no input of the source is theirs.
    pub(super) async fn watch_left_over(
        &self,
        watching: &mut JoinSet<Result<(), Fatal>>,
    ) -> Result<usize, Fatal> {
        let filter =
            RunFilter { status: vec![Status::Starting, Status::Running], ..RunFilter::default() };
        let mut found = 0;
        let mut after = None;
        loop {
            let page = self.agent.list(&filter, after.as_ref(), 500).await?;
            for run in page.runs {
                let shown = run.input_preview.as_ref().and_then(|p| p.as_str()).unwrap_or_default();
                let shown: Arc<str> = shown.into();
                let tail = self.agent.tail(&run.run_id, After::START).await?;
                let watcher = self.clone();
                found += 1;
                watching.spawn(async move {
                    watcher.follow(run.run_id.as_str().into(), shown, tail, false).await
                });
            }
            match page.next {
                Some(next) => after = Some(next),
                None => return Ok(found),
            }
        }
    }

    async fn follow(
        &self,
        run_id: Arc<str>,
        input: Arc<str>,
        mut tail: Tail,
        before: bool,
    ) -> Result<(), Fatal> {
        let begin = Event::Began { run_id: Arc::clone(&run_id), input: Arc::clone(&input) };
        if self.events.send(begin).await.is_err() {
            return Ok(());
        }
        while let Some(frame) = tail.next().await {
            let frame = match frame {
                Ok(frame) => frame,
                Err(Error::Stopped) => return Ok(()),
                // Cleared by somebody else: its input counts as cancelled.
                Err(Error::Cleared(_)) => {
                    let end = RunEnd { status: Status::Aborted, error: Some("cleared".into()) };
                    let _ = self.events.send(Event::Ended { run_id, input, end, before }).await;
                    return Ok(());
                }
                Err(error) => return Err(error.into()),
            };
            let end = match &frame.event {
                FrameEvent::Started { .. } => continue,
                FrameEvent::Chunk { body, .. } => {
                    let Ok(chunk) = LineChunk::decode(body) else { continue };
                    let event = Event::Line {
                        run_id: Arc::clone(&run_id),
                        input: Arc::clone(&input),
                        sequence: frame.sequence,
                        chunk,
                    };
                    if self.events.send(event).await.is_err() {
                        return Ok(());
                    }
                    continue;
                }
                FrameEvent::Finished { .. } => RunEnd { status: Status::Completed, error: None },
                FrameEvent::Error { error, .. } => {
                    RunEnd { status: Status::Error, error: Some(error.clone()) }
                }
                FrameEvent::Aborted { reason, .. } => {
                    RunEnd { status: Status::Aborted, error: reason.clone() }
                }
                // Not over for good, but for this program: only the next one goes on with it.
                FrameEvent::Interrupted { error, .. } => {
                    RunEnd { status: Status::Interrupted, error: Some(error.clone()) }
                }
            };
            let _ = self.events.send(Event::Ended { run_id, input, end, before }).await;
            return Ok(());
        }
        Ok(())
    }
}

enum Problem {
    /// The program is stopping.
    Stopped,
    Fatal(Fatal),
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        match error {
            Error::Stopped => Self::Stopped,
            error => Self::Fatal(error.into()),
        }
    }
}

fn size(input: &CommandInput) -> usize {
    serde_json::to_vec(input).map_or(0, |bytes| bytes.len())
}

fn is_large(input: &CommandInput) -> bool {
    size(input) > 1 << 20
}

fn shorten(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
