//! The operator's programs, one a file.

pub mod queue;
pub mod setup;
mod table;
