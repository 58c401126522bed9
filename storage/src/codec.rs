//! The bytes of records. No other file encodes or decodes any.
//!
//! A record is a byte for its kind, a byte for its version, and the bincode form of that version's
//! struct. A released struct is never edited: a new version is a new struct, and the old one stays
//! readable. Decoding is bounded, refuses trailing bytes, and never panics or aborts.

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Key, Versioned};

/// The most that a record may make a decoder allocate: 1 MiB. The largest value an engine takes is
/// 32 KiB, so that no honest record comes near.
const DECODED_BYTES_MAX: usize = 1 << 20;

/// A record that is stored under a key.
pub trait Record: Serialize + DeserializeOwned {
    /// The first byte; never used for anything else again.
    const KIND: u8;
    /// The version that is written.
    const VERSION: u8;

    /// Decodes the body of an older version; the default knows none.
    ///
    /// # Errors
    /// A text that says what is wrong with the bytes; `None` for a version that never existed.
    fn decode_older(version: u8, body: &[u8]) -> Option<Result<Self, String>> {
        let _ = (version, body);
        None
    }
}

/// Encodes a record.
///
/// # Panics
/// When the type cannot be encoded at all; every record type has a golden test that shows it can.
pub fn encode<R: Record>(record: &R) -> Vec<u8> {
    let mut bytes = vec![R::KIND, R::VERSION];
    bincode::serde::encode_into_std_write(record, &mut bytes, bincode::config::standard())
        .expect("records hold nothing that bincode cannot encode, and a Vec takes every byte");
    bytes
}

/// Decodes the value of `key`.
///
/// # Errors
/// [`Error::TooNew`] for a version of a later program, [`Error::Corrupt`] for everything else that
/// is not exactly one record of this kind.
pub fn decode<R: Record>(key: &Key, bytes: &[u8]) -> Result<R, Error> {
    let corrupt = |why: String| Error::Corrupt { key: key.to_string(), why };
    let (kind, version, body) = match bytes {
        [kind, version, body @ ..] => (*kind, *version, body),
        _ => return Err(corrupt(format!("{} bytes are no record", bytes.len()))),
    };
    if kind != R::KIND {
        return Err(corrupt(format!("kind {kind} where {} was expected", R::KIND)));
    }
    if version > R::VERSION {
        let (found, known) = (u32::from(version), u32::from(R::VERSION));
        return Err(Error::TooNew { key: key.to_string(), found, known });
    }
    if version == R::VERSION {
        return decode_body(body).map_err(|why| corrupt(format!("version {version}: {why}")));
    }
    match R::decode_older(version, body) {
        Some(decoded) => decoded.map_err(|why| corrupt(format!("version {version}: {why}"))),
        None => Err(corrupt(format!("version {version} never existed"))),
    }
}

/// Decodes the body of one version's struct; for [`Record::decode_older`].
///
/// # Errors
/// A text that says what is wrong with the bytes.
pub fn decode_body<T: DeserializeOwned>(body: &[u8]) -> Result<T, String> {
    let config = bincode::config::standard().with_limit::<DECODED_BYTES_MAX>();
    let (decoded, used) =
        bincode::serde::decode_from_slice(body, config).map_err(|error| error.to_string())?;
    match body.len() - used {
        0 => Ok(decoded),
        trailing => Err(format!("{trailing} bytes follow the record")),
    }
}

/// Decodes a value that was read, keeping its revision.
///
/// # Errors
/// As [`decode`].
pub fn decode_versioned<R: Record>(key: &Key, read: &Versioned) -> Result<(R, u64), Error> {
    Ok((decode(key, &read.value)?, read.revision))
}
