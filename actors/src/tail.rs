//! Tails: a run's frames from any point on, first from the log, then live, without gap or repeat.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};

use futures_core::Stream;
use ghostlight_protocol::frame::Frame;
use ghostlight_protocol::planted::{Planted, planted};
use ghostlight_protocol::{Phase, RunId, RunKey};
use tokio::sync::broadcast;
use tokio::sync::broadcast::error::RecvError;

use crate::Error;
use crate::agent_ref::AgentRef;
use crate::agents::OpenTail;
use crate::frame_page::{self, LogEnd, read_log};
use crate::frames::FrameMaker;
use crate::hub::{Leave, Published};
use crate::node::Node;
use crate::place::{self, Awaiting};

/// After which frame a tail begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct After(Option<u64>);

impl After {
    /// From the first frame on.
    pub const START: Self = Self(None);

    /// After the frame of this number, which the reader has.
    pub fn number(number: u64) -> Self {
        Self(Some(number))
    }

    /// The number of the first frame after it.
    pub(crate) fn next(self) -> u64 {
        self.0.map_or(0, |number| number.saturating_add(1))
    }
}

impl From<u64> for After {
    fn from(number: u64) -> Self {
        Self::number(number)
    }
}

/// The frames of a run; also a [`Stream`].
///
/// Every frame that was durable is there once, in order, with the number that every other reader
/// sees. The tail ends after the run's hard end; an `interrupted` frame does not end it. A reader
/// that falls behind slows nobody down: it is caught up from the log.
///
/// The code of a run reads tails in steps only. Nothing records what a tail has shown, and when: code
/// that goes on by it takes another way after a crash. Outside a step the tail gives
/// [`Error::TailOutsideStep`], and is over.
pub struct Tail {
    source: Option<Source>,
    reading: Option<Reading>,
    stage: Arc<AtomicU8>,
    node: Arc<Node>,
    run_id: RunId,
}

/// What a tail does that is not ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stage {
    /// Reads the log: there may be more frames.
    Reading,
    /// Waits until the run may be shown.
    Hidden,
    /// Has delivered everything that was durable, and waits for the next frame.
    Live,
}

type Reading = Pin<Box<dyn Future<Output = (Source, Option<Result<Arc<Frame>, Error>>)> + Send>>;

pub(crate) struct Source {
    agent: AgentRef,
    run: RunKey,
    run_id: RunId,
    frames: Option<FrameMaker>,
    /// Subscribed once the log was read to its end: most readers of a run that has ended never do.
    live: Option<broadcast::Receiver<Published>>,
    /// Gone once the tail is over.
    open: Option<OpenTail>,
    /// After `live`: fields are dropped in their order.
    _leave: Leave,
    /// The number of the next frame to deliver.
    next: u64,
    /// How many frames the log is known to have.
    known: u64,
    /// Read from the log, and not delivered yet.
    page: VecDeque<Frame>,
    /// A [`Stage`].
    stage: Arc<AtomicU8>,
    /// The log may have more than was read.
    behind: bool,
    over: bool,
}

impl Tail {
    pub(crate) fn new(agent: &AgentRef, run_id: RunId, after: After) -> Self {
        let run = RunKey::new(&agent.path, &run_id);
        let stage = Arc::new(AtomicU8::new(Stage::Reading as u8));
        let source = Source {
            stage: Arc::clone(&stage),
            _leave: Leave::new(&agent.node, run),
            open: Some(OpenTail::new(&agent.node, &agent.path)),
            agent: agent.clone(),
            run,
            run_id: run_id.clone(),
            frames: None,
            live: None,
            next: after.next(),
            known: 0,
            page: VecDeque::new(),
            behind: true,
            over: false,
        };
        let node = Arc::clone(&agent.node);
        Self { source: Some(source), reading: None, stage, node, run_id }
    }

    /// The next frame; `None` after the run's hard end. A position beyond the end of the log waits
    /// for the end as well.
    ///
    /// # Errors
    /// [`Error::UnknownRun`], [`Error::Cleared`] when the run is cleared, [`Error::Stopped`] when
    /// the system stops, [`Error::TailOutsideStep`] in the code of a run, and failures of the store;
    /// the tail is over then.
    ///
    /// # Cancel safety
    /// May be dropped at any time: no frame is lost.
    pub async fn next(&mut self) -> Option<Result<Arc<Frame>, Error>> {
        std::future::poll_fn(|cx| self.poll_shown(cx)).await
    }

