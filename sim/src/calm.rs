//! How runs end in the world in which nothing goes wrong: they have to end so in every other one.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};

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
    ends: BTreeMap<RunKey, Ended>,
    /// How many runs of each type there are.
    types: BTreeMap<String, usize>,
}

/// Whether something of the plan changes how runs end.
pub(crate) fn changes_ends(plan: &Plan) -> bool {
    plan.faults.iter().any(|planned| match planned.fault {
        Fault::Cancel | Fault::PanicChild | Fault::StallChild(_) => true,
        Fault::KillBefore | Fault::KillTorn(_) | Fault::KillAfter => false,
        Fault::Stall(_) | Fault::Fail(_) | Fault::StallRead(_) | Fault::FailRead => false,
        Fault::Jump(_) | Fault::Down(_) | Fault::Duplicate => false,
        Fault::Evict | Fault::CrashParent | Fault::CrashRun => false,
    })
}

impl Calm {
    pub(crate) fn new(durable: &Durable) -> Self {
        let end = |(key, run): (RunKey, &DurableRun)| {
            Some((key, end_of(durable, key, run.record.as_ref()?)))
        };
        Self { ends: durable.runs().filter_map(end).collect(), types: types(durable) }
    }

    /// A run that has ended otherwise, or one that is missing. Those that only one of the two worlds has
    /// are counted and not compared: ids that nobody chose are others in every world.
    pub(crate) fn differs(&self, durable: &Durable) -> Option<String> {
        let otherwise = self.ends.iter().find_map(|(key, there)| {
            let run = durable.run(*key)?;
            let record = run.record.as_ref()?;
            let here = end_of(durable, *key, record);
            let excused = exhausted_after(record).is_some_and(|lost| lost >= LOST_MIN);
            (here != *there && !excused)
                .then(|| format!("{:?} ended as {here:?}, and is {there:?} in peace", run.path))
        });
        otherwise.or_else(|| self.misses(durable))
    }

    /// What a run did not come to that gave up, as it may, is not missing.
    fn misses(&self, durable: &Durable) -> Option<String> {
        let mut records = durable.runs().filter_map(|(_, run)| run.record.as_ref());
        if records.any(|record| exhausted_after(record).is_some()) {
            return None;
        }
        let here = types(durable);
        self.types.iter().find_map(|(agent_type, there)| {
            let here = here.get(agent_type).copied().unwrap_or(0);
            (here < *there)
                .then(|| format!("there are {here} runs of {agent_type}, and {there} in peace"))
        })
    }
}

fn types(durable: &Durable) -> BTreeMap<String, usize> {
    let mut types = BTreeMap::new();
    for record in durable.runs().filter_map(|(_, run)| run.record.as_ref()) {
        *types.entry(record.agent_type.clone()).or_default() += 1;
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
