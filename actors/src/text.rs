//! Texts that are stored have a limit.

use ghostlight_protocol::text::cut_with_marker;

/// The most bytes of a reason that is stored: 1 KiB.
pub(crate) const REASON_BYTES_MAX: usize = 1 << 10;

pub(crate) fn cut(text: &str, bytes_max: usize) -> String {
    cut_with_marker(text, bytes_max).into_owned()
}
