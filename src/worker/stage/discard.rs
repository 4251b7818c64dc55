//! `pepsi-stage-discard`: the message ends here, undelivered and unanswered. It has no options of its own.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};

pub const KIND: Kind = Kind {
    program: "pepsi-stage-discard",
    load: Load::Metadata,
    fuses: true,
    options: &[],
    personal: &[],
    check: |_section| Ok(Box::new(Discard)),
};

#[derive(Debug)]
pub struct Discard;

impl Stage for Discard {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        Ok(message.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::worker::fixture::{self, Content, Move, Unconnected};

    // Req: A2
    #[test]
    fn the_row_goes() {
        let message = fixture::context(fixture::row(1), fixture::route("discard"));
        let outcome = Discard.run(message, &mut Unconnected).unwrap().into_outcome();
        assert_eq!((outcome.to, outcome.content), (Move::Finish, Content::default()));
    }
}
