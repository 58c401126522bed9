//! What an observer sees was durable before, keeps its number for ever, and has no gap and no
//! repeat; whoever goes on reading is told everything.

use std::collections::BTreeMap;

use ghostlight::AgentPath;

use crate::durable::Durable;
use crate::invariant::{Event, Invariant};

#[derive(Default)]
pub(super) struct Observers {
    seen: BTreeMap<(AgentPath, u64), String>,
    last: BTreeMap<u64, u64>,
}

impl Invariant for Observers {
    fn name(&self) -> &str {
        "observers see what is durable, once and in order"
    }

    fn check(&mut self, event: &Event<'_>, durable: &Durable) -> Result<(), String> {
        match event {
            Event::LifeBegan => self.last.clear(),
            Event::Frame { observer, run, frame } => {
                let number = frame.sequence;
                if let Some(last) = self.last.insert(*observer, number)
                    && number != last + 1
                {
                    return Err(format!("{run}: an observer got frame {number} after {last}"));
                }
                let stored = durable.run_at(run);
                if !stored
                    .is_some_and(|stored| stored.cleared || stored.frames.contains_key(&number))
                {
                    return Err(format!("{run}: frame {number} was seen before it was durable"));
                }
                let json = frame.to_json();
                let before =
                    self.seen.entry(((*run).clone(), number)).or_insert_with(|| json.clone());
                if *before != json {
                    return Err(format!("{run}: frame {number} was {before}, and is {json}"));
                }
            }
            Event::Settled => {
                for (_, run) in durable.runs().filter(|(_, run)| !run.cleared) {
                    let Some(path) = &run.path else { continue };
                    for number in run.frames.keys() {
                        if !self.seen.contains_key(&(path.clone(), *number)) {
                            return Err(format!("{path}: nobody was shown frame {number}"));
                        }
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
