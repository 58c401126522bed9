//! Frames out of server-sent events.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::stream::Stream;
use ghostlight::frame::Frame;
use hyper::body::{Body as _, Incoming};

use super::ClientError;
use super::connection::{Answer, Driver};
use crate::events::PROBLEM_EVENT;
use crate::problem::ProblemBody;

/// The longest event that is accepted: 16 MiB.
const EVENT_BYTES_MAX: usize = 16 << 20;

/// The frames of a run, as they come; also a [`Stream`].
///
/// It ends after the run's hard end, and after nothing else: when the owner goes away first, the
/// last item is [`ClientError::Cut`], and when the run is cleared, a problem with code `cleared`.
/// What is not read is not sent, and after 30 s of that the owner cuts the stream: ask again, and the
/// owner reads it from the log.
#[derive(Debug)]
pub struct FrameStream {
    source: Option<(Incoming, Driver)>,
    parser: Parser,
    frames: VecDeque<Result<Frame, ClientError>>,
    over: bool,
}

impl FrameStream {
    pub(super) fn new(answer: Answer) -> Self {
        // The reader has the run's end already.
        let over = answer.is_empty();
        let source = Some((answer.body, answer.driver));
        Self { source, parser: Parser::default(), frames: VecDeque::new(), over }
    }

    /// The next frame; `None` after the run's hard end, and after an error.
    ///
    /// # Errors
    /// [`ClientError::Cut`], [`ClientError::Problem`], [`ClientError::Invalid`]. To go on, ask for a
    /// new stream after the last number.
    ///
    /// # Cancel safety
    /// May be dropped at any time: no frame is lost.
    pub async fn next(&mut self) -> Option<Result<Frame, ClientError>> {
        std::future::poll_fn(|cx| self.poll_frame(cx)).await
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame, ClientError>>> {
        loop {
            if self.over {
                self.source = None;
                return Poll::Ready(None);
            }
            if let Some(frame) = self.frames.pop_front() {
                self.over = frame.as_ref().map_or(true, |frame| frame.event.is_hard_end());
                return Poll::Ready(Some(frame));
            }
            let Some((body, _)) = &mut self.source else { return Poll::Ready(None) };
            match ready!(Pin::new(body).poll_frame(cx)) {
                Some(Ok(data)) => {
                    let Ok(data) = data.into_data() else { continue };
                    self.parser.push(&data, &mut self.frames);
                }
                Some(Err(_)) | None => self.frames.push_back(Err(ClientError::Cut)),
            }
        }
    }
}

impl Stream for FrameStream {
    type Item = Result<Frame, ClientError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_frame(cx)
    }
}

/// Takes a stream of bytes apart into events. Ids are not read: frames carry their numbers.
#[derive(Debug, Default)]
struct Parser {
    line: Vec<u8>,
    data: String,
    kind: String,
}

impl Parser {
    fn push(&mut self, bytes: &[u8], out: &mut VecDeque<Result<Frame, ClientError>>) {
        let mut rest = bytes;
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            self.line.extend_from_slice(&rest[..at]);
            rest = &rest[at + 1..];
            let line = std::mem::take(&mut self.line);
            match std::str::from_utf8(&line) {
                Ok(line) => out.extend(self.line(line)),
                Err(error) => out.push_back(Err(ClientError::invalid(error))),
            }
        }
        self.line.extend_from_slice(rest);
        if self.line.len() + self.data.len() > EVENT_BYTES_MAX {
            let why = format!("an event is over {EVENT_BYTES_MAX} bytes");
            out.push_back(Err(ClientError::Invalid(why)));
        }
    }

    fn line(&mut self, line: &str) -> Option<Result<Frame, ClientError>> {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            let (data, kind) = (std::mem::take(&mut self.data), std::mem::take(&mut self.kind));
            return (!data.is_empty()).then(|| event(&kind, data.trim_end_matches('\n')));
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "data" => {
                self.data.push_str(value);
                self.data.push('\n');
            }
            "event" => value.clone_into(&mut self.kind),
            // Comments, ids, and fields that are not ours.
            _ => {}
        }
        None
    }
}

fn event(kind: &str, data: &str) -> Result<Frame, ClientError> {
    if kind == PROBLEM_EVENT {
        let problem = serde_json::from_str::<ProblemBody>(data).map_err(ClientError::invalid)?;
        return Err(problem.into());
    }
    Frame::parse(data).map_err(ClientError::invalid)
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENTS: &str = concat!(
        ": hello\r\nretry: 1000\n\n:\n\n",
        "id: 0\ndata: {\"type\":\"agent-tool-event\",\"sequence\":0,\"event\":\n",
        "data: {\"kind\":\"chunk\",\"runId\":\"é\",\"body\":\"x\"}}\n\n",
        "id:1\r\ndata:{\"type\":\"agent-tool-event\",\"sequence\":1,\"event\":",
        "{\"kind\":\"finished\",\"runId\":\"é\",\"summary\":\"\"}}\r\n\r\n",
        "event: problem\ndata: {\"type\":\"t\",\"title\":\"t\",\"status\":410,\"code\":\"cleared\",",
        "\"detail\":\"d\"}\n\n",
        "data: half an event"
    );

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        for cut in 1..EVENTS.len() {
            let (mut parser, mut frames) = (Parser::default(), VecDeque::new());
            for bytes in EVENTS.as_bytes().chunks(cut) {
                parser.push(bytes, &mut frames);
            }
            let [Ok(first), Ok(second), Err(third)] = frames.make_contiguous() else {
                panic!("cut at {cut}: {frames:?}")
            };
            assert_eq!((first.sequence, first.event.run_id()), (0, "é"));
            assert!(second.event.is_hard_end());
            assert!(matches!(third, ClientError::Problem { status: 410, .. }), "{third:?}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let (mut parser, mut frames) = (Parser::default(), VecDeque::new());
        for _ in 0..=(EVENT_BYTES_MAX >> 20) {
            parser.push(&vec![b'x'; 1 << 20], &mut frames);
        }
        assert!(matches!(frames.pop_front(), Some(Err(ClientError::Invalid(_)))));
    }
}
