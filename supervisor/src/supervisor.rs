//! The handle of a supervisor, and what one is started with.

use std::fmt;
use std::sync::Arc;

use ractor::{Actor, ActorCell, ActorRef};
use tokio::sync::oneshot;

use crate::child_spec::{ChildId, ChildSpec, Started, StopAsked};
use crate::error::Error;
use crate::exit::{ExitCallback, ExitNotice};
use crate::strategy::{StopOrder, Strategy};

mod actor;
mod child;
mod job;
mod state;
mod sweep;
mod transition;

use actor::{Msg, StopMode, SupervisorActor};

/// What a supervisor is started with.
#[derive(Clone)]
pub struct Config {
    pub(crate) strategy: Strategy,
    pub(crate) stop_order: StopOrder,
    pub(crate) seed: u64,
    pub(crate) on_exit: Option<ExitCallback>,
    pub(crate) children: Vec<ChildSpec>,
}

impl Config {
    /// Describes a one-for-one supervisor without children.
    ///
    /// `seed` decides the jitter of all waits: each child draws from a generator of its own, made of
    /// the seed and its id, so that the order in which children fail changes nothing.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self {
            strategy: Strategy::default(),
            stop_order: StopOrder::default(),
            seed,
            on_exit: None,
            children: Vec::new(),
        }
    }

    /// Sets which children are restarted when one has failed.
    #[must_use]
    pub fn strategy(mut self, strategy: Strategy) -> Self {
        self.strategy = strategy;
        self
    }

    /// Sets whether children are stopped one by one or together.
    #[must_use]
    pub fn stop_order(mut self, stop_order: StopOrder) -> Self {
        self.stop_order = stop_order;
        self
    }

    /// Sets the callback for the ends of children; see [`ExitCallback`].
    #[must_use]
    pub fn on_exit(mut self, on_exit: impl Fn(ExitNotice) + Send + Sync + 'static) -> Self {
        self.on_exit = Some(Arc::new(on_exit));
        self
    }

    /// Adds a static child: one that is started with the supervisor, after those before it.
    #[must_use]
    pub fn child(mut self, spec: ChildSpec) -> Self {
        self.children.push(spec);
        self
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("strategy", &self.strategy)
            .field("stop_order", &self.stop_order)
            .field("seed", &self.seed)
            .field("children", &self.children)
            .finish_non_exhaustive()
    }
}

/// A handle to a running supervisor. Cheap to clone; dropping it stops nothing.
///
/// Requests are served in the order received, each at once: none waits for a backoff, a drain or a
/// start that another one has begun. Every method returns [`Error::Stopped`] once the supervisor has
/// ended, however it did.
///
/// The supervisor's mailbox is unbounded, as all of ractor's are. Each request waits for its answer,
/// so the mailbox holds at most one per concurrent caller, and three reports per child.
#[derive(Clone, Debug)]
pub struct Supervisor {
    actor: ActorRef<Msg>,
}

impl Supervisor {
    /// Starts a supervisor, and its static children in the order given.
    ///
    /// A static child starts when the one before it runs or was given up. A failed start is retried
    /// by policy, so with [`Exhausted::RetryAtMax`](crate::Exhausted::RetryAtMax) this may wait for
    /// ever. When all are up the supervisor is linked to `parent`, which from then on sees its end:
    /// a failure with an [`Escalated`](crate::Escalated), or a stop.
    ///
    /// # Errors
    ///
    /// [`Error::AlreadyExists`] if two children have the same id; [`Error::Escalated`] if one could
    /// not be started; [`Error::Stopped`] if the parent has stopped. All children have ended then.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped, the supervisor and the children started so far are killed.
    pub async fn start(config: Config, parent: Option<ActorCell>) -> Result<Self, Error> {
        // Held until the start is over, so that nobody asks it to stop.
        let (_never, asked) = oneshot::channel();
        let started = Self::launch(config, parent, asked).await?;
        Ok(Self { actor: started.cell.into() })
    }

    /// Starts a supervisor, and gives up, in order, when asked to stop.
    pub(crate) async fn launch(
        config: Config,
        parent: Option<ActorCell>,
        asked: StopAsked,
    ) -> Result<Started, Error> {
        let (booted, boot) = oneshot::channel();
        let (actor, task) = SupervisorActor::spawn(None, SupervisorActor, (config, booted))
            .await
            .map_err(|_| Error::Stopped)?;
        let supervisor = Self { actor };
        let guard = KillOnDrop(Some(supervisor.cell()));
        let up = tokio::select! {
            biased;
            up = supervisor.answer(boot) => up.and_then(|up| up),
            _ = asked => Err(Error::ShuttingDown),
        };
        let linked = up.and_then(|()| match parent {
            Some(parent) => link(&supervisor.actor, &parent),
            None => Ok(()),
        });
        if let Err(error) = linked {
            supervisor.shutdown().await;
            guard.disarm();
            return Err(error);
        }
        // No await from the link on: a start that is dropped must leave no child behind.
        guard.disarm();
        Ok(Started { cell: supervisor.cell(), task })
    }

    /// Returns the handle of a supervisor from its cell; `None` if it is another kind of actor.
    #[must_use]
    pub fn from_cell(cell: ActorCell) -> Option<Self> {
        is_supervisor(&cell).then(|| Self { actor: cell.into() })
    }

