//! What goes wrong, by RFC 9457.

use axum::http::{HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use ghostlight::Error;
use ghostlight::protocol::IdError;
use serde::{Deserialize, Serialize};

/// An answer that says what is wrong with a request, or with us.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// Stable: programs branch on it.
    pub(crate) code: &'static str,
    /// For people.
    pub(crate) detail: String,
    header: Option<(HeaderName, &'static str)>,
}

/// The JSON of a problem.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct ProblemBody {
    r#type: String,
    pub(crate) title: String,
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) detail: String,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self { status, code, detail: detail.into(), header: None }
    }

    fn told(status: StatusCode, error: &Error) -> Self {
        let problem = Self::new(status, error.code(), error.to_string());
        match error {
            Error::StillStopping(_) => problem.with(header::RETRY_AFTER, "1"),
            _ => problem,
        }
    }

    fn with(mut self, name: HeaderName, value: &'static str) -> Self {
        self.header = Some((name, value));
        self
    }

    pub(crate) fn not_found(detail: &str) -> Self {
        Self::new(StatusCode::NOT_FOUND, "not-found", detail)
    }

    pub(crate) fn invalid_name(detail: String) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-name", detail)
    }

    pub(crate) fn unknown_type(asked: &str) -> Self {
        let detail = format!("no agent type {asked:?} is registered");
        Self::new(StatusCode::NOT_FOUND, "unknown-agent-type", detail)
    }

    pub(crate) fn ambiguous_type(one: &str, other: &str) -> Self {
        let detail = format!("the agent types {one} and {other} have the same name in URLs");
        Self::new(StatusCode::CONFLICT, "ambiguous-agent-type", detail)
    }

    pub(crate) fn invalid_parameter(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-parameter", detail)
    }

    pub(crate) fn invalid_position(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, "invalid-position", detail)
    }

    pub(crate) fn too_many_streams(limit: usize) -> Self {
        let detail = format!("there are {limit} event streams already; try again later");
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "too-many-streams", detail)
            .with(header::RETRY_AFTER, "1")
    }

    pub(crate) fn method_not_allowed(allowed: &'static str) -> Self {
        let detail = format!("this URL takes {allowed}");
        Self::new(StatusCode::METHOD_NOT_ALLOWED, "method-not-allowed", detail)
            .with(header::ALLOW, allowed)
    }

    pub(crate) fn body(&self) -> ProblemBody {
        ProblemBody {
            r#type: format!("urn:ghostlight:problem:{}", self.code),
            title: self.code.replace('-', " "),
            status: self.status.as_u16(),
            code: self.code.to_owned(),
            detail: self.detail.clone(),
        }
    }

    pub(crate) fn to_json(&self) -> String {
        serde_json::to_string(&self.body()).expect("a problem has text keys and nothing that fails")
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let json = [(header::CONTENT_TYPE, "application/problem+json")];
        let mut response = (self.status, json, self.to_json()).into_response();
        if let Some((name, value)) = self.header {
            response.headers_mut().insert(name, HeaderValue::from_static(value));
        }
        response
    }
}

impl From<IdError> for Problem {
    fn from(error: IdError) -> Self {
        Self::invalid_name(error.to_string())
    }
}

impl From<Error> for Problem {
    fn from(error: Error) -> Self {
        let status = match &error {
            Error::Id(_)
            | Error::TooDeep(_)
            | Error::UnknownType { .. }
            | Error::NotAChild(_)
            | Error::Json { .. }
            | Error::BeyondEnd { .. } => StatusCode::BAD_REQUEST,
            Error::UnknownRun(_) => StatusCode::NOT_FOUND,
            Error::Cleared(_) => StatusCode::GONE,
            Error::TooLarge(_) => StatusCode::PAYLOAD_TOO_LARGE,
            Error::WrongType { .. }
            | Error::DifferentInput { .. }
            | Error::DifferentMode { .. }
            | Error::LiveRuns { .. }
            | Error::StillStopping(_)
            | Error::Resting(_) => StatusCode::CONFLICT,
            Error::CapExceeded { .. } => StatusCode::TOO_MANY_REQUESTS,
            Error::Stopped | Error::AgentDown { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Error::Storage(_) if error.is_retryable() => StatusCode::SERVICE_UNAVAILABLE,
            // The store has failed; or it is what only the code of runs and turns meets.
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        // Keys, files and panics are for the log.
        let detail = match &error {
            Error::AgentDown { .. } => "the agent does not start; the log says why",
            Error::Storage(_) => "the store failed; the log says why",
            _ if status == StatusCode::INTERNAL_SERVER_ERROR => {
                "the request failed; the log says why"
            }
            _ => return Self::told(status, &error),
        };
        tracing::error!(%error, "a request failed");
        Self::new(status, error.code(), detail)
    }
}
