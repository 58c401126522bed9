//! The runs of several batches in the order of their dispatch, a few of each in memory at a time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use ghostlight::{AgentPath, Cursor, RunFilter, RunInfo};

use crate::access::{Access, PAGE};
use crate::fatal::Fatal;

/// The fewest runs of a batch that are read at once, however many batches there are.
const PAGE_MIN: usize = 8;
/// The most runs of one ms that are put into order.
const TIES_MAX: usize = 1000;

/// The runs of some batches, oldest first. Nothing of it is lost with the way in: the next one goes on.
pub(super) struct Merged {
    filter: RunFilter,
    batches: Vec<Batch>,
    /// The batches of which the next run is not known.
    unknown: Vec<usize>,
    /// When the next run of each batch was recorded, and which batch it is.
    next: BinaryHeap<Reverse<(u64, usize)>>,
}

struct Batch {
    parent: AgentPath,
    after: Option<Cursor>,
    is_read: bool,
    ties: Ties,
    ready: VecDeque<RunInfo>,
}

impl Merged {
    pub(super) fn new(filter: RunFilter, parents: Vec<AgentPath>) -> Self {
        let batches = parents
            .into_iter()
            .map(|parent| Batch {
                parent,
                after: None,
                is_read: false,
                ties: Ties::default(),
                ready: VecDeque::new(),
            })
            .collect::<Vec<_>>();
        let unknown = (0..batches.len()).collect();
        Self { filter, batches, unknown, next: BinaryHeap::new() }
    }

    /// The oldest run that is left. After an error the same one is next.
    pub(super) async fn next(&mut self, access: &Access) -> Result<Option<RunInfo>, Fatal> {
        while let Some(index) = self.unknown.last() {
            self.read(access, *index).await?;
            self.unknown.pop();
        }
        let Some(Reverse((_, index))) = self.next.pop() else { return Ok(None) };
        self.unknown.push(index);
        Ok(self.batches[index].ready.pop_front())
    }

    /// Puts the next run of a batch in line, if it has one.
    async fn read(&mut self, access: &Access, index: usize) -> Result<(), Fatal> {
        let limit = (PAGE / self.batches.len()).clamp(PAGE_MIN, PAGE);
        let batch = &mut self.batches[index];
        while batch.ready.is_empty() && !batch.is_read {
            let page =
                access.page(&batch.parent, &self.filter, batch.after.as_ref(), limit).await?;
            batch.is_read = page.next.is_none();
            batch.after = page.next;
            batch.ready.extend(batch.ties.take(page.runs, batch.is_read));
        }
        if let Some(run) = batch.ready.front() {
            self.next.push(Reverse((run.started_at, index)));
        }
        Ok(())
    }
}

/// Puts runs of the same ms into the order of their dispatch: the store has them by time alone.
#[derive(Default)]
struct Ties {
    /// The runs of the newest ms, of which the next page may have more.
    held: Vec<RunInfo>,
}

impl Ties {
    /// Takes a page, and returns the runs that come before all that follow.
    fn take(&mut self, page: Vec<RunInfo>, is_last: bool) -> Vec<RunInfo> {
        self.held.extend(page);
        let newest = self.held.last().map_or(0, |run| run.started_at);
        let mut ready = self.held.partition_point(|run| run.started_at < newest);
        if is_last || self.held.len() - ready > TIES_MAX {
            ready = self.held.len();
        }
        let held = self.held.split_off(ready);
        let mut ready = std::mem::replace(&mut self.held, held);
        ready.sort_by_key(|run| (run.started_at, run.display_order));
        ready
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn run(started_at: u64, order: i64) -> RunInfo {
        let value = serde_json::json!({
            "runId": format!("{started_at}-{order}"), "agentType": "Command", "parent": "Batch:b",
            "status": "completed", "execution": "completed", "displayOrder": order,
            "startedAt": started_at, "attempt": 1, "suspended": false, "queued": false,
            "cancelling": false,
        });
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn runs_of_one_ms_are_in_order_over_any_pages() {
        let stored = [(1, 1), (1, 0), (2, 4), (2, 2), (2, 5), (2, 3), (3, 6)];
        for page in 1..=stored.len() {
            let (mut ties, mut listed) = (Ties::default(), Vec::new());
            for (at, runs) in stored.chunks(page).enumerate() {
                let is_last = (at + 1) * page >= stored.len();
                let runs = runs.iter().map(|(ms, order)| run(*ms, *order)).collect();
                listed.extend(ties.take(runs, is_last).into_iter().map(|run| run.display_order));
            }
            assert_eq!(listed, [0, 1, 2, 3, 4, 5, 6], "pages of {page}");
        }
    }

    #[test]
    fn not_more_than_so_many_are_held() {
        let mut ties = Ties::default();
        let page = |from: usize| (from..from + 500).map(|order| run(1, order as i64)).collect();
        assert_eq!(ties.take(page(0), false).len(), 0);
        assert_eq!(ties.take(page(500), false).len(), 0);
        assert_eq!(ties.take(page(1000), false).len(), 1500);
    }
}
