use std::collections::BTreeMap;

use crate::frame::Frame;

/// The most gaps remembered in the number line of one run.
pub const GAPS_MAX: usize = 1024;

/// The frames that were seen, so that one which comes again can be dropped.
///
/// A frame is known by its parent tool call, run id and sequence, whether it came live or in a
/// replay.
///
/// Numbers of a run are kept as ranges without gaps: a run whose frames all arrived takes one
/// range, however long it is. A gap is a frame that is missing, or one that will never come (a
/// superseded progress frame keeps its number). Once a run has more than [`GAPS_MAX`] gaps, the
/// lowest is closed, as if its frames had been seen. So the memory of a run is at most 16 KiB, and
/// no frame is ever taken twice; a frame is dropped unseen only if it comes after more than
/// `GAPS_MAX` later gaps have opened, which no sender that keeps the order of a run does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeenFrames {
    /// By parent tool call (empty for none), then by run id.
    runs: BTreeMap<String, BTreeMap<String, Ranges>>,
}

impl SeenFrames {
    /// Creates a set of nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Remembers a frame, and says whether it is new.
    pub fn insert(&mut self, frame: &Frame) -> bool {
        let parent = frame.parent_tool_call_id.as_deref().unwrap_or_default();
        let run_id = frame.event.run_id();
        if let Some(ranges) = self.runs.get_mut(parent).and_then(|runs| runs.get_mut(run_id)) {
            return ranges.insert(frame.sequence);
        }
        let runs = self.runs.entry(parent.to_owned()).or_default();
        runs.entry(run_id.to_owned()).or_default().insert(frame.sequence)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.runs.clear();
    }
}

/// A set of numbers, kept as ranges.
///
/// Invariant: ranges are ascending and at least one number apart, each `(first, last)` with
/// `first <= last`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    fn insert(&mut self, number: u64) -> bool {
        let ranges = &mut self.0;
        // The first range that begins above the number; the one before may hold or touch it.
        let above = ranges.partition_point(|(first, _)| *first <= number);
        let touches_above = ranges.get(above).is_some_and(|(first, _)| first - 1 == number);
        let below = above.checked_sub(1);
        match below.map(|below| (below, ranges[below].1)) {
            Some((_, last)) if last >= number => return false,
            Some((below, last)) if last == number - 1 => {
                ranges[below].1 = if touches_above { ranges.remove(above).1 } else { number };
            }
            _ if touches_above => ranges[above].0 = number,
            _ => ranges.insert(above, (number, number)),
        }
        if ranges.len() > GAPS_MAX + 1 {
            ranges[1].0 = ranges[0].0;
            ranges.remove(0);
        }
        debug_assert!(ranges.is_sorted_by(|a, b| a.0 <= a.1 && a.1 < b.0 - 1));
        true
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;
    use crate::frame::FrameEvent;

    fn frame(parent: Option<&str>, run_id: &str, sequence: u64, replay: bool) -> Frame {
        Frame {
            parent_tool_call_id: parent.map(str::to_owned),
            sequence,
            replay,
            event: FrameEvent::Chunk { run_id: run_id.to_owned(), body: String::new() },
        }
    }

    #[test]
    fn a_frame_is_known_by_parent_run_and_number() {
        let mut seen = SeenFrames::new();
        assert!(seen.insert(&frame(Some("call"), "r", 0, false)));
        assert!(!seen.insert(&frame(Some("call"), "r", 0, true)), "live and replay are the same");
        assert!(seen.insert(&frame(Some("call"), "r", 1, true)));
        assert!(seen.insert(&frame(Some("call"), "s", 0, false)));
        assert!(seen.insert(&frame(Some("other"), "r", 0, false)));
        assert!(seen.insert(&frame(None, "r", 0, false)));
        assert!(!seen.insert(&frame(Some(""), "r", 0, false)), "empty and absent are the same");
        seen.clear();
        assert!(seen.insert(&frame(Some("call"), "r", 0, false)));
    }

    #[test]
    fn a_whole_number_line_takes_one_range() {
        let mut ranges = Ranges::default();
        for number in (0..1000).step_by(2).chain((1..1000).step_by(2)) {
            assert!(ranges.insert(number));
        }
        assert_eq!(ranges.0, [(0, 999)]);
        assert!((0..1000).all(|number| !ranges.insert(number)));
    }

    #[test]
    fn the_ends_of_the_number_line_are_numbers_like_others() {
        let mut ranges = Ranges::default();
        for number in [0, u64::MAX, u64::MAX - 1, 1] {
            assert!(ranges.insert(number));
            assert!(!ranges.insert(number));
        }
        assert_eq!(ranges.0, [(0, 1), (u64::MAX - 1, u64::MAX)]);
    }

    #[test]
    fn the_lowest_gap_is_closed_above_the_bound() {
        let gaps = GAPS_MAX as u64;
        let mut ranges = Ranges::default();
        for number in 0..=gaps {
            assert!(ranges.insert(2 * number));
        }
        assert!(ranges.insert(1), "the lowest gap is still open");
        // One gap was filled, so the first of these fits and the second does not.
        assert!(ranges.insert(2 * gaps + 2));
        assert!(ranges.insert(2 * gaps + 4));
        assert_eq!(ranges.0.len(), GAPS_MAX + 1);
        assert!(!ranges.insert(3), "the lowest gap counts as seen");
        assert!(ranges.insert(5));
        assert!(!ranges.insert(2 * gaps), "what was seen stays seen");
    }

    proptest! {
        #[test]
        fn ranges_agree_with_a_set(numbers in prop::collection::vec(0u64..200, 0..300)) {
            let mut ranges = Ranges::default();
            let mut set = BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(ranges.insert(number), set.insert(number));
            }
        }
    }
}
