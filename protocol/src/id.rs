//! Names, run ids and the addresses of agents.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use sha2::{Digest, Sha256};

use crate::limits::{DEPTH_MAX, NAME_BYTES_MAX};

/// Why a name, run id, agent type or address was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum IdError {
    /// A name or run id without a single byte.
    #[error("a name must not be empty")]
    Empty,
    /// A name or run id over 256 bytes.
    #[error("a name may have {NAME_BYTES_MAX} bytes, this one has {0}")]
    TooLong(usize),
    /// A name or run id with a NUL byte.
    #[error("a name must not hold a NUL byte")]
    Nul,
    /// `.` and `..` mean something else to whatever resolves paths.
    #[error("{0:?} is not a name: it means a folder")]
    Dots(String),
    /// An agent type that is no identifier.
    #[error("agent type {0:?} must start with a letter and hold only letters, digits and `_`")]
    Type(String),
    /// An agent type whose address would read as the marker of a sub-agent.
    #[error("agent type {0:?} is reserved: its address would read `sub`")]
    Reserved(String),
    /// More than sixteen agents below one another.
    #[error("agents nest at most {DEPTH_MAX} deep")]
    TooDeep,
    /// An address that is not `Type:name`, with `/Type:name` for every level below.
    #[error("{0:?} is no address of an agent: write `Type:name`, or `Type:name/Child:run-id`")]
    Address(String),
}

fn validate_name(name: &str) -> Result<(), IdError> {
    match name {
        "" => Err(IdError::Empty),
        _ if name.len() > NAME_BYTES_MAX => Err(IdError::TooLong(name.len())),
        _ if name.contains('\0') => Err(IdError::Nul),
        "." | ".." => Err(IdError::Dots(name.to_owned())),
        _ => Ok(()),
    }
}

/// Checks that `name` may be an agent type: a letter, then letters, digits and `_`.
///
/// # Errors
/// Says what is wrong with it; `Sub` and its spellings are reserved for addresses.
pub fn validate_type(name: &str) -> Result<(), IdError> {
    validate_name(name)?;
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphabetic());
    if !first || !chars.all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return Err(IdError::Type(name.to_owned()));
    }
    if name.trim_matches('_').eq_ignore_ascii_case("sub") {
        return Err(IdError::Reserved(name.to_owned()));
    }
    Ok(())
}

/// The id of a run, unique for ever in its parent's registry, and the name of the child.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunId(Arc<str>);

impl RunId {
    /// Checks and wraps an id of 1 to 256 bytes.
    ///
    /// # Errors
    /// See [`IdError`].
    pub fn new(id: impl AsRef<str>) -> Result<Self, IdError> {
        validate_name(id.as_ref())?;
        Ok(Self(id.as_ref().into()))
    }

    /// The id's text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for RunId {
    type Err = IdError;
    fn from_str(s: &str) -> Result<Self, IdError> {
        Self::new(s)
    }
}

/// The address of an agent: `Type:name`, and `/Type:run-id` for every level below.
///
/// In the text form, `/` and `%` within a name are percent-encoded, so that every address has one
/// text and every text one address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentPath(Arc<str>);

impl AgentPath {
    /// The address of an agent that has no parent.
    ///
    /// # Errors
    /// When the type or the name is not valid.
    pub fn root(agent_type: &str, name: &str) -> Result<Self, IdError> {
        validate_type(agent_type)?;
        validate_name(name)?;
        Ok(Self(format!("{agent_type}:{}", encode(name)).into()))
    }

    /// The address of this agent's child that executes `run`.
    ///
    /// # Errors
    /// When the type is not valid, or the child would be the seventeenth level.
    pub fn child(&self, agent_type: &str, run: &RunId) -> Result<Self, IdError> {
        validate_type(agent_type)?;
        if self.depth() >= DEPTH_MAX {
            return Err(IdError::TooDeep);
        }
        Ok(Self(format!("{}/{agent_type}:{}", self.0, encode(run.as_str())).into()))
    }

    /// The parent's address and this agent's run id; `None` for a root.
    pub fn parent(&self) -> Option<(Self, RunId)> {
        let (parent, _) = self.0.rsplit_once('/')?;
        Some((Self(parent.into()), RunId(self.name().into())))
    }

    /// The type of the addressed agent.
    pub fn agent_type(&self) -> &str {
        self.last().split_once(':').map_or("", |(agent_type, _)| agent_type)
    }

    /// The name of the addressed agent; for a child, its run id.
    pub fn name(&self) -> String {
        decode(self.last().split_once(':').map_or("", |(_, name)| name))
    }

    /// How many agents the address names: 1 for a root.
    pub fn depth(&self) -> usize {
        self.0.split('/').count()
    }

    /// Whether this is the address of `other`, or of an agent below it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.strip_prefix(&*other.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The text form.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn last(&self) -> &str {
        self.0.rsplit('/').next().unwrap_or_default()
    }
}

