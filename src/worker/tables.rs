//! What a stage may ask of the database, and change there, besides its own message: the lists that belong to addresses.
//!
//! Invariants: each call is one statement and may be repeated, since a message whose transition was not written is handled
//! again from its start. A database that is lost or full ends in a `StageError` that puts the message off without
//! counting (requirements L1, O1); whatever else it refuses is a host fault (S1).

use super::error::StageError;
use crate::sql::{Db, Error};

/// The default of each is what is true where there is no connection.
pub trait Tables {
    /// The entries of an alias map for these addresses: address and targets, without those that it does not have.
    fn aliases(
        &mut self,
        _map: &str,
        _addresses: &[String],
    ) -> Result<Vec<(String, Vec<String>)>, StageError> {
        Err(gone())
    }

    /// Which of these addresses, in lower case, have listed which of these correspondents (each an address or `@DOMAIN`):
    /// pairs of address and correspondent.
    fn listed(
        &mut self,
        _addresses: &[String],
        _correspondents: &[String],
    ) -> Result<Vec<(String, String)>, StageError> {
        Err(gone())
    }

    /// Enters correspondents of an address; those that are entered stay as they are. How many are new.
    fn list(&mut self, _address: &str, _correspondents: &[String], _source: &str) -> Result<u64, StageError> {
        Err(gone())
    }

    /// Lays an address's own settings over what it has set: stage, option in upper case, and the value, None to take it
    /// back. All or nothing.
    fn set(&mut self, _address: &str, _changes: &[Change]) -> Result<(), StageError> {
        Err(gone())
    }
}

/// What the owner of an address changes for a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    pub stage: String,
    pub option: String,
    pub value: Option<String>,
}

fn gone() -> StageError {
    StageError::database(Error::Lost("the connection is gone".into()))
}

/// No connection.
pub struct Unconnected;

impl Tables for Unconnected {}

impl Tables for Db {
    fn aliases(&mut self, map: &str, addresses: &[String]) -> Result<Vec<(String, Vec<String>)>, StageError> {
        Db::aliases(self, map, addresses).map_err(StageError::database)
    }

    fn listed(
        &mut self,
        addresses: &[String],
        correspondents: &[String],
    ) -> Result<Vec<(String, String)>, StageError> {
        Db::find_listed(self, addresses, correspondents).map_err(StageError::database)
    }

    fn list(&mut self, address: &str, correspondents: &[String], source: &str) -> Result<u64, StageError> {
        let pairs: Vec<(&str, &str)> = correspondents.iter().map(|one| (address, one.as_str())).collect();
        Db::add_listed(self, &pairs, source).map_err(StageError::database)
    }

    fn set(&mut self, address: &str, changes: &[Change]) -> Result<(), StageError> {
        let rows: Vec<(&str, &str, Option<&str>)> = changes
            .iter()
            .map(|Change { stage, option, value }| (stage.as_str(), option.as_str(), value.as_deref()))
            .collect();
        Db::change_settings(self, address, &rows).map(drop).map_err(StageError::database)
    }
}
