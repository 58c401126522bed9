//! Owning a data folder: its lock, its control socket, its left-over launch folders.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ghostlight::storage::{self, FolderLock};
use ghostlight::{AgentPath, Cursor, Lookup, RunFilter, System};
use ghostlight_server::{Client, ControlSocket, serve_read_only};
use rustix::io::Errno;
use rustix::stdio::dup2_stdin;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::access::any_run;
use crate::batch::Made;
use crate::fatal::Fatal;
use crate::intent::Intent;
use crate::sweep::{launches_of, sweep};

/// How long to wait for a short-lived reader that has the folder.
const READER_WAIT: Duration = Duration::from_secs(5);
/// How long an owner may take to answer.
const ANSWER_WAIT: Duration = Duration::from_secs(5);
const RETRY: Duration = Duration::from_millis(50);

/// Takes the folder's lock. Another owner is an error at once; a reader is waited for.
pub(super) async fn take(data: &Path) -> Result<FolderLock, Fatal> {
    let waited = tokio::time::Instant::now();
    let mut intent = None;
    loop {
        let folder = data.to_owned();
        match tokio::task::spawn_blocking(move || FolderLock::acquire(folder)).await? {
            Ok(lock) => return Ok(lock),
            Err(storage::Error::Locked { folder, pid }) => {
                if has_owner(data).await || waited.elapsed() >= READER_WAIT {
                    let owner = match pid {
                        0 => "another process".into(),
                        pid => format!("process {pid}"),
                    };
                    let hint = "wait for it, or name another folder with --data";
                    let folder = folder.display();
                    return Err(Fatal::new(format!("{folder} is in use by {owner}; {hint}")));
                }
                if intent.is_none() {
                    let declare = move || Intent::declare(&folder);
                    intent = tokio::task::spawn_blocking(declare).await?;
                }
                tokio::time::sleep(RETRY).await;
            }
            Err(error) => return Err(error.into()),
        }
    }
}

/// Refuses a folder whose file system has no hard links: no command could ever be claimed by its shim.
pub(super) async fn check_links(data: &Path) -> Result<(), Fatal> {
    let (lock, probe) = (data.join("lock"), data.join("link-probe"));
    let linked = tokio::task::spawn_blocking(move || {
        let linked = rustix::fs::link(&lock, &probe);
        let _ = std::fs::remove_file(&probe);
        linked
    });
    match linked.await? {
        // Other failures, as of a disk that is full, are told where they matter.
        Err(errno @ (Errno::PERM | Errno::OPNOTSUPP | Errno::NOSYS)) => {
            let folder = data.display();
            let hint = "use a folder on a local disk";
            Err(Fatal::new(format!("the file system of {folder} gives no links ({errno}); {hint}")))
        }
        _ => Ok(()),
    }
}

/// Takes the lock that `map --detach` has put in the place of our standard input; `None` if there is
/// none.
pub(super) async fn inherit(data: &Path) -> Result<Option<FolderLock>, Fatal> {
    let data = data.to_owned();
    let inherit = move || {
        let input = File::from(std::io::stdin().as_fd().try_clone_to_owned()?);
        let lock = FolderLock::inherit(data, input)?;
        if lock.is_some() {
            // A copy that nobody closes would keep the folder locked.
            dup2_stdin(File::open("/dev/null")?)?;
        }
        Ok(lock)
    };
    tokio::task::spawn_blocking(inherit).await?
}

/// A folder with a control socket that answers has an owner; a reader has none.
pub(super) async fn has_owner(data: &Path) -> bool {
    // Whoever accepts and does not answer owns it, too.
    match tokio::time::timeout(ANSWER_WAIT, Client::connect(data)).await {
        Ok(connected) => connected.is_ok(),
        Err(_) => true,
    }
}

/// Whether the folder's owner is this process, which is alive, and answers.
pub(super) async fn is_owner(data: &Path, pid: u32) -> Result<bool, Fatal> {
    let folder = data.to_owned();
    let owner = async || {
        let folder = folder.clone();
        Ok::<_, Fatal>(tokio::task::spawn_blocking(move || FolderLock::owner(folder)).await??)
    };
    // Said before its socket is there, and until it is not its own any more.
    let answers = async || {
        // Not before it is started.
        let answered = tokio::time::timeout(ANSWER_WAIT, Client::connect(data)).await;
        matches!(answered, Ok(Ok(_)))
    };
    Ok(owner().await? == Some(pid) && answers().await && owner().await? == Some(pid))
}

