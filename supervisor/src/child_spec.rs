//! What a supervisor needs to know about a child.

use std::borrow::Borrow;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use ractor::{Actor, ActorCell, SpawnErr};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::restart::{Backoff, Exhausted, Intensity, RestartPolicy, RestartRule};
use crate::supervisor::{Config, Supervisor};

/// Names a child within its supervisor. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChildId(Arc<str>);

impl ChildId {
    /// Returns the id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for ChildId {
    fn from(id: T) -> Self {
        Self(id.into())
    }
}

impl Borrow<str> for ChildId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ChildId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A child that has come up: its cell, and the task whose end is the child's real end.
pub(crate) struct Started {
    pub(crate) cell: ActorCell,
    pub(crate) task: JoinHandle<()>,
}

type StartFuture = Pin<Box<dyn Future<Output = Result<Started, SpawnErr>> + Send>>;

/// Resolves when a child that is still starting is asked to stop.
pub(crate) type StopAsked = oneshot::Receiver<()>;

/// Starts a child linked to the given supervisor.
///
/// Private, because it must await nothing after the link: the future of a start is dropped when the
/// child is killed meanwhile, and an actor it had linked by then would be nobody's.
pub(crate) type StartFn = Arc<dyn Fn(ActorCell, StopAsked) -> StartFuture + Send + Sync>;

/// Describes a child: how to make its actor, when to restart it, how to stop it.
///
/// Defaults: [`Intensity::default`], [`Backoff::default`], [`Exhausted::Escalate`], 10 s of drain.
///
/// # Examples
///
/// ```
/// use std::time::Duration;
/// use ghostlight_supervisor::{Backoff, ChildSpec, Exhausted};
/// # use ractor::{Actor, ActorProcessingErr, ActorRef};
/// # struct Ping;
/// # impl Actor for Ping {
/// #     type Msg = ();
/// #     type State = u32;
/// #     type Arguments = u32;
/// #     async fn pre_start(&self, _: ActorRef<()>, n: u32) -> Result<u32, ActorProcessingErr> { Ok(n) }
/// # }
///
/// let spec = ChildSpec::transient("ping", || (Ping, 7))
///     .intensity(3, Duration::from_secs(10))
///     .backoff(Backoff { first: Duration::from_millis(5), ..Backoff::default() })
///     .on_exhausted(Exhausted::RetryAtMax)
///     .drain(Duration::from_secs(1));
/// assert_eq!(spec.id().as_str(), "ping");
/// ```
#[derive(Clone)]
pub struct ChildSpec {
    pub(crate) id: ChildId,
    pub(crate) start: StartFn,
    pub(crate) rule: RestartRule,
    pub(crate) drain: Duration,
}

impl ChildSpec {
    /// Describes a child by its policy and by what makes its actor and the actor's arguments.
    ///
    /// `make` is called for each start, in a task of its own; a panic in it is a failed start. The
    /// actor gets no name, for ractor's registry of names is shared by the whole process.
    pub fn new<A, F>(id: impl Into<ChildId>, policy: RestartPolicy, make: F) -> Self
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        let make = Arc::new(make);
        let start: StartFn = Arc::new(move |supervisor, _| {
            let make = Arc::clone(&make);
            Box::pin(async move {
                let (actor, arguments) = make();
                let (actor, task) = A::spawn_linked(None, actor, arguments, supervisor).await?;
                Ok(Started { cell: actor.get_cell(), task })
            })
        });
        Self::with_start(id.into(), policy, start)
    }

    /// Describes a child that is always restarted.
    pub fn permanent<A, F>(id: impl Into<ChildId>, make: F) -> Self
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        Self::new(id, RestartPolicy::Permanent, make)
    }

    /// Describes a child that is restarted unless it ends normally.
    pub fn transient<A, F>(id: impl Into<ChildId>, make: F) -> Self
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        Self::new(id, RestartPolicy::Transient, make)
    }

    /// Describes a child that is never restarted.
    pub fn temporary<A, F>(id: impl Into<ChildId>, make: F) -> Self
    where
        A: Actor,
        F: Fn() -> (A, A::Arguments) + Send + Sync + 'static,
    {
        Self::new(id, RestartPolicy::Temporary, make)
    }

    /// Describes a `Permanent` child that is itself a supervisor.
    ///
    /// It counts as started when all its static children run. It is stopped by its own ordered
    /// shutdown, without a limit, for its children have theirs: a [`drain`](Self::drain) set here
    /// ends in all of them being killed at once. [`Supervisor::from_cell`] gives its handle.
    pub fn supervisor(id: impl Into<ChildId>, config: Config) -> Self {
        let start: StartFn = Arc::new(move |parent, asked| {
            let launch = Supervisor::launch(config.clone(), Some(parent), asked);
            Box::pin(async move { launch.await.map_err(|e| SpawnErr::StartupFailed(e.into())) })
        });
        Self::with_start(id.into(), RestartPolicy::Permanent, start).drain(Duration::MAX)
    }

    fn with_start(id: ChildId, policy: RestartPolicy, start: StartFn) -> Self {
        let rule = RestartRule {
            policy,
            intensity: Intensity::default(),
            backoff: Backoff::default(),
            on_exhausted: Exhausted::Escalate,
        };
        Self { id, start, rule, drain: Duration::from_secs(10) }
    }

    /// Sets the policy.
    #[must_use]
    pub fn policy(mut self, policy: RestartPolicy) -> Self {
        self.rule.policy = policy;
        self
    }

    /// Sets how many restarts are granted, and within which time.
    #[must_use]
    pub fn intensity(mut self, max_restarts: u32, within: Duration) -> Self {
        self.rule.intensity = Intensity { max_restarts, within };
        self
    }

    /// Sets the waits before restarts.
    #[must_use]
    pub fn backoff(mut self, backoff: Backoff) -> Self {
        self.rule.backoff = backoff;
        self
    }

    /// Sets what happens when no more restarts are granted.
    #[must_use]
    pub fn on_exhausted(mut self, on_exhausted: Exhausted) -> Self {
        self.rule.on_exhausted = on_exhausted;
        self
    }

    /// Sets how long the child may take to stop, and to start when it is being stopped, before it
    /// is killed. `Duration::MAX` is no limit.
    ///
    /// A kill drops the actor's future at its next `await`; code that blocks cannot be ended, and
    /// the child's end is waited for all the same.
    #[must_use]
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Returns the id.
    #[must_use]
    pub fn id(&self) -> &ChildId {
        &self.id
    }
}

impl fmt::Debug for ChildSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChildSpec")
            .field("id", &self.id)
            .field("rule", &self.rule)
            .field("drain", &self.drain)
            .finish_non_exhaustive()
    }
}
