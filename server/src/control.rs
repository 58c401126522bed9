//! The control socket of a data folder.

use std::fmt;
use std::fs::{DirBuilder, File, Permissions};
use std::future::Future;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ghostlight::protocol::text::with_causes;
use ghostlight::{AgentPath, System};
use tokio::net::UnixListener;
use tokio::sync::watch;

use crate::SOCKET_NAME;
use crate::connections::Connections;
use crate::events::STREAMS_MAX;
use crate::router::{Api, Cleared};

/// The most connections at a time; further ones wait to be accepted.
const CONNECTIONS_MAX: usize = 256;
// Invariant: streams, which may last for days, leave room for requests that do not.
const _: () = assert!(STREAMS_MAX < CONNECTIONS_MAX);
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
    /// Device and number of the socket's file, by which it is told from the next owner's.
    file: (u64, u64),
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
        let bound = bound.map_err(io::Error::other).and_then(|bound| bound);
        // Registers with the runtime, and does not block.
        let listener =
            bound.and_then(|(listener, file)| Ok((UnixListener::from_std(listener)?, file)));
        match listener {
            Ok((listener, file)) => Ok(Self { listener, path, file, cleared: None }),
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
    /// streams. A reader that does not read holds up its own connection alone, at most 64 KiB of it are
    /// in memory, and it is cut off when it has taken nothing for 30 s.
    ///
    /// # Cancel safety
    /// Dropped, all connections are cut, and the socket is left behind; the next owner replaces it.
    pub async fn serve(self, system: System, shutdown: impl Future<Output = ()>) {
        let (stop, stopped) = watch::channel(false);
        let api = Api::new(system, stopped.clone(), STREAMS_MAX);
        let router = Api { cleared: self.cleared, ..api }.router();
        let mut connections = Connections::new(CONNECTIONS_MAX, router, stopped);
        connections.accept(self.listener, shutdown).await;
        // New programs look for the next owner from here on.
        remove(self.path, self.file).await;
        stop.send_replace(true);
        connections.end().await;
    }

    /// Removes the socket of an owner that has come to nothing: whoever waits there for an answer is let
    /// go.
    ///
    /// # Cancel safety
    /// Dropped, the socket may be left behind; the next owner replaces it.
    pub async fn close(self) {
        remove(self.path, self.file).await;
    }
}

async fn remove(path: PathBuf, file: (u64, u64)) {
    let removed = tokio::task::spawn_blocking(move || unbind(&path, file)).await;
    if let Ok(Err(error)) = removed {
        tracing::warn!(%error, "the control socket was not removed");
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
fn bind(folder: &Path) -> io::Result<(std::os::unix::net::UnixListener, (u64, u64))> {
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
    let file = identity(&new)?;
    std::fs::rename(&new, folder.join(SOCKET_NAME))?;
    std::fs::remove_dir(&private)?;
    Ok((listener, file))
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    let metadata = std::fs::symlink_metadata(path)?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Removes a socket, unless another owner has put its own in the place. Nothing keeps one from doing
/// so in between, but the lock of the folder, which our caller has.
fn unbind(path: &Path, file: (u64, u64)) -> io::Result<()> {
    match identity(path) {
        Ok(found) if found == file => std::fs::remove_file(path),
        Ok(_) => Ok(()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}
