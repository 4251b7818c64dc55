//! The claim: what it asks for as arrays, and what the function says as types. What the parts mean is told in
//! schema/fair.sql and docs/fairness.md; nothing is decided here.

use super::queue::Held;
use super::{Db, Error, Statement};

const CLAIM: Statement = Statement { purpose: "claim messages", text: include_str!("claim.sql") };

/// What a claim asks for one stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Want {
    pub stage: String,
    /// At most so many rows.
    pub capacity: u32,
    /// Of which so many are the oldest, whoever sent them.
    pub fifo_slots: u32,
    pub average_us: i64,
    /// The smallest id worth looking at.
    pub floor: i64,
    /// The smallest id that may be of a sender not known yet.
    pub mark: i64,
    /// So many senders behind `cursor` are visited.
    pub visits: u32,
    pub cursor: String,
    /// The lead of a sender that is not listed.
    pub unlisted_us: i64,
    pub senders: Vec<Listed>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    pub sender: String,
    pub lead_us: i64,
    /// The oldest row it may have waiting; None: it is not thought to wait.
    pub floor: Option<i64>,
    pub rows: u32,
}

/// A row that is running for us now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claimed {
    pub stage: String,
    pub held: Held,
    pub sender: String,
    pub strikes: u32,
}

/// What a claim saw besides the rows it took.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    Seen { id: i64, sender: String },
    Floor { id: i64 },
    Mark { id: i64 },
    Cursor { sender: String },
}

/// A claim's rows, oldest first, and what it saw by stage.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claims {
    pub rows: Vec<Claimed>,
    pub sights: Vec<(String, Sight)>,
    /// The greatest id given out so far.
    pub top: i64,
    /// Until the first of the touched rows is due that are paused, with a survey of all paused rows; None: there is none.
    pub due_in_us: Option<u64>,
    /// With a survey: stages that were not asked for, and how many rows wait there.
    pub unserved: Vec<(String, u64)>,
}

/// The arguments that have one element a stage, and those with one a listed sender.
#[derive(Default)]
struct Arrays<'a> {
    stages: Vec<&'a str>,
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

fn arrays(wants: &[Want]) -> Arrays<'_> {
    let mut all = Arrays::default();
    for (place, want) in (1..).zip(wants) {
        all.stages.push(&want.stage);
        all.capacities.push(count(want.capacity));
        all.fifo_slots.push(count(want.fifo_slots));
        all.averages.push(want.average_us);
        all.floors.push(want.floor);
        all.marks.push(want.mark);
        all.visits.push(count(want.visits));
        all.cursors.push(&want.cursor);
        all.unlisted.push(want.unlisted_us);
        for listed in &want.senders {
            all.places.push(place);
            all.senders.push(&listed.sender);
            all.leads.push(listed.lead_us);
            all.sender_floors.push(listed.floor);
            all.rows.push(count(listed.rows));
        }
    }
    all
}

impl Db {
    /// The one pending-to-running write, for all stages at once (W3). `touched`: rows to look up wherever they are.
    pub fn claim(
        &mut self,
        wants: &[Want],
        touched: &[i64],
        skip_locked: bool,
        survey: bool,
    ) -> Result<Claims, Error> {
        let all = arrays(wants);
        let rows = self.query(
            &CLAIM,
            &[
                &all.stages,
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
                &survey,
            ],
        )?;
        let mut claims = Claims::default();
        for row in &rows {
            take(&mut claims, row)?;
        }
        Ok(claims)
    }
}

/// One row of the function's: the columns that its kind has.
fn take(claims: &mut Claims, row: &postgres::Row) -> Result<(), Error> {
    let id = |name| row.get::<_, Option<i64>>(name).unwrap_or(0);
    let text = |name| row.get::<_, Option<String>>(name).unwrap_or_default();
    let sight = match row.get::<_, &str>("kind") {
        "claimed" => {
            claims.rows.push(Claimed {
                stage: text("stage"),
                held: Held { id: id("workqueue_id"), claim: id("claims") },
                sender: text("sender_key"),
                strikes: row.get::<_, Option<i32>>("strikes").and_then(|n| n.try_into().ok()).unwrap_or(0),
            });
            return Ok(());
        }
        "due" => {
            // What is overdue is due now. A touched row and a survey may both tell.
            let due = u64::try_from(id("workqueue_id")).unwrap_or(0);
            claims.due_in_us = Some(claims.due_in_us.map_or(due, |other| other.min(due)));
            return Ok(());
        }
        "unserved" => {
            claims.unserved.push((text("stage"), u64::try_from(id("workqueue_id")).unwrap_or(0)));
            return Ok(());
        }
        "end" => {
            claims.top = id("claims");
            return Ok(());
        }
        "seen" => Sight::Seen { id: id("workqueue_id"), sender: text("sender_key") },
        "floor" => Sight::Floor { id: id("workqueue_id") },
        "mark" => Sight::Mark { id: id("workqueue_id") },
        "cursor" => Sight::Cursor { sender: text("sender_key") },
        other => {
            return Err(Error::Schema(format!(
                "a claim brought {other:?}, which this release does not know"
            )));
        }
    };
    claims.sights.push((text("stage"), sight));
    Ok(())
}

/// More than any pool has is as good as that.
fn count(value: u32) -> i32 {
    i32::try_from(value).unwrap_or(i32::MAX)
}
