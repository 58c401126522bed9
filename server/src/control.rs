//! The control socket of a data folder.

use std::fmt;
use std::fs::{DirBuilder, File, Permissions};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ghostlight::protocol::text::with_causes;
use ghostlight::{AgentPath, System};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::SOCKET_NAME;
use crate::events::STREAMS_MAX;
use crate::router::{Api, Cleared};

/// The most connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
// Invariant: streams, which may last for days, leave room for requests that do not.
const _: () = assert!(STREAMS_MAX < CONNECTIONS_MAX);
/// How long the head of a request may take, and a connection be idle.
const HEAD_TIME_MAX: Duration = Duration::from_secs(30);
/// The most bytes of an answer that wait in memory for a slow reader, and of the head of a request.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// How long answers under way may take once the server was told to stop.
const STOP_TIME_MAX: Duration = Duration::from_secs(1);
/// After a failure to accept, such as too many open files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);

/// Why a control socket cannot be served.
///
/// `Debug` shows the text, with its causes, for a `main` that returns it.
#[derive(thiserror::Error)]
#[error("cannot bind the control socket {}: {source}", path.display())]
pub struct ControlError {
    path: PathBuf,
    source: io::Error,
}

impl fmt::Debug for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&with_causes(self))
    }
}

/// A bound control socket; connections wait until [`ControlSocket::serve`].
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    cleared: Option<Cleared>,
}

impl fmt::Debug for ControlSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ControlSocket").field("path", &self.path).finish_non_exhaustive()
    }
}

impl ControlSocket {
    /// Binds `<folder>/control.sock`, which only this user can connect to, whatever the umask and
    /// the mode of the folder, in the place of one that was left behind.
    ///
    /// The caller owns the folder: another owner would lose its socket. The path may be longer than
    /// an address of a socket may be.
    ///
    /// # Errors
    /// Any failure of the file system.
    ///
    /// # Cancel safety
    /// Dropped, a socket may be left behind, which the next owner replaces.
    pub async fn bind(folder: &Path) -> Result<Self, ControlError> {
        let (folder, path) = (folder.to_owned(), folder.join(SOCKET_NAME));
        let bound = tokio::task::spawn_blocking(move || bind(&folder)).await;
        let listener = bound.map_err(io::Error::other).and_then(|bound| bound);
        // Registers with the runtime, and does not block.
        let listener = listener.and_then(UnixListener::from_std);
        match listener {
            Ok(listener) => Ok(Self { listener, path, cleared: None }),
            Err(source) => Err(ControlError { path, source }),
        }
    }

    /// Sets what is done once runs of an agent were cleared over the socket, before that is answered:
    /// for an owner that keeps files of its own for its runs. Dropped if the asker goes away.
    #[must_use]
    pub fn on_cleared<Fut>(
        mut self,
        cleared: impl Fn(AgentPath) -> Fut + Send + Sync + 'static,
    ) -> Self
    where
        Fut: Future<Output = ()> + Send + 'static,
    {
        self.cleared = Some(Arc::new(move |agent| Box::pin(cleared(agent))));
        self
    }

    /// Serves the system until `shutdown` is there, then ends all streams, gives other answers a
    /// second, and removes the socket.
    ///
    /// Every connection is served by a task of its own, at most 256 at a time, 192 of them event
    /// streams. A reader that does not read holds up its own connection alone, and at most 64 KiB of
    /// it are in memory.
    ///
    /// # Cancel safety
    /// Dropped, all connections are cut, and the socket is left behind; the next owner replaces it.
    pub async fn serve(self, system: System, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let api = Api { cleared: self.cleared, ..Api::new(system, stopped.clone()) };
        let router = api.router();
        let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
        let mut connections = JoinSet::new();
        let mut shutdown = pin!(shutdown);
        loop {
            tokio::select! {
                biased;
                () = &mut shutdown => break,
                Some(ended) = connections.join_next() => note_panic(ended),
                (stream, slot) = accept(&self.listener, &slots) => {
                    let (router, stopped) = (router.clone(), stopped.clone());
                    connections.spawn(async move {
                        converse(stream, router, stopped).await;
                        drop(slot);
                    });
                }
            }
        }
        // New programs look for the next owner from here on.
        drop(self.listener);
        let path = self.path;
        let removed = tokio::task::spawn_blocking(move || std::fs::remove_file(path)).await;
        if let Ok(Err(error)) = removed {
            tracing::warn!(%error, "the control socket was not removed");
        }
        stop.send_replace(true);
        let ended = async {
            while let Some(ended) = connections.join_next().await {
                note_panic(ended);
            }
        };
        // Who has not read its answer by then is cut off.
        let _ = tokio::time::timeout(STOP_TIME_MAX, ended).await;
        connections.shutdown().await;
    }
}

/// Binds the control socket of a folder and serves it: [`ControlSocket::bind`], then
/// [`ControlSocket::serve`].
///
/// # Errors
/// The socket cannot be bound.
///
/// # Cancel safety
/// As [`ControlSocket::serve`].
pub async fn serve_control(
    system: System,
    folder: &Path,
    shutdown: impl Future<Output = ()>,
) -> Result<(), ControlError> {
    ControlSocket::bind(folder).await?.serve(system, shutdown).await;
    Ok(())
}

/// The path of the socket in a folder that is open, short enough for an address whatever the
/// folder's own path.
pub(crate) fn short_path(folder: &File, name: &str) -> PathBuf {
    format!("/proc/self/fd/{}/{name}", folder.as_raw_fd()).into()
}

/// Binds in a private folder first: from the moment that it is reachable, the socket has its mode,
/// and somebody who listens.
fn bind(folder: &Path) -> io::Result<std::os::unix::net::UnixListener> {
    let private = folder.join("control.new");
    match std::fs::remove_dir_all(&private) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    DirBuilder::new().mode(0o700).create(&private)?;
    // A umask may have taken away even what we need.
    std::fs::set_permissions(&private, Permissions::from_mode(0o700))?;
    let opened = File::open(&private)?;
    let listener = std::os::unix::net::UnixListener::bind(short_path(&opened, SOCKET_NAME))?;
    listener.set_nonblocking(true)?;
    let new = private.join(SOCKET_NAME);
    std::fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    std::fs::rename(&new, folder.join(SOCKET_NAME))?;
    std::fs::remove_dir(&private)?;
    Ok(listener)
}

async fn accept(
    listener: &UnixListener,
    slots: &Arc<Semaphore>,
) -> (UnixStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    // The semaphore is never closed.
    let slot = Arc::clone(slots).acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, slot),
            Err(error) => {
                tracing::warn!(%error, "a control connection was not accepted");
                tokio::time::sleep(ACCEPT_AGAIN).await;
            }
        }
    }
}

async fn converse(stream: UnixStream, router: axum::Router, mut stopped: watch::Receiver<bool>) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router));
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = async { stopped.wait_for(|stop| *stop).await.is_ok() } => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a control connection was cut");
    }
}

fn note_panic(ended: Result<(), tokio::task::JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        tracing::error!(%error, "a control connection panicked");
    }
}
