//! The registry of an agent.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::Response;
use ghostlight::{AgentRef, DispatchOptions, Error, Lookup, RunInfo};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::address::run_url;
use crate::body;
use crate::problem::Problem;
use crate::query::Query;
use crate::router::{Api, json as answer};

/// The reason of a cancel that gives none.
const REASON_DEFAULT: &str = "cancelled";

pub(crate) async fn list(agent: &AgentRef, query: Option<&str>) -> Result<Response, Problem> {
    let query = Query::parse(query, &["status", "agentType", "olderThan", "after", "limit"])?;
    let page = agent.list(&query.filter()?, query.cursor()?.as_ref(), query.limit()?).await?;
    let next = page.next.map(|next| next.to_string());
    Ok(answer(&json!({ "runs": page.runs, "next": next })))
}

pub(crate) async fn clear(
    api: &Api,
    agent: &AgentRef,
    query: Option<&str>,
) -> Result<Response, Problem> {
    let query = Query::parse(query, &["status", "agentType", "olderThan"])?;
    let cleared = agent.clear(&query.filter()?).await?;
    if cleared > 0
        && let Some(tell) = &api.cleared
    {
        tell(agent.path().clone()).await;
    }
    Ok(answer(&json!({ "cleared": cleared })))
}

pub(crate) async fn inspect(
    agent: &AgentRef,
    query: Option<&str>,
    run_id: &str,
) -> Result<Response, Problem> {
    Query::parse(query, &[])?;
    match agent.inspect(run_id).await? {
        Some(inspection) => Ok(answer(&inspection)),
        None => {
            // Known only since then: as good as unknown.
            known(agent, run_id).await?;
            Err(Error::UnknownRun(run_id.to_owned()).into())
        }
    }
}

async fn known(agent: &AgentRef, run_id: &str) -> Result<RunInfo, Error> {
    match agent.lookup(run_id).await? {
        Lookup::Run(run) => Ok(*run),
        Lookup::Cleared => Err(Error::Cleared(run_id.to_owned())),
        Lookup::Unknown => Err(Error::UnknownRun(run_id.to_owned())),
    }
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct CancelBody {
    reason: Option<String>,
}

/// Answers with the run as it stands once the request is durable.
pub(crate) async fn cancel(
    agent: &AgentRef,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Body,
    run_id: &str,
) -> Result<Response, Problem> {
    Query::parse(query, &[])?;
    let body: CancelBody = body::json(headers, body).await?.unwrap_or_default();
    known(agent, run_id).await?;
    agent.cancel(run_id, body.reason.as_deref().unwrap_or(REASON_DEFAULT)).await?;
    Ok(answer(&known(agent, run_id).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct StartBody {
    agent_type: String,
    input: Value,
    run_id: Option<String>,
    parent_tool_call_id: Option<String>,
    #[serde(default)]
    display_order: i64,
    display: Option<Value>,
    input_preview: Option<Value>,
    #[serde(default)]
    detached: bool,
}

pub(crate) async fn start(
    agent: &AgentRef,
    query: Option<&str>,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    Query::parse(query, &[])?;
    let body: StartBody = body::json(headers, body).await?.ok_or_else(|| {
        Problem::new(
            StatusCode::BAD_REQUEST,
            "invalid-body",
            "a body with agentType and input is needed",
        )
    })?;
    let options = DispatchOptions {
        id: body.run_id,
        parent_tool_call_id: body.parent_tool_call_id,
        display_order: body.display_order,
        display: body.display,
        input_preview: body.input_preview,
        detached: body.detached,
    };
    let (run_id, already_existed) =
        agent.dispatch_json(&body.agent_type, &body.input, options).await?;
    let mut response = answer(&json!({ "runId": run_id, "alreadyExisted": already_existed }));
    if !already_existed {
        *response.status_mut() = StatusCode::CREATED;
    }
    if let Ok(url) = HeaderValue::try_from(run_url(agent.path(), &run_id)) {
        response.headers_mut().insert(header::LOCATION, url);
    }
    Ok(response)
}
