//! Rows and routes for the unit tests of this folder.

pub use super::context::Load;
use super::context::{Context, Route};
use super::runtime::Served;
use super::stage::Stage;
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
        settings: None,
    }
}

pub fn route(stage: &str) -> Route {
    let max_lifetime = Duration::from_secs(120 * 3600);
    Route { stage: stage.into(), next: None, bounce: None, max_lifetime, host: "host.example".into() }
}

pub fn context(row: Row, route: Route) -> Context {
    Context::new(row, Load::Full, Rc::new(route))
}

/// A stage without options.
pub fn served(stage: Box<dyn Stage>, route: Route, load: Load) -> Rc<Served> {
    Rc::new(Served { stage, route: Rc::new(route), load, options: &[], personal: &[] })
}
