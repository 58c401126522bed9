//! One request on one connection.

use std::io::{self, ErrorKind};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;

use super::{Client, ClientError};
use crate::SOCKET_NAME;
use crate::control::short_path;
use crate::problem::ProblemBody;

/// The largest answer that is read whole: 64 MiB.
const ANSWER_BYTES_MAX: usize = 64 << 20;
/// How often, and for how long, a connection is tried that the owner has no room for.
const TRY_AGAIN: Duration = Duration::from_millis(20);
const TRIES_MAX: u32 = 250;

/// An answer whose body is still to be read; the connection ends with it.
#[derive(Debug)]
pub(super) struct Answer {
    status: StatusCode,
    pub(super) body: Incoming,
    pub(super) driver: Driver,
}

/// The task that moves a connection's bytes.
#[derive(Debug)]
pub(super) struct Driver(JoinHandle<()>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Client {
    /// Sends a request and waits for the head of the answer; answers that are problems are errors.
    pub(super) async fn send(
        &self,
        method: Method,
        url: &str,
        accept: &'static str,
        body: Option<String>,
    ) -> Result<Answer, ClientError> {
        let mut request = Request::builder()
            .method(method)
            .uri(url)
            .header(header::HOST, "localhost")
            .header(header::ACCEPT, accept);
        if body.is_some() {
            request = request.header(header::CONTENT_TYPE, "application/json");
        }
        let body = Full::new(Bytes::from(body.unwrap_or_default()));
        let request = request.body(body).map_err(ClientError::invalid)?;
        let stream = self.dial().await?;
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|error| cut(&error))?;
        let driver = Driver(tokio::spawn(async move {
            // Whoever waits for the answer is told of the same error.
            let _ = connection.await;
        }));
        let response = sender.send_request(request).await.map_err(|error| cut(&error))?;
        let answer = Answer { status: response.status(), body: response.into_body(), driver };
        if answer.status.is_success() { Ok(answer) } else { Err(answer.problem().await) }
    }

    async fn dial(&self) -> Result<UnixStream, ClientError> {
        let path = short_path(&self.folder, SOCKET_NAME);
        for _ in 0..TRIES_MAX {
            match UnixStream::connect(&path).await {
                Ok(stream) => return Ok(stream),
                Err(error) => match error.kind() {
                    ErrorKind::NotFound
                    | ErrorKind::ConnectionRefused
                    // The owner closed its socket while we stood in its queue.
                    | ErrorKind::ConnectionReset => return Err(ClientError::NoOwner),
                    // A socket of this kind never waits by itself when the queue is full.
                    ErrorKind::WouldBlock => tokio::time::sleep(TRY_AGAIN).await,
                    _ => return Err(ClientError::Io(error)),
                },
            }
        }
        Err(ClientError::Io(io::Error::new(ErrorKind::TimedOut, "its owner accepts nobody")))
    }
}

impl Answer {
    /// Whether the answer has no body on purpose.
    pub(super) fn is_empty(&self) -> bool {
        self.status == StatusCode::NO_CONTENT
    }

    pub(super) async fn json<T: DeserializeOwned>(self) -> Result<T, ClientError> {
        serde_json::from_slice(&self.read().await?).map_err(ClientError::invalid)
    }

    async fn problem(self) -> ClientError {
        let status = self.status;
        let bytes = match self.read().await {
            Ok(bytes) => bytes,
            Err(error) => return error,
        };
        match serde_json::from_slice::<ProblemBody>(&bytes) {
            Ok(problem) => problem.into(),
            Err(_) => ClientError::Invalid(format!("answer {status} without a problem")),
        }
    }

    async fn read(self) -> Result<Bytes, ClientError> {
        let _driver = self.driver;
        match Limited::new(self.body, ANSWER_BYTES_MAX).collect().await {
            Ok(body) => Ok(body.to_bytes()),
            Err(error) if error.is::<LengthLimitError>() => {
                Err(ClientError::Invalid(format!("the answer is over {ANSWER_BYTES_MAX} bytes")))
            }
            Err(_) => Err(ClientError::Cut),
        }
    }
}

impl From<ProblemBody> for ClientError {
    fn from(problem: ProblemBody) -> Self {
        Self::Problem { status: problem.status, code: problem.code, detail: problem.detail }
    }
}

/// What a failed exchange means. Nothing but a lost owner breaks a local connection, unless what it
/// speaks is not HTTP.
fn cut(error: &hyper::Error) -> ClientError {
    if error.is_parse() { ClientError::invalid(error) } else { ClientError::Cut }
}
