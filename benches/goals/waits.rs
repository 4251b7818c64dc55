//! How long a message waits: a light sender's behind a heavy one, a newcomer's behind many, the oldest row's in a flood. A wait ends
//! when the worker reads the id.

use crate::harness::{PATIENCE, Postgres, wait_until};
use crate::report::{Report, Samples, Target};
use crate::world::{Record, World, rest, seconds, wall_clock};
use std::collections::BTreeMap;

const SERVICE_MS: i32 = 50;
const SERVICE: f64 = 0.05;
const PARALLELISM: f64 = 4.0;
/// How much a wait may exceed what turns explain: a pipeline of four is worked off in 0.2 s.
const PIPELINE: f64 = 0.25;

const BACKLOGS: [usize; 2] = [1_000, 100_000];
const ROUNDS: usize = 24;
const IDLE_ROUNDS: usize = 15;
/// The dispatcher and its four workers are busy by then.
const WARM: usize = 40;

/// One heavy sender with so many waiting, and a light one's single messages.
pub fn light(server: &Postgres, report: &mut Report) {
    let idle = idle_wait(server);
    let mut worlds = piled(server, true);
    let mut waits = [Vec::new(), Vec::new()];
    let mut topped_up = [0; 2];
    for round in 0..ROUNDS {
        for (index, world) in worlds.iter_mut().enumerate() {
            // As many wait at each round.
            let finished = world.records().len();
            world.pile("heavy@h.example", SERVICE_MS, finished - topped_up[index]);
            topped_up[index] = finished;
            // At another phase of the workers' each time.
            rest(round as u64 * 7 % 50);
            let sent = world.send(&format!("l@light{round}.example"), SERVICE_MS);
            waits[index].push(world.wait_of(sent));
        }
    }
    worlds.iter_mut().for_each(World::stop);
    let [few, many] = waits.map(Samples::new);
    report.line("light sender, nobody else: wait", idle.median(), "s", Target::None, &idle.spread());
    report.line("behind 1,000 of one sender: wait", few.median(), "s", Target::None, &few.spread());
    report.line("behind 100,000 of one sender: wait", many.median(), "s", Target::None, &many.spread());
    let spread = "of the medians";
    report.line(
        "behind 100,000 to behind 1,000",
        many.median() / few.median(),
        "x",
        Target::AtMost(1.2),
        spread,
    );
    let worst = few.most().max(many.most()) - idle.median();
    report.line("longest of these waits beyond the idle one", worst, "s", Target::AtMost(PIPELINE), "");
    oldest_first(server, report);
}

fn idle_wait(server: &Postgres) -> Samples {
    let mut world = World::new(server, true);
    world.start();
    let first = world.send("l@light.example", SERVICE_MS);
    world.wait_of(first);
    let mut waits = Vec::new();
    for round in 0..IDLE_ROUNDS {
        rest(20);
        let sent = world.send(&format!("l@light{round}.example"), SERVICE_MS);
        waits.push(world.wait_of(sent));
    }
    world.stop();
    Samples::new(waits)
}

/// Two queues of one heavy sender, and their dispatchers at work.
fn piled(server: &Postgres, fair: bool) -> [World; 2] {
    let mut worlds = BACKLOGS.map(|waiting| {
        let mut world = World::new(server, fair);
        world.pile("heavy@h.example", SERVICE_MS, waiting);
        world.database.run("ANALYZE pepsi.workqueue");
        world
    });
    worlds.iter_mut().for_each(World::start);
    worlds.iter_mut().for_each(|world| world.until(WARM));
    worlds
}

/// The same with FAIR_SCHEDULING = no; it is not waited for to the end.
fn oldest_first(server: &Postgres, report: &mut Report) {
    const LONGEST: f64 = 14.0;
    let mut worlds = piled(server, false);
    let sent = [0, 1].map(|index| worlds[index].send("l@light.example", SERVICE_MS));
    let begin = wall_clock();
    while seconds(wall_clock() - begin) < LONGEST
        && !worlds.iter_mut().zip(sent).all(|(world, (id, _))| world.finished(id).is_some())
    {
        rest(20);
    }
    for ((world, sent), name) in worlds.iter_mut().zip(sent).zip(["1,000", "100,000"]) {
        let text = format!("FAIR_SCHEDULING=no, behind {name}: wait");
        match world.finished(sent.0) {
            Some(_) => report.line(&text, world.wait_of(sent), "s", Target::None, ""),
            None => {
                report.line(&text, seconds(wall_clock() - sent.1), "s", Target::None, "over that, given up")
            }
        }
        world.stop();
    }
}

