//! OTP-style supervision for ractor actors.
//!
//! A [`Supervisor`] is an actor that starts others from [`ChildSpec`]s, restarts them by policy, and
//! stops them in order. Children may be given at the start or added and removed at any time, in
//! numbers. Any [`ractor::Actor`] can be a child; supervisors nest.
//!
//! - [`RestartPolicy`] says which ends are followed by a restart, [`Backoff`] after which wait,
//!   [`Intensity`] how often, per child, and [`Exhausted`] what happens then. The decision is a pure
//!   value, [`RestartRule::decide`].
//! - [`Strategy`] says which other children are restarted along, [`StopOrder`] how many are stopped.
//! - An [`ExitCallback`] tells the owner of every end.
//!
//! A supervisor runs no foreign code but the constructors of its children, each in a task of its
//! own, the exit callback, and the `Drop` of what children leave behind; a panic
//! in any of these is contained. No wait, drain or slow
//! start keeps it from answering. It uses none of ractor's process-wide names and groups, and reads
//! no clock but tokio's, which must be enabled in the runtime.
//!
//! # Examples
//!
//! ```
//! use ghostlight_supervisor::{ChildSpec, Config, Supervisor};
//! use ractor::{Actor, ActorProcessingErr, ActorRef};
//!
//! struct Greeter;
//!
//! impl Actor for Greeter {
//!     type Msg = tokio::sync::oneshot::Sender<String>;
//!     type State = String;
//!     type Arguments = &'static str;
//!
//!     async fn pre_start(&self, _: ActorRef<Self::Msg>, name: &'static str)
//!         -> Result<String, ActorProcessingErr>
//!     {
//!         Ok(format!("hello from {name}"))
//!     }
//!
//!     async fn handle(&self, _: ActorRef<Self::Msg>, reply: Self::Msg, greeting: &mut String)
//!         -> Result<(), ActorProcessingErr>
//!     {
//!         let _ = reply.send(greeting.clone());
//!         Ok(())
//!     }
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let supervisor = Supervisor::start(Config::new(42), None).await?;
//! let greeter = supervisor.add(ChildSpec::transient("greeter", || (Greeter, "ada"))).await?;
//!
//! let (reply, greeting) = tokio::sync::oneshot::channel();
//! ActorRef::<tokio::sync::oneshot::Sender<String>>::from(greeter).send_message(reply)?;
//! assert_eq!(greeting.await?, "hello from ada");
//!
//! supervisor.shutdown().await;
//! # Ok(())
//! # }
//! ```

mod child_spec;
mod error;
mod exit;
mod restart;
mod strategy;
mod supervisor;

pub use child_spec::{ChildId, ChildSpec};
pub use error::Error;
pub use exit::{Escalated, ExitCallback, ExitKind, ExitNotice, ExitReason, RESTART};
pub use restart::{
    Backoff, Decision, End, Exhausted, History, Intensity, RestartPolicy, RestartRule,
};
pub use strategy::{StopOrder, Strategy};
pub use supervisor::{Config, Supervisor};
