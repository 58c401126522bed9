//! Texts of others as they are shown on a terminal.

/// A text with everything that would confuse a terminal or a table escaped.
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
    use super::one_line;

    #[test]
    fn tables_stay_tables() {
        assert_eq!(one_line("a\tb\n\u{1b}[31m", 80), "a\\tb\\n\\u{1b}[31m");
        assert_eq!(one_line("abcdef", 3), "abc…");
        assert_eq!(one_line("äöü", 3), "äöü");
    }
}
