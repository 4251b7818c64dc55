//! `pepsi-sendmail`: a message on standard input becomes a row.

use crate::Invocation;

/// What its help says of the options.
pub const USAGE: &str = "-t          recipients from To, Cc and Bcc; Bcc is removed
  -i          a line with a single dot does not end the message
  -f SENDER   envelope sender; '<>' for none
  -F NAME     full name for a From field that has to be made
  -C FILE     configuration file
  The other options of sendmail are taken where they mean nothing here, and refused where they would.";

pub fn main(call: &Invocation) -> u8 {
    let _ = call;
    unimplemented!()
}
