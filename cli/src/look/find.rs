//! Finds a run by its id, or by the beginning of it.

use ghostlight::{AgentPath, RunFilter, RunId};

use super::list::parents;
use crate::access::Access;
use crate::args::OneRun;
use crate::fatal::Fatal;

/// How many candidates an ambiguous beginning names.
const NAMED_MAX: usize = 5;

/// A run that may be meant.
struct Found {
    parent: AgentPath,
    agent_type: String,
    run_id: String,
}

/// The parent and the whole id of the run that is meant: by its id, by its address
/// (`Batch:name/Command:id`), or by a beginning that only one id has and that is at least so long.
pub(super) async fn find(
    access: &Access,
    asked: &OneRun,
    beginning_min: usize,
) -> Result<(AgentPath, String), Fatal> {
    let wanted = asked.run.as_str();
    for (parent, run_id) in addresses(wanted) {
        if access.inspect(&parent, run_id.as_str()).await?.is_some() {
            return Ok((parent, run_id.to_string()));
        }
    }
    let parents = parents(access, &asked.place.data, asked.batch.as_deref()).await?;
    let mut found = Vec::new();
    if RunId::new(wanted).is_ok() {
        for parent in &parents {
            if let Some(inspection) = access.inspect(parent, wanted).await? {
                let (parent, agent_type) = (parent.clone(), inspection.run.agent_type);
                found.push(Found { parent, agent_type, run_id: wanted.to_owned() });
            }
        }
    }
    if found.is_empty() && wanted.chars().count() >= beginning_min {
        for parent in &parents {
            find_by_beginning(access, parent, wanted, &mut found).await?;
        }
    }
    match found.len() {
        0 if wanted.chars().count() < beginning_min => Err(Fatal::new(format!(
            "there is no run {wanted:?}; write the whole id, or at least its first {beginning_min} characters"
        ))),
        0 => Err(Fatal::new(format!("there is no run {wanted:?}; `ghostlight runs` lists them"))),
        1 => {
            let Found { parent, run_id, .. } = found.swap_remove(0);
            Ok((parent, run_id))
        }
        _ => Err(ambiguous(wanted, &found)),
    }
}

/// What a text means as an address: as addresses are printed, and with the batch's name as it was
/// given, which may hold a slash.
fn addresses(text: &str) -> impl Iterator<Item = (AgentPath, RunId)> {
    let printed = text.parse::<AgentPath>().ok().and_then(|path| path.parent());
    let given = text.strip_prefix("Batch:").and_then(|rest| rest.rsplit_once("/Command:"));
    let given = given.and_then(|(batch, run_id)| {
        Some((AgentPath::root("Batch", batch).ok()?, RunId::new(run_id).ok()?))
    });
    printed.into_iter().chain(given)
}

async fn find_by_beginning(
    access: &Access,
    parent: &AgentPath,
    wanted: &str,
    found: &mut Vec<Found>,
) -> Result<(), Fatal> {
    let mut after = None;
    loop {
        let page = access.list(parent, &RunFilter::default(), after.as_ref()).await?;
        let matching = page.runs.into_iter().filter(|run| run.run_id.starts_with(wanted));
        found.extend(matching.map(|run| Found {
            parent: parent.clone(),
            agent_type: run.agent_type,
            run_id: run.run_id,
        }));
        match page.next {
            Some(next) if found.len() <= NAMED_MAX => after = Some(next),
            _ => return Ok(()),
        }
    }
}

fn ambiguous(wanted: &str, found: &[Found]) -> Fatal {
    let others = if found.len() > NAMED_MAX { ", or others" } else { "" };
    let list = |named: &dyn Fn(&Found) -> String| {
        found.iter().take(NAMED_MAX).map(named).collect::<Vec<_>>().join(", ")
    };
    let one = &found[0].run_id;
    if found.iter().all(|run| run.run_id == *one) {
        let batches = list(&|run| run.parent.name());
        let addresses = list(&|run| {
            format!("{}:{}/{}:{one}", run.parent.agent_type(), run.parent.name(), run.agent_type)
        });
        return Fatal::new(format!(
            "run {one} is there in several batches: {batches}{others}; name one with --batch, or write {addresses}{others}"
        ));
    }
    let named = list(&|run| format!("{} of {}", run.run_id, run.parent.name()));
    Fatal::new(format!("{wanted:?} may be {named}{others}; write more of the id"))
}
