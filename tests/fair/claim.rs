//! Calls `pepsi.workqueue_claim_fair` as the dispatcher does: one prepared statement, arrays of all stages.

use crate::fair::{Ask, Notice};
use postgres::{GenericClient, Statement};

const CALL: &str =
    "SELECT kind, stage, workqueue_id, claims, sender_key, strikes FROM pepsi.workqueue_claim_fair(
    $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, false)";

/// A row that was claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Claimed {
    pub stage: usize,
    pub id: i64,
    pub claim: i64,
    pub sender: String,
    pub strikes: i32,
}

#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub rows: Vec<Claimed>,
    pub notices: Vec<(usize, Notice)>,
    pub due_in_us: Option<i64>,
    pub top: i64,
}

pub struct Claim {
    statement: Statement,
}

/// The demands as the arrays that the function takes.
#[derive(Default)]
struct Arrays<'a> {
    capacities: Vec<i32>,
    fifo_slots: Vec<i32>,
    averages: Vec<i64>,
    floors: Vec<i64>,
    marks: Vec<i64>,
    visits: Vec<i32>,
    cursors: Vec<&'a str>,
    unlisted: Vec<i64>,
    places: Vec<i32>,
    senders: Vec<&'a str>,
    leads: Vec<i64>,
    sender_floors: Vec<Option<i64>>,
    rows: Vec<i32>,
}

fn arrays(demands: &[Ask]) -> Arrays<'_> {
    let mut all = Arrays::default();
    for (place, demand) in (1..).zip(demands) {
        all.capacities.push(demand.capacity as i32);
        all.fifo_slots.push(demand.fifo_slots as i32);
        all.averages.push(demand.average);
        all.floors.push(demand.floor);
        all.marks.push(demand.mark);
        all.visits.push(demand.visits as i32);
        all.cursors.push(&demand.cursor);
        all.unlisted.push(demand.unlisted);
        for listed in &demand.senders {
            all.places.push(place);
            all.senders.push(&listed.sender);
            all.leads.push(listed.lead);
            all.sender_floors.push(listed.floor);
            all.rows.push(listed.rows as i32);
        }
    }
    all
}

impl Claim {
    pub fn prepare(client: &mut impl GenericClient) -> Claim {
        Claim { statement: client.prepare(CALL).unwrap_or_else(|error| panic!("{error:?}")) }
    }

    pub fn run(
        &self,
        client: &mut impl GenericClient,
        stages: &[&str],
        demands: &[Ask],
        touched: &[i64],
        skip_locked: bool,
    ) -> Reply {
        let all = arrays(demands);
        let rows = client
            .query(
                &self.statement,
                &[
                    &stages,
                    &all.capacities,
                    &all.fifo_slots,
                    &all.averages,
                    &all.floors,
                    &all.marks,
                    &all.visits,
                    &all.cursors,
                    &all.unlisted,
                    &all.places,
                    &all.senders,
                    &all.leads,
                    &all.sender_floors,
                    &all.rows,
                    &touched,
                    &skip_locked,
                ],
            )
            .unwrap_or_else(|error| panic!("{error:?}: {demands:?}"));
        let mut reply = Reply::default();
        for row in &rows {
            let kind: &str = row.get("kind");
            let stage = row
                .get::<_, Option<&str>>("stage")
                .map(|name| stages.iter().position(|stage| *stage == name).expect("a stage that was asked"));
            let id = row.get::<_, Option<i64>>("workqueue_id");
            let sender = row.get::<_, Option<String>>("sender_key");
            match (kind, stage, id, sender) {
                ("claimed", Some(stage), Some(id), Some(sender)) => reply.rows.push(Claimed {
                    stage,
                    id,
                    claim: row.get("claims"),
                    sender,
                    strikes: row.get("strikes"),
                }),
                ("seen", Some(stage), Some(id), Some(sender)) => {
                    reply.notices.push((stage, Notice::Seen { id, sender }));
                }
                ("floor", Some(stage), Some(id), None) => reply.notices.push((stage, Notice::Floor { id })),
                ("mark", Some(stage), Some(id), None) => reply.notices.push((stage, Notice::Mark { id })),
                ("cursor", Some(stage), None, Some(sender)) => {
                    reply.notices.push((stage, Notice::Cursor { sender }));
                }
                ("due", None, due, None) => reply.due_in_us = due,
                ("end", None, None, None) => reply.top = row.get("claims"),
                _ => panic!("{row:?}"),
            }
        }
        reply.rows.sort();
        reply
    }
}
