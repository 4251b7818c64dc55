//! Rows and routes for the unit tests of this folder.

use super::context::{Context, Load, Route};
pub use super::tables::Unconnected;
pub use crate::sql::row::{Content, Move, Row};
use serde_json::json;
use std::rc::Rc;
use std::time::Duration;

pub fn row(id: i64) -> Row {
    Row {
        id,
        claim: 3,
        status: "running".into(),
        stage: "relay".into(),
        state: json!({}),
        mail_from: "ann@example.org".into(),
        rcpt_to: vec!["bob@example.net".into()],
        header_from: Some("Ann <ann@example.org>".into()),
        subject: Some("Grüße".into()),
        received_at_us: 1_796_000_000_123_456,
        now_us: 1_796_000_001_000_000,
        size: 30,
        headers: Some(b"Subject: x\r\n".to_vec()),
        body: Some(b"line one\r\nline two".to_vec()),
    }
}

pub fn route(stage: &str) -> Route {
    let max_lifetime = Duration::from_secs(120 * 3600);
    Route { stage: stage.into(), next: None, bounce: None, max_lifetime, host: "host.example".into() }
}

pub fn context(row: Row, route: Route) -> Context {
    Context::new(row, Load::Full, Rc::new(route))
}
