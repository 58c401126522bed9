//! Finds a run by its id, or by the beginning of it.

use ghostlight::{AgentPath, RunFilter};

use crate::access::Access;
use crate::fatal::Fatal;

/// How many candidates an ambiguous beginning names.
const NAMED_MAX: usize = 5;

/// The parent and the whole id of the run that `wanted` means: its id, its address
/// (`Batch:name/Command:id`), or a beginning that only one id has.
pub(super) async fn find(access: &Access, wanted: &str) -> Result<(AgentPath, String), Fatal> {
    if let Ok(path) = wanted.parse::<AgentPath>()
        && let Some((parent, run_id)) = path.parent()
        && access.inspect(&parent, run_id.as_str()).await?.is_some()
    {
        return Ok((parent, run_id.to_string()));
    }
    let parents = access.agents().await?;
    if ghostlight::RunId::new(wanted).is_ok() {
        for parent in &parents {
            if access.inspect(parent, wanted).await?.is_some() {
                return Ok((parent.clone(), wanted.to_owned()));
            }
        }
    }
    let mut found = Vec::new();
    for parent in &parents {
        let mut after = None;
        loop {
            let page = access.list(parent, &RunFilter::default(), after.as_ref()).await?;
            let matching = page.runs.into_iter().filter(|run| run.run_id.starts_with(wanted));
            found.extend(matching.map(|run| (parent.clone(), run.run_id)));
            match page.next {
                Some(next) if found.len() <= NAMED_MAX => after = Some(next),
                _ => break,
            }
        }
    }
    match found.len() {
        0 => Err(Fatal::new(format!("there is no run {wanted:?}; `ghostlight runs` lists them"))),
        1 => Ok(found.swap_remove(0)),
        _ => {
            let named: Vec<String> =
                found.iter().take(NAMED_MAX).map(|(_, id)| id.clone()).collect();
            Err(Fatal::new(format!("{wanted:?} may be {}, or others", named.join(", "))))
        }
    }
}
