//! Which request goes where.

use std::pin::Pin;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{Method, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use ghostlight::{AgentPath, System};
use serde::Serialize;
use serde_json::json;
use tokio::sync::{Semaphore, watch};

use crate::address::{self, Resource};
use crate::problem::Problem;
use crate::query::Query;
use crate::{events, runs};

/// What an owner does once runs of an agent were cleared.
pub(crate) type Cleared =
    Arc<dyn Fn(AgentPath) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + Sync>;

/// What every request needs.
#[derive(Clone)]
pub(crate) struct Api {
    pub(crate) system: System,
    pub(crate) types: Arc<Vec<String>>,
    /// Places for event streams.
    pub(crate) streams: Arc<Semaphore>,
    /// Becomes true when streams have to end.
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) cleared: Option<Cleared>,
}

impl Api {
    /// At most `streams` event streams at a time, which end once `stop` is true.
    pub(crate) fn new(system: System, stop: watch::Receiver<bool>, streams: usize) -> Self {
        let types = Arc::new(system.agent_types());
        let streams = Arc::new(Semaphore::new(streams));
        Self { system, types, streams, stop, cleared: None }
    }

    pub(crate) fn router(self) -> axum::Router {
        axum::Router::new()
            .route("/healthz", get(async || json(&json!({ "status": "ok" }))))
            .route("/agents", get(agents))
            .fallback(below)
            .method_not_allowed_fallback(async || Problem::method_not_allowed("GET, HEAD"))
            .with_state(self)
    }
}

/// The HTTP of a running system; the crate's documentation lists what it serves.
///
/// It holds the system: whoever serves it decides how long. Event streams end when the system
/// stops. There is no authentication: serve it where only its owner can connect.
pub fn router(system: System) -> axum::Router {
    // Without a sender nobody ever tells streams to end.
    let (_, stop) = watch::channel(false);
    Api::new(system, stop, events::STREAMS_MAX).router()
}

/// A JSON answer.
pub(crate) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => ([(header::CONTENT_TYPE, "application/json")], bytes).into_response(),
        Err(error) => {
            tracing::error!(%error, "an answer could not be written");
            let status = axum::http::StatusCode::INTERNAL_SERVER_ERROR;
            Problem::new(status, "internal", "the request failed; the log says why").into_response()
        }
    }
}

async fn agents(State(api): State<Api>, uri: Uri) -> Result<Response, Problem> {
    let query = Query::parse(uri.query(), &["after", "limit"])?;
    let limit = query.limit()?;
    let agents = api.system.agents_after(query.agent()?.as_ref(), limit).await?;
    let agents: Vec<&str> = agents.iter().map(|agent| agent.as_str()).collect();
    let next = agents.last().filter(|_| agents.len() == limit);
    Ok(json(&json!({ "agents": agents, "next": next })))
}

/// Everything below `/agents/`. The path is taken apart by hand, since it may be decoded only after
/// it was split.
async fn below(State(api): State<Api>, request: Request) -> Result<Response, Problem> {
    let (parts, body): (_, Body) = request.into_parts();
    let target = address::parse(parts.uri.path(), &api.types)?;
    let agent = api.system.agent_at(&target.agent)?;
    let query = Uri::query(&parts.uri);
    let is_get = parts.method == Method::GET || parts.method == Method::HEAD;
    match target.resource {
        Resource::Runs if is_get => runs::list(&agent, query).await,
        Resource::Runs if parts.method == Method::POST => {
            runs::start(&agent, query, &parts.headers, body).await
        }
        Resource::Runs if parts.method == Method::DELETE => runs::clear(&api, &agent, query).await,
        Resource::Runs => Err(Problem::method_not_allowed("GET, HEAD, POST, DELETE")),
        Resource::Run(run) if is_get => runs::inspect(&agent, query, &run).await,
        Resource::Events(run) if is_get => {
            events::events(&api, agent, query, &parts.headers, run).await
        }
        Resource::Run(_) | Resource::Events(_) => Err(Problem::method_not_allowed("GET, HEAD")),
        Resource::Cancel(run) if parts.method == Method::POST => {
            runs::cancel(&agent, query, &parts.headers, body, &run).await
        }
        Resource::Cancel(_) => Err(Problem::method_not_allowed("POST")),
    }
}
