//! `ghostlight show`.

use std::process::ExitCode;

use serde_json::Value;

use super::find::find;
use super::{Early, Out, end, one_line};
use crate::access::{Access, Folder};
use crate::args::OneRun;
use crate::fatal::Fatal;

/// Shows a run as it stands.
pub(crate) async fn show(args: OneRun) -> Result<ExitCode, Fatal> {
    let folder = Folder::open(&args.place.data)?;
    end(folder.with(async |access| print(access, &args).await).await)
}

async fn print(access: &Access, args: &OneRun) -> Result<ExitCode, Early> {
    let (parent, run_id) = find(access, args, 1).await?;
    let inspection = access
        .inspect(&parent, &run_id)
        .await?
        .ok_or_else(|| Fatal::new(format!("run {run_id:?} was cleared meanwhile")))?;
    let mut out = Out::new();
    let value = serde_json::to_value(&inspection).map_err(Fatal::from)?;
    match (&value, args.place.json) {
        (Value::Object(fields), false) => {
            for (name, field) in fields {
                let text = match field {
                    Value::String(text) => one_line(text, 2000),
                    other => one_line(&other.to_string(), 2000),
                };
                out.line(format!("{name:<18} {text}"))?;
            }
        }
        _ => out.line(&value)?,
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}
