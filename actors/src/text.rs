//! Texts that are stored have a limit.

use ghostlight_protocol::text::cut_with_marker;
use ghostlight_protocol::{Failure, limits};
use sha2::{Digest, Sha256};

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

/// Keeps a derived id within the limit of a name: what is too long is replaced by its hash.
pub(crate) fn cut_id(id: String) -> String {
    if id.len() <= limits::NAME_BYTES_MAX {
        return id;
    }
    let hash = hex(&Sha256::digest(&id)[..16]);
    let head = &id[..id.floor_char_boundary(limits::NAME_BYTES_MAX - hash.len() - 1)];
    format!("{head}-{hash}")
}

/// Bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_derived_id_that_is_too_long_stays_apart_from_others() {
        let fits = "x".repeat(256);
        assert_eq!(cut_id(fits.clone()), fits);
        let long = |last: char| cut_id(format!("call-{}{last}", "ö".repeat(130)));
        assert!(long('1').len() <= 256 && long('1').starts_with("call-ö"));
        assert_eq!(long('1'), long('1'));
        assert_ne!(long('1'), long('2'));
    }
}
