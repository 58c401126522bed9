//! Addresses of agents and runs in URLs.

use ghostlight::{AgentPath, RunId};

use crate::problem::Problem;

/// A type as it stands in a URL. Browsers' clients write it by the same rules, which have no
/// inverse.
pub(crate) fn kebab(agent_type: &str) -> String {
    if !agent_type.contains(|c: char| c.is_ascii_lowercase()) {
        return agent_type.to_ascii_lowercase().replace('_', "-");
    }
    let mut text = String::with_capacity(agent_type.len() + 8);
    for c in agent_type.chars() {
        if c.is_ascii_uppercase() {
            text.push('-');
        }
        text.push(c.to_ascii_lowercase());
    }
    // In this order: an underscore in front is kept as a dash.
    let text = text.strip_prefix('-').unwrap_or(&text).replace('_', "-");
    text.strip_suffix('-').unwrap_or(&text).to_owned()
}

/// Percent-encodes everything but letters, digits and `-._~`.
pub(crate) fn encode(text: &str) -> String {
    use std::fmt::Write as _;
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to a text cannot fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Undoes percent-encoding; `None` for a broken escape, and for what is no UTF-8.
pub(crate) fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        let (high, low) = (digit()?, digit()?);
        bytes.push(u8::try_from(high * 16 + low).ok()?);
    }
    String::from_utf8(bytes).ok()
}

/// The path of an agent's URL.
pub(crate) fn agent_url(agent: &AgentPath) -> String {
    let own = format!("{}/{}", kebab(agent.agent_type()), encode(&agent.name()));
    match agent.parent() {
        Some((parent, _)) => format!("{}/sub/{own}", agent_url(&parent)),
        None => format!("/agents/{own}"),
    }
}

/// The path of a run's URL.
pub(crate) fn run_url(parent: &AgentPath, run_id: &str) -> String {
    format!("{}/runs/{}", agent_url(parent), encode(run_id))
}

/// What a URL below `/agents/` means.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) agent: AgentPath,
    pub(crate) resource: Resource,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Resource {
    Runs,
    Run(String),
    Events(String),
    Cancel(String),
}

/// Reads the path of a URL, as it came: it is decoded only after it was split, so that names may
/// hold slashes. `types` are the types that are registered.
pub(crate) fn parse(path: &str, types: &[String]) -> Result<Target, Problem> {
    let unknown = || Problem::not_found("there is nothing at this URL");
    let path = path.strip_prefix("/agents/").ok_or_else(unknown)?;
    let mut segments = path.split('/');
    let mut next = || segments.next();
    let (Some(kind), Some(name)) = (next(), next()) else { return Err(unknown()) };
    let mut agent = AgentPath::root(find_type(kind, types)?, &name_of(name)?)?;
    let mut segment = next();
    while segment == Some("sub") {
        let (Some(kind), Some(name)) = (next(), next()) else { return Err(unknown()) };
        agent = agent.child(find_type(kind, types)?, &RunId::new(name_of(name)?)?)?;
        segment = next();
    }
    if segment != Some("runs") {
        return Err(unknown());
    }
    let resource = match (next(), next(), next()) {
        (None, _, _) => Resource::Runs,
        (Some(run), None, _) => Resource::Run(name_of(run)?),
        (Some(run), Some("events"), None) => Resource::Events(name_of(run)?),
        (Some(run), Some("cancel"), None) => Resource::Cancel(name_of(run)?),
        _ => return Err(unknown()),
    };
    Ok(Target { agent, resource })
}

fn name_of(segment: &str) -> Result<String, Problem> {
    decode(segment)
        .ok_or_else(|| Problem::invalid_name(format!("{segment:?} is not percent-encoded UTF-8")))
}

fn find_type<'a>(segment: &str, types: &'a [String]) -> Result<&'a str, Problem> {
    let mut found = types.iter().filter(|name| kebab(name) == segment);
    match (found.next(), found.next()) {
        (Some(name), None) => Ok(name),
        (Some(one), Some(other)) => Err(Problem::ambiguous_type(one, other)),
        (None, _) => Err(Problem::unknown_type(segment)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_written_as_the_browsers_client_writes_them() {
        for (agent_type, expected) in [
            ("FooBar", "foo-bar"),
            ("foo_bar", "foo-bar"),
            ("Foo2Bar", "foo2-bar"),
            ("HTTPServer", "h-t-t-p-server"),
            ("fooBar_", "foo-bar"),
            ("Foo_Bar", "foo--bar"),
            ("_Foo", "--foo"),
            ("foo-bar", "foo-bar"),
            ("FOO_BAR", "foo-bar"),
            ("URL", "url"),
            ("A", "a"),
        ] {
            assert_eq!(kebab(agent_type), expected, "{agent_type}");
        }
    }

    #[test]
    fn every_address_comes_back_from_its_url() {
        let types = ["FooBar".to_owned(), "Batch".to_owned()];
        for name in ["a", "a/b c", "%2F", "é?#&=+", "sub", "runs", "x".repeat(256).as_str()] {
            let root = AgentPath::root("FooBar", name).unwrap();
            let child = root.child("Batch", &RunId::new(name).unwrap()).unwrap();
            for agent in [root, child] {
                let url = run_url(&agent, name);
                assert!(url.is_ascii());
                let run = |resource: fn(String) -> Resource| Target {
                    agent: agent.clone(),
                    resource: resource(name.to_owned()),
                };
                assert_eq!(parse(&url, &types), Ok(run(Resource::Run)));
                assert_eq!(parse(&format!("{url}/events"), &types), Ok(run(Resource::Events)));
                assert_eq!(parse(&format!("{url}/cancel"), &types), Ok(run(Resource::Cancel)));
            }
        }
    }

    #[test]
    fn what_is_no_address_says_why() {
        let types = ["Batch".to_owned(), "FooBar".to_owned(), "foo_bar".to_owned()];
        let deep = format!("/agents/batch/a{}/runs", "/sub/batch/a".repeat(16));
        for (url, status, code) in [
            ("/", 404, "not-found"),
            ("/agents/batch", 404, "not-found"),
            ("/agents/batch/a", 404, "not-found"),
            ("/agents/batch/a/run", 404, "not-found"),
            ("/agents/batch/a/runs/r/frames", 404, "not-found"),
            ("/agents/batch/a/runs/r/events/1", 404, "not-found"),
            ("/agents/batch/a/sub/batch", 404, "not-found"),
            ("/agents/other/a/runs", 404, "unknown-agent-type"),
            ("/agents/Batch/a/runs", 404, "unknown-agent-type"),
            ("/agents/batch/a/sub/other/b/runs", 404, "unknown-agent-type"),
            ("/agents/foo-bar/a/runs", 409, "ambiguous-agent-type"),
            ("/agents/batch//runs", 400, "invalid-name"),
            ("/agents/batch/../runs", 400, "invalid-name"),
            ("/agents/batch/%00/runs", 400, "invalid-name"),
            ("/agents/batch/%zz/runs", 400, "invalid-name"),
            ("/agents/batch/%2/runs", 400, "invalid-name"),
            ("/agents/batch/%FF/runs", 400, "invalid-name"),
            ("/agents/batch/a/runs/%", 400, "invalid-name"),
            (deep.as_str(), 400, "invalid-name"),
        ] {
            let problem = parse(url, &types).unwrap_err();
            assert_eq!((problem.status.as_u16(), problem.code), (status, code), "{url}");
        }
    }
}
