//! Where the time comes from. Nothing else in the system reads a clock.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;

/// The wall clock of a system. Monotonic time is that of the tokio runtime, which tests pause.
pub trait Clock: Send + Sync + 'static {
    /// Milliseconds since the Unix epoch.
    fn now_ms(&self) -> u64;
}

/// The clock of the machine.
#[derive(Debug, Clone, Copy, Default)]
pub struct WallClock;

impl Clock for WallClock {
    #[expect(clippy::disallowed_methods, reason = "this is the clock that others ask")]
    fn now_ms(&self) -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        millis(since)
    }
}

/// A wall clock that follows the runtime's monotonic time, so that pausing and advancing the one
/// pauses and advances the other.
#[derive(Debug, Clone, Copy)]
pub struct VirtualClock {
    began: Instant,
    began_ms: u64,
}

impl VirtualClock {
    /// A clock that shows `began_ms` now.
    ///
    /// # Panics
    /// Outside a tokio runtime.
    pub fn starting_at(began_ms: u64) -> Self {
        Self { began: Instant::now(), began_ms }
    }
}

impl Clock for VirtualClock {
    fn now_ms(&self) -> u64 {
        self.began_ms.saturating_add(millis(self.began.elapsed()))
    }
}

/// Whole milliseconds of a duration; the longest durations saturate.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
