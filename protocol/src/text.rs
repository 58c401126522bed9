//! Texts for people: an error with its causes, and long text cut to a limit in bytes.

use std::borrow::Cow;
use std::error::Error;

/// The text of an error with those of its causes, in one line.
///
/// A cause whose text is there already is left out: many errors quote theirs.
///
/// # Examples
///
/// ```
/// use ghostlight_protocol::text::with_causes;
///
/// #[derive(Debug, thiserror::Error)]
/// #[error("the letter was not sent")]
/// struct NotSent(#[source] std::io::Error);
///
/// let error = NotSent(std::io::Error::other("no stamp"));
/// assert_eq!(with_causes(&error), "the letter was not sent: no stamp");
/// ```
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let why = error.to_string();
        if !text.contains(&why) {
            text.push_str(": ");
            text.push_str(&why);
        }
        cause = error.source();
    }
    text
}

/// Cuts `text` to at most `bytes_max` bytes and says in the text that it did.
///
/// A text within the limit comes back borrowed and unchanged. A longer one is cut at a character
/// boundary and ends with a marker that gives its whole length, the marker counted in the limit.
/// The result depends on nothing but the arguments, and cutting it again to the same limit changes
/// nothing, so that live and replayed frames stay equal. Where not even the marker fits, the text
/// is cut without one.
///
/// # Examples
///
/// ```
/// use ghostlight_protocol::text::cut_with_marker;
///
/// assert_eq!(cut_with_marker("short", 4096), "short");
/// assert_eq!(cut_with_marker(&"a".repeat(5000), 40), "aaaaaaaaaaaa… [cut, 5000 bytes in all]");
/// ```
pub fn cut_with_marker(text: &str, bytes_max: usize) -> Cow<'_, str> {
    if text.len() <= bytes_max {
        return Cow::Borrowed(text);
    }
    let marker = format!("… [cut, {} bytes in all]", text.len());
    match bytes_max.checked_sub(marker.len()) {
        Some(room) => {
            let mut cut = text[..text.floor_char_boundary(room)].to_owned();
            cut.push_str(&marker);
            Cow::Owned(cut)
        }
        None => Cow::Borrowed(&text[..text.floor_char_boundary(bytes_max)]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::TEXT_BYTES_MAX;

    #[derive(Debug, thiserror::Error)]
    #[error("cannot open the drawer: {0}")]
    struct Quoting(#[source] Box<dyn Error>);

    #[test]
    fn a_cause_that_is_quoted_is_not_repeated() {
        let jammed = || Box::new(std::io::Error::other("jammed"));
        assert_eq!(with_causes(&Quoting(jammed())), "cannot open the drawer: jammed");
        let nested = Quoting(Box::new(Quoting(jammed())));
        assert_eq!(with_causes(&nested), "cannot open the drawer: cannot open the drawer: jammed");
    }

    fn check(text: &str, bytes_max: usize) {
        let cut = cut_with_marker(text, bytes_max);
        assert!(cut.len() <= bytes_max, "{} bytes for a limit of {bytes_max}", cut.len());
        assert_eq!(cut_with_marker(&cut, bytes_max), cut, "cutting twice changes the text");
        if text.len() <= bytes_max {
            assert_eq!(cut, text);
        } else {
            let kept = cut.split('…').next().unwrap_or_default();
            assert!(text.starts_with(kept));
        }
    }

    #[test]
    fn any_text_fits_any_limit() {
        for text in ["", "a", "é", "😀", &"a".repeat(100), &"é".repeat(60), &"a😀".repeat(30)]
        {
            for bytes_max in 0..=130 {
                check(text, bytes_max);
            }
        }
    }

    #[test]
    fn the_marker_appears_one_byte_above_the_limit_only() {
        let at_limit = "x".repeat(TEXT_BYTES_MAX);
        assert!(matches!(cut_with_marker(&at_limit, TEXT_BYTES_MAX), Cow::Borrowed(_)));

        let above = "x".repeat(TEXT_BYTES_MAX + 1);
        let cut = cut_with_marker(&above, TEXT_BYTES_MAX);
        assert_eq!(cut.len(), TEXT_BYTES_MAX);
        assert!(cut.ends_with("… [cut, 4097 bytes in all]"));
    }

    #[test]
    fn a_character_is_never_split() {
        // 42 bytes leave 14 for the text beside the marker: three whole characters of four bytes.
        let cut = cut_with_marker(&"😀".repeat(1250), 42).into_owned();
        assert_eq!(cut, "😀😀😀… [cut, 5000 bytes in all]");
    }
}
