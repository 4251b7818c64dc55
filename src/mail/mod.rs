//! The pure message model: header and body split, header fields, addresses, trace fields.
//!
//! Everything here takes any bytes, in time linear in their number, and never fails but where a refusal is the answer.

pub mod address;
pub mod alias;
mod encoded;
pub mod header;
mod mailboxes;
pub mod plain;
pub mod split;
pub mod srs;
pub mod trace;
