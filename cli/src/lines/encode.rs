//! The JSON form of a line: exact, and of a size known in advance.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::{LineChunk, Stream};

const KIND: &str = "data-output";

/// The longest the JSON around the text can be; a test holds it against the encoder.
pub(super) const ENVELOPE_BYTES_MAX: usize =
    r#"{"type":"data-output","data":{"stream":"stdout","base64":"","partial":true}}"#.len();

/// A chunk body that is no output line.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChunkError {
    /// Another kind of chunk, or one that is not well formed.
    #[error("not an output chunk: {0}")]
    Json(#[from] serde_json::Error),
    /// JSON of another type.
    #[error("not an output chunk but of type {0:?}")]
    Type(String),
    /// Neither `text` nor `base64`, or both.
    #[error("an output chunk has either text or base64")]
    Content,
    /// `base64` that does not decode.
    #[error("output chunk with malformed base64: {0}")]
    Base64(#[from] base64::DecodeError),
}

#[derive(Serialize, Deserialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: Cow<'a, str>,
    data: Data<'a>,
}

#[derive(Serialize, Deserialize)]
struct Data<'a> {
    stream: StreamName,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    text: Option<Cow<'a, str>>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    base64: Option<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    partial: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    truncated: bool,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StreamName {
    Stdout,
    Stderr,
}

impl LineChunk {
    /// Encodes the line as the body of a chunk.
    ///
    /// `{"type":"data-output","data":{"stream":"stdout","text":"…"}}`, with `base64` in place of
    /// `text` where the bytes are no UTF-8, with `"partial":true` for a part of a line, and with
    /// `"truncated":true` where the command has cut its stream off.
    pub fn encode(&self) -> String {
        let (text, base64) = match std::str::from_utf8(&self.bytes) {
            Ok(text) => (Some(Cow::Borrowed(text)), None),
            Err(_) => (None, Some(STANDARD.encode(&self.bytes))),
        };
        let stream = match self.stream {
            Stream::Stdout => StreamName::Stdout,
            Stream::Stderr => StreamName::Stderr,
        };
        let data = Data { stream, text, base64, partial: self.partial, truncated: self.truncated };
        serde_json::to_string(&Body { kind: Cow::Borrowed(KIND), data })
            .expect("strings and booleans always have a JSON form")
    }

    /// Decodes what [`encode`](Self::encode) made, to the same bytes.
    ///
    /// # Errors
    ///
    /// A body of another type, or one that is malformed; trying again cannot help.
    pub fn decode(body: &str) -> Result<Self, ChunkError> {
        let Body { kind, data } = serde_json::from_str::<Body<'_>>(body)?;
        if kind != KIND {
            return Err(ChunkError::Type(kind.into_owned()));
        }
        let bytes = match (data.text, data.base64) {
            (Some(text), None) => text.into_owned().into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64)?,
            _ => return Err(ChunkError::Content),
        };
        let stream = match data.stream {
            StreamName::Stdout => Stream::Stdout,
            StreamName::Stderr => Stream::Stderr,
        };
        Ok(LineChunk { stream, bytes, partial: data.partial, truncated: data.truncated })
    }
}

/// How many bytes of JSON the content takes, without the envelope.
pub(super) fn content_len(bytes: &[u8]) -> usize {
    match std::str::from_utf8(bytes) {
        Ok(_) => bytes.iter().map(|byte| text_len(*byte)).sum(),
        Err(_) => base64_len(bytes.len()),
    }
}

/// How many bytes one byte of text takes inside a JSON string.
pub(super) fn text_len(byte: u8) -> usize {
    match byte {
        b'"' | b'\\' | b'\n' | b'\r' | b'\t' | 0x08 | 0x0c => 2,
        0..0x20 => 6,
        _ => 1,
    }
}

pub(super) fn base64_len(bytes: usize) -> usize {
    bytes.div_ceil(3) * 4
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunk(bytes: &[u8], partial: bool) -> LineChunk {
        LineChunk { stream: Stream::Stdout, bytes: bytes.to_vec(), partial, truncated: false }
    }

    #[test]
    fn the_json_is_fixed() {
        assert_eq!(
            chunk(b"a\n", false).encode(),
            r#"{"type":"data-output","data":{"stream":"stdout","text":"a\n"}}"#
        );
        let stream = Stream::Stderr;
        let part = LineChunk { stream, bytes: vec![0xff, b'a'], partial: true, truncated: false };
        assert_eq!(
            part.encode(),
            r#"{"type":"data-output","data":{"stream":"stderr","base64":"/2E=","partial":true}}"#
        );
        let cut = LineChunk { stream, bytes: Vec::new(), partial: false, truncated: true };
        let json =
            r#"{"type":"data-output","data":{"stream":"stderr","text":"","truncated":true}}"#;
        assert_eq!(cut.encode(), json);
        assert_eq!(LineChunk::decode(json).expect("own encoding"), cut);
    }

    #[test]
    fn other_bodies_are_typed_errors() {
        let decode = |body: &str| LineChunk::decode(body).expect_err(body).to_string();
        assert!(decode("").contains("not an output chunk"));
        assert!(decode(r#"{"type":"text","data":{"stream":"stdout"}}"#).contains("\"text\""));
        assert!(decode(r#"{"type":"data-output","data":{"stream":"stdout"}}"#).contains("either"));
        assert!(
            decode(r#"{"type":"data-output","data":{"stream":"stdout","text":"","base64":""}}"#)
                .contains("either")
        );
        assert!(
            decode(r#"{"type":"data-output","data":{"stream":"stdout","base64":"?"}}"#)
                .contains("base64")
        );
        assert!(
            decode(r#"{"type":"data-output","data":{"stream":"stdlog","text":""}}"#)
                .contains("stdlog")
        );
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..600), partial: bool) {
            let before = chunk(&bytes, partial);
            prop_assert_eq!(LineChunk::decode(&before.encode()).expect("own encoding"), before);
        }

        #[test]
        fn any_text_comes_back(text in ".*\\PC*[\u{0}-\u{1f}\"\\\\]*", partial: bool) {
            let before = chunk(text.as_bytes(), partial);
            prop_assert_eq!(LineChunk::decode(&before.encode()).expect("own encoding"), before);
        }

        #[test]
        fn the_size_is_known_before_encoding(
            bytes in prop_oneof![
                proptest::collection::vec(any::<u8>(), 0..200),
                proptest::collection::vec(0u8..0x80, 0..200),
            ],
            partial: bool,
        ) {
            let encoded = chunk(&bytes, partial).encode().len();
            prop_assert!(encoded <= content_len(&bytes) + ENVELOPE_BYTES_MAX);
            prop_assert!(encoded + 32 > content_len(&bytes) + ENVELOPE_BYTES_MAX);
        }
    }
}
