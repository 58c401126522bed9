//! Texts of others as they are shown.

/// A text cut to so many characters.
pub(crate) fn shorten(text: &str, chars_max: usize) -> String {
    match text.char_indices().nth(chars_max) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// A text cut so, with everything that would confuse a terminal or a table escaped.
pub(crate) fn one_line(text: &str, chars_max: usize) -> String {
    let mut shown: String = text
        .chars()
        .take(chars_max)
        .flat_map(|c| match c.is_control() {
            true => c.escape_default().collect::<Vec<_>>(),
            false => vec![c],
        })
        .collect();
    if text.chars().nth(chars_max).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use super::{one_line, shorten};

    #[test]
    fn tables_stay_tables() {
        assert_eq!(one_line("a\tb\n\u{1b}[31m", 80), "a\\tb\\n\\u{1b}[31m");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(one_line("äöü", 3), "äöü");
    }

    #[test]
    fn what_is_short_stays_whole() {
        assert_eq!(shorten("äöü\t", 4), "äöü\t");
        assert_eq!(shorten("äöü\t", 2), "äö…");
    }
}