/// `heavy` senders with a backlog each, and newcomers with one message, one each `gap` ms.
struct Crowd {
    heavy: usize,
    backlog: usize,
    newcomers: usize,
    gap: u64,
}

pub fn newcomer(server: &Postgres, report: &mut Report) {
    for crowd in [
        Crowd { heavy: 1, backlog: 1_500, newcomers: 12, gap: 420 },
        Crowd { heavy: 10, backlog: 150, newcomers: 12, gap: 420 },
        Crowd { heavy: 100, backlog: 20, newcomers: 8, gap: 700 },
        Crowd { heavy: 1_000, backlog: 6, newcomers: 6, gap: 2_500 },
    ] {
        let waits = behind(server, &crowd);
        let limit = PIPELINE + 1.5 * (crowd.heavy + 1) as f64 * SERVICE / PARALLELISM;
        let text = format!("newcomer behind {} heavy senders: longest wait", crowd.heavy);
        report.line(&text, waits.most(), "s", Target::AtMost(limit), &waits.spread());
    }
}

fn behind(server: &Postgres, crowd: &Crowd) -> Samples {
    let mut world = World::new(server, true);
    // Each sender's backlog in one piece.
    for sender in 0..crowd.heavy {
        world.pile(&format!("x@heavy{sender}.example"), SERVICE_MS, crowd.backlog);
    }
    world.database.run("ANALYZE pepsi.workqueue");
    world.start();
    world.until(WARM);
    let mut sent = Vec::new();
    for number in 0..crowd.newcomers {
        sent.push(world.send(&format!("n@new{number}.example"), SERVICE_MS));
        rest(crowd.gap + number as u64 * 7 % 50);
    }
    let waits = sent.into_iter().map(|sent| world.wait_of(sent)).collect();
    world.stop();
    Samples::new(waits)
}

/// Where 80 messages a second are done, 100 new senders a second come, and any of them goes before a sender that was served. The
/// rows which that one has waiting when the flood begins are the oldest all the time.
pub fn flood(server: &Postgres, report: &mut Report) {
    const WAITING: usize = 70;
    const PART: u64 = 10;
    const LONGEST: usize = 14;
    let mut world = World::new(server, true);
    world.start();
    world.pile("v@victim.example", SERVICE_MS, WAITING + WARM + 20);
    world.notify();
    world.until(WARM);
    let left = "SELECT count(*) FROM pepsi.workqueue WHERE mail_from LIKE 'v@%'";
    let (begin, mut number) = (wall_clock(), 0);
    while number < LONGEST * 100 && world.database.number(left) > 0 {
        let senders: Vec<String> =
            (number..number + 10).map(|number| format!("n@new{number}.example")).collect();
        number += senders.len();
        world.add(SERVICE_MS, &senders);
        world.notify();
        let next = begin + number as u64 / PART * 100_000;
        rest(next.saturating_sub(wall_clock()) / 1_000);
    }
    wait_until("the oldest are finished", PATIENCE, || world.database.number(left) == 0);
    let end = wall_clock();
    let records = world.records().to_vec();
    world.stop();
    let done = records.iter().filter(|record| (begin..end).contains(&record.done)).count();
    let rate = done as f64 / seconds(end - begin);
    let victims: BTreeMap<i64, &Record> = records
        .iter()
        .filter(|record| record.begun > begin && record.sender.starts_with("v@"))
        .map(|record| (record.id, record))
        .collect();
    // One slot in ten is for the oldest.
    let promise = |place: usize| (place + 1) as f64 / (0.1 * rate) + PIPELINE;
    let parts =
        victims.values().enumerate().map(|(place, record)| seconds(record.begun - begin) / promise(place));
    let parts = Samples::new(parts.collect());
    let text = "flood of 100 new senders a second: the oldest row's wait to the promise";
    report.line(
        text,
        parts.most(),
        "x",
        Target::AtMost(1.0),
        &format!("{}, {rate:.0} a second", parts.spread()),
    );
}
