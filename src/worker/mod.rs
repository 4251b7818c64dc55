//! The worker runtime and the stages.

pub mod commit;
pub mod context;
pub mod runtime;
pub mod stage;

use crate::Invocation;

/// `pepsi-stage-NAME [-c FILE] worker`: reads ids until standard input ends; returns the exit code.
pub fn main(call: &Invocation) -> u8 {
    let _ = call;
    unimplemented!()
}
