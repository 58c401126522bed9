//! The durable key-values of a run.

use std::sync::Arc;

use ghostlight_protocol::journal::{Act, Acted};
use ghostlight_protocol::limits;
use ghostlight_storage::payload::Payload;
use ghostlight_storage::records::LogEntry;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::RunError;
use crate::error::{check_json, write_json};
use crate::shared::Shared;

/// The durable key-values of a run; see [`RunContext::state`](crate::RunContext::state).
///
/// Writes are part of the run's history: after a crash the code sees, at every point, the values
/// that it saw there before.
pub struct State<'a> {
    shared: &'a Arc<Shared>,
}

impl<'a> State<'a> {
    pub(crate) fn new(shared: &'a Arc<Shared>) -> Self {
        Self { shared }
    }

    /// Reads a value.
    ///
    /// # Errors
    /// When the value does not fit the type.
    pub fn get<T: DeserializeOwned>(&self, key: &str) -> Result<Option<T>, RunError> {
        let inner = self.shared.lock();
        let Some(bytes) = inner.state.get(key) else { return Ok(None) };
        Ok(Some(serde_json::from_slice(bytes)?))
    }

    /// Writes a value; durable when it returns.
    ///
    /// # Errors
    /// Inside a step (return the value from the step instead), for a key over 256 bytes, and for a
    /// value that is no JSON, over 1 MiB or nested over 100 levels deep.
    ///
    /// # Cancel safety
    /// Dropped before it returned, the value may or may not have been written.
    pub async fn set(&self, key: &str, value: impl Serialize) -> Result<(), RunError> {
        let bytes = write_json("the state value", &value)?;
        let limit = self.shared.node.limits.state_bytes_max;
        check_json("the state value", &bytes, limit)?;
        self.write(key, Some(bytes)).await
    }

    /// Removes a value; durable when it returns.
    ///
    /// # Errors
    /// Inside a step.
    ///
    /// # Cancel safety
    /// As [`State::set`].
    pub async fn remove(&self, key: &str) -> Result<(), RunError> {
        self.write(key, None).await
    }

    async fn write(&self, key: &str, value: Option<Vec<u8>>) -> Result<(), RunError> {
        limits::check("the state's key", key.len(), limits::NAME_BYTES_MAX)?;
        let number = {
            let mut inner = self.shared.lock();
            if let Some(step) = &inner.current_step {
                let text = format!(
                    "state {key:?} was written inside step {step:?}, which is not executed again; return the value from the step, and write it after"
                );
                return Err(RunError::new(text).kind("state-in-step").permanent());
            }
            let act = Act::State(key.to_owned());
            match self.shared.act(&mut inner, &act) {
                Some(Acted::Recorded(number)) => {
                    let recorded = inner.past_states.pop_front().and_then(|(_, value)| value);
                    inner.write_state(key, recorded);
                    number
                }
                Some(Acted::Append(number)) => {
                    inner.write_state(key, value.clone());
                    let entry =
                        LogEntry::State { key: key.to_owned(), value: value.map(Payload::Inline) };
                    self.shared.push_act(&mut inner, &act, number, entry);
                    number
                }
                // A mismatch: the code ends here.
                None => u64::MAX,
            }
        };
        self.shared.acted(number).await;
        Ok(())
    }
}
