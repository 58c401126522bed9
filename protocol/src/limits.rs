//! The limits that users set, with their defaults, and those of names and texts.

use std::time::Duration;

/// The most bytes of a name or run id.
pub const NAME_BYTES_MAX: usize = 256;
/// The most levels of an agent's address.
pub const DEPTH_MAX: usize = 16;
/// The most bytes of a summary or error text on the wire; longer ones are cut with a marker.
pub const TEXT_BYTES_MAX: usize = 4 << 10;

/// The most that [`Limits::unread_frames_max`] may be.
pub const UNREAD_FRAMES_MAX: usize = 1 << 16;

/// The least that [`Limits::commit_queue_bytes_max`] may be: the largest batch of a store has room.
pub const COMMIT_QUEUE_BYTES_MIN: usize = 256 << 10;
/// The most that [`Limits::commit_queue_bytes_max`] may be: 4 GiB.
pub const COMMIT_QUEUE_BYTES_MAX: usize = u32::MAX as usize;

/// The most levels of arrays and objects in one another in a JSON payload. The parser reads 127 levels
/// back, and a payload travels and is stored inside of others.
pub const JSON_DEPTH_MAX: usize = 100;

/// A payload over its limit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is {actual} bytes, over the limit of {limit}")]
pub struct TooLarge {
    /// What was too large.
    pub what: &'static str,
    /// Its size in bytes.
    pub actual: usize,
    /// The limit in bytes.
    pub limit: usize,
}

/// Fails when `actual` bytes are over `limit`.
///
/// # Errors
/// [`TooLarge`], naming `what`.
pub fn check(what: &'static str, actual: usize, limit: usize) -> Result<(), TooLarge> {
    if actual > limit { Err(TooLarge { what, actual, limit }) } else { Ok(()) }
}

/// A JSON payload that is nested too deeply to be read back.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} is nested more than {JSON_DEPTH_MAX} levels deep")]
pub struct TooDeep {
    /// What was too deep.
    pub what: &'static str,
}

/// Fails when `json`, which has to be well-formed, is nested over [`JSON_DEPTH_MAX`] levels deep.
///
/// # Errors
/// [`TooDeep`], naming `what`.
pub fn check_depth(what: &'static str, json: &[u8]) -> Result<(), TooDeep> {
    let (mut depth, mut in_text, mut escaped) = (0_usize, false, false);
    for byte in json {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if in_text => escaped = true,
            b'"' => in_text = !in_text,
            b'[' | b'{' if !in_text => depth += 1,
            b']' | b'}' if !in_text => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH_MAX {
            return Err(TooDeep { what });
        }
    }
    Ok(())
}

/// The limits of a system. Those of names and depths, of texts ([`TEXT_BYTES_MAX`]) and of previews
/// ([`PREVIEW_UNITS_MAX`](crate::preview::PREVIEW_UNITS_MAX)) are constants, since clients count on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// The most bytes of a run's input as JSON: 1 MiB.
    pub input_bytes_max: usize,
    /// The most bytes of a run's output as JSON: 1 MiB.
    pub output_bytes_max: usize,
    /// The most bytes of one chunk: 256 KiB.
    pub chunk_bytes_max: usize,
    /// The most bytes of a milestone's data: 64 KiB.
    pub milestone_bytes_max: usize,
    /// The most bytes of a step's result: 1 MiB.
    pub step_bytes_max: usize,
    /// The most bytes of a state value: 1 MiB.
    pub state_bytes_max: usize,
    /// The most bytes of events that a run may have queued before `emit` waits: 1 MiB. At
    /// least 1.
    pub queued_bytes_max: usize,
    /// The most bytes of commits that a system may have queued for the disk before whoever commits waits,
    /// and with it what a run has queued: 64 MiB. From [`COMMIT_QUEUE_BYTES_MIN`] to
    /// [`COMMIT_QUEUE_BYTES_MAX`].
    pub commit_queue_bytes_max: usize,
    /// The most runs that a system executes at once; then a dispatch waits, and what a run dispatches
    /// is recorded and waits. A run that waits for another one does not count: 100,000. At least 1.
    pub runnable_runs_max: usize,
    /// Unread frames an observer may have before it is caught up from the log: 1,024. From 1 to
    /// [`UNREAD_FRAMES_MAX`]: the room for them is taken when a run is observed first.
    pub unread_frames_max: usize,
    /// How long a cancelled run may clean up before its task is dropped: 5 s.
    pub cancel_grace: Duration,
    /// How long a shutdown waits for running runs: 10 s.
    pub shutdown_drain: Duration,
    /// How long an agent without work stays in memory: 60 s.
    pub idle: Duration,
    /// The shortest time between two progress frames of a run: 200 ms.
    pub progress_interval: Duration,
    /// Sleeps longer than this let a run leave memory, and so does waiting as long for other runs: 1 s.
    pub suspend_after: Duration,
    /// How long code that was entered again may wait for a call that the log does not have next, while
    /// something outside may still make it ask for the one that it has; then it is a journal mismatch:
    /// 60 s.
    pub mismatch_after: Duration,
}

