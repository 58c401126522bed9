//! Which children a failure concerns, and in which order many are stopped.

/// Says which children are restarted when one has failed.
///
/// | strategy     | restarted with it                         |
/// |--------------|-------------------------------------------|
/// | `OneForOne`  | none                                      |
/// | `OneForAll`  | all                                       |
/// | `RestForOne` | those that were added after it            |
///
/// They are stopped first, in reverse start order, then started in start order, each when the one
/// before it runs. `Temporary` children among them are stopped and removed. A child keeps its place
/// in the order over all its restarts. Only the one that failed uses up restart intensity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// Children are independent of each other.
    #[default]
    OneForOne,
    /// All children depend on each other.
    OneForAll,
    /// Children depend on those added before them.
    RestForOne,
}

/// Says how many children are stopped, at shutdown and by a [`Strategy`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StopOrder {
    /// In reverse start order, each when the one after it has really ended. The drain times add up.
    #[default]
    OneByOne,
    /// All are told to stop in reverse start order, and drain at the same time: for many
    /// independent children.
    Together,
}

/// Where a child stands in start order; never used twice by a supervisor.
pub(crate) type Place = u64;

impl Strategy {
    /// Returns the first place that is restarted when the child at `failed` has failed; all places
    /// from it on are. `None` if only the failed one is.
    pub(crate) fn restarted_from(self, failed: Place) -> Option<Place> {
        match self {
            Self::OneForOne => None,
            Self::OneForAll => Some(0),
            Self::RestForOne => Some(failed),
        }
    }
}
