//! The pure message model: header and body split, header fields, addresses, trace fields.

pub mod address;
pub mod header;
pub mod split;
pub mod trace;
