//! `pepsi-sendmail`: a message on standard input becomes a row.

use crate::Invocation;

pub fn main(call: &Invocation) -> u8 {
    let _ = call;
    unimplemented!()
}
