//! The dispatcher's one database connection: it holds the advisory lock, LISTENs, and does the machine's jobs.
//!
//! Invariants: at most one connection; a job is done to its end before the next; whatever leaves the connection in
//! doubt drops it, so that a later job meets a new one or none. Only this file knows both the machine's words and the
//! database room's; it decides nothing that the machine could decide.
//!
//! The driver shows no socket, and its notifications arrive only when a statement turns its reactor: hence the look
//! for the new descriptor, and the empty query of `poll_notifications` when that descriptor is readable.

use super::machine::fair::Notice;
use super::machine::{Blame, Claim, Deltas, Demand, Due, Event, Fault, Job, Reply};
use super::reread::Configuration;
use crate::sql::claim::{Claimed, Claims, Listed, Sight, Want};
use crate::sql::queue::{Backend, Channel, DueRows, Held, Lock, StageCount, Stray, Swept};
use crate::sql::{Db, Error, Purpose};
use crate::{exit, sys};
use std::os::fd::RawFd;
use std::time::Duration;

/// The longest that one job may keep the loop waiting; after a SIGTERM it is far less (`sys::bounded`). The server ends a statement of ours after 10 s; one that does not
/// even do that is stopped, or cut off without a word, and no timeout of the driver's sees it on a Unix socket.
const BLOCKED_LIMIT: Duration = Duration::from_secs(15);

/// The connection and what must be known to make it again.
pub struct Link {
    url: String,
    program: &'static str,
    live: Option<Live>,
    /// The server process through which this dispatcher last held the lock (D6).
    holder: Option<Backend>,
}

struct Live {
    db: Db,
    socket: RawFd,
}

impl Link {
    /// The first connection, its schema checked, and listening: what is read over it later is either read as it is from
    /// then on, or its change is heard of. An error here is the operator's to mend.
    pub fn open(url: &str, program: &'static str) -> Result<Link, Error> {
        let mut link = Link { url: url.to_owned(), program, live: None, holder: None };
        link.bounded(Link::connect)?;
        Ok(link)
    }

    /// An answer that comes after the limit is of no use: its connection is shut down.
    fn bounded<T>(&mut self, work: impl FnOnce(&mut Link) -> Result<T, Error>) -> Result<T, Error> {
        let (result, expired) = sys::bounded(BLOCKED_LIMIT, || work(self));
        match result {
            Err(Error::Lost(text)) => Err(Error::Lost(match expired {
                Some(limit) => format!("{text}: given up after {} s", limit.as_secs_f64()),
                None => text,
            })),
            other => other,
        }
    }

    /// The overlay of requirement C1 (section, option, value), before the first job.
    pub fn overrides(&mut self) -> Result<Vec<(String, String, String)>, Error> {
        self.bounded(|link| link.db()?.overrides())
    }

    /// The descriptor to await notifications on, while there is a connection.
    pub fn socket(&self) -> Option<RawFd> {
        self.live.as_ref().map(|live| live.socket)
    }

    /// Its descriptor is ready: takes what came. `hung_up`: the server has closed its side.
    pub fn take_ready(&mut self, hung_up: bool) -> Vec<Event> {
        let Some(live) = &mut self.live else { return Vec::new() };
        let polled = live.db.poll_notifications();
        match polled {
            // Else the descriptor would be ready for ever.
            Ok(_) if hung_up => vec![self.lost("the server has closed the connection".into())],
            other => self.heard(other),
        }
    }

    /// What earlier statements left in memory: no descriptor will ever announce it.
    pub fn take_buffered(&mut self) -> Vec<Event> {
        let Some(live) = &mut self.live else { return Vec::new() };
        let buffered = live.db.buffered_notifications();
        self.heard(buffered)
    }

    /// A burst on one channel is one event.
    fn heard(&mut self, heard: Result<Vec<Channel>, Error>) -> Vec<Event> {
        let events = [
            (Channel::Workqueue, Event::Notified),
            (Channel::ConfigChanged, Event::ConfigChanged),
            (Channel::TelemetryChanged, Event::TelemetryChanged),
        ];
        match heard {
            Ok(channels) if channels.is_empty() => Vec::new(),
            Ok(channels) => {
                let of_it = |(channel, event)| channels.contains(&channel).then_some(event);
                events.into_iter().filter_map(of_it).collect()
            }
            Err(error) => vec![self.lost(error.to_string())],
        }
    }

    fn lost(&mut self, why: String) -> Event {
        self.disconnect();
        Event::ConnectionLost(why)
    }

    /// The driver says goodbye and waits for the server's end; a server that hangs must not make us hang with it.
    fn disconnect(&mut self) {
        if let Some(live) = self.live.take() {
            sys::shut_down(live.socket);
        }
    }