    /// As [`Tail::poll_frame`], for the code of users.
    fn poll_shown(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Arc<Frame>, Error>>> {
        let is_over = self.source.is_none() && self.reading.is_none();
        if !is_over && place::is_between_steps(&self.node) {
            (self.source, self.reading) = (None, None);
            return Poll::Ready(Some(Err(Error::TailOutsideStep(self.run_id.to_string()))));
        }
        match self.poll_frame(cx) {
            // As everywhere: no code of a run sees that the system stops.
            Poll::Ready(Some(Err(Error::Stopped))) if place::is_run(&self.node) => Poll::Pending,
            shown => shown,
        }
    }

    /// What the tail does, when it is not ready.
    pub(crate) fn stage(&self) -> Stage {
        match self.stage.load(Ordering::Relaxed) {
            stage if stage == Stage::Live as u8 => Stage::Live,
            stage if stage == Stage::Hidden as u8 => Stage::Hidden,
            _ => Stage::Reading,
        }
    }

    pub(crate) fn poll_frame(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Arc<Frame>, Error>>> {
        if let Some(mut source) = self.source.take() {
            self.reading = Some(Box::pin(async move {
                let frame = source.frame().await;
                (source, frame)
            }));
        }
        let Some(reading) = &mut self.reading else { return Poll::Ready(None) };
        let (source, frame) = std::task::ready!(reading.as_mut().poll(cx));
        self.reading = None;
        self.source = Some(source);
        Poll::Ready(frame)
    }
}

impl Stream for Tail {
    type Item = Result<Arc<Frame>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_shown(cx)
    }
}

impl Source {
    async fn frame(&mut self) -> Option<Result<Arc<Frame>, Error>> {
        let _awaiting = Awaiting::begin(&self.agent.node);
        loop {
            if self.over {
                self.open = None;
                return None;
            }
            if let Some(frame) = self.page.pop_front() {
                return Some(Ok(self.deliver(Arc::new(frame))));
            }
            if self.behind {
                if let Err(error) = self.read().await {
                    self.over = true;
                    return Some(Err(error));
                }
                continue;
            }
            let Some(live) = &mut self.live else {
                self.live = Some(self.agent.node.hub.subscribe(self.run));
                if planted(Planted::TailGap) {
                    self.next += 1;
                }
                // Once more, so that nothing falls between the two.
                self.behind = true;
                continue;
            };
            self.stage.store(Stage::Live as u8, Ordering::Relaxed);
            let received = live.recv().await;
            self.stage.store(Stage::Reading as u8, Ordering::Relaxed);
            match received {
                Ok(Published::Frame(frame)) if frame.sequence == self.next => {
                    return Some(Ok(self.deliver(frame)));
                }
                // Read from the log already, or before the reader's position.
                Ok(Published::Frame(frame)) if frame.sequence < self.next => {
                    self.over = frame.event.is_hard_end();
                }
                // A gap, or so far behind that frames were dropped.
                Ok(Published::Frame(_)) | Err(RecvError::Lagged(_)) => self.behind = true,
                Ok(Published::Stored(sequence)) => self.behind = sequence >= self.next,
                Ok(Published::Cleared) => {
                    self.over = true;
                    return Some(Err(Error::Cleared(self.run_id.to_string())));
                }
                Err(RecvError::Closed) => {
                    self.over = true;
                    return Some(Err(self.agent.node.gone()));
                }
            }
        }
    }

    fn deliver(&mut self, frame: Arc<Frame>) -> Arc<Frame> {
        self.next = frame.sequence + 1;
        self.over = frame.event.is_hard_end();
        frame
    }

    /// Reads the next page of the log.
    async fn read(&mut self) -> Result<(), Error> {
        let committer = &self.agent.node.committer;
        if let Some(maker) = &self.frames {
            let (run, run_id) = (self.run, &self.run_id);
            let page = read_log(committer, run, run_id, maker, self.next, self.known).await?;
            if !page.is_empty() {
                self.page.extend(page);
                return Ok(());
            }
        }
        let stored = frame_page::stored(committer, self.run, &self.run_id).await?;
        if self.frames.is_none()
            && matches!(stored.record.state.phase, Phase::Queued | Phase::Starting)
        {
            // Frame 0 is shown after the start hook.
            self.stage.store(Stage::Hidden as u8, Ordering::Relaxed);
            let shown = self.agent.shown(&self.run_id).await;
            self.stage.store(Stage::Reading as u8, Ordering::Relaxed);
            shown?;
        }
        self.frames.get_or_insert_with(|| FrameMaker::new(&stored.record));
        let end = LogEnd::from(&stored);
        self.known = end.frames;
        self.behind = self.next < end.frames;
        // Of a run that has ended nothing is published any more.
        self.over = !self.behind && end.ended;
        Ok(())
    }
}
