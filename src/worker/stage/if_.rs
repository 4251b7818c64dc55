//! `pepsi-stage-if`: one way or the other by one condition on one field.
//!
//! FIELD is mail_from, rcpt_to (true when it is for any recipient), header_from, subject, size (octets) or state.PATH
//! (dots into objects, numbers into arrays; the path keeps its case). Exactly one of EQUALS, CONTAINS, PREFIX, SUFFIX,
//! GLOB (`*` and `?`), LESS, MORE (plain decimal numbers) and PRESENT (yes or no) asks about it; NEGATE turns the answer
//! round; letters match in any case unless CASE_SENSITIVE. THEN_STAGE when it holds, NEXT_STAGE when not.
//!
//! A field that is not there holds for PRESENT=no alone (and for anything under NEGATE); a JSON null counts as not there.
//! The null sender is the empty text, and not there for PRESENT. State that is no text is compared by its JSON text, a
//! number also by its value. No operator takes longer than the product of the two lengths.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::proto::conf::{ConfError, Section};
use crate::proto::graph;
use serde_json::Value;
use std::borrow::Cow;
use std::cmp::Ordering;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-if",
    load: Load::Metadata,
    fuses: true,
    options: &[
        "FIELD",
        "EQUALS",
        "CONTAINS",
        "PREFIX",
        "SUFFIX",
        "GLOB",
        "LESS",
        "MORE",
        "PRESENT",
        "NEGATE",
        "CASE_SENSITIVE",
        "THEN_STAGE",
    ],
    personal: &[],
    check: |section| Ok(Box::new(If::read(section)?)),
};

const OPERATORS: [&str; 8] = ["EQUALS", "CONTAINS", "PREFIX", "SUFFIX", "GLOB", "LESS", "MORE", "PRESENT"];

#[derive(Debug)]
struct If {
    field: Field,
    operator: Operator,
    negate: bool,
    case_sensitive: bool,
    then_stage: String,
}

#[derive(Debug)]
enum Field {
    MailFrom,
    RcptTo,
    HeaderFrom,
    Subject,
    Size,
    State(Vec<String>),
}

/// Texts are folded already where letters match in any case.
#[derive(Debug)]
enum Operator {
    Equals(String),
    Contains(String),
    Prefix(String),
    Suffix(String),
    Glob(Vec<char>),
    Less(Number),
    More(Number),
    Present(bool),
}

/// One value that a field has.
struct Found<'a> {
    text: Cow<'a, str>,
    is_number: bool,
}

impl<'a> Found<'a> {
    fn text(text: impl Into<Cow<'a, str>>) -> Found<'a> {
        Found { text: text.into(), is_number: false }
    }

    fn number(text: String) -> Found<'a> {
        Found { text: text.into(), is_number: true }
    }
}

impl Stage for If {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        if self.holds(&message) { Ok(message.advance_to(&self.then_stage)) } else { message.advance() }
    }
}

impl If {
    fn read(section: &Section<'_>) -> Result<If, ConfError> {
        let case_sensitive = section.boolean("CASE_SENSITIVE", false)?;
        let field = Field::read(section)?;
        let operator = Operator::read(section, &field, case_sensitive)?;
        section.required("NEXT_STAGE")?;
        section.required("THEN_STAGE")?;
        let then_stage = graph::stage_option(section, "THEN_STAGE")?.unwrap_or_default();
        Ok(If { field, operator, negate: section.boolean("NEGATE", false)?, case_sensitive, then_stage })
    }

    fn holds(&self, message: &Context) -> bool {
        let found = self.field.values(message);
        self.operator.holds(&found, self.case_sensitive) != self.negate
    }
}

impl Field {
    fn read(section: &Section<'_>) -> Result<Field, ConfError> {
        let name = section.required("FIELD")?;
        let known = match name.to_ascii_lowercase().as_str() {
            "mail_from" => Some(Field::MailFrom),
            "rcpt_to" => Some(Field::RcptTo),
            "header_from" => Some(Field::HeaderFrom),
            "subject" => Some(Field::Subject),
            "size" => Some(Field::Size),
            _ => None,
        };
        if let Some(field) = known {
            return Ok(field);
        }
        let path: Vec<String> = match name.split_once('.') {
            Some((state, path)) if state.eq_ignore_ascii_case("state") => {
                path.split('.').map(str::to_owned).collect()
            }
            _ => Vec::new(),
        };
        if path.is_empty() || path.iter().any(String::is_empty) {
            let wanted = "mail_from, rcpt_to, header_from, subject, size or state.PATH";
            return Err(section.error("FIELD", &format!("\"{name}\" is none of {wanted}")));
        }
        Ok(Field::State(path))
    }

    fn values<'a>(&self, message: &'a Context) -> Vec<Found<'a>> {
        match self {
            Field::MailFrom => vec![Found::text(message.mail_from())],
            Field::RcptTo => message.rcpt_to().iter().map(|rcpt| Found::text(rcpt.as_str())).collect(),
            Field::HeaderFrom => message.header_from().map(Found::text).into_iter().collect(),
            Field::Subject => message.subject().map(Found::text).into_iter().collect(),
            Field::Size => vec![Found::number(message.size().to_string())],
            Field::State(path) => state_value(message, path).into_iter().collect(),
        }
    }
}

