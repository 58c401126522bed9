use serde::{Deserialize, Serialize, Serializer};
use serde_json::{Number, Value};

/// The chunk type of a progress signal.
pub const PROGRESS_PART: &str = "data-agent-progress";
/// The chunk type of a milestone.
pub const MILESTONE_PART: &str = "data-agent-milestone";
/// The chunk type of the mark that a step is executed again; an extension of ours, which other
/// clients show as a data part.
pub const ATTEMPT_PART: &str = "data-agent-attempt";

/// The data of a progress chunk.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgressData {
    /// How much is done, usually from 0 to 1; not clamped. A fraction that is not finite is left
    /// out when written.
    #[serde(default, skip_serializing_if = "no_number", serialize_with = "number")]
    pub fraction: Option<f64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The phase of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
    /// When the signal was raised, in epoch milliseconds of the sender's clock, so that progress
    /// and milestones are ordered by one clock. Others' signals may lack it.
    #[serde(default, rename = "at", skip_serializing_if = "Option::is_none")]
    pub at_ms: Option<u64>,
}

/// The data of a milestone chunk.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MilestoneData {
    /// The milestone's name; may repeat within a run.
    pub name: String,
    /// The milestone's number among those of its run, from 0.
    pub sequence: u64,
    /// When it was reached, in epoch milliseconds of the sender's clock.
    #[serde(rename = "at")]
    pub at_ms: u64,
    /// As in [`ProgressData::fraction`].
    #[serde(default, skip_serializing_if = "no_number", serialize_with = "number")]
    pub fraction: Option<f64>,
    /// What is being done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The phase of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// What was reached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Value>,
}

/// The data of an attempt mark: earlier events of that step count no more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptMark {
    /// The step that is executed again.
    pub step: String,
    /// The number of this execution.
    pub attempt: u64,
}

/// A chunk body with a meaning of its own.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(tag = "type", content = "data")]
pub enum ReservedBody {
    /// A progress signal: shown, never kept among the parts.
    #[serde(rename = "data-agent-progress")]
    Progress(ProgressData),
    /// A milestone.
    #[serde(rename = "data-agent-milestone")]
    Milestone(MilestoneData),
    /// A mark that a step is executed again.
    #[serde(rename = "data-agent-attempt")]
    Attempt(AttemptMark),
}

impl ReservedBody {
    /// Reads a chunk body; none if it is an ordinary one, or not as this system writes them.
    ///
    /// For one's own log. The [client](crate::client), which must get along with foreign senders,
    /// reads more leniently.
    pub fn parse(body: &str) -> Option<Self> {
        serde_json::from_str(body).ok()
    }
}

/// Writes the body of a progress chunk.
///
/// # Examples
///
/// ```
/// use ghostlight_protocol::frame::{ProgressData, progress_body};
///
/// let progress = ProgressData { fraction: Some(0.5), at_ms: Some(1000), ..ProgressData::default() };
/// assert_eq!(
///     progress_body(&progress),
///     r#"{"type":"data-agent-progress","transient":true,"data":{"fraction":0.5,"at":1000}}"#
/// );
/// ```
pub fn progress_body(progress: &ProgressData) -> String {
    write(PROGRESS_PART, true, progress)
}

/// Writes the body of a milestone chunk.
pub fn milestone_body(milestone: &MilestoneData) -> String {
    write(MILESTONE_PART, false, milestone)
}

/// Writes the body of an attempt mark.
pub fn attempt_body(mark: &AttemptMark) -> String {
    write(ATTEMPT_PART, false, mark)
}

fn write<T: Serialize>(r#type: &str, transient: bool, data: &T) -> String {
    #[derive(Serialize)]
    struct Body<'a, T> {
        r#type: &'a str,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        transient: bool,
        data: &'a T,
    }
    serde_json::to_string(&Body { r#type, transient, data })
        .expect("reserved bodies have text keys only and nothing that fails")
}

fn no_number(fraction: &Option<f64>) -> bool {
    !fraction.is_some_and(f64::is_finite)
}

/// Writes a whole number without a decimal point, as clients print numbers themselves.
fn number<S: Serializer>(fraction: &Option<f64>, serializer: S) -> Result<S::Ok, S::Error> {
    const WHOLE_MAX: f64 = 9_007_199_254_740_991.0;
    let number = fraction.and_then(|fraction| {
        if fraction.fract() == 0.0 && fraction.abs() <= WHOLE_MAX {
            // In range by the check above, so the cast loses nothing.
            Some(Number::from(fraction as i64))
        } else {
            Number::from_f64(fraction)
        }
    });
    number.serialize(serializer)
}
