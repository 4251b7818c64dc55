//! The schema on a real PostgreSQL.

mod harness;

#[test]
fn smoke() {
    let mut db = harness::database();
    assert_eq!(db.number("SELECT count(*) FROM pepsi.workqueue"), 0);
    let mut p = harness::pepsi("pepsi-setup", &db.config().write());
    let out = p.arg("status").output().unwrap();
    assert!(out.status.success());
}
