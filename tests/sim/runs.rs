//! Whole runs of a world: hostile for a while, then calm until everything has come to its end, then an idle hour.

use super::prng::Prng;
use super::world::{MILLI, Profile, SECOND, World};
use crate::machine::{Settings, StageSpec};

/// What a thousand hostile worlds must have met, or they were not hostile.
pub const MET: &[&str] = &[
    "a ghost is answered",
    "a time of refusal",
    "a withdrawal fails",
    "a worker is stopped",
    "burst",
    "crash of the dispatcher",
    "end: crash",
    "end: database lost",
    "end: hang",
    "end: innocent",
    "exit: a configuration that does not parse",
    "exit: another schema",
    "exit: error",
    "exit: in peace",
    "exit: in trouble, all written",
    "exit: in trouble, rows left",
    "fault: conflict",
    "fault: lost",
    "fault: overloaded",
    "fault: refused",
    "job: bodies",
    "job: claim around locks",
    "job: claim",
    "job: condemn",
    "job: connect",
    "job: fail",
    "job: find strays",
    "job: flush",
    "job: lock",
    "job: pause",
    "job: reconcile",
    "job: reread",
    "job: requeue of many",
    "job: requeue",
    "job: strike",
    "job: sweep",
    "job: withdrawal",
    "killed worker commits",
    "killed worker is fenced",
    "lock held",
    "nature: answers early",
    "nature: closes early",
    "nature: dies early",
    "nature: dies idle",
    "nature: garbage early",
    "nature: ignores close",
    "nature: never ready",
    "nature: normal",
    "nature: ready twice",
    "nature: refuses",
    "nature: unkillable",
    "nature: unstartable",
    "orphan commits",
    "orphan is fenced",
    "promptness is checked",
    "reconcile: a locked row",
    "reload: all is replaced",
    "reload: fewer workers allowed than there are",
    "reload: nothing has changed",
    "reload: of a stage in cooldown",
    "reload: stage added",
    "reload: stage edited",
    "reload: stage removed",
    "rival",
    "run: answers twice",
    "run: closes alive",
    "run: commit",
    "run: crash after commit",
    "run: crash before commit",
    "run: database status",
    "run: failed",
    "run: fused",
    "run: garbage",
    "run: hang",
    "run: lie",
    "run: pause",
    "server crash: commits forgotten",
    "stray: freed",
    "stray: struck",
    "the clock leaps",
    "the dispatcher stands still",
];

/// Says which run it was when something in it panics.
struct Named(String);

impl Drop for Named {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("simulation failed: {}", self.0);
        }
    }
}

/// A random world, to its end.
pub fn random(seed: u64, hostile: u64) -> World {
    let _named = Named(format!("PEPSI_SIM_SEED={seed} PEPSI_SIM_STEPS={hostile}"));
    let mut prng = Prng::new(seed);
    let (profile, specs, settings) = (profile(&mut prng), specs(&mut prng), settings(&mut prng));
    let mut world = World::new(seed, profile, specs, settings);
    while world.steps < hostile {
        world.round();
    }
    finish(&mut world);
    world
}

fn profile(prng: &mut Prng) -> Profile {
    // A third of all worlds spare each kind of trouble, so that every mixture is met.
    let mut maybe = |choices: &[u64]| if prng.chance(333) { 0 } else { prng.pick(choices) };
    Profile {
        natures: maybe(&[20, 200, 600]),
        words: maybe(&[5, 50, 200]),
        siblings: maybe(&[50]),
        fusion: maybe(&[200]),
        tempers: maybe(&[20, 100]),
        job_faults: maybe(&[2, 20, 100]),
        lost_notifications: maybe(&[100, 1000]),
        outage_gap: maybe(&[20 * SECOND, 200 * SECOND]),
        forget_gap: maybe(&[20 * SECOND, 100 * SECOND]),
        refusal_gap: maybe(&[100 * SECOND]),
        stall_gap: maybe(&[50 * SECOND]),
        overload_gap: maybe(&[60 * SECOND]),
        crash_gap: maybe(&[10 * SECOND, 100 * SECOND]),
        terminate_gap: maybe(&[20 * SECOND, 200 * SECOND]),
        rival_gap: maybe(&[100 * SECOND]),
        lock_gap: maybe(&[30 * SECOND]),
        reload_gap: maybe(&[SECOND, 20 * SECOND, 100 * SECOND]),
        asynchronous: prng.chance(300),
        insert_gap: prng.pick(&[5 * MILLI, 100 * MILLI, SECOND]),
        service: prng.pick(&[MILLI, 30 * MILLI, 500 * MILLI]),
        backlog: prng.pick(&[5, 30, 80]),
    }
}