    /// Returns the supervisor's cell, to link it or to compare it.
    ///
    /// Stopping it through the cell is an ordered shutdown too, but one that cannot listen: ends are
    /// reported as [`Lost`](crate::ExitReason::Lost), and the last states of children are dropped
    /// with the supervisor. Killing it kills all children at once, without notices. Do not link
    /// actors to it by hand.
    #[must_use]
    pub fn cell(&self) -> ActorCell {
        self.actor.get_cell()
    }

    /// Adds a child, last in start order, and returns its cell once it runs.
    ///
    /// # Errors
    ///
    /// [`Error::StartFailed`] if the first attempt failed: with `retry_after` the child is there and
    /// will be tried again, and [`ready`](Self::ready) waits for it; without, it is forgotten.
    /// [`Error::AlreadyExists`], [`Error::ShuttingDown`]: nothing was added. [`Error::Removed`] if
    /// it was removed while it started.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was first polled, the child is added all the same.
    pub async fn add(&self, spec: ChildSpec) -> Result<ActorCell, Error> {
        self.call(|reply| Msg::Add { spec: Box::new(spec), reply }).await?
    }

    /// Returns the cell of a child as soon as it runs, waiting out backoff and restarts.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`], [`Error::ShuttingDown`]; [`Error::StartFailed`] or [`Error::Removed`] if
    /// it was given up or removed meanwhile.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ready(&self, id: impl Into<ChildId>) -> Result<ActorCell, Error> {
        let id = id.into();
        self.call(|reply| Msg::Ready { id, reply }).await?
    }

    /// Stops a child and forgets it; returns when it has really ended.
    ///
    /// It is told to stop and, after its drain time, killed; a restart that is due is called off, a
    /// start under way too. Any number of removals run at the same time.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: there is nothing to remove.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was first polled, the child is removed all the same.
    pub async fn remove(&self, id: impl Into<ChildId>) -> Result<(), Error> {
        let (id, mode) = (id.into(), StopMode::Drain);
        self.call(|reply| Msg::Remove { id, mode, reply }).await?
    }

    /// Kills a child and forgets it; returns when it has really ended.
    ///
    /// As [`remove`](Self::remove) without the drain time, also when a removal is under way. The
    /// children of a supervisor are killed with it, but not waited for. To crash a child and have it
    /// restarted by its policy, kill its cell instead.
    ///
    /// # Errors
    ///
    /// [`Error::Unknown`]: there is nothing to kill.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was first polled, the child is killed all the same.
    pub async fn kill(&self, id: impl Into<ChildId>) -> Result<(), Error> {
        let (id, mode) = (id.into(), StopMode::Kill);
        self.call(|reply| Msg::Remove { id, mode, reply }).await?
    }

    /// Returns the cell of a child, if it is alive now. One that is stopping is alive until it has
    /// really ended.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] only.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn child(&self, id: impl Into<ChildId>) -> Result<Option<ActorCell>, Error> {
        let id = id.into();
        self.call(|reply| Msg::Child { id, reply }).await
    }

    /// Returns all children alive now, in start order.
    ///
    /// # Errors
    ///
    /// [`Error::Stopped`] only.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn children(&self) -> Result<Vec<(ChildId, ActorCell)>, Error> {
        self.call(|reply| Msg::Children { reply }).await
    }

    /// Stops all children in reverse start order, then the supervisor; returns when all have really
    /// ended.
    ///
    /// Each is told to stop and, after its drain time, killed; [`StopOrder`] says whether they drain
    /// one after another. From the first poll on nothing is started, added or restarted. Returns at
    /// once if the supervisor has ended already.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped after it was first polled, the shutdown goes on.
    pub async fn shutdown(&self) {
        // A refusal means that it has ended or is about to: either way the end is waited for.
        let _ = self.actor.send_message(Msg::Shutdown);
        self.ended().await;
    }

    /// Waits until the supervisor has ended: shut down, escalated, or killed.
    ///
    /// # Cancel safety
    ///
    /// Dropping the future changes nothing.
    pub async fn ended(&self) {
        // Without a timeout of its own this wait cannot fail.
        let _ = self.actor.wait(None).await;
    }

    async fn call<T>(&self, msg: impl FnOnce(oneshot::Sender<T>) -> Msg) -> Result<T, Error> {
        let (reply, answer) = oneshot::channel();
        self.actor.send_message(msg(reply)).map_err(|_| Error::Stopped)?;
        self.answer(answer).await
    }

    /// Waits for an answer, or for the end of the one who owes it: its state, and in it our reply
    /// port, may live on in the mailbox of its own supervisor.
    async fn answer<T>(&self, answer: oneshot::Receiver<T>) -> Result<T, Error> {
        tokio::select! {
            biased;
            answer = answer => answer.map_err(|_| Error::Stopped),
            () = self.ended() => Err(Error::Stopped),
        }
    }
}

/// Returns whether an actor is a supervisor of this crate.
fn is_supervisor(cell: &ActorCell) -> bool {
    cell.is_message_type_of::<Msg>() == Some(true)
}

/// Links and checks: ractor refuses without a word when either side is stopping.
fn link(child: &ActorCell, parent: &ActorCell) -> Result<(), Error> {
    child.link(parent.clone());
    if child.try_get_supervisor().is_some_and(|linked| linked == *parent) {
        Ok(())
    } else {
        Err(Error::Stopped)
    }
}

struct KillOnDrop(Option<ActorCell>);

impl KillOnDrop {
    fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        if let Some(cell) = self.0.take() {
            cell.kill();
        }
    }
}