    fn connect(&mut self) -> Result<(), Error> {
        let before = sockets()?;
        let mut db = Db::connect(&self.url, self.program, Purpose::Dispatcher)?;
        let mut new = sockets()?;
        new.retain(|fd| !before.contains(fd));
        let [socket] = new[..] else {
            return Err(Error::Setup(format!(
                "cannot tell the database's socket among {} new ones",
                new.len()
            )));
        };
        db.check_schema()?;
        db.listen()?;
        self.live = Some(Live { db, socket });
        Ok(())
    }

    /// Does one job. A connection that was lost on the way is gone afterwards.
    pub fn run(&mut self, job: Job, configuration: &mut Configuration) -> Reply {
        let done = self.bounded(|link| link.perform(job, configuration));
        done.unwrap_or_else(|error| self.failed(error))
    }

    fn perform(&mut self, job: Job, configuration: &mut Configuration) -> Result<Reply, Error> {
        match job {
            Job::Connect => return self.first_or_new(),
            Job::Lock => return self.lock(),
            Job::Reconcile { held } => {
                let locked = self.db()?.reconcile(&held_rows(&held))?;
                return Ok(Reply::Reconciled(locked.into_iter().map(claim).collect()));
            }
            Job::FindStrays { held } => {
                return Ok(strays(self.db()?.find_strays(&held_rows(&held))?));
            }
            Job::Claim { demand, touched, skip_locked, survey } => {
                return Ok(rows(self.db()?.claim(&wants(demand), &touched, skip_locked, survey)?));
            }
            Job::Requeue { rows } => self.db()?.requeue(&held_rows(&rows)).map(drop)?,
            Job::Pause { row, pause, error } => {
                self.db()?.pause_claimed(held(row), pause, &error).map(drop)?;
            }
            Job::Strike { row, strikes, pause, blame, error } => {
                self.db()?.strike(held(row), strikes, pause, class(blame), &error).map(drop)?;
            }
            Job::Condemn { row, strikes, blame, error } => {
                self.db()?.condemn(held(row), strikes, class(blame), &error).map(drop)?;
            }
            Job::Fail { row, error } => self.db()?.fail_claimed(held(row), &error).map(drop)?,
            Job::Sweep { stages } => {
                let Swept { rows, more, due_in_us } = self.db()?.sweep_paused(&due_rows(stages))?;
                return Ok(Reply::Swept { rows, more, due_in: due_in_us });
            }
            Job::Flush(deltas) => flush(self.db()?, deltas)?,
            Job::CollectBodies { limit } => self.db()?.collect_bodies(limit).map(drop)?,
            Job::Reread { asked } => return Ok(configuration.reread(&self.overlay()?, asked)),
        }
        Ok(Reply::Done)
    }

    fn db(&mut self) -> Result<&mut Db, Error> {
        self.live.as_mut().map(|live| &mut live.db).ok_or_else(not_connected)
    }

    /// The connection of the start is used; any later Connect makes a new one.
    fn first_or_new(&mut self) -> Result<Reply, Error> {
        let is_first = self.holder.is_none() && self.live.is_some();
        if !is_first {
            self.disconnect();
            self.connect()?;
        }
        Ok(Reply::Connected)
    }

    /// An overlay that is not there any more is no reason to end, as another schema would be (C3).
    fn overlay(&mut self) -> Result<Vec<(String, String, String)>, Error> {
        self.db()?.overrides().map_err(|error| match error {
            Error::Schema(text) => Error::Refused(text),
            Error::Lost(_)
            | Error::Overloaded(_)
            | Error::Conflict(_)
            | Error::Refused(_)
            | Error::Setup(_) => error,
        })
    }

    /// Our own former backend may outlive its connection, for instance while a network timeout runs (D6).
    fn lock(&mut self) -> Result<Reply, Error> {
        let locked = self.db()?.lock_dispatcher()?;
        match locked {
            Lock::Taken(backend) => {
                self.holder = Some(backend);
                Ok(Reply::Locked)
            }
            Lock::HeldBy(Some(other)) if self.holder.as_ref() == Some(&other) => {
                self.db()?.terminate(&other)?;
                Ok(Reply::LockHeld)
            }
            Lock::HeldBy(_) => Ok(Reply::LockHeld),
        }
    }

    fn failed(&mut self, error: Error) -> Reply {
        let reply = reply(error, self.live.is_some());
        if matches!(reply, Reply::Fault(Fault::Lost(_))) {
            self.disconnect();
        }
        reply
    }
}

impl Drop for Link {
    /// The driver's goodbye waits for a server that may have stopped.
    fn drop(&mut self) {
        sys::bounded(BLOCKED_LIMIT, || drop(self.live.take()));
    }
}

