use std::io::{self, Write};

use serde::{Deserialize, Serialize};

use crate::launch::ShimClaim;

/// What a shim tells the one who started it, once, through its standard output.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Report {
    /// The launch is the shim's.
    Claimed(ShimClaim),
    /// The launch belongs to another shim, or was given up.
    Lost,
    /// The shim could not set itself up; nothing has been claimed.
    SetUpFailed { stage: String, errno: i32 },
}

impl Report {
    /// The most bytes a report may have.
    pub(crate) const BYTES_MAX: u64 = 4096;

    pub(super) fn send(&self) {
        // A starter that is gone is no reason to stop: the launch does without it.
        if let Ok(bytes) = serde_json::to_vec(self) {
            let mut stdout = io::stdout();
            let _ = stdout.write_all(&bytes).and_then(|()| stdout.flush());
        }
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }
}
