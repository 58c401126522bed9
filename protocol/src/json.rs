//! Writes values as JSON, and no deeper than what can be read back.

use std::io;

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::{CompactFormatter, Formatter};

use crate::limits::{JSON_DEPTH_MAX, TooDeep};

/// Why a value was not written as JSON.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// It is nested too deeply.
    #[error(transparent)]
    TooDeep(#[from] TooDeep),
    /// It is no JSON: a map whose keys are no texts, say, or its `Serialize` failed.
    #[error(transparent)]
    NoJson(serde_json::Error),
}

/// Writes a value that is at most [`JSON_DEPTH_MAX`] levels deep. It goes no deeper into the value
/// than that, so that one of any depth is refused, where writing all of it could exhaust the stack.
///
/// # Errors
/// [`WriteError`]; `what` names the value in it.
pub fn to_vec<T: Serialize + ?Sized>(what: &'static str, value: &T) -> Result<Vec<u8>, WriteError> {
    let mut json = Vec::new();
    let mut serializer = Serializer::with_formatter(&mut json, Shallow::default());
    match value.serialize(&mut serializer) {
        Ok(()) => Ok(json),
        // Writing to memory does not fail.
        Err(error) if error.is_io() => Err(TooDeep { what }.into()),
        Err(error) => Err(WriteError::NoJson(error)),
    }
}

/// The compact form, as far as it is allowed to go down.
#[derive(Default)]
struct Shallow {
    depth: usize,
    compact: CompactFormatter,
}

impl Shallow {
    fn down(&mut self) -> io::Result<()> {
        self.depth += 1;
        match self.depth <= JSON_DEPTH_MAX {
            true => Ok(()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

impl Formatter for Shallow {
    fn begin_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.down()?;
        self.compact.begin_array(writer)
    }

    fn end_array<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.compact.end_array(writer)
    }

    fn begin_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.down()?;
        self.compact.begin_object(writer)
    }

    fn end_object<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        self.compact.end_object(writer)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::{Value, json};

    use super::*;

    fn nested(levels: usize) -> Value {
        (0..levels).fold(json!(1), |inner, level| match level % 2 {
            0 => Value::Array(vec![inner]),
            _ => Value::Object([("in".to_owned(), inner)].into_iter().collect()),
        })
    }

    #[test]
    fn it_writes_what_others_write() {
        for value in [json!(null), json!([[], {}, [1, "a", { "b": [2.5] }], "ü\"\n"]), nested(100)]
        {
            assert_eq!(to_vec("it", &value).unwrap(), serde_json::to_vec(&value).unwrap());
        }
        let flat: Vec<Value> = (0..1000).map(|_| nested(99)).collect();
        assert_eq!(to_vec("it", &flat).unwrap(), serde_json::to_vec(&flat).unwrap());
    }

    #[test]
    fn what_is_too_deep_is_refused_however_deep_it_is() {
        // Dropping such a value takes one frame a level as well, and less of each.
        for levels in [101, 128, 2_000] {
            let refused = to_vec("it", &nested(levels));
            assert!(matches!(refused, Err(WriteError::TooDeep(_))), "{levels}: {refused:?}");
        }
        // The variants of enums are objects.
        #[derive(Serialize)]
        enum Chain {
            Next(Box<Chain>),
            End,
        }
        let chain = (0..101).fold(Chain::End, |chain, _| Chain::Next(Box::new(chain)));
        assert!(matches!(to_vec("it", &chain), Err(WriteError::TooDeep(_))));
    }

    #[test]
    fn what_is_no_json_is_another_error() {
        let keys = BTreeMap::from([(vec![1], 2)]);
        assert!(matches!(to_vec("it", &keys), Err(WriteError::NoJson(_))));
    }
}
