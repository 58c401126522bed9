//! The preview of a run's input that observers are shown.
//!
//! Lengths are counted in UTF-16 units, because the clients that show previews do so.

use serde_json::Value;

/// The longest derived preview, in UTF-16 units.
pub const PREVIEW_UNITS_MAX: usize = 500;

const DOTS: &str = "...";

/// Chooses the preview to store and show: the one `given`, else one derived from `input`.
///
/// A given preview is carried as it is, and not cut: whoever takes it from a caller has to refuse
/// one that is too large. A given `null` counts as none.
pub fn input_preview(given: Option<Value>, input: &Value) -> Value {
    match given {
        Some(preview) if !preview.is_null() => preview,
        _ => derived_preview(input),
    }
}

/// Derives a preview of at most [`PREVIEW_UNITS_MAX`] UTF-16 units from `input`.
///
/// | input | preview |
/// |---|---|
/// | text | its first 500 units, without a mark where it was cut |
/// | `null` | `null` |
/// | anything else | its compact JSON as text; if longer than 500 units, the first 497 and three dots |
///
/// A surrogate pair that the cut would split is left out whole, so that a cut preview may be one
/// unit shorter.
pub fn derived_preview(input: &Value) -> Value {
    match input {
        Value::Null => Value::Null,
        Value::String(text) => Value::from(first_units(text, PREVIEW_UNITS_MAX)),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => {
            let mut json = input.to_string();
            if first_units(&json, PREVIEW_UNITS_MAX).len() < json.len() {
                json.truncate(first_units(&json, PREVIEW_UNITS_MAX - DOTS.len()).len());
                json.push_str(DOTS);
            }
            Value::String(json)
        }
    }
}

/// The longest prefix of `text` of at most `units` UTF-16 units.
fn first_units(text: &str, units: usize) -> &str {
    // A byte is never less than a unit, so a short text needs no counting.
    if text.len() <= units {
        return text;
    }
    let mut used = 0;
    let cut = text.char_indices().find(|(_, character)| {
        used += character.len_utf16();
        used > units
    });
    match cut {
        Some((end, _)) => &text[..end],
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(input: Value, expected: &str) {
        assert_eq!(derived_preview(&input), Value::from(expected), "for {input}");
    }

    fn units(text: &str) -> usize {
        text.encode_utf16().count()
    }

    #[test]
    fn text_is_cut_at_500_units_without_a_mark() {
        check(json!(""), "");
        check(json!("x".repeat(499)), &"x".repeat(499));
        check(json!("x".repeat(500)), &"x".repeat(500));
        check(json!("x".repeat(501)), &"x".repeat(500));
        check(json!("é".repeat(501)), &"é".repeat(500));
    }

    #[test]
    fn text_of_surrogate_pairs_is_counted_in_units() {
        check(json!("😀".repeat(250)), &"😀".repeat(250));
        check(json!("😀".repeat(251)), &"😀".repeat(250));
    }

    #[test]
    fn a_pair_across_the_cut_of_a_text_is_left_out() {
        let text = format!("{}😀tail", "x".repeat(499));
        check(json!(text), &"x".repeat(499));
        let text = format!("{}😀tail", "x".repeat(498));
        check(json!(text), &format!("{}😀", "x".repeat(498)));
    }

    #[test]
    fn json_up_to_500_units_is_whole() {
        check(json!({ "query": "x" }), r#"{"query":"x"}"#);
        check(json!(7), "7");
        check(json!(false), "false");
        check(json!([1, null]), "[1,null]");
        // The quotes and brackets take four units.
        check(json!(["x".repeat(496)]), &format!("[\"{}\"]", "x".repeat(496)));
        check(json!(["é".repeat(496)]), &format!("[\"{}\"]", "é".repeat(496)));
    }

    #[test]
    fn longer_json_is_cut_to_497_units_and_three_dots() {
        check(json!(["x".repeat(497)]), &format!("[\"{}...", "x".repeat(495)));
        check(json!(["é".repeat(497)]), &format!("[\"{}...", "é".repeat(495)));
    }

    #[test]
    fn a_pair_across_the_cut_of_json_is_left_out() {
        // Unit 497 is the first half of a pair.
        let preview = derived_preview(&json!([format!("{}😀{}", "x".repeat(494), "y".repeat(50))]));
        let preview = preview.as_str().unwrap();
        assert_eq!(preview, format!("[\"{}...", "x".repeat(494)));
        assert_eq!(units(preview), 499);
        // Unit 497 is the second half: the pair fits.
        let preview = derived_preview(&json!([format!("{}😀{}", "x".repeat(493), "y".repeat(50))]));
        assert_eq!(preview, format!("[\"{}😀...", "x".repeat(493)));
    }

    #[test]
    fn null_stays_null() {
        assert_eq!(derived_preview(&Value::Null), Value::Null);
    }

    #[test]
    fn a_given_preview_is_carried_whole_and_null_counts_as_none() {
        let long = json!("x".repeat(9000));
        assert_eq!(input_preview(Some(long.clone()), &json!(1)), long);
        assert_eq!(input_preview(Some(json!(0)), &json!("in")), json!(0));
        assert_eq!(input_preview(Some(Value::Null), &json!("in")), json!("in"));
        assert_eq!(input_preview(None, &json!({})), json!("{}"));
        assert_eq!(input_preview(None, &Value::Null), Value::Null);
    }
}
