//! `pepsi-stage-discard`: the message ends here, undelivered. Without DIAGNOSTIC nobody is told; with it the message goes to
//! BOUNCE_STAGE, and the sender may see that text. The null sender is never answered (RFC 5321 section 6.1).

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::proto::conf::{ConfError, Section};
use crate::{Level, log};
use std::fmt::Display;

pub const KIND: Kind = Kind {
    program: "pepsi-stage-discard",
    load: Load::Metadata,
    fuses: true,
    options: &["DIAGNOSTIC"],
    personal: &[],
    check: |section| Ok(Box::new(Discard::read(section)?)),
};

#[derive(Debug)]
struct Discard {
    diagnostic: Option<String>,
}

impl Stage for Discard {
    fn run(&self, message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        let Some(diagnostic) = self.diagnostic.as_deref().filter(|_| !message.mail_from().is_empty()) else {
            let pairs: [(&str, &dyn Display); 1] = [("id", &message.id())];
            log(Level::Info, message.stage(), "discarded", &pairs);
            return Ok(message.finish());
        };
        let place = (message.rcpt_to().len() == 1).then_some(0);
        Ok(message.refuse(place, diagnostic, diagnostic))
    }
}

impl Discard {
    fn read(section: &Section<'_>) -> Result<Discard, ConfError> {
        let diagnostic = section.get("DIAGNOSTIC")?.filter(|text| !text.is_empty());
        if diagnostic.is_some() {
            section.required("BOUNCE_STAGE")?;
        }
        Ok(Discard { diagnostic })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::conf::{Conf, Sources};
    use crate::worker::fixture::{self, Content, Move, Row, Unconnected};

    fn discard(options: &str) -> Result<Discard, ConfError> {
        let text = format!("[stage-x]\nPROGRAM = pepsi-stage-discard\n{options}");
        let sources = Sources { variable: &|_| None, inline: &|_| Err("none".into()) };
        Discard::read(&Conf::parse("t", &text, &sources).unwrap().section("stage-x").unwrap())
    }

    fn outcome(options: &str, mail_from: &str) -> crate::worker::context::Outcome {
        let mut route = fixture::route("x");
        route.bounce = Some("back".into());
        let row = Row { mail_from: mail_from.into(), ..fixture::row(1) };
        let stage = discard(options).unwrap();
        stage.run(fixture::context(row, route), &mut Unconnected).unwrap().into_outcome()
    }

    // Req: A2
    #[test]
    fn the_row_goes_and_nobody_is_told() {
        for options in ["", "DIAGNOSTIC =", "BOUNCE_STAGE = back"] {
            let outcome = outcome(options, "ann@x");
            assert_eq!((outcome.to, outcome.content), (Move::Finish, Content::default()));
        }
    }

    #[test]
    fn with_a_diagnostic_the_sender_is_told_if_there_is_one() {
        let options = "BOUNCE_STAGE = back\nDIAGNOSTIC = We do not take this.";
        let told = outcome(options, "ann@x");
        assert_eq!(told.to, Move::Advance { stage: "back".into() });
        assert_eq!(told.merge["bounce"]["diagnostic"], "We do not take this.");
        assert_eq!(told.merge["bounce"]["failed_recipient"], "bob@example.net");
        assert_eq!(outcome(options, "").to, Move::Finish);
    }

    // Req: S4
    #[test]
    fn a_diagnostic_needs_somewhere_to_go() {
        let error = discard("DIAGNOSTIC = No.").unwrap_err().to_string();
        assert!(error.contains("BOUNCE_STAGE"), "{error}");
    }
}
