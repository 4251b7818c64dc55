//! The configuration as every program takes it: where the database is, and the overlay that lies in the database.
//!
//! What has to be known before the connection, and what listens, comes from the file alone (requirement C1): whoever
//! can write to the database cannot move a socket or send the programs to another database.

use crate::proto::conf::{Conf, ConfError};

/// `[pepsi-postgres] CONFIG`.
pub fn database_url(conf: &Conf) -> Result<String, ConfError> {
    let given = match conf.section("pepsi-postgres") {
        Some(section) => section.get("CONFIG")?,
        None => None,
    };
    Ok(given.filter(|url| !url.is_empty()).unwrap_or_else(|| "postgres:///pepsi".into()))
}

/// Whether a program of this release reads the section of that name (lower case).
pub fn is_known_section(name: &str) -> bool {
    let whole = ["paths", "pepsi", "pepsi-postgres", "pepsi-dispatch", "pepsi-sendmail"];
    whole.contains(&name) || name.starts_with("stage-")
}

/// Lays rows of `config_override` (section, option, value) over the file, those of the stages and of `[pepsi]`.
pub fn overlay(conf: &mut Conf, rows: &[(String, String, String)]) {
    for (section, option, value) in rows {
        let name = section.to_ascii_lowercase();
        if name == "pepsi" || name.starts_with("stage-") {
            conf.overlay(section, option, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::conf::Sources;

    fn parse(text: &str) -> Conf {
        Conf::parse("t", text, &Sources { variable: &|_| None, inline: &|_| Err("none".into()) }).unwrap()
    }

    // Req: C1
    #[test]
    fn the_overlay_reaches_stages_and_no_connection_or_listener() {
        let mut conf = parse("[pepsi-postgres]\nCONFIG = postgres:///a\n[stage-x]\nPROGRAM = p\n");
        let row = |section: &str, option: &str| (section.to_owned(), option.to_owned(), "moved".to_owned());
        let rows = [
            row("PEPSI-Postgres", "CONFIG"),
            row("pepsi-dispatch", "CONFIG_FILE"),
            row("pepsi-ingress", "PORT"),
            row("paths", "HOME"),
            row("Stage-X", "program"),
            row("pepsi", "ALLOW_FUSION"),
        ];
        overlay(&mut conf, &rows);
        assert_eq!(database_url(&conf).unwrap(), "postgres:///a");
        assert!(["pepsi-dispatch", "pepsi-ingress", "paths"].iter().all(|name| conf.section(name).is_none()));
        assert_eq!(conf.section("stage-x").unwrap().required("PROGRAM").unwrap(), "moved");
        assert_eq!(conf.section("pepsi").unwrap().required("ALLOW_FUSION").unwrap(), "moved");
    }

    #[test]
    fn the_database_has_a_default() {
        for text in ["", "[pepsi-postgres]\n", "[pepsi-postgres]\nCONFIG =\n"] {
            assert_eq!(database_url(&parse(text)).unwrap(), "postgres:///pepsi", "{text:?}");
        }
        assert!(database_url(&parse("[pepsi-postgres]\nCONFIG = ${NOWHERE}\n")).is_err());
    }
}
