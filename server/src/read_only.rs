//! HTTP on a port, which other programs and web pages can reach: for looking only.

use axum::extract::Request;
use axum::http::{Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use ghostlight::System;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::connections::Connections;
use crate::problem::Problem;
use crate::router::{Api, router};

/// The most connections to a port at a time, and how many of them may be event streams.
const CONNECTIONS_MAX: usize = 64;
const STREAMS_MAX: usize = 48;

/// As [`router`], but only GET and HEAD, and only under a local name.
///
/// A dispatch of the `ghostlight` program is a command, and a port has no owner: any local user
/// reaches it, and so does a web page whose name was made to resolve to this machine. The check of
/// the `Host` header keeps the page out; the methods keep everybody from changing anything.
pub fn read_only(system: System) -> axum::Router {
    router(system).layer(middleware::from_fn(look_only))
}

/// Serves [`read_only`] on a port until `shutdown` is there, then ends all streams, and gives other
/// answers a second.
///
/// There are at most 64 connections at a time, 48 of them event streams; further ones wait. One that
/// sends no whole head of a request for 30 s is cut, and so is a reader that takes nothing for as long.
///
/// # Cancel safety
/// Dropped, all connections are cut.
pub async fn serve_read_only(
    listener: TcpListener,
    system: System,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(false);
    let router = Api::new(system, stopped.clone(), STREAMS_MAX).router();
    let router = router.layer(middleware::from_fn(look_only));
    let mut connections = Connections::new(CONNECTIONS_MAX, router, stopped);
    connections.accept(listener, shutdown).await;
    stop.send_replace(true);
    connections.end().await;
}

async fn look_only(request: Request, next: Next) -> Response {
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let detail = "over a port runs can be looked at, and nothing else";
        return Problem::new(StatusCode::FORBIDDEN, "read-only", detail).into_response();
    }
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(is_local) {
        let detail = "use a local name, such as localhost or 127.0.0.1";
        return Problem::new(StatusCode::FORBIDDEN, "foreign-host", detail).into_response();
    }
    next.run(request).await
}

/// Whether a `Host` header names this machine: an address, which no name server can have made up,
/// or `localhost`.
fn is_local(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => rest.split(']').next().unwrap_or_default(),
        None => host.rsplit_once(':').map_or(host, |(name, _)| name),
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use super::is_local;

    #[test]
    fn only_addresses_and_localhost_are_local() {
        for local in ["localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:80", "10.0.0.7"] {
            assert!(is_local(local), "{local}");
        }
        for foreign in ["evil.example", "localhost.evil.example:80", "", "127.0.0.1.evil.example"] {
            assert!(!is_local(foreign), "{foreign}");
        }
    }
}