fn state_value<'a>(message: &'a Context, path: &[String]) -> Option<Found<'a>> {
    let (first, rest) = path.split_first()?;
    let mut value = message.state().get(first)?;
    for step in rest {
        value = match value {
            Value::Object(object) => object.get(step)?,
            Value::Array(array) => array.get(step.parse::<usize>().ok()?)?,
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return None,
        };
    }
    match value {
        Value::Null => None,
        Value::String(text) => Some(Found::text(text.as_str())),
        Value::Number(number) => Some(Found::number(number.to_string())),
        Value::Bool(_) | Value::Array(_) | Value::Object(_) => Some(Found::text(value.to_string())),
    }
}

impl Operator {
    fn read(section: &Section<'_>, field: &Field, case_sensitive: bool) -> Result<Operator, ConfError> {
        let mut set = Vec::new();
        for name in OPERATORS {
            if let Some(value) = section.get(name)? {
                set.push((name, value));
            }
        }
        let [(name, value)] = set.as_slice() else {
            let all = OPERATORS.join(", ");
            return Err(match set.get(1) {
                Some((second, _)) => {
                    section.error(second, &format!("is one too many: exactly one of {all} is wanted"))
                }
                None => section.error("", &format!("exactly one of {all} is wanted, and there is none")),
            });
        };
        let number = || {
            if !matches!(field, Field::Size | Field::State(_)) {
                return Err(section.error(name, "compares numbers, and FIELD is neither size nor state.PATH"));
            }
            Number::parse(value)
                .ok_or_else(|| section.error(name, &format!("\"{value}\" is not a decimal number")))
        };
        let text = || fold(value, case_sensitive).into_owned();
        Ok(match *name {
            "EQUALS" => Operator::Equals(text()),
            "CONTAINS" => Operator::Contains(text()),
            "PREFIX" => Operator::Prefix(text()),
            "SUFFIX" => Operator::Suffix(text()),
            "GLOB" => Operator::Glob(text().chars().collect()),
            "LESS" => Operator::Less(number()?),
            "MORE" => Operator::More(number()?),
            _ => Operator::Present(section.boolean("PRESENT", true)?),
        })
    }

    fn holds(&self, found: &[Found<'_>], case_sensitive: bool) -> bool {
        let any =
            |test: &dyn Fn(&str) -> bool| found.iter().any(|one| test(&fold(&one.text, case_sensitive)));
        let ordered = |number: &Number, wanted: Ordering| {
            let values = found.iter().filter_map(|one| Number::parse(&one.text));
            values.into_iter().any(|value| value.compare(number) == wanted)
        };
        match self {
            Operator::Equals(wanted) => {
                let same_number = |one: &Found<'_>| {
                    let pair = Number::parse(&one.text).zip(Number::parse(wanted));
                    one.is_number && pair.is_some_and(|(a, b)| a.compare(&b) == Ordering::Equal)
                };
                any(&|text| text == wanted) || found.iter().any(same_number)
            }
            Operator::Contains(part) => any(&|text| text.contains(part)),
            Operator::Prefix(start) => any(&|text| text.starts_with(start)),
            Operator::Suffix(end) => any(&|text| text.ends_with(end)),
            Operator::Glob(pattern) => any(&|text| matches_glob(pattern, text)),
            Operator::Less(number) => ordered(number, Ordering::Less),
            Operator::More(number) => ordered(number, Ordering::Greater),
            Operator::Present(wanted) => {
                found.iter().any(|one| !one.text.is_empty() || one.is_number) == *wanted
            }
        }
    }
}

fn fold(text: &str, case_sensitive: bool) -> Cow<'_, str> {
    if case_sensitive { Cow::Borrowed(text) } else { Cow::Owned(text.to_lowercase()) }
}

/// Whether `pattern` is all of `text`. Only the last `*` is ever gone back to: an earlier one could reach nothing that it
/// cannot.
fn matches_glob(pattern: &[char], text: &str) -> bool {
    let text: Vec<char> = text.chars().collect();
    let (mut at, mut here) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    while here < text.len() {
        match pattern.get(at) {
            Some('*') => {
                star = Some((at, here));
                at += 1;
            }
            Some(c) if *c == '?' || *c == text[here] => {
                at += 1;
                here += 1;
            }
            _ => {
                let Some((back, taken)) = star else { return false };
                star = Some((back, taken + 1));
                (at, here) = (back + 1, taken + 1);
            }
        }
    }
    pattern[at..].iter().all(|c| *c == '*')
}

/// A decimal number: whole ones are compared exactly, others as floating point.
#[derive(Clone, Copy, Debug)]
enum Number {
    Whole(i128),
    Float(f64),
}

impl Number {
    fn parse(text: &str) -> Option<Number> {
        let text = text.trim();
        // The digits keep "inf", "nan" and the like out.
        if !text.bytes().any(|byte| byte.is_ascii_digit()) {
            return None;
        }
        let float = || text.parse().ok().filter(|float: &f64| float.is_finite()).map(Number::Float);
        text.parse().ok().map(Number::Whole).or_else(float)
    }

    fn compare(&self, other: &Number) -> Ordering {
        match (self, other) {
            (Number::Whole(a), Number::Whole(b)) => a.cmp(b),
            (Number::Whole(_) | Number::Float(_), Number::Whole(_) | Number::Float(_)) => {
                self.float().total_cmp(&other.float())
            }
        }
    }

    fn float(&self) -> f64 {
        match self {
            Number::Whole(whole) => *whole as f64,
            // 0.0 and -0.0 are one number, and total_cmp tells them apart.
            Number::Float(float) => *float + 0.0,
        }
    }
}

#[cfg(test)]
#[path = "if_tests.rs"]
mod tests;
