//! `pepsi-stage-loop-guard`: marks a message with `X-Loop: MARK`; one that has the mark already has been here before, and fails.

use super::{Context, Done, Kind, Load, Stage, StageError, Tables};
use crate::mail::header::{self, Field};
use crate::proto::conf::{ConfError, Section};

pub const KIND: Kind = Kind {
    program: "pepsi-stage-loop-guard",
    load: Load::Headers,
    fuses: true,
    options: &["MARK"],
    personal: &[],
    check: |section| Ok(Box::new(LoopGuard::read(section)?)),
};

struct LoopGuard {
    mark: String,
}

impl LoopGuard {
    /// When the worker starts: what is refused here is told with file and line, and the worker does not run.
    fn read(section: &Section<'_>) -> Result<LoopGuard, ConfError> {
        let mark = section.required("MARK")?;
        if !mark.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(section.error("MARK", "is not one word of ASCII"));
        }
        section.required("NEXT_STAGE")?;
        Ok(LoopGuard { mark })
    }

    fn is_ours(&self, field: &Field<'_>) -> bool {
        field.name.eq_ignore_ascii_case(b"X-Loop") && field.value.trim_ascii() == self.mark.as_bytes()
    }
}

impl Stage for LoopGuard {
    fn run(&self, mut message: Context, _tables: &mut dyn Tables) -> Result<Done, StageError> {
        let headers = message.headers()?;
        if header::fields(headers).iter().any(|field| self.is_ours(field)) {
            // The message's own fault. Without `permanent` it would be tried again, as after a full disk.
            return Err(StageError::host(format!("it has the mark {} already", self.mark)).permanent());
        }
        let marked = [format!("X-Loop: {}\r\n", self.mark).as_bytes(), headers].concat();
        message.set_headers(marked)?;
        message.advance()
    }
}
