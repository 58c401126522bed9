//! HTTP over the runs of a system, and the control socket through which other programs reach the
//! owner of a data folder.
//!
//! ```text
//! GET    /healthz
//! GET    /agents?after=&limit=                    the addresses of all agents that have runs
//! POST   <agent>/runs                             dispatch: 201, or 200 if the run was there
//! GET    <agent>/runs?status=&agentType=&after=&limit=
//! DELETE <agent>/runs?status=&agentType=&olderThan=
//! GET    <agent>/runs/<id>                        inspection
//! GET    <agent>/runs/<id>/events?after=&limit=   a page, or server-sent events
//! POST   <agent>/runs/<id>/cancel
//! ```
//!
//! An agent is `/agents/<type>/<name>`, with `/sub/<type>/<run id>` for every level below; types are
//! in kebab case, names and ids percent-encoded. `status` may be repeated; `olderThan` is a time in
//! ms since the epoch, and means runs recorded before it. Everything that goes wrong is a problem by
//! RFC 9457, with a stable `code`.

#![cfg_attr(test, allow(clippy::unwrap_used, reason = "a test fails by a panic"))]

mod address;
mod body;
mod client;
mod connections;
mod control;
mod events;
mod problem;
mod query;
mod read_only;
mod router;
mod runs;

pub use client::{Client, ClientError, FrameStream};
pub use control::{ControlError, ControlSocket, serve_control};
pub use read_only::{read_only, serve_read_only};
pub use router::router;

/// The name of the control socket in a data folder.
pub const SOCKET_NAME: &str = "control.sock";
