//! The pure message model: header and body split, header fields, addresses, trace fields, line ends.
//!
//! Everything here takes any bytes, in time linear in their number, and never fails but where a refusal is the answer.

pub mod address;
pub mod alias;
mod encoded;
pub mod header;
pub mod line_end;
mod mailboxes;
pub mod plain;
pub mod split;
pub mod srs;
pub mod trace;
