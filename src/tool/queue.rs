//! `pepsi-queue`.

use crate::Invocation;

pub fn main(call: &Invocation) -> u8 {
    let _ = call;
    unimplemented!()
}
