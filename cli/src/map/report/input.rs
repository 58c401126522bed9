//! An input as it is shown.

use std::ops::Deref;
use std::sync::Arc;

use ghostlight::RunInfo;
use serde_json::{Value, json};

use crate::batch::Text;
use crate::shown::shorten;

/// The most characters of an input that are shown.
const SHOWN_MAX: usize = 200;
/// The most bytes of an input that a run's row has exactly, beside what is shown.
const EXACT_BYTES_MAX: usize = 1024;

/// The text that people see of an input, and its bytes where that text is not all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::map) struct Input {
    text: Arc<str>,
    base64: Option<Arc<str>>,
}

impl Input {
    /// An input of which no more is known than this beginning.
    pub(in crate::map) fn beginning(input: &Text) -> Self {
        Self { text: shorten(&input.display(), SHOWN_MAX).into(), base64: None }
    }

    pub(in crate::map) fn new(input: &Text) -> Self {
        let text = shorten(&input.display(), SHOWN_MAX);
        let base64 = match input {
            Text::Text(whole) if *whole == text => None,
            input => Some(input.base64().into()),
        };
        Self { text: text.into(), base64 }
    }

    /// The input of a run whose source does not have it any more.
    pub(in crate::map) fn of_run(run: &RunInfo) -> Self {
        let text =
            run.input_preview.as_ref().and_then(Value::as_str).map(|text| shorten(text, SHOWN_MAX));
        let base64 = crate::batch::exact_input(run).map(Arc::from);
        Self { text: text.unwrap_or_default().into(), base64 }
    }

    /// What a run's row has beside the text, if it can have it.
    pub(in crate::map) fn row(&self) -> Option<Value> {
        let base64 = self.base64.as_ref()?;
        (base64.len() <= EXACT_BYTES_MAX.div_ceil(3) * 4)
            .then(|| json!({ crate::batch::EXACT_INPUT: **base64 }))
    }

    pub(super) fn text(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    pub(super) fn base64(&self) -> Option<&str> {
        self.base64.as_deref()
    }

    pub(super) fn base64_bytes(&self) -> usize {
        self.base64.as_ref().map_or(0, |base64| base64.len())
    }
}

impl Deref for Input {
    type Target = str;

    fn deref(&self) -> &str {
        &self.text
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    fn input(bytes: &[u8]) -> Input {
        Input::new(&Text::from(OsStr::from_bytes(bytes)))
    }

    #[test]
    fn what_is_not_all_shown_is_there_in_base64() {
        assert_eq!(input("ä b".as_bytes()), Input::beginning(&Text::Text("ä b".into())));
        let bytes = input(b"f\xff");
        assert_eq!((&*bytes, bytes.base64()), ("f\u{fffd}", Some("Zv8=")));
        assert_eq!(bytes.row(), Some(json!({ "inputBase64": "Zv8=" })));
        assert_eq!(input(&[b'x'; SHOWN_MAX]).base64(), None);
        let cut = input(&[b'x'; SHOWN_MAX + 1]);
        assert!(cut.ends_with('…') && cut.base64().is_some());
        assert!(input(&[0xff; EXACT_BYTES_MAX]).row().is_some());
        assert!(input(&[0xff; EXACT_BYTES_MAX + 3]).row().is_none(), "rows are small");
    }
}
