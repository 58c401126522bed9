//! How many files the program may have open.

use crate::fatal::Fatal;
use crate::sys;

/// How many files a running command keeps open here, and how many the program itself needs.
const FILES_PER_JOB: u64 = 8;
const FILES_OF_OURS: u64 = 64;
/// How many files those who look may take: a connection each. Fewer are no reason not to begin.
const FILES_OF_OTHERS: u64 = 320;

/// Sees to it that so many jobs may have their files open, or refuses them: they would fail in the
/// middle. Returns the soft limit of before, if it was raised: it is the commands' own.
pub(super) fn raise_open_files(jobs: usize) -> Result<Option<u64>, Fatal> {
    use rustix::process::{Resource, Rlimit, getrlimit};
    let needed = (jobs as u64).saturating_mul(FILES_PER_JOB).saturating_add(FILES_OF_OURS);
    let wanted = needed.saturating_add(FILES_OF_OTHERS);
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= wanted) {
        return Ok(None);
    }
    let is_raised = sys::set_open_files(Some(wanted)).is_ok();
    let limit = getrlimit(Resource::Nofile).current;
    if limit.is_none_or(|limit| limit >= needed) {
        return Ok(current.filter(|_| is_raised));
    }
    let limit = maximum.or(current).unwrap_or(0);
    Err(Fatal::new(format!(
        "{jobs} jobs need about {needed} open files, and the limit is {limit}; raise it with `ulimit -n {needed}`, or lower --jobs"
    )))
}