impl fmt::Display for AgentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for AgentPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

impl FromStr for AgentPath {
    type Err = IdError;

    fn from_str(s: &str) -> Result<Self, IdError> {
        let address = || IdError::Address(s.to_owned());
        let mut path: Option<Self> = None;
        for segment in s.split('/') {
            let (agent_type, name) = segment.split_once(':').ok_or_else(address)?;
            let name = decode(name);
            path = Some(match path {
                None => Self::root(agent_type, &name)?,
                Some(parent) => parent.child(agent_type, &RunId::new(name)?)?,
            });
        }
        // A text with needless or broken escapes would be a second text of the same address.
        path.filter(|path| path.as_str() == s).ok_or_else(address)
    }
}

fn encode(name: &str) -> String {
    name.replace('%', "%25").replace('/', "%2F")
}

fn decode(name: &str) -> String {
    name.replace("%2F", "/").replace("%25", "%")
}

/// The fixed-size stand-in for an agent's address in storage keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AgentKey(pub [u8; 16]);

/// The fixed-size stand-in for a run (its parent's address and its id) in storage keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RunKey(pub [u8; 16]);

fn digest(domain: &[u8], parts: [&[u8]; 2]) -> [u8; 16] {
    let mut hash = Sha256::new();
    hash.update(domain);
    for part in parts {
        hash.update((part.len() as u64).to_be_bytes());
        hash.update(part);
    }
    let mut short = [0; 16];
    short.copy_from_slice(&hash.finalize()[..16]);
    short
}

impl From<&AgentPath> for AgentKey {
    fn from(path: &AgentPath) -> Self {
        Self(digest(b"agent", [path.as_str().as_bytes(), b""]))
    }
}

impl RunKey {
    /// The key of run `id` in the registry of `parent`.
    pub fn new(parent: &AgentPath, id: &RunId) -> Self {
        Self(digest(b"run", [parent.as_str().as_bytes(), id.as_str().as_bytes()]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_limits() {
        assert_eq!(RunId::new(""), Err(IdError::Empty));
        assert_eq!(RunId::new("."), Err(IdError::Dots(".".into())));
        assert_eq!(RunId::new(".."), Err(IdError::Dots("..".into())));
        assert_eq!(RunId::new("a\0b"), Err(IdError::Nul));
        assert!(RunId::new("x".repeat(256)).is_ok());
        assert_eq!(RunId::new("x".repeat(257)), Err(IdError::TooLong(257)));
        assert!(RunId::new("agent-tool:call/1 %2F ü").is_ok());
    }

    #[test]
    fn types_are_identifiers_and_never_sub() {
        for bad in ["", "1a", "a-b", "a:b", "a/b", "ä", "_x"] {
            assert!(validate_type(bad).is_err(), "{bad}");
        }
        for reserved in ["Sub", "SUB", "Sub_", "sub"] {
            assert_eq!(validate_type(reserved), Err(IdError::Reserved(reserved.into())));
        }
        assert!(validate_type("HTTPServer2_b").is_ok());
    }

    #[test]
    fn every_address_has_one_text() {
        let root = AgentPath::root("Assistant", "user/42%").unwrap();
        assert_eq!(root.as_str(), "Assistant:user%2F42%25");
        assert_eq!(root.name(), "user/42%");
        assert_eq!(root.parent(), None);
        let id = RunId::new("agent-tool:1/%2F").unwrap();
        let child = root.child("Importer", &id).unwrap();
        assert_eq!(child.agent_type(), "Importer");
        assert_eq!(child.parent(), Some((root, id)));
        assert_eq!(child.as_str().parse::<AgentPath>().unwrap(), child);
        for bad in ["", "A", "A:", ":x", "A:x/", "A:x%", "A:%41", "A:x//B:y"] {
            let parsed = bad.parse::<AgentPath>();
            assert!(parsed.as_ref().map_or(true, |path| path.as_str() == bad), "{bad} {parsed:?}");
        }
        assert!("A:".parse::<AgentPath>().is_err());
    }

    #[test]
    fn the_seventeenth_level_is_refused() {
        let id = RunId::new("r").unwrap();
        let mut path = AgentPath::root("A", "a").unwrap();
        for _ in 1..16 {
            path = path.child("A", &id).unwrap();
        }
        assert_eq!(path.depth(), 16);
        assert_eq!(path.child("A", &id), Err(IdError::TooDeep));
    }

    #[test]
    fn keys_do_not_collide_across_boundaries() {
        let key = |parent: &str, id: &str| {
            RunKey::new(&parent.parse().unwrap(), &RunId::new(id).unwrap())
        };
        assert_ne!(key("A:a", "bc"), key("A:ab", "c"));
        assert_eq!(key("A:a", "b"), key("A:a", "b"));
    }
}
