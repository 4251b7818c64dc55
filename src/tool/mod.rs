//! The operator's programs, one a file, and what they share: how a command ends when it cannot be done.

use crate::proto::conf::Conf;
use crate::sql::Error;
use crate::{Invocation, config, exit, host};

pub mod links;
pub mod queue;
pub mod settings;
pub mod setup;
mod table;
pub mod whitelist;

/// Why a command was not done: an exit code (sysexits) and one line.
struct Failure {
    code: u8,
    text: String,
}

impl Failure {
    /// The command line asks for something that is not offered; `call` knows where to read what is.
    fn usage(call: &Invocation, text: &dyn std::fmt::Display) -> Failure {
        Failure { code: exit::USAGE, text: format!("{text}; see {} --help", call.program) }
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let code = match &error {
            Error::Schema(_) | Error::Setup(_) => exit::CONFIG,
            Error::Lost(_) | Error::Overloaded(_) | Error::Conflict(_) | Error::Refused(_) => {
                exit::UNAVAILABLE
            }
        };
        Failure { code, text: error.to_string() }
    }
}

/// The exit code of a command; a failure is logged.
fn exit_code(result: Result<u8, Failure>) -> u8 {
    result.unwrap_or_else(|failure| crate::fail(failure.code, &failure.text))
}

/// The configuration file, and the database it names.
fn configuration(call: &Invocation) -> Result<(Conf, String), Failure> {
    let refused = |text| Failure { code: exit::CONFIG, text };
    let conf = host::load_config(call.config.as_deref()).map_err(refused)?.conf;
    let url = config::database_url(&conf).map_err(|error| refused(error.to_string()))?;
    Ok((conf, url))
}
