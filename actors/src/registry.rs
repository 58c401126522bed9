//! The registered kinds of agents, without their types.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use ghostlight_protocol::RecoveryPolicy;
use ghostlight_protocol::id::validate_type;
use ghostlight_protocol::json::{self, WriteError};

use crate::hooks::{Callbacks, Hooks};
use crate::{Agent, AgentSettings, Child, Error, RunContext, RunError, StartError};

pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a run's code returned.
#[derive(Debug)]
pub(crate) struct Returned {
    pub(crate) output: Vec<u8>,
    pub(crate) summary: String,
}

/// A child whose input and output are JSON.
pub(crate) trait ErasedChild: Send + Sync {
    fn run(
        self: Arc<Self>,
        cx: RunContext,
        input: Vec<u8>,
    ) -> BoxFuture<Result<Returned, RunError>>;
    fn recovery(&self) -> RecoveryPolicy;
}

struct TypedChild<C>(Arc<C>);

impl<C: Child> ErasedChild for TypedChild<C> {
    fn run(
        self: Arc<Self>,
        cx: RunContext,
        input: Vec<u8>,
    ) -> BoxFuture<Result<Returned, RunError>> {
        Box::pin(async move {
            let input: C::Input = serde_json::from_slice(&input).map_err(|error| {
                RunError::new(format!("input does not fit {}: {error}", C::TYPE))
                    .kind("invalid-input")
                    .permanent()
            })?;
            let output = self.0.run(&cx, input).await?;
            let json = json::to_vec("the run's output", &output).map_err(|error| match error {
                WriteError::TooDeep(error) => RunError::from(error).kind("too-deep").permanent(),
                WriteError::NoJson(error) => {
                    RunError::new(format!("output of {} is no JSON: {error}", C::TYPE))
                        .kind("invalid-output")
                        .permanent()
                }
            })?;
            // After that, since it may well go as deep as the output.
            let summary = self.0.summary(&output);
            Ok(Returned { output: json, summary })
        })
    }

    fn recovery(&self) -> RecoveryPolicy {
        self.0.recovery()
    }
}

pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) settings: AgentSettings,
    pub(crate) hooks: Hooks,
    pub(crate) child: Option<Arc<dyn ErasedChild>>,
}

/// All kinds by name.
#[derive(Clone, Default)]
pub(crate) struct Kinds {
    kinds: BTreeMap<&'static str, Arc<Kind>>,
}

impl Kinds {
    pub(crate) fn add_agent<A: Agent>(&mut self, agent: A) -> Result<(), StartError> {
        self.add(Arc::new(agent), None)
    }

    pub(crate) fn add_child<C: Child>(&mut self, child: C) -> Result<(), StartError> {
        let child = Arc::new(child);
        let erased = Arc::new(TypedChild(Arc::clone(&child)));
        self.add(child, Some(erased))
    }

    fn add<A: Agent>(
        &mut self,
        agent: Arc<A>,
        child: Option<Arc<dyn ErasedChild>>,
    ) -> Result<(), StartError> {
        let name = A::TYPE;
        validate_type(name)
            .map_err(|why| StartError::InvalidType { name: name.to_owned(), why })?;
        let mut callbacks = Callbacks::new(Arc::clone(&agent));
        A::callbacks(&mut callbacks);
        let kind = Kind { name, settings: agent.settings(), hooks: callbacks.into_hooks(), child };
        match self.kinds.insert(name, Arc::new(kind)) {
            Some(_) => Err(StartError::RegisteredTwice(name.to_owned())),
            None => Ok(()),
        }
    }

    pub(crate) fn names(&self) -> Vec<String> {
        self.kinds.keys().map(|name| (*name).to_owned()).collect()
    }

    pub(crate) fn contains(&self, name: &str) -> bool {
        self.kinds.contains_key(name)
    }

    /// Whether runs of this type can be executed.
    pub(crate) fn executes(&self, name: &str) -> bool {
        self.kinds.get(name).is_some_and(|kind| kind.child.is_some())
    }

    pub(crate) fn get(&self, name: &str) -> Result<&Arc<Kind>, Error> {
        self.kinds
            .get(name)
            .ok_or_else(|| Error::UnknownType { asked: name.to_owned(), registered: self.names() })
    }

    pub(crate) fn child(&self, name: &str) -> Result<Arc<dyn ErasedChild>, Error> {
        self.get(name)?.child.clone().ok_or_else(|| Error::NotAChild(name.to_owned()))
    }
}
