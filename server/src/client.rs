//! Reaches the owner of a data folder through its control socket.

mod connection;
mod error;
mod events;

use std::fs::File;
use std::io::ErrorKind;
use std::path::Path;
use std::sync::Arc;

use ghostlight::frame::Frame;
use ghostlight::{AgentPath, Cursor, FramePage, Inspection, RunFilter, RunInfo, RunPage};
use hyper::Method;
use serde::Deserialize;
use serde_json::json;

pub use self::error::ClientError;
pub use self::events::FrameStream;

use crate::address::{agent_url, encode, run_url};
use crate::query::filter_parameters;

/// How many agents are asked for at a time.
const AGENTS_PAGE: usize = 1000;

/// A client of the control socket of one data folder. Cheap to clone.
///
/// Every call uses a connection of its own, so that a stream that is read slowly holds up nothing
/// else. Every call may be repeated: after a [`ClientError::Cut`] it may or may not have happened.
#[derive(Debug, Clone)]
pub struct Client {
    folder: Arc<File>,
}

impl Client {
    /// Finds the owner of a folder.
    ///
    /// # Errors
    /// [`ClientError::NoOwner`] if there is no folder, no socket, or nobody who listens.
    ///
    /// # Cancel safety
    /// May be dropped at any time.
    pub async fn connect(folder: &Path) -> Result<Self, ClientError> {
        let path = folder.to_owned();
        let opened = tokio::task::spawn_blocking(move || File::open(path)).await;
        let folder = match opened.map_err(std::io::Error::other).and_then(|opened| opened) {
            Ok(folder) => Arc::new(folder),
            Err(error) if error.kind() == ErrorKind::NotFound => return Err(ClientError::NoOwner),
            Err(error) => return Err(ClientError::Io(error)),
        };
        let client = Self { folder };
        client.get::<serde::de::IgnoredAny>("/healthz").await?;
        Ok(client)
    }

    /// The addresses of all agents that have runs, in their order.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn agents(&self) -> Result<Vec<AgentPath>, ClientError> {
        #[derive(Deserialize)]
        struct Page {
            agents: Vec<String>,
            next: Option<String>,
        }
        let (mut all, mut url) = (Vec::new(), format!("/agents?limit={AGENTS_PAGE}"));
        loop {
            let Page { agents, next } = self.get(&url).await?;
            for agent in agents {
                all.push(agent.parse::<AgentPath>().map_err(ClientError::invalid)?);
            }
            let Some(next) = next else { break };
            url = format!("/agents?limit={AGENTS_PAGE}&after={}", encode(&next));
        }
        all.sort();
        Ok(all)
    }

    /// Lists runs of `parent`, oldest first, a page of at most `limit` (1 to 1,000) at a time. A
    /// page may be empty, and yet not be the last.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn runs(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
        after: Option<&Cursor>,
        limit: usize,
    ) -> Result<RunPage, ClientError> {
        #[derive(Deserialize)]
        struct Page {
            runs: Vec<RunInfo>,
            next: Option<String>,
        }
        let mut parameters = filter_parameters(filter);
        parameters.extend(after.map(|after| format!("after={after}")));
        parameters.push(format!("limit={limit}"));
        let url = format!("{}/runs?{}", agent_url(parent), parameters.join("&"));
        let Page { runs, next } = self.get(&url).await?;
        let next = next.map(|next| next.parse::<Cursor>()).transpose();
        Ok(RunPage { runs, next: next.map_err(ClientError::invalid)? })
    }

    /// A run as it stands; `None` if it is not known.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn run(
        &self,
        parent: &AgentPath,
        run_id: &str,
    ) -> Result<Option<Inspection>, ClientError> {
        match self.get(&run_url(parent, run_id)).await {
            Ok(inspection) => Ok(Some(inspection)),
            Err(ClientError::Problem { code, .. }) if code == "unknown-run" => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A page of at most `limit` (1 to 1,000) frames of a run; it may hold fewer. Does not wait for
    /// frames that are still to come.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn frames(
        &self,
        parent: &AgentPath,
        run_id: &str,
        after: Option<u64>,
        limit: usize,
    ) -> Result<FramePage, ClientError> {
        #[derive(Default, Deserialize)]
        struct Page {
            events: Vec<Frame>,
            ended: bool,
        }
        let after = after.map_or_else(String::new, |after| format!("&after={after}"));
        let url = format!("{}/events?limit={limit}{after}", run_url(parent, run_id));
        let response = self.send(Method::GET, &url, "application/json", None).await?;
        if response.is_empty() {
            return Ok(FramePage { frames: Vec::new(), ended: true });
        }
        let Page { events, ended } = response.json().await?;
        Ok(FramePage { frames: events, ended })
    }

    /// The frames of a run after the one numbered `after`, first those that are stored, then live,
    /// to the run's end. Returns once the owner has answered.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Reads only.
    pub async fn tail(
        &self,
        parent: &AgentPath,
        run_id: &str,
        after: Option<u64>,
    ) -> Result<FrameStream, ClientError> {
        let after = after.map_or_else(String::new, |after| format!("?after={after}"));
        let url = format!("{}/events{after}", run_url(parent, run_id));
        let response = self.send(Method::GET, &url, "text/event-stream", None).await?;
        Ok(FrameStream::new(response))
    }

    /// Cancels a run, and returns it as it stands once the request is durable.
    ///
    /// # Errors
    /// See [`ClientError`].
    ///
    /// # Cancel safety
    /// Dropped, the request may or may not be recorded.
    pub async fn cancel(
        &self,
        parent: &AgentPath,
        run_id: &str,
        reason: &str,
    ) -> Result<RunInfo, ClientError> {
        let url = format!("{}/cancel", run_url(parent, run_id));
        let body = json!({ "reason": reason }).to_string();
        let response = self.send(Method::POST, &url, "application/json", Some(body)).await?;
        response.json().await
    }

    /// Clears the runs of `parent` that a filter admits, live ones after they were cancelled, and
    /// returns how many.
    ///
    /// # Errors
    /// See [`ClientError`]; what was cleared stays cleared.
    ///
    /// # Cancel safety
    /// Dropped, some of them may be cleared.
    pub async fn clear(
        &self,
        parent: &AgentPath,
        filter: &RunFilter,
    ) -> Result<usize, ClientError> {
        #[derive(Deserialize)]
        struct Cleared {
            cleared: usize,
        }
        let parameters = filter_parameters(filter).join("&");
        let url = format!("{}/runs?{parameters}", agent_url(parent));
        let response = self.send(Method::DELETE, &url, "application/json", None).await?;
        let Cleared { cleared } = response.json().await?;
        Ok(cleared)
    }

    async fn get<T: serde::de::DeserializeOwned>(&self, url: &str) -> Result<T, ClientError> {
        self.send(Method::GET, url, "application/json", None).await?.json().await
    }
}
