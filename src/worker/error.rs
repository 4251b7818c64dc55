//! Why a stage could not conclude a message, and the little of its work that is to be kept all the same.
//!
//! An error is the host's fault, to be tried again, unless the stage says that it is the message's (requirement S1): a
//! defect taken for a host fault costs retries, the opposite costs mail. The text is for operators; it never reaches a
//! sender (S5).

use crate::sql::Error;
use crate::sql::fan::Fan;
use crate::sql::row::Content;
use serde_json::{Value, json};
use std::fmt::Display;
use std::path::Path;

/// What a stage returns instead of a concluded message.
#[derive(Clone, Debug, PartialEq)]
pub struct StageError {
    pub text: String,
    pub is_permanent: bool,
    /// What the database failed with, where that is what it was: nothing is written then, and nothing counted (L1, O1).
    pub database: Option<Box<Error>>,
    /// Mostly none; on the heap, as errors are passed through every call.
    kept: Option<Box<Kept>>,
}

/// Columns, state keys (an object) and rows beside it that are written whatever becomes of the message.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept {
    pub content: Content,
    pub merge: Value,
    pub fan: Fan,
}

impl StageError {
    /// A fault of the host: the message waits and is tried again.
    pub fn host(text: impl Into<String>) -> StageError {
        StageError { text: text.into(), is_permanent: false, database: None, kept: None }
    }

    /// A host fault of an action on a file or folder, such as `write`.
    pub fn io(action: &str, path: &Path, error: impl Display) -> StageError {
        StageError::host(format!("cannot {action} {}: {error}", path.display()))
    }

    /// What a call of `Tables` failed with: the database was lost or full, else a host fault.
    pub fn database(error: Error) -> StageError {
        let text = error.to_string();
        let database = match error {
            Error::Lost(_) | Error::Overloaded(_) | Error::Conflict(_) => Some(Box::new(error)),
            Error::Refused(_) | Error::Setup(_) | Error::Schema(_) => None,
        };
        StageError { database, ..StageError::host(text) }
    }

    /// The message's own fault: it fails at once (S3).
    pub fn permanent(self) -> StageError {
        StageError { is_permanent: true, ..self }
    }

    /// With what is to be kept; `Context::stop` calls it.
    pub fn keeping(self, kept: Kept) -> StageError {
        StageError { kept: Some(Box::new(kept)), ..self }
    }

    /// The same where the stage has not said what is to be kept.
    pub fn or_keeping(self, kept: Kept) -> StageError {
        if self.kept.is_some() { self } else { self.keeping(kept) }
    }

    /// Whether rows are to be left beside the message all the same.
    pub fn has_fanned_out(&self) -> bool {
        self.kept.as_ref().is_some_and(|kept| !kept.fan.is_empty())
    }

    /// What is to be kept, if only nothing.
    pub fn into_kept(self) -> Kept {
        let nothing = || Kept { content: Content::default(), merge: json!({}), fan: Fan::default() };
        self.kept.map_or_else(nothing, |kept| *kept)
    }
}