/// A limit that no system can work with.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the limit {name} is {value}, and has to be from {min} to {max}")]
pub struct InvalidLimit {
    /// Its name in [`Limits`].
    pub name: &'static str,
    /// What it was set to.
    pub value: usize,
    /// The least that it may be.
    pub min: usize,
    /// The most that it may be.
    pub max: usize,
}

impl Limits {
    /// Fails if a system could not work with these limits.
    ///
    /// # Errors
    /// [`InvalidLimit`], the first there is.
    pub fn validate(&self) -> Result<(), InvalidLimit> {
        let commit_queue = (COMMIT_QUEUE_BYTES_MIN, COMMIT_QUEUE_BYTES_MAX);
        for (name, value, (min, max)) in [
            ("queued_bytes_max", self.queued_bytes_max, (1, usize::MAX)),
            ("commit_queue_bytes_max", self.commit_queue_bytes_max, commit_queue),
            ("runnable_runs_max", self.runnable_runs_max, (1, usize::MAX)),
            ("unread_frames_max", self.unread_frames_max, (1, UNREAD_FRAMES_MAX)),
        ] {
            if !(min..=max).contains(&value) {
                return Err(InvalidLimit { name, value, min, max });
            }
        }
        Ok(())
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            input_bytes_max: 1 << 20,
            output_bytes_max: 1 << 20,
            chunk_bytes_max: 256 << 10,
            milestone_bytes_max: 64 << 10,
            step_bytes_max: 1 << 20,
            state_bytes_max: 1 << 20,
            queued_bytes_max: 1 << 20,
            commit_queue_bytes_max: 64 << 20,
            runnable_runs_max: 100_000,
            unread_frames_max: 1024,
            cancel_grace: Duration::from_secs(5),
            shutdown_drain: Duration::from_secs(10),
            idle: Duration::from_secs(60),
            progress_interval: Duration::from_millis(200),
            suspend_after: Duration::from_secs(1),
            mismatch_after: Duration::from_secs(60),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_that_nothing_works_with_are_refused() {
        assert_eq!(Limits::default().validate(), Ok(()));
        let invalid = |limits: Limits| limits.validate().unwrap_err().name;
        let limits = Limits { queued_bytes_max: 0, ..Limits::default() };
        assert_eq!(invalid(limits), "queued_bytes_max");
        let limits = Limits { runnable_runs_max: 0, ..Limits::default() };
        assert_eq!(invalid(limits), "runnable_runs_max");
        for bytes in [0, COMMIT_QUEUE_BYTES_MIN - 1, COMMIT_QUEUE_BYTES_MAX + 1] {
            let limits = Limits { commit_queue_bytes_max: bytes, ..Limits::default() };
            assert_eq!(invalid(limits), "commit_queue_bytes_max");
        }
        for unread in [0, UNREAD_FRAMES_MAX + 1, usize::MAX] {
            let limits = Limits { unread_frames_max: unread, ..Limits::default() };
            assert_eq!(invalid(limits), "unread_frames_max");
        }
    }

    #[test]
    fn depth_counts_what_is_nested_and_no_text() {
        let nested = |levels: usize| format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        let check = |json: &str| check_depth("it", json.as_bytes());
        assert_eq!(check(&nested(JSON_DEPTH_MAX)), Ok(()));
        assert_eq!(check(&nested(JSON_DEPTH_MAX + 1)), Err(TooDeep { what: "it" }));
        assert_eq!(check(&format!("[{}1]", "{},[],".repeat(1_000))), Ok(()));
        assert_eq!(check(&format!(r#"["{}"]"#, r#"[{\"["#.repeat(1_000))), Ok(()));
        assert!(check(&format!(r#"["\\",{}]"#, nested(JSON_DEPTH_MAX))).is_err());
    }
}
