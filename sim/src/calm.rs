//! How runs end in the world in which nothing goes wrong: they have to end so in every other one.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hasher};

use ghostlight::AgentPath;
use ghostlight::protocol::RunKey;
use ghostlight::protocol::run::{End, Phase};
use ghostlight::storage::payload::Payload;
use ghostlight::storage::records::{EndRecord, RunRecord};

use crate::durable::{Durable, DurableRun};
use crate::oracle::attempts::exhausted_after;
use crate::plan::{Fault, Plan};

/// So many attempts in a row that a run has lost excuse that it gave up. One does not: an agent that dies
/// of any crash is not crash-safe, whatever its policy says.
const LOST_MIN: u32 = 2;

/// How every run of the calm world has ended.
#[derive(Debug)]
pub(crate) struct Calm {
    ends: BTreeMap<RunKey, Run>,
}

#[derive(Debug)]
struct Run {
    path: AgentPath,
    agent_type: String,
    end: Ended,
    /// After so many lost attempts in a row it gave up.
    lost: Option<u32>,
}

/// Whether something of the plan changes how runs end.
pub(crate) fn changes_ends(plan: &Plan) -> bool {
    plan.faults.iter().any(|planned| match planned.fault {
        Fault::Cancel | Fault::PanicChild | Fault::StallChild(_) => true,
        Fault::KillBefore | Fault::KillTorn(_) | Fault::KillAfter | Fault::Stop => false,
        Fault::Stall(_) | Fault::Fail(_) | Fault::StallRead(_) | Fault::FailRead => false,
        Fault::Jump(_) | Fault::Down(_) | Fault::Duplicate => false,
        Fault::Evict | Fault::CrashParent | Fault::CrashRun => false,
    })
}

impl Calm {
    pub(crate) fn new(durable: &Durable) -> Self {
        Self { ends: ends(durable) }
    }

    /// A run that has ended otherwise, and a type of which there are more or fewer runs.
    pub(crate) fn differs(&self, durable: &Durable) -> Option<String> {
        let here = ends(durable);
        let otherwise = self.ends.iter().find_map(|(key, there)| {
            let here = here.get(key).filter(|here| here.end != there.end && !here.is_excused())?;
            let (path, here, there) = (&here.path, &here.end, &there.end);
            Some(format!("{path} ended as {here:?}, and is {there:?} in peace"))
        });
        let unnamed = || self.differs_unnamed(&here);
        otherwise.or_else(|| self.differs_in_number(&here)).or_else(unnamed)
    }

    /// What a run did not come to that gave up, as it may, is not missing: runs of the types that are
    /// below its own type in the calm world.
    fn differs_in_number(&self, here: &BTreeMap<RunKey, Run>) -> Option<String> {
        let gave_up: BTreeSet<&str> =
            here.values().filter(|run| run.lost.is_some()).map(|run| &*run.agent_type).collect();
        let is_below = |run: &Run| {
            let above = std::iter::successors(run.path.parent(), |(path, _)| path.parent());
            above.into_iter().any(|(path, _)| gave_up.contains(path.agent_type()))
        };
        let excused: BTreeSet<&str> =
            self.ends.values().filter(|run| is_below(run)).map(|run| &*run.agent_type).collect();
        let (here, there) = (by_type(here.values()), by_type(self.ends.values()));
        let types: BTreeSet<&str> = here.keys().chain(there.keys()).copied().collect();
        types.into_iter().find_map(|agent_type| {
            let count = |ends: &BTreeMap<&str, Vec<_>>| ends.get(agent_type).map_or(0, Vec::len);
            let (here, there) = (count(&here), count(&there));
            let differs = here > there || (here < there && !excused.contains(agent_type));
            differs.then(|| format!("there are {here} runs of {agent_type}, and {there} in peace"))
        })
    }

    /// Ids that nobody chose are others in every world: of what has one, all ends of a type together are
    /// the same.
    fn differs_unnamed(&self, here: &BTreeMap<RunKey, Run>) -> Option<String> {
        let ours = here.iter().filter(|(key, _)| !self.ends.contains_key(*key));
        let theirs = self.ends.iter().filter(|(key, _)| !here.contains_key(*key));
        let ours = by_type(ours.map(|(_, run)| run));
        let theirs = by_type(theirs.map(|(_, run)| run));
        ours.into_iter().find_map(|(agent_type, ours)| {
            let mut left = theirs.get(agent_type).cloned().unwrap_or_default();
            ours.into_iter().find_map(|run| {
                match left.iter().position(|there| there.end == run.end) {
                    Some(at) => _ = left.swap_remove(at),
                    None if run.is_excused() => {}
                    None => {
                        let (path, end) = (&run.path, &run.end);
                        return Some(format!(
                            "{path} ended as {end:?}, and no {agent_type} does so in peace"
                        ));
                    }
                }
                None
            })
        })
    }
}

impl Run {
    fn is_excused(&self) -> bool {
        self.lost.is_some_and(|lost| lost >= LOST_MIN)
    }
}

fn ends(durable: &Durable) -> BTreeMap<RunKey, Run> {
    let run = |(key, run): (RunKey, &DurableRun)| {
        let (record, path) = (run.record.as_ref()?, run.path.clone()?);
        let end = end_of(durable, key, record);
        let agent_type = record.agent_type.clone();
        Some((key, Run { path, agent_type, end, lost: exhausted_after(record) }))
    };
    durable.runs().filter_map(run).collect()
}

fn by_type<'a>(runs: impl Iterator<Item = &'a Run>) -> BTreeMap<&'a str, Vec<&'a Run>> {
    let mut types = BTreeMap::<_, Vec<_>>::new();
    for run in runs {
        types.entry(&*run.agent_type).or_default().push(run);
    }
    types
}

/// An end, what it says, and the word for why it failed.
type Ended = (Option<End>, String, Option<String>);

fn end_of(durable: &Durable, run: RunKey, record: &RunRecord) -> Ended {
    let Phase::Ended(end) = record.state.phase else { return (None, String::new(), None) };
    let EndRecord { output, summary: _, error, kind, permanent: _ } =
        record.end.clone().unwrap_or_default();
    let says = match end {
        End::Completed => output.map_or_else(String::new, |output| {
            match (&output, durable.contents(run, &output)) {
                (Payload::Inline(bytes), _) => String::from_utf8_lossy(bytes).into_owned(),
                (_, Some(bytes)) => format!("{} bytes, hashed {:016x}", bytes.len(), hash(&bytes)),
                (_, None) => "an output of which parts are missing".to_owned(),
            }
        }),
        End::Error => error.unwrap_or_default(),
        // Whose reason comes first is nobody's promise.
        End::Aborted => String::new(),
    };
    (Some(end), says, kind)
}

/// What tells large outputs apart, in one process.
fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(bytes);
    hasher.finish()
}
