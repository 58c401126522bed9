//! Tells the probe when the code of a run is polled, and makes the code wait where the probe says so.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::RunError;
use crate::probe::{At, BeforeCode, Seen};
use crate::registry::{BoxFuture, Returned};
use crate::shared::Shared;

/// Code whose polls the probe is told of.
pub(super) struct Probed {
    pub(super) body: BoxFuture<Result<Returned, RunError>>,
    pub(super) shared: Arc<Shared>,
}

impl Future for Probed {
    type Output = Result<Returned, RunError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { body, shared } = &mut *self;
        shared.node.seen(Seen::Polling { run: &shared.path });
        let _over = Over(shared);
        body.as_mut().poll(cx)
    }
}

/// The poll is over when this is dropped, by a panic of the code, too.
struct Over<'a>(&'a Shared);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.node.seen(Seen::Polled { run: &self.0.path });
    }
}

/// A wait of the code that is the probe's, until this is dropped.
struct Waits(Arc<Shared>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.lock().probed -= 1;
    }
}

impl Shared {
    /// What the probe makes the code wait for in this place. It is no await of the user's.
    pub(crate) fn before_code(self: &Arc<Self>, at: At<'_>) -> Option<BeforeCode> {
        let first = self.node.before_code(&self.path, at)?;
        self.lock().probed += 1;
        let waits = Waits(Arc::clone(self));
        Some(Box::pin(async move {
            first.await;
            drop(waits);
        }))
    }
}
