//! What a client makes of the frames it receives: the state of runs, rebuilt from their events.
//!
//! [`State`] is a pure reducer, [`SeenFrames`] tells repeated frames from new ones, and [`Subscription`]
//! joins the two into what sits behind a connection. All of it is data in, data out: whoever feeds
//! it brings the time.
//!
//! From the same frames the reducer reaches the state that the npm client `agents` reaches, except
//! where that client is known to be wrong:
//!
//! - A hard end (`finished`, `error`, `aborted`) clears `reason` and `childStillRunning`, stands
//!   for good, and may replace `interrupted`.
//! - A milestone that is already known adds no second part.
//! - `progress.at` is the sender's time where the frame carries one, so that progress and
//!   milestones are compared by one clock.
//! - A frame of a run that is not known yet is not spent: when it comes again after `started`, it
//!   counts.
//!
//! Chunks of foreign senders may have any shape. A field that is missing or of another type is read
//! as that client reads it, with these exceptions:
//!
//! - A delta that is not a text is written out as JSON and appended; that client may add numbers.
//! - Provider metadata that is not an object is dropped where it would be merged.
//! - A body with a lone surrogate escape, a number beyond the range of a double, or more than 127
//!   levels is not read at all.

mod collate;
mod dedup;
mod parts;
mod reducer;
mod run;
mod state;
mod subscription;

#[cfg(test)]
mod tests;

pub use dedup::{GAPS_MAX, SeenFrames};
pub use parts::{Part, apply_chunk, normalize_input};
pub use run::{Milestone, Progress, Run, SubAgent};
pub use state::{State, apply};
pub use subscription::{Received, Subscription};
