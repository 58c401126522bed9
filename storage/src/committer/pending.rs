//! The answer to an enqueued batch.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::sync::oneshot;

use super::queue::Queue;
use crate::Error;

/// A future that resolves once an enqueued batch is durable, or refused.
///
/// # Cancel safety
/// Dropping it gives up the answer, never the batch: the batch stays in the queue and is
/// committed, or refused, as if somebody still waited.
#[derive(Debug)]
pub struct Pending(State);

#[derive(Debug)]
enum State {
    Refused(Option<Error>),
    Waiting { answer: oneshot::Receiver<Result<(), Error>>, queue: Arc<Queue> },
}

impl Pending {
    pub(super) fn refused(error: Error) -> Self {
        Self(State::Refused(Some(error)))
    }

    pub(super) fn waiting(answer: oneshot::Receiver<Result<(), Error>>, queue: Arc<Queue>) -> Self {
        Self(State::Waiting { answer, queue })
    }
}

impl Future for Pending {
    type Output = Result<(), Error>;

    /// # Panics
    /// If it is polled again after it has resolved.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            State::Refused(error) => {
                Poll::Ready(Err(error.take().expect("a future is not polled after it resolved")))
            }
            State::Waiting { answer, queue } => {
                let answer = ready!(Pin::new(answer).poll(cx));
                Poll::Ready(answer.unwrap_or_else(|_| Err(queue.why_closed())))
            }
        }
    }
}
