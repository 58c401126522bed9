//! `ghostlight tail`: what a run has printed, and what it prints from now on, over any number of
//! owners of the folder.

use std::io::{StdoutLock, Write};
use std::process::ExitCode;
use std::time::Duration;

use ghostlight::After;
use ghostlight::frame::{Frame, FrameEvent, ReservedBody};

use super::find::find;
use super::{Early, Unwritten, end};
use crate::access::{Access, Folder, Followed};
use crate::args::TailArgs;
use crate::batch::COMMAND_LOST;
use crate::fatal::Fatal;
use crate::lines::{LineChunk, Stream};

/// How long the folder is left alone between two looks while it has no owner.
const NO_OWNER_WAIT: Duration = Duration::from_secs(1);

/// How long a tail waits for an owner that starts or stops.
const OWNER_WAIT: Duration = Duration::from_secs(120);

/// Prints a run's frames to its end.
pub(crate) async fn tail(args: TailArgs) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.run.place.data)?;
    end(follow(&folder, &args).await)
}

async fn follow(folder: &Folder, args: &TailArgs) -> Result<ExitCode, Early> {
    let mut printer = Printer { json: args.run.place.json, number: args.after };
    let (parent, run_id) =
        folder.with(async |access| Ok(find(access, &args.run, 1).await?)).await?;
    loop {
        let access = folder.access_within(OWNER_WAIT).await?;
        let direct = matches!(access, Access::Direct(_));
        match access.follow(&parent, &run_id, &mut printer).await? {
            Followed::More => {}
            Followed::Ended(code) => return Ok(code),
            // The folder has no owner: the store is not held while we wait for one.
            Followed::Cut if direct => folder.wait_for_owner(NO_OWNER_WAIT).await,
            Followed::Cut => {}
        }
    }
}

/// Prints frames, and remembers where it is.
pub(crate) struct Printer {
    json: bool,
    number: Option<u64>,
}

impl Printer {
    /// After which frame to go on.
    pub(crate) fn after(&self) -> After {
        self.number.map_or(After::START, After::number)
    }

    /// The number of the last frame that was printed.
    pub(crate) fn number(&self) -> Option<u64> {
        self.number
    }

    /// Prints a frame; returns the exit status after the run's hard end.
    pub(crate) fn frame(&mut self, frame: &Frame) -> Result<Option<ExitCode>, Early> {
        self.number = Some(frame.sequence);
        if self.json {
            let mut out = std::io::stdout().lock();
            self.write(writeln!(out, "{}", frame.to_json()))?;
        } else if let FrameEvent::Chunk { body, .. } = &frame.event {
            self.chunk(body)?;
        }
        Ok(match &frame.event {
            FrameEvent::Finished { .. } => Some(ExitCode::SUCCESS),
            FrameEvent::Error { error, .. } => {
                self.note(&format!("error: {error}"));
                Some(ExitCode::FAILURE)
            }
            FrameEvent::Aborted { reason, .. } => {
                self.note(&format!("aborted: {}", reason.as_deref().unwrap_or("no reason given")));
                Some(ExitCode::FAILURE)
            }
            FrameEvent::Interrupted { error, .. } => {
                self.note(&format!("interrupted: {error}"));
                None
            }
            FrameEvent::Started { .. } | FrameEvent::Chunk { .. } => None,
        })
    }

    /// Nothing follows at once: what was printed should be seen.
    pub(crate) fn flush(&self) -> Result<(), Early> {
        self.write(std::io::stdout().lock().flush())
    }

    fn chunk(&self, body: &str) -> Result<(), Early> {
        let mut out: StdoutLock<'_> = std::io::stdout().lock();
        match LineChunk::decode(body) {
            Ok(chunk) if chunk.truncated => {
                drop(out);
                self.note(&chunk.truncation());
                Ok(())
            }
            Ok(chunk) if chunk.stream == Stream::Stdout => self.write(out.write_all(&chunk.bytes)),
            Ok(chunk) => self.write(std::io::stderr().lock().write_all(&chunk.bytes)),
            Err(_) => match ReservedBody::parse(body) {
                Some(ReservedBody::Milestone(milestone)) if milestone.name == COMMAND_LOST => {
                    drop(out);
                    self.note("the command was lost, and is started again");
                    Ok(())
                }
                _ => self.write(writeln!(out, "{body}")),
            },
        }
    }

    fn note(&self, text: &str) {
        if !self.json {
            // What the run has printed comes first; a closed output shows with the next frame.
            let _ = std::io::stdout().lock().flush();
            let _ = writeln!(std::io::stderr(), "ghostlight: {text}");
        }
    }

    fn write(&self, written: std::io::Result<()>) -> Result<(), Early> {
        Ok(written.map_err(Unwritten)?)
    }
}
