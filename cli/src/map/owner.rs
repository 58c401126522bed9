//! Owning a data folder: its lock, its control socket, its left-over launch folders.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ghostlight::storage::{self, FolderLock};
use ghostlight::{AgentRef, Lookup, System};

use crate::fatal::Fatal;

/// How long to wait for a short-lived reader that has the folder.
const READER_WAIT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);

/// Takes the folder's lock. Another owner is an error at once; a reader is waited for.
pub(super) async fn take(data: &Path) -> Result<FolderLock, Fatal> {
    let waited = tokio::time::Instant::now();
    loop {
        let folder = data.to_owned();
        match tokio::task::spawn_blocking(move || FolderLock::acquire(folder)).await? {
            Ok(lock) => return Ok(lock),
            Err(error @ storage::Error::Locked { .. }) => {
                if has_owner(data) || waited.elapsed() >= READER_WAIT {
                    let hint = "use another folder with --data, or wait for it";
                    return Err(Fatal::new(format!("{error} ({hint})")));
                }
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// A folder with a control socket that answers has an owner; a reader has none.
pub(super) fn has_owner(data: &Path) -> bool {
    std::os::unix::net::UnixStream::connect(data.join("control.sock")).is_ok()
}

/// The control socket of an owned folder.
pub(super) struct Control;

impl Control {
    pub(super) async fn close(self) {}
}

pub(super) async fn serve(
    _system: &System,
    _data: &Path,
    _listen: Option<std::net::SocketAddr>,
) -> Result<Control, Fatal> {
    Ok(Control)
}

/// Removes launch folders whose runs have ended: a crash came between the end and the removal.
pub(super) async fn sweep_launches(batch: AgentRef, folder: PathBuf) {
    let Ok(Ok(entries)) = tokio::task::spawn_blocking({
        let folder = folder.clone();
        move || -> std::io::Result<Vec<std::ffi::OsString>> {
            std::fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name())).collect()
        }
    })
    .await
    else {
        return;
    };
    for name in entries {
        let Some(run_id) = name.to_str().and_then(|name| name.rsplit_once('.')) else { continue };
        let ended = match batch.lookup(run_id.0).await {
            Ok(Lookup::Run(run)) => run.status.is_hard(),
            Ok(Lookup::Cleared) => true,
            Ok(Lookup::Unknown) | Err(_) => false,
        };
        if ended {
            let path = folder.join(&name);
            let _ = tokio::task::spawn_blocking(move || std::fs::remove_dir_all(path)).await;
        }
    }
}