/// The control socket of an owned folder, and HTTP on an address where that was asked for.
pub(super) struct Control {
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

impl Control {
    /// Stops serving; what is being read is cut off after a moment.
    pub(super) async fn close(mut self) {
        self.stop.send_replace(true);
        while let Some(ended) = self.tasks.join_next().await {
            if let Err(error) = ended {
                tracing::error!(%error, "a bug in what answers those who look");
            }
        }
    }
}

/// The files of batches, for the owner of their folder.
#[derive(Clone)]
pub(super) struct Files {
    pub(super) system: System,
    pub(super) data: PathBuf,
    /// The owner's own batch.
    pub(super) batch: AgentPath,
}

impl Files {
    /// Removes the launch folders of a batch's runs that have ended.
    pub(super) async fn sweep(&self, batch: &AgentPath) {
        let Ok(agent) = self.system.agent_at(batch) else { return };
        sweep(launches_of(&self.data, &batch.name()), async |run_id| {
            match agent.lookup(&run_id).await {
                Ok(Lookup::Run(run)) => run.status.is_hard(),
                Ok(Lookup::Cleared) => true,
                Ok(Lookup::Unknown) | Err(_) => false,
            }
        })
        .await;
    }

    /// Removes what is left of a batch, if it has no run. Nothing may be dispatched to it meanwhile.
    pub(super) async fn forget_without_runs(&self, batch: &AgentPath) {
        let Ok(agent) = self.system.agent_at(batch) else { return };
        let (agent, all) = (&agent, &RunFilter::default());
        let page = |after: Option<Cursor>| async move { agent.list(all, after.as_ref(), 1).await };
        if matches!(any_run(page).await, Ok(false)) {
            Made::forget(&self.data, &batch.name()).await;
        }
    }

    async fn cleared(&self, batch: &AgentPath) {
        self.sweep(batch).await;
        // Our own batch goes on: it is looked at when that has ended.
        if *batch != self.batch {
            self.forget_without_runs(batch).await;
        }
    }
}

/// Binds the address that was asked for.
pub(super) async fn listen(address: Option<SocketAddr>) -> Result<Option<TcpListener>, Fatal> {
    let Some(address) = address else { return Ok(None) };
    match TcpListener::bind(address).await {
        Ok(listener) => Ok(Some(listener)),
        Err(error) => {
            let hint = "name another address with --listen";
            Err(Fatal::new(format!("cannot listen on {address}: {error}; {hint}")))
        }
    }
}

/// Where those who look find the owner. They wait until it [serves](Listening::serve).
pub(super) struct Listening {
    socket: ControlSocket,
    port: Option<TcpListener>,
}

/// Takes the places at which an owner listens.
pub(super) async fn bind(data: &Path, port: Option<TcpListener>) -> Result<Listening, Fatal> {
    let socket = ControlSocket::bind(data).await?;
    if let Some(port) = &port {
        eprintln!("ghostlight: listening on http://{}/agents", port.local_addr()?);
    }
    Ok(Listening { socket, port })
}

impl Listening {
    /// Gives the places back: nothing has been started.
    pub(super) async fn close(self) {
        self.socket.close().await;
    }

    pub(super) fn serve(self, files: &Files) -> Control {
        let (stop, stopped) = watch::channel(false);
        let mut tasks = JoinSet::new();
        let (system, files) = (&files.system, files.clone());
        let socket = self.socket.on_cleared(move |batch| {
            let files = files.clone();
            async move { files.cleared(&batch).await }
        });
        tasks.spawn(socket.serve(system.clone(), until(stopped.clone())));
        if let Some(port) = self.port {
            // Whoever reaches the port may look, and nothing else: a dispatch is a command.
            tasks.spawn(serve_read_only(port, system.clone(), until(stopped)));
        }
        Control { stop, tasks }
    }
}

async fn until(mut stopped: watch::Receiver<bool>) {
    // A sender that is gone means the same.
    let _ = stopped.wait_for(|stopped| *stopped).await;
}
