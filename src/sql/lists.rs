//! Statements about what belongs to addresses: aliases, whitelist, settings. None touches a message; each may be repeated.

use super::{Db, Error, Statement, clean};

const FIND_ALIASES: Statement =
    Statement { purpose: "look up aliases", text: include_str!("alias_find.sql") };
const FIND_LISTED: Statement =
    Statement { purpose: "look up the whitelist", text: include_str!("whitelist_find.sql") };
const ADD_LISTED: Statement =
    Statement { purpose: "enter into the whitelist", text: include_str!("whitelist_add.sql") };
const LIST_WHITELIST: Statement =
    Statement { purpose: "list the whitelist", text: include_str!("whitelist_list.sql") };
const REMOVE_LISTED: Statement =
    Statement { purpose: "take from the whitelist", text: include_str!("whitelist_remove.sql") };
const CHANGE_SETTINGS: Statement =
    Statement { purpose: "change settings", text: include_str!("settings_change.sql") };
const LIST_SETTINGS: Statement =
    Statement { purpose: "list settings", text: include_str!("settings_list.sql") };

/// What the owner of an address has set for a stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub address: String,
    pub stage: String,
    pub option: String,
    pub value: String,
}

/// A correspondent of an address, what entered it, and when (UTC).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Correspondent {
    pub address: String,
    pub correspondent: String,
    pub source: String,
    pub added_at: String,
}

impl Db {
    /// The entries of an alias map for these addresses, without those that it does not have.
    pub fn aliases(&mut self, map: &str, addresses: &[String]) -> Result<Vec<(String, Vec<String>)>, Error> {
        let addresses: Vec<_> = addresses.iter().map(|address| clean::text(address)).collect();
        let rows = self.query(&FIND_ALIASES, &[&map, &addresses])?;
        Ok(rows.iter().map(|row| (row.get("address"), row.get("targets"))).collect())
    }

    /// Which of these addresses have listed which of these correspondents.
    pub fn find_listed(
        &mut self,
        addresses: &[String],
        correspondents: &[String],
    ) -> Result<Vec<(String, String)>, Error> {
        let clean = |all: &[String]| all.iter().map(|one| clean::text(one).into_owned()).collect::<Vec<_>>();
        let rows = self.query(&FIND_LISTED, &[&clean(addresses), &clean(correspondents)])?;
        Ok(rows.iter().map(|row| (row.get("address"), row.get("correspondent"))).collect())
    }

    /// Enters pairs of address and correspondent; those that are entered stay as they are. How many are new.
    pub fn add_listed(&mut self, pairs: &[(&str, &str)], source: &str) -> Result<u64, Error> {
        let (addresses, correspondents): (Vec<_>, Vec<_>) =
            pairs.iter().map(|(address, one)| (clean::text(address), clean::text(one))).unzip();
        self.execute(&ADD_LISTED, &[&addresses, &correspondents, &clean::text(source)])
    }

    /// The whitelist by address and correspondent; None: of all. At most `limit`.
    pub fn whitelist(
        &mut self,
        address: Option<&str>,
        correspondent: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Correspondent>, Error> {
        let rows = self.query(&LIST_WHITELIST, &[&address, &correspondent, &i64::from(limit)])?;
        let entry = |row: &postgres::Row| Correspondent {
            address: row.get("address"),
            correspondent: row.get("correspondent"),
            source: row.get("source"),
            added_at: row.get("added_at"),
        };
        Ok(rows.iter().map(entry).collect())
    }

    /// Takes correspondents of an address away, None: all of them; at most `limit` in one statement. How many there were.
    pub fn remove_listed(
        &mut self,
        address: &str,
        correspondents: Option<&[String]>,
        limit: u32,
    ) -> Result<u64, Error> {
        self.execute(&REMOVE_LISTED, &[&address, &correspondents, &i64::from(limit)])
    }

    /// Lays changes over an address's settings: stage, option and value, None to take it back. How many rows changed.
    pub fn change_settings(
        &mut self,
        address: &str,
        changes: &[(&str, &str, Option<&str>)],
    ) -> Result<u64, Error> {
        let stages: Vec<_> = changes.iter().map(|(stage, _, _)| clean::text(stage)).collect();
        let options: Vec<_> = changes.iter().map(|(_, option, _)| clean::text(option)).collect();
        let values: Vec<_> = changes.iter().map(|(_, _, value)| value.map(clean::text)).collect();
        let rows = self.query(&CHANGE_SETTINGS, &[&clean::text(address), &stages, &options, &values])?;
        Ok(rows.first().map_or(0, |row| row.get::<_, i64>("changed").unsigned_abs()))
    }

    /// Settings by address, stage and option; None: of all addresses, all stages. At most `limit`.
    pub fn settings(
        &mut self,
        address: Option<&str>,
        stage: Option<&str>,
        limit: u32,
    ) -> Result<Vec<Setting>, Error> {
        let rows = self.query(&LIST_SETTINGS, &[&address, &stage, &i64::from(limit)])?;
        let setting = |row: &postgres::Row| Setting {
            address: row.get("address"),
            stage: row.get("stage"),
            option: row.get("option"),
            value: row.get("value"),
        };
        Ok(rows.iter().map(setting).collect())
    }
}
