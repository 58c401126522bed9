//! Request bodies: JSON, of a limited size.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::DeserializeOwned;

use crate::problem::Problem;

/// The largest body of a request: 1 MiB.
pub(crate) const BODY_BYTES_MAX: usize = 1 << 20;
/// How much of a body over the limit is read and thrown away, so that its sender comes to read why
/// it was refused. Whoever sends more is cut off.
const DISCARDED_BYTES_MAX: usize = 16 << 20;
/// How long a body may take to come.
const BODY_TIME_MAX: Duration = Duration::from_secs(30);

/// Reads a JSON body; `None` if it is empty.
pub(crate) async fn json<T: DeserializeOwned>(
    headers: &HeaderMap,
    body: Body,
) -> Result<Option<T>, Problem> {
    let bytes = match tokio::time::timeout(BODY_TIME_MAX, read(body)).await {
        Ok(bytes) => bytes?,
        Err(_) => {
            let detail = format!("the body did not come within {}s", BODY_TIME_MAX.as_secs());
            return Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "timeout", detail));
        }
    };
    if bytes.is_empty() {
        return Ok(None);
    }
    if !is_json(headers) {
        // Pages of other origins may send other types without asking.
        let detail = "the body must have content-type application/json";
        return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "not-json", detail));
    }
    serde_json::from_slice(&bytes)
        .map(Some)
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, "invalid-body", error.to_string()))
}

async fn read(mut body: Body) -> Result<Vec<u8>, Problem> {
    let (mut bytes, mut total) = (Vec::new(), 0usize);
    while total <= BODY_BYTES_MAX + DISCARDED_BYTES_MAX {
        let Some(frame) = body.frame().await else { break };
        let Ok(frame) = frame else {
            let detail = "the body did not come whole";
            return Err(Problem::new(StatusCode::BAD_REQUEST, "invalid-body", detail));
        };
        let Ok(data) = frame.into_data() else { continue };
        total = total.saturating_add(data.len());
        if total > BODY_BYTES_MAX {
            bytes = Vec::new();
        } else {
            bytes.extend_from_slice(&data);
        }
    }
    if total > BODY_BYTES_MAX {
        let detail = format!("the body is over the limit of {BODY_BYTES_MAX} bytes");
        return Err(Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail));
    }
    Ok(bytes)
}

fn is_json(headers: &HeaderMap) -> bool {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let essence = text.and_then(|text| text.split(';').next()).unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}
