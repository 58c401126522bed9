//! One input: finds or dispatches its run, and reports what becomes of it.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::future::{Future, poll_fn};
use std::sync::Arc;
use std::task::Poll;

use ghostlight::frame::FrameEvent;
use ghostlight::{After, AgentHandle, Error, Lookup, Run, Status, Tail};

use super::report::{Event, Events, Input, RunEnd};
use crate::batch::{Batch, Command, CommandInput, Text};
use crate::fatal::Fatal;
use crate::inputs::{InputError, RunIds};
use crate::lines::LineChunk;

/// The most bytes of a run's input, as the framework has it.
const INPUT_JSON_BYTES_MAX: usize = 1 << 20;

/// One input that becomes a run.
pub(super) struct Job {
    base_id: String,
    input: Text,
    shown: Input,
    refused: Option<String>,
    /// How many came before it.
    order: i64,
}

impl Job {
    pub(super) fn input(ids: &mut RunIds, order: i64, input: OsString) -> Self {
        let base_id = ids.next_id(&input);
        let input = Text::from(input.as_os_str());
        Self { base_id, shown: Input::new(&input), input, refused: None, order }
    }

    /// An input that cannot be run fails at once, once; what is no input is only reported.
    pub(super) fn refused(ids: &mut RunIds, order: i64, error: InputError) -> Result<Self, String> {
        match &error {
            InputError::TooLong { start, hash, .. } => {
                let input = Text::from(start.as_os_str());
                Ok(Self {
                    base_id: ids.next_id_of_hash(hash),
                    shown: Input::beginning(&input),
                    input,
                    refused: Some(error.to_string()),
                    order,
                })
            }
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
    /// When the program began: what ended earlier was done before.
    pub(super) began_ms: u64,
    pub(super) events: Events,
}

impl Watcher {
    /// Finds the run of an input, dispatches it if it is new, and returns what reports it to its
    /// end. Runs are dispatched in the order of these calls.
    pub(super) async fn begin(
        &self,
        job: Job,
        left_over: &mut BTreeSet<String>,
    ) -> Result<impl Future<Output = Result<(), Fatal>> + Send + 'static, Fatal> {
        let shown = job.shown.clone();
        let found = match self.find(&job.base_id).await {
            Ok(found) => Some(found),
            Err(Problem::Stopped) => None,
            Err(Problem::Fatal(fatal)) => return Err(fatal),
        };
        let (id, before) = found.clone().unwrap_or_default();
        left_over.remove(&id);
        let watcher = self.clone();
        let mut dispatch = Box::pin(async move { watcher.dispatch(&id, job).await });
        // Polled once here, so that it is sent before the next one.
        let sent = match &found {
            Some(_) => poll_fn(|cx| Poll::Ready(dispatch.as_mut().poll(cx))).await,
            None => Poll::Ready(Err(Problem::Stopped)),
        };
        let watcher = self.clone();
        Ok(async move {
            let run = match sent {
                Poll::Ready(run) => run,
                Poll::Pending => dispatch.await,
            };
            match run {
                Ok(run) => {
                    let tail = run.tail(After::START);
                    watcher.follow(run.id().into(), shown, tail, before).await
                }
                Err(Problem::Stopped) => Ok(()),
                Err(Problem::Fatal(fatal)) => Err(fatal),
            }
        })
    }

    /// The id of an input's run, and whether that has ended already. It is the highest one that
    /// exists; the next one where there is none, or where a failed one is tried again.
    async fn find(&self, base_id: &str) -> Result<(String, bool), Problem> {
        let mut highest = None;
        let mut next = 0u32;
        loop {
            match self.agent.agent_ref().lookup(&format!("{base_id}~{next}")).await? {
                Lookup::Unknown => break,
                // What was before a cleared run is not the input's any more.
                Lookup::Cleared => highest = None,
                Lookup::Run(run) => highest = Some(run),
            }
            next += 1;
        }
        match highest {
            Some(run) if !(self.retry_failed && is_failed(run.status)) => {
                let before = run.completed_at.is_some_and(|at| at < self.began_ms);
                Ok((run.run_id.clone(), before))
            }
            _ => Ok((format!("{base_id}~{next}"), false)),
        }
    }

    async fn dispatch(&self, id: &str, job: Job) -> Result<Run<Command>, Problem> {
        let mut input = CommandInput {
            command: self.command.clone(),
            input: job.input,
            cwd: self.cwd.clone(),
            refused: job.refused,
        };
        let bytes = serde_json::to_vec(&input).map_or(0, |bytes| bytes.len());
        if bytes > INPUT_JSON_BYTES_MAX {
            let start: String = input.input.display().chars().take(256).collect();
            input.input = Text::from(OsStr::new(&start));
            input.refused = Some(format!("the input has {bytes} bytes as JSON, more than 1 MiB"));
        }
        let preview = serde_json::Value::String(job.shown.to_string());
        let start = self.agent.start::<Command>(input).id(id).input_preview(preview);
        let start = start.display_order(job.order);
        let started = match job.shown.row() {
            Some(row) => start.display(row).await,
            None => start.await,
        };
        started.map_err(|error| match error {
            Error::DifferentInput { .. } => Problem::Fatal(Fatal::new(format!(
                "{} was made with another command or working directory; give this one another --batch",
                self.batch
            ))),
            error => error.into(),
        })
    }

    /// Reports a run of the batch that no input of the source is for.
    pub(super) async fn watch_left_over(self, run_id: String) -> Result<(), Fatal> {
        let shown = match self.agent.agent_ref().lookup(&run_id).await? {
            Lookup::Run(run) => Input::of_run(&run),
            // Cleared meanwhile: it is nobody's any more.
            Lookup::Unknown | Lookup::Cleared => return Ok(()),
        };
        let tail = self.agent.tail(&run_id, After::START).await?;
        self.follow(run_id.into(), shown, tail, false).await
    }

    async fn follow(
        &self,
        run_id: Arc<str>,
        input: Input,
        mut tail: Tail,
        before: bool,
    ) -> Result<(), Fatal> {
        let begin = Event::Began { run_id: Arc::clone(&run_id), input: input.clone() };
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
                        input: input.clone(),
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

fn is_failed(status: Status) -> bool {
    matches!(status, Status::Error | Status::Aborted)
}
