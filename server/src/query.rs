//! The parameters of a URL. Strict: a filter that is spelled wrong would clear everything.

use ghostlight::{AgentPath, Cursor, RunFilter, Status};

use crate::address::{decode, encode};
use crate::problem::Problem;

/// How many agents, runs or frames a page has, unless it says otherwise, and at most.
const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1000;

/// The parameters of a query, in order, decoded.
#[derive(Debug)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    /// Reads a query that may hold the parameters `known`, each at most once, `status` aside.
    pub(crate) fn parse(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut parameters: Vec<(String, String)> = Vec::new();
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let plain = |text: &str| {
                decode(&text.replace('+', " ")).ok_or_else(|| {
                    Problem::invalid_parameter(format!("{pair:?} is not percent-encoded UTF-8"))
                })
            };
            let (name, value) = (plain(name)?, plain(value)?);
            if !known.contains(&name.as_str()) {
                let known = known.join(", ");
                let detail = format!("unknown parameter {name:?}; this URL takes {known}");
                return Err(Problem::invalid_parameter(detail));
            }
            if name != "status" && parameters.iter().any(|(other, _)| *other == name) {
                let detail = format!("parameter {name:?} is given more than once");
                return Err(Problem::invalid_parameter(detail));
            }
            parameters.push((name, value));
        }
        Ok(Self(parameters))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }

    pub(crate) fn filter(&self) -> Result<RunFilter, Problem> {
        let status = self.0.iter().filter(|(name, _)| name == "status").map(|(_, value)| {
            value.parse::<Status>().map_err(|error| Problem::invalid_parameter(error.to_string()))
        });
        let started_before = self.get("olderThan").map(|value| {
            value.parse().map_err(|_| {
                let detail = format!("olderThan={value:?} is no time in ms since the epoch");
                Problem::invalid_parameter(detail)
            })
        });
        Ok(RunFilter {
            status: status.collect::<Result<_, _>>()?,
            agent_type: self.get("agentType").map(str::to_owned),
            started_before: started_before.transpose()?,
        })
    }

    pub(crate) fn cursor(&self) -> Result<Option<Cursor>, Problem> {
        let cursor = self.get("after").map(str::parse::<Cursor>).transpose();
        cursor.map_err(|error| Problem::invalid_position(error.to_string()))
    }

    /// The agent after which a page of agents begins.
    pub(crate) fn agent(&self) -> Result<Option<AgentPath>, Problem> {
        let agent = self.get("after").map(str::parse::<AgentPath>).transpose();
        agent.map_err(|error| Problem::invalid_position(error.to_string()))
    }

    pub(crate) fn limit(&self) -> Result<usize, Problem> {
        let Some(text) = self.get("limit") else { return Ok(LIMIT_DEFAULT) };
        match text.parse() {
            Ok(limit @ 1..=LIMIT_MAX) => Ok(limit),
            _ => {
                let detail = format!("limit={text:?} is no number from 1 to {LIMIT_MAX}");
                Err(Problem::invalid_parameter(detail))
            }
        }
    }
}

/// The parameters of a filter, as [`Query::filter`] reads them.
pub(crate) fn filter_parameters(filter: &RunFilter) -> Vec<String> {
    let status = filter.status.iter().map(|status| format!("status={status}"));
    let agent_type = filter.agent_type.iter().map(|name| format!("agentType={}", encode(name)));
    let older_than = filter.started_before.iter().map(|before| format!("olderThan={before}"));
    status.chain(agent_type).chain(older_than).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: &[&str] = &["status", "agentType", "olderThan", "after", "limit"];

    #[test]
    fn filters_come_back_from_their_parameters() {
        for filter in [
            RunFilter::default(),
            RunFilter {
                status: vec![Status::Error, Status::Aborted],
                agent_type: Some("a b&c=%".to_owned()),
                started_before: Some(u64::MAX),
            },
        ] {
            let text = filter_parameters(&filter).join("&");
            assert_eq!(Query::parse(Some(&text), KNOWN).unwrap().filter().unwrap(), filter);
        }
    }

    #[test]
    fn what_is_spelled_wrong_is_refused() {
        for text in ["statsu=error", "status=failed", "status=", "olderThan=7d", "olderThan=-1"] {
            let filter = Query::parse(Some(text), KNOWN).and_then(|query| query.filter());
            assert_eq!(filter.unwrap_err().code, "invalid-parameter", "{text}");
        }
        for text in ["limit=0", "limit=1001", "limit=x", "limit=", "limit=1&limit=1"] {
            let limit = Query::parse(Some(text), KNOWN).and_then(|query| query.limit());
            assert_eq!(limit.unwrap_err().code, "invalid-parameter", "{text}");
        }
        for text in ["%zz=1", "limit=%", "after=%ff"] {
            assert_eq!(Query::parse(Some(text), KNOWN).unwrap_err().code, "invalid-parameter");
        }
        let cursor = Query::parse(Some("after=12"), KNOWN).unwrap().cursor();
        assert_eq!(cursor.unwrap_err().code, "invalid-position");
    }
}