/// What a person must mend ends the dispatcher when the schema has changed under it. All else that keeps a
/// running dispatcher from its database (a role dropped for a while) is retried like a lost connection.
fn reply(error: Error, is_connected: bool) -> Reply {
    Reply::Fault(match error {
        Error::Schema(error) => return Reply::Fatal { code: exit::CONFIG, error },
        // A right that was taken away: the connection is whole, and a new one would not have it either.
        Error::Setup(text) if is_connected => Fault::Refused(text),
        Error::Lost(text) | Error::Setup(text) => Fault::Lost(text),
        Error::Overloaded(text) => Fault::Overloaded(text),
        Error::Conflict(text) => Fault::Conflict(text),
        Error::Refused(text) => Fault::Refused(text),
    })
}

fn sockets() -> Result<Vec<RawFd>, Error> {
    sys::connected_sockets().map_err(|error| Error::Lost(format!("cannot list the open sockets: {error}")))
}

fn not_connected() -> Error {
    Error::Lost("there is no connection to the database".into())
}

fn flush(db: &mut Db, deltas: Deltas) -> Result<(), Error> {
    let Deltas { stages, executed, failed, serialization_failures, answered, unserved } = deltas;
    let stages: Vec<StageCount> = stages
        .into_iter()
        .map(|delta| StageCount {
            stage: delta.stage,
            messages: delta.messages,
            processing_us: delta.processing_us,
            timeouts: delta.timeouts,
            crashes: delta.crashes,
        })
        .collect();
    db.flush(&stages, executed, failed, serialization_failures, &answered, unserved)
}

fn rows(claims: Claims) -> Reply {
    let claimed = |row: Claimed| super::machine::Claimed {
        stage: row.stage,
        row: Claim { id: row.held.id, claim: row.held.claim },
        sender: row.sender,
        strikes: row.strikes,
    };
    Reply::Rows {
        rows: claims.rows.into_iter().map(claimed).collect(),
        notices: claims.sights.into_iter().map(|(stage, sight)| (stage, notice(sight))).collect(),
        top: claims.top,
        due_in: claims.due_in_us,
        unserved: claims.unserved,
    }
}

fn due_rows(stages: Vec<Due>) -> Vec<DueRows> {
    let rows = |one: Due| DueRows { stage: one.stage, rows: one.rows, since_us: one.since };
    stages.into_iter().map(rows).collect()
}

fn strays(found: Vec<Stray>) -> Reply {
    let stray =
        |row: Stray| super::machine::Stray { stage: row.stage, row: claim(row.held), strikes: row.strikes };
    Reply::Strays(found.into_iter().map(stray).collect())
}

fn notice(sight: Sight) -> Notice {
    match sight {
        Sight::Seen { id, sender } => Notice::Seen { id, sender },
        Sight::Floor { id } => Notice::Floor { id },
        Sight::Mark { id } => Notice::Mark { id },
        Sight::Cursor { sender } => Notice::Cursor { sender },
    }
}

fn wants(demand: Vec<Demand>) -> Vec<Want> {
    let listed = |one: super::machine::fair::Listed| Listed {
        sender: one.sender,
        lead_us: one.lead,
        floor: one.floor,
        rows: one.rows,
    };
    let want = |Demand { stage, ask }: Demand| Want {
        stage,
        capacity: ask.capacity,
        fifo_slots: ask.fifo_slots,
        average_us: ask.average,
        floor: ask.floor,
        mark: ask.mark,
        visits: ask.visits,
        cursor: ask.cursor,
        unlisted_us: ask.unlisted,
        senders: ask.senders.into_iter().map(listed).collect(),
    };
    demand.into_iter().map(want).collect()
}

fn claim(row: Held) -> Claim {
    Claim { id: row.id, claim: row.claim }
}

fn held(row: Claim) -> Held {
    Held { id: row.id, claim: row.claim }
}

fn held_rows(rows: &[Claim]) -> Vec<Held> {
    rows.iter().copied().map(held).collect()
}

/// `state.failure_class` (E2).
fn class(blame: Blame) -> &'static str {
    match blame {
        Blame::Crashed => "crashed",
        Blame::TimedOut => "timed-out",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Req: L2
    #[test]
    fn a_right_that_was_taken_away_is_no_lost_connection() {
        let setup = || Error::Setup("permission denied".to_owned());
        assert_eq!(reply(setup(), true), Reply::Fault(Fault::Refused("permission denied".to_owned())));
        // Where there is no connection, there is nothing to keep.
        assert_eq!(reply(setup(), false), Reply::Fault(Fault::Lost("permission denied".to_owned())));
        let schema = Error::Schema("newer".to_owned());
        assert_eq!(reply(schema, true), Reply::Fatal { code: exit::CONFIG, error: "newer".to_owned() });
    }
}
