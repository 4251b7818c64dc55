//! The operator's programs, one a file.

pub mod links;
pub mod queue;
pub mod setup;
mod table;