/// One stage to three, or many, of which one is as narrow as can be.
fn specs(prng: &mut Prng) -> Vec<StageSpec> {
    let count = if prng.chance(150) { prng.between(8, 16) } else { prng.between(1, 3) };
    let mut specs = specs_of(prng, count as usize);
    if count > 3 {
        let narrow = &mut specs[count as usize / 2];
        (narrow.parallelism, narrow.queue_limit) = (1, 1);
    }
    specs
}

fn stage_name(stage: usize) -> String {
    let usual = ["init", "filter", "deliver"].get(stage).map(|name| (*name).to_owned());
    usual.unwrap_or_else(|| format!("stage{stage}"))
}

pub fn specs_of(prng: &mut Prng, count: usize) -> Vec<StageSpec> {
    (0..count).map(|stage| spec_of(prng, &stage_name(stage))).collect()
}

pub fn spec_of(prng: &mut Prng, name: &str) -> StageSpec {
    StageSpec {
        name: name.to_owned(),
        program: format!("{name}-{}", prng.below(1000)),
        parallelism: prng.between(1, 4) as u32,
        queue_limit: prng.between(1, 5) as u32,
        max_messages: prng.pick(&[1, 3, 10, 1000]),
        max_runtime: prng.pick(&[2 * SECOND, 20 * SECOND]),
    }
}

pub fn settings(prng: &mut Prng) -> Settings {
    Settings {
        poll_interval: prng.pick(&[5 * SECOND, 30 * SECOND]),
        stats_interval: 60 * SECOND,
        worker_idle_timeout: prng.pick(&[SECOND, 5 * SECOND]),
        fair: prng.chance(667),
        fair_half_life: 60 * SECOND,
        fair_fifo_percent: 10,
    }
}

/// Faults stop: all rows end, all workers soon after, and then there are only heartbeats.
pub fn finish(world: &mut World) {
    drain(world);
    rest(world);
}

/// Faults stop, and all rows end within an hour.
pub fn drain(world: &mut World) {
    world.calm();
    let bound = world.now + 3600 * SECOND;
    while world.database.unfinished > 0 {
        world.round();
        assert!(world.now < bound, "rows never end: {:?}", unfinished(world));
    }
}

fn rest(world: &mut World) {
    // Idle workers go, the last statistics are written, and cuts of parallelism are over.
    let awake = world.now.max(world.stalled).max(world.life.stalled.unwrap_or(0));
    let settled = awake + 400 * SECOND;
    while world.now < settled || world.machine.is_none() {
        world.round();
    }
    world.check_end();
    // From one heartbeat on.
    let before = world.life.claims;
    while world.life.claims == before {
        world.round();
    }
    let start = world.now;
    world.life.claims = 0;
    world.life.other_jobs = 0;
    let beats = 3600 * SECOND / world.settings.poll_interval;
    while world.life.claims < beats {
        world.round();
    }
    assert_eq!(world.life.other_jobs, 0, "an idle dispatcher has work for the database");
    assert_eq!(world.now - start, 3600 * SECOND, "{beats} heartbeats take an hour");
    for spec in &world.specs {
        let whole = spec.parallelism * spec.queue_limit.min(spec.max_messages);
        let asked = world.life.last_demand.iter().find(|demand| demand.stage == spec.name);
        assert_eq!(asked.map(|demand| demand.ask.capacity), Some(whole), "the pool is not whole again");
    }
}

fn unfinished(world: &World) -> Vec<(usize, &super::database::Row)> {
    use super::database::Status;
    let rows = world.database.rows.iter().enumerate();
    rows.filter(|(_, row)| !matches!(row.status, Status::Gone | Status::Failed | Status::TimedOut)).collect()
}
