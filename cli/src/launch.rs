//! Launches: one execution of one command, in a folder of its own, kept by a shim.
//!
//! A launch folder holds `lock` (held by the shim as long as it lives), `claim` (who the launch
//! belongs to: a shim, or nobody any more), `stdout` and `stderr` (what the command wrote),
//! `status` (how it ended, written last) and `shim.log` (the shim's own streams, normally empty).
//!
//! The order of events that makes recovery decidable:
//!
//! 1. the caller stores the folder's name and the boot id, durably;
//! 2. [`spawn`] starts the shim; the shim takes `lock`, then `claim`, and only then executes the
//!    command;
//! 3. the command ends; the shim stores its output, then `status`, and ends too.
//!
//! Whoever finds the folder later calls [`recover`]. All functions that are not `async` block on
//! files or processes: call them on the blocking pool. The `async` ones need a tokio runtime with
//! I/O and time enabled.
//!
//! # Use
//!
//! ```no_run
//! use ghostlight_cli::launch::{
//!     Conclusion, LaunchDir, Offsets, OutputFollower, OutputWatcher, Spec, conclude, spawn,
//! };
//!
//! # async fn run(spec: Spec, watcher: OutputWatcher) -> Result<(), Box<dyn std::error::Error>> {
//! let dir = LaunchDir::plan("data/launches/1".as_ref())?;
//! // Store dir.path() and dir.boot_id() durably, then:
//! dir.create()?;
//! let shim = tokio::task::spawn_blocking({
//!     let dir = dir.clone();
//!     move || spawn(&dir, &spec)
//! })
//! .await??;
//!
//! let mut follower = OutputFollower::open(&dir, Offsets::default(), &watcher)?;
//! let mut end = std::pin::pin!(conclude(&dir, shim));
//! let end = loop {
//!     tokio::select! {
//!         line = follower.next() => match line? {
//!             Some(line) => println!("{}", line.chunk.encode()), // store it, with line.end
//!             None => break end.await?,
//!         },
//!         end = &mut end => {
//!             let end = end?;
//!             if let Conclusion::Vanished(_) = end {
//!                 // No status will come to end the output.
//!                 follower.stop_at_end();
//!             }
//!             while let Some(line) = follower.next().await? {
//!                 println!("{}", line.chunk.encode());
//!             }
//!             break end;
//!         }
//!     }
//! };
//! // Store how it ended, then:
//! dir.remove()?;
//! # drop(end);
//! # Ok(())
//! # }
//! ```
//!
//! # What is not promised
//!
//! The output files are opened for appending, so writers do not overwrite one another. But a
//! command that opens its output *by name* and not for appending (`echo x > /dev/stderr` in a
//! script, `tee /dev/stderr`) truncates the file and writes from its beginning: what was in it and
//! had not been read yet is lost. `>&2` and `>> /dev/stderr` are safe.
//!
//! A process that leaves the command's process group, or becomes another user, is neither killed
//! nor waited for. A command that does so itself is waited for, but cannot be stopped.
//!
//! The output files are files, so the caller's limit of their size (`ulimit -f`) holds for a command's
//! output, too: one that writes more is killed by SIGXFSZ.

mod cancel;
mod claim;
mod decide;
mod directory;
mod end;
mod error;
mod follow;
mod handle;
mod leftover;
mod observe;
mod process;
mod remove;
mod spawn;
mod status;
mod watch;

pub use cancel::{Cancelled, cancel};
pub use claim::{Claim, FolderId, ShimClaim};
pub use decide::{ClaimSeen, Decision, Facts, decide};
pub use directory::LaunchDir;
pub use end::{Conclusion, conclude};
pub use error::{Error, SpawnError};
pub use follow::{Offsets, OutputFollower};
pub use handle::ShimHandle;
pub use leftover::kill_leftover;
pub use observe::{Recovered, give_up, recover};
pub use process::boot_id;
pub use spawn::{Spec, spawn};
pub use status::{CommandEnd, Status};
pub use watch::OutputWatcher;

pub(crate) use directory::{CLAIM, LOCK, LOG, STATUS, STDERR, STDOUT};
pub(crate) use leftover::wait_for_all;
pub(crate) use process::{ProcessStat, pid_namespace};
pub(crate) use remove::{REMOVED, remove};
