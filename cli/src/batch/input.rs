//! What a command is given.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use ghostlight::{RunError, RunInfo};
use serde::{Deserialize, Serialize};

/// Bytes that are usually text: an argument, an input, a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Text {
    /// UTF-8.
    Text(String),
    /// Anything else.
    Bytes {
        /// The bytes, in base64.
        base64: String,
    },
}

impl From<&OsStr> for Text {
    fn from(text: &OsStr) -> Self {
        match text.to_str() {
            Some(text) => Self::Text(text.to_owned()),
            None => Self::Bytes { base64: BASE64_STANDARD.encode(text.as_bytes()) },
        }
    }
}

impl Text {
    /// The bytes.
    ///
    /// # Errors
    /// Broken base64.
    pub(crate) fn to_os(&self) -> Result<OsString, RunError> {
        Ok(match self {
            Self::Text(text) => text.into(),
            Self::Bytes { base64 } => OsString::from_vec(BASE64_STANDARD.decode(base64)?),
        })
    }

    /// The bytes in base64, as [`Text::Bytes`] has them.
    pub(crate) fn base64(&self) -> String {
        match self {
            Self::Text(text) => BASE64_STANDARD.encode(text),
            Self::Bytes { base64 } => base64.clone(),
        }
    }

    /// The text as people read it.
    pub(crate) fn display(&self) -> String {
        self.to_os().map_or_else(|_| String::new(), |text| text.to_string_lossy().into_owned())
    }
}

/// Under which name the row of a run has its input's bytes in base64, where its preview does not have
/// all of them.
pub(crate) const EXACT_INPUT: &str = "inputBase64";

/// The bytes of a run's input in base64, where its row has them beside the preview.
pub(crate) fn exact_input(run: &RunInfo) -> Option<&str> {
    run.display.as_ref()?.get(EXACT_INPUT)?.as_str()
}

/// What a run of [`Command`] is given.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CommandInput {
    /// The command and its arguments, with `{}` for the input.
    pub(crate) command: Vec<Text>,
    /// The input.
    pub(crate) input: Text,
    /// The working directory.
    pub(crate) cwd: Text,
    /// Why the input cannot be run at all, if it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) refused: Option<String>,
}
