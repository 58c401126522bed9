//! Finds a run by its id, or by the beginning of it.

use ghostlight::{AgentPath, RunFilter, RunId};

use super::list::parents;
use crate::access::Access;
use crate::args::OneRun;
use crate::fatal::Fatal;

/// How many candidates an ambiguous beginning names.
const NAMED_MAX: usize = 5;

/// The parent and the whole id of the run that is meant: by its id, by its address
/// (`Batch:name/Command:id`), or by a beginning that only one id has.
pub(super) async fn find(access: &Access, asked: &OneRun) -> Result<(AgentPath, String), Fatal> {
    let wanted = asked.run.as_str();
    if let Ok(path) = wanted.parse::<AgentPath>()
        && let Some((parent, run_id)) = path.parent()
        && access.inspect(&parent, run_id.as_str()).await?.is_some()
    {
        return Ok((parent, run_id.to_string()));
    }
    let parents = parents(access, asked.batch.as_deref()).await?;
    let mut found = Vec::new();
    if RunId::new(wanted).is_ok() {
        for parent in &parents {
            if access.inspect(parent, wanted).await?.is_some() {
                found.push((parent.clone(), wanted.to_owned()));
            }
        }
    }
    if found.is_empty() {
        for parent in &parents {
            find_by_beginning(access, parent, wanted, &mut found).await?;
        }
    }
    match found.len() {
        0 => Err(Fatal::new(format!("there is no run {wanted:?}; `ghostlight runs` lists them"))),
        1 => Ok(found.swap_remove(0)),
        _ => Err(ambiguous(wanted, &found)),
    }
}

async fn find_by_beginning(
    access: &Access,
    parent: &AgentPath,
    wanted: &str,
    found: &mut Vec<(AgentPath, String)>,
) -> Result<(), Fatal> {
    let mut after = None;
    loop {
        let page = access.list(parent, &RunFilter::default(), after.as_ref()).await?;
        let matching = page.runs.into_iter().filter(|run| run.run_id.starts_with(wanted));
        found.extend(matching.map(|run| (parent.clone(), run.run_id)));
        match page.next {
            Some(next) if found.len() <= NAMED_MAX => after = Some(next),
            _ => return Ok(()),
        }
    }
}

fn ambiguous(wanted: &str, found: &[(AgentPath, String)]) -> Fatal {
    let named: Vec<String> =
        found.iter().take(NAMED_MAX).map(|(parent, id)| format!("{id} of {parent}")).collect();
    let others = if found.len() > NAMED_MAX { ", or others" } else { "" };
    Fatal::new(format!(
        "{wanted:?} may be {}{others}; write more of the id, or name the batch with --batch",
        named.join(", ")
    ))
}
