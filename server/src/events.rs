//! The events of a run: a page of them, or a stream that goes on to the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use futures_util::stream::{self, Stream, StreamExt as _};
use ghostlight::frame::Frame;
use ghostlight::{After, AgentRef, Error, Tail};
use serde_json::json;
use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::problem::Problem;
use crate::query::Query;
use crate::router::{Api, json as answer};

/// The most event streams at a time; further ones are refused.
pub(crate) const STREAMS_MAX: usize = 192;
/// How often a stream that has nothing to say says so.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// When a reader that was cut off should come back.
const RETRY: Duration = Duration::from_secs(1);
/// The name of the event that says why a stream ended before its run did.
pub(crate) const PROBLEM_EVENT: &str = "problem";

const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");

pub(crate) async fn events(
    api: &Api,
    agent: AgentRef,
    query: Option<&str>,
    headers: &HeaderMap,
    run_id: String,
) -> Result<Response, Problem> {
    let query = Query::parse(query, &["after", "limit"])?;
    let after = position(headers, &query)?;
    let end = agent.log_end(&run_id).await?;
    if let Some(after) = after {
        if after >= end.frames {
            return Err(Error::BeyondEnd { run_id, frames: end.frames }.into());
        }
        // Only this tells an event source that it need not come back.
        if end.ended && after + 1 == end.frames {
            return Ok(StatusCode::NO_CONTENT.into_response());
        }
    }
    let after = after.map_or(After::START, After::number);
    if accepts_stream(headers) {
        let place = Arc::clone(&api.streams).try_acquire_owned();
        let place = place.map_err(|_| Problem::too_many_streams(STREAMS_MAX))?;
        let stop = api.stop.clone();
        return Ok(stream(Reader { agent, run_id, after, stop, source: Source::Closed, place }));
    }
    let page = agent.frames(&run_id, after, query.limit()?).await?;
    Ok(answer(&json!({ "events": page.frames, "ended": page.ended })))
}

/// The number of the last frame that the reader has. An event source that comes back sends its
/// header with the URL of its first request, so that the header counts.
fn position(headers: &HeaderMap, query: &Query) -> Result<Option<u64>, Problem> {
    let text = match headers.get(LAST_EVENT_ID) {
        Some(value) => Some(value.to_str().unwrap_or("\u{fffd}")),
        None => query.get("after"),
    };
    let Some(text) = text else { return Ok(None) };
    // A sign in front is not a number as we write it.
    let digits = text.bytes().all(|byte| byte.is_ascii_digit());
    match text.parse() {
        Ok(number) if digits => Ok(Some(number)),
        _ => Err(Problem::invalid_position(format!("{text:?} is no number of an event"))),
    }
}

fn accepts_stream(headers: &HeaderMap) -> bool {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|text| text.split(','))
        .filter_map(|range| range.split(';').next())
        .any(|range| range.trim().eq_ignore_ascii_case("text/event-stream"))
}

fn stream(reader: Reader) -> Response {
    let hello = Event::default().comment("ghostlight").retry(RETRY);
    let events = stream::once(async { hello }).chain(frames(reader)).map(Ok::<_, Infallible>);
    let sse = Sse::new(events).keep_alive(KeepAlive::new().interval(KEEP_ALIVE));
    let mut response = sse.into_response();
    let headers = response.headers_mut();
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    // Proxies that hold back what is small would hold back everything.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

enum Source {
    /// Not opened yet: the headers do not wait for it.
    Closed,
    Open(Box<Tail>),
    Over,
}

struct Reader {
    agent: AgentRef,
    run_id: String,
    after: After,
    stop: watch::Receiver<bool>,
    source: Source,
    #[expect(dead_code, reason = "held for as long as the stream lasts")]
    place: OwnedSemaphorePermit,
}

/// The frames as events. The stream ends after the run's hard end; before it without a word when
/// the server or the system stops, so that the reader comes back, and otherwise with a problem.
fn frames(reader: Reader) -> impl Stream<Item = Event> + Send {
    stream::unfold(reader, |mut reader| async {
        let event = reader.next().await?;
        Some((event, reader))
    })
}

impl Reader {
    async fn next(&mut self) -> Option<Event> {
        if let Source::Over = self.source {
            return None;
        }
        let mut stop = self.stop.clone();
        let frame = tokio::select! {
            biased;
            // Without a sender there is nobody who could stop it.
            Ok(_) = stop.wait_for(|stop| *stop) => None,
            frame = self.frame() => frame,
        };
        match frame {
            Some(Ok(frame)) => Some(event(&frame)),
            Some(Err(Error::Stopped)) | None => {
                self.source = Source::Over;
                None
            }
            Some(Err(error)) => {
                self.source = Source::Over;
                Some(Event::default().event(PROBLEM_EVENT).data(Problem::from(error).to_json()))
            }
        }
    }

    async fn frame(&mut self) -> Option<Result<Arc<Frame>, Error>> {
        if let Source::Closed = self.source {
            match self.agent.tail(&self.run_id, self.after).await {
                Ok(tail) => self.source = Source::Open(Box::new(tail)),
                Err(error) => return Some(Err(error)),
            }
        }
        match &mut self.source {
            Source::Open(tail) => tail.next().await,
            Source::Closed | Source::Over => None,
        }
    }
}

fn event(frame: &Frame) -> Event {
    Event::default().id(frame.sequence.to_string()).data(frame.to_json())
}
