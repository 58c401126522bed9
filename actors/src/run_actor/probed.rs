//! Tells the probe when the code of a run is polled.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::RunError;
use crate::probe::Seen;
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
