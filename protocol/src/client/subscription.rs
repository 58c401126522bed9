use super::{SeenFrames, State};
use crate::frame::{Frame, FrameError, FrameEvent};

/// What stands behind one connection to a parent: its runs, rebuilt from the messages received.
///
/// Outlives reconnects: the frames of a replay that were seen before are dropped, whether they came
/// live or in another replay. Messages of one run must arrive in its order.
///
/// # Examples
///
/// ```
/// use ghostlight_protocol::client::{Received, Subscription};
///
/// let mut runs = Subscription::new();
/// for message in [
///     r#"{"type":"agent-tool-event","sequence":0,"event":{"kind":"started","runId":"r1","agentType":"Importer","order":0}}"#,
///     r#"{"type":"agent-tool-event","sequence":1,"event":{"kind":"finished","runId":"r1","summary":"3 rows"}}"#,
/// ] {
///     assert_eq!(runs.receive_text(message, 1_790_000_000_000)?, Received::Applied);
///     assert_eq!(runs.receive_text(message, 1_790_000_000_000)?, Received::Repeated);
/// }
/// assert_eq!(runs.state().unbound_runs()[0].summary.as_deref(), Some("3 rows"));
/// # Ok::<(), ghostlight_protocol::frame::FrameError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Subscription {
    state: State,
    seen: SeenFrames,
}

/// What became of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Received {
    /// It is new, and was applied; it may still have changed nothing.
    Applied,
    /// It was seen before, and was dropped.
    Repeated,
    /// Its run has not started as far as is known, so it was dropped; should it come again after
    /// `started`, it counts as new.
    UnknownRun,
}

impl Subscription {
    /// Creates a subscription that has received nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// The runs as they are now.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Receives a text message at time `now_ms`.
    ///
    /// # Errors
    ///
    /// The message is no frame; nothing changed. As other traffic shares the connection, such a
    /// message is best ignored.
    pub fn receive_text(&mut self, text: &str, now_ms: u64) -> Result<Received, FrameError> {
        Ok(self.receive(&Frame::parse(text)?, now_ms))
    }

    /// Receives a frame at time `now_ms`.
    pub fn receive(&mut self, frame: &Frame, now_ms: u64) -> Received {
        // Remembering only frames of known runs also bounds what is remembered by the state.
        let starts = matches!(frame.event, FrameEvent::Started { .. });
        if !starts && self.state.run(frame.event.run_id()).is_none() {
            return Received::UnknownRun;
        }
        if !self.seen.insert(frame) {
            return Received::Repeated;
        }
        self.state.apply(frame, now_ms);
        Received::Applied
    }

    /// Forgets every run and every frame, as after the runs were cleared on the server.
    ///
    /// The same frames then count as new.
    pub fn reset_local_state(&mut self) {
        *self = Self::default();
    }
}
