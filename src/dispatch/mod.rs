//! The dispatcher, wired: configuration to machine, machine to shell.

mod child;
mod listen;
mod machine;
mod shell;

use crate::Invocation;

/// `pepsi-dispatch serve`: runs until a signal or a fatal error; returns the exit code.
pub fn main(call: &Invocation) -> u8 {
    let _ = call;
    unimplemented!()
}
