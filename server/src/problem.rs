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
        let (status, code) = match &error {
            Error::Id(_) => (StatusCode::BAD_REQUEST, "invalid-name"),
            Error::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "too-large"),
            Error::TooDeep(_) => (StatusCode::BAD_REQUEST, "too-deep"),
            Error::UnknownType { .. } => (StatusCode::BAD_REQUEST, "unknown-agent-type"),
            Error::NotAChild(_) => (StatusCode::BAD_REQUEST, "not-a-child"),
            Error::Json { .. } => (StatusCode::BAD_REQUEST, "invalid-json"),
            Error::BeyondEnd { .. } => (StatusCode::BAD_REQUEST, "invalid-position"),
            Error::UnknownRun(_) => (StatusCode::NOT_FOUND, "unknown-run"),
            Error::Cleared(_) => (StatusCode::GONE, "cleared"),
            Error::WrongType { .. } => (StatusCode::CONFLICT, "wrong-type"),
            Error::DifferentInput { .. } => (StatusCode::CONFLICT, "different-input"),
            Error::DifferentMode { .. } => (StatusCode::CONFLICT, "different-mode"),
            Error::LiveRuns { .. } => (StatusCode::CONFLICT, "live-runs"),
            Error::StillStopping(_) => {
                let problem = Self::new(StatusCode::CONFLICT, "still-stopping", error.to_string());
                return problem.with(header::RETRY_AFTER, "1");
            }
            Error::CapExceeded { .. } => {
                let status = StatusCode::TOO_MANY_REQUESTS;
                return Self::new(status, "cap-exceeded", error.to_string());
            }
            Error::Stopped => (StatusCode::SERVICE_UNAVAILABLE, "stopped"),
            // What follows tells nothing but the code: keys, files and panics are for the log.
            Error::AgentDown { .. } => {
                tracing::error!(%error, "a request failed");
                let detail = "the agent does not start; the log says why";
                return Self::new(StatusCode::SERVICE_UNAVAILABLE, "agent-down", detail);
            }
            Error::Storage(_) => {
                tracing::error!(%error, "a request failed");
                let status = match error.is_retryable() {
                    true => StatusCode::SERVICE_UNAVAILABLE,
                    false => StatusCode::INTERNAL_SERVER_ERROR,
                };
                return Self::new(status, "storage", "the store failed; the log says why");
            }
            _ => {
                tracing::error!(%error, "a request failed");
                let detail = "the request failed; the log says why";
                return Self::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", detail);
            }
        };
        Self::new(status, code, error.to_string())
    }
}
