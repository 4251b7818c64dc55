//! What PostgreSQL cannot store: U+0000, in text and anywhere in a jsonb. It is dropped on the way in.
//!
//! Nothing is copied where there is nothing to drop, which is nearly always.

use serde_json::{Map, Value};
use std::borrow::Cow;

/// `text` without U+0000.
pub(super) fn text(text: &str) -> Cow<'_, str> {
    if text.contains('\0') { Cow::Owned(text.replace('\0', "")) } else { Cow::Borrowed(text) }
}

/// `value` without U+0000 in any string or key. Of two keys that become equal, the later one stays.
pub(super) fn json(value: &Value) -> Cow<'_, Value> {
    if is_clean(value) { Cow::Borrowed(value) } else { Cow::Owned(cleaned(value)) }
}

fn is_clean(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
        Value::String(string) => !string.contains('\0'),
        Value::Array(items) => items.iter().all(is_clean),
        Value::Object(fields) => fields.iter().all(|(key, value)| !key.contains('\0') && is_clean(value)),
    }
}

fn cleaned(value: &Value) -> Value {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => value.clone(),
        Value::String(string) => Value::String(text(string).into_owned()),
        Value::Array(items) => Value::Array(items.iter().map(cleaned).collect()),
        Value::Object(fields) => {
            let fields = fields.iter().map(|(key, value)| (text(key).into_owned(), cleaned(value)));
            Value::Object(fields.collect::<Map<String, Value>>())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json as value;

    #[test]
    fn nul_is_dropped_everywhere_and_nothing_else_changes() {
        let plain = value!({"a": [1, null, true, "x\u{1}y", {"b": "é"}]});
        assert!(matches!(json(&plain), Cow::Borrowed(_)));
        let dirty = value!({"a\u{0}": ["x\u{0}\u{0}y", {"\u{0}": "\u{0}"}], "n": 1.5});
        assert_eq!(*json(&dirty), value!({"a": ["xy", {"": ""}], "n": 1.5}));
        assert_eq!(text("a\0b\0"), "ab");
        assert!(matches!(text("ab"), Cow::Borrowed(_)));
    }
}
