//! Texts that are stored have a limit.

use ghostlight_protocol::text::cut_with_marker;
use ghostlight_protocol::{Failure, limits};

/// The most bytes of a reason that is stored: 1 KiB.
pub(crate) const REASON_BYTES_MAX: usize = 1 << 10;

pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    cut_with_marker(text, bytes_max).into_owned()
}

/// A failure as it is stored.
pub(crate) fn cut_failure(failure: Failure) -> Failure {
    let Failure { message, kind, permanent } = failure;
    Failure {
        message: cut(&message, limits::TEXT_BYTES_MAX),
        kind: kind.map(|kind| cut(&kind, limits::NAME_BYTES_MAX)),
        permanent,
    }
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
