use std::cmp::Ordering;

/// ASCII characters that are neither letters nor ignored, in the order of the root collation.
const BEFORE_LETTERS: &[u8] = b"\t\n\x0b\x0c\r _-,;:!?.'\"()[]{}@*/\\&#%`^+<=>|~$0123456789";

/// The weight of the letter a; b and the rest follow.
const LETTERS: u32 = BEFORE_LETTERS.len() as u32;
/// The weight of the first character beyond ASCII; the rest follow by code point.
const BEYOND_ASCII: u32 = LETTERS + 26;

/// Compares run ids as JavaScript's `localeCompare` does in the root locale.
///
/// Letters are compared without regard to case first; where all are equal, lower case comes first.
/// Control characters do not count. Ids that collate alike are told apart by their bytes, so that
/// the order is total.
pub(super) fn compare_ids(a: &str, b: &str) -> Ordering {
    weights(a).cmp(weights(b)).then_with(|| capitals(a).cmp(capitals(b))).then_with(|| a.cmp(b))
}

fn weights(id: &str) -> impl Iterator<Item = u32> {
    id.chars().filter_map(weight)
}

fn capitals(id: &str) -> impl Iterator<Item = bool> {
    id.chars()
        .filter(|character| weight(*character).is_some())
        .map(|character| character.is_ascii_uppercase())
}

fn weight(character: char) -> Option<u32> {
    if character.is_ascii_alphabetic() {
        let letter = character.to_ascii_lowercase() as u32 - 'a' as u32;
        return Some(LETTERS + letter);
    }
    if !character.is_ascii() {
        return Some(BEYOND_ASCII + character as u32);
    }
    BEFORE_LETTERS
        .iter()
        .position(|known| char::from(*known) == character)
        .map(|position| position as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(sorted: &[&str]) {
        for (i, a) in sorted.iter().enumerate() {
            for (j, b) in sorted.iter().enumerate() {
                assert_eq!(compare_ids(a, b), i.cmp(&j), "{a:?} and {b:?}");
            }
        }
    }

    #[test]
    fn letters_differ_by_case_last() {
        check(&["a", "A", "ab", "aB", "Ab", "AB", "b", "B"]);
        check(&["", "Aa", "ab", "Ab", "AC"]);
    }

    #[test]
    fn marks_come_before_digits_and_digits_before_letters() {
        check(&["a_b", "a-b", "a:b", "a.b", "a/b", "a~b", "a0b", "a1b", "ab"]);
        check(&["r1-0", "r1-1", "r10-0", "r2-0"]);
        check(&["import", "import-10", "import-7", "import7"]);
    }

    #[test]
    fn control_characters_do_not_count_until_all_else_is_equal() {
        check(&["a\u{0}", "a\u{1}", "\u{1}b"]);
        check(&["a", "a\u{7f}", "a\u{7f}b"]);
    }

    #[test]
    fn all_of_ascii_is_known() {
        let ignored = (0..128u8).filter(|byte| weight(char::from(*byte)).is_none());
        let expected = (0..=8).chain(14..=31).chain([127]);
        assert!(ignored.eq(expected));
    }

    #[test]
    fn other_characters_come_after_ascii() {
        check(&["Z", "µ", "é", "😀"]);
    }
}
