use super::error::on_blocking_pool;
use super::{Error, LaunchDir, Recovered, ShimClaim, ShimHandle, Status, recover};

/// What a launch that had begun came to.
#[derive(Debug)]
pub enum Conclusion {
    /// The command ended.
    Ended(Status),
    /// The shim was killed or crashed, and the command with it; see [`Recovered::Vanished`].
    Vanished(ShimClaim),
}

/// Waits for the end of a launch's shim, and reads what the launch came to.
///
/// # Errors
///
/// As [`recover`], and as [`ShimHandle::ended`].
///
/// # Cancel safety
///
/// Dropping the future touches neither shim nor launch, which can be [recovered](recover) again.
pub async fn conclude(dir: &LaunchDir, mut shim: ShimHandle) -> Result<Conclusion, Error> {
    loop {
        shim.ended().await?;
        let seen = dir.clone();
        match on_blocking_pool(move || recover(&seen)).await? {
            Recovered::Ended(status) => return Ok(Conclusion::Ended(status)),
            // The folder's claim cannot change, so the last two cases are a folder that was
            // removed by hand or that has survived its boot.
            Recovered::Vanished(_) | Recovered::NeverRan => {
                return Ok(Conclusion::Vanished(shim.claim().clone()));
            }
            Recovered::Alive(again) => shim = again,
        }
    }
}
