//! What the processes cost: memory, processor time, system calls, and a worker's start.

use crate::backlog::ROUNDS;
use crate::harness::{self, PATIENCE, Postgres, holds_within};
use crate::line::{Line, Lot, chain, fill, spent};
use crate::processes::status;
use crate::report::{Report, Samples, Target};
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const KB: f64 = 1024.0;

/// The dispatcher with many workers and senders, and workers between messages and on a large one.
pub fn memory(server: &Postgres, report: &mut Report) {
    let options = [("QUEUE_LIMIT", "16"), ("PARALLELISM", "16"), ("MAX_MESSAGES", "1000000")];
    let mut line = Line::start(server, |config, _| chain(config, 1, true, &options));
    line.rate("end", Lot { messages: 30_000, senders: 10_000, body: 0 });
    let workers = line.workers();
    let resident = status(line.dispatcher.id(), "VmRSS") as f64;
    let text = format!("memory: the dispatcher, {} workers, 10,000 senders", workers.len());
    report.line(&text, resident / KB, "MB", Target::AtMost(6.0), "resident");
    let anonymous = workers.iter().map(|pid| status(*pid, "RssAnon") as f64 / KB).collect();
    let anonymous = Samples::new(anonymous);
    let text = "memory: a worker between messages, the largest";
    report.line(text, anonymous.most(), "MB", Target::AtMost(1.5), &anonymous.spread());
    line.stop();

    for megabytes in [5, 25] {
        let body = megabytes * 1_000_000;
        let mut line = Line::start(server, |config, folder| {
            let folder = folder.join("mail-${local}");
            let folder = folder.to_str().expect("a path");
            config.stage(
                "deliver",
                "pepsi-stage-relay-to-maildir",
                &[("MAILDIR", folder), ("PARALLELISM", "1")],
            )
        });
        line.rate("deliver", Lot { messages: 1, senders: 1, body: 4_000 });
        let [worker] = line.workers()[..] else { panic!("one worker") };
        let before = status(worker, "VmHWM");
        line.rate("deliver", Lot { messages: 1, senders: 1, body });
        let more = (status(worker, "VmHWM") - before) as f64 * KB / body as f64;
        // It answers, and then gives the memory back.
        let left = || status(worker, "RssAnon") as f64 / KB;
        let _ = holds_within(Duration::from_secs(1), || left() <= 1.0);
        let left = left();
        line.stop();
        let text = format!("memory: a worker on a body of {megabytes} MB, in bodies");
        report.line(&text, more, "x", Target::AtMost(3.0), "resident at the most, beyond that before");
        report.line("  and after it", left, "MB", Target::AtMost(1.5), "anonymous");
    }
}

/// Processor time of each part a message, and the dispatcher's system calls.
pub fn processor(server: &Postgres, report: &mut Report) {
    let options = [("QUEUE_LIMIT", "16"), ("PARALLELISM", "4"), ("MAX_MESSAGES", "1000000")];
    let mut line = Line::start(server, |config, _| chain(config, 1, true, &options));
    line.rate("end", Lot::of(5_000));
    let lot = Lot::of(15_000);
    let mut shares = Vec::new();
    let mut parts = Vec::new();
    for _ in 0..ROUNDS {
        fill(&mut line.database, "end", lot);
        let before = spent(server, &line);
        line.drain();
        let after = spent(server, &line);
        let used: Vec<f64> = after.iter().zip(before).map(|(after, before)| after - before).collect();
        shares.push(used[0] / used.iter().sum::<f64>());
        parts.push(used.iter().map(|time| time * 1e6 / lot.messages as f64).collect::<Vec<f64>>());
    }
    let shares = Samples::new(shares);
    let text = "the dispatcher's share of the processor time";
    report.line(text, shares.median(), "", Target::AtMost(0.2), &shares.spread());
    for (place, name) in ["the dispatcher", "its workers", "PostgreSQL"].iter().enumerate() {
        let times = Samples::new(parts.iter().map(|part| part[place]).collect());
        report.line(&format!("  a message: {name}"), times.median(), "us", Target::None, &times.spread());
    }
    fill(&mut line.database, "end", lot);
    match counted(&mut line) {
        Some(calls) => {
            let each = calls / lot.messages as f64;
            report.line(
                "the dispatcher's system calls a message, at load",
                each,
                "",
                Target::AtMost(3.0),
                "",
            );
        }
        None => println!("the dispatcher's system calls: not measured, strace is missing"),
    }
    line.stop();
}

/// The dispatcher's system calls while the queue is drained.
fn counted(line: &mut Line) -> Option<f64> {
    let summary = line.database.folder().join("calls");
    let pid = line.dispatcher.id().to_string();
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-p", &pid, "-o"]).arg(&summary).stderr(Stdio::null());
    let mut strace = strace.spawn().ok()?;
    let traced = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        !text.contains("TracerPid:\t0\n")
    };
    if !holds_within(PATIENCE, traced) {
        return None;
    }
    line.drain();
    harness::process::signal("INT", &strace.id().to_string());
    strace.wait().ok()?;
    let text = std::fs::read_to_string(summary).ok()?;
    let total = text.lines().find(|line| line.ends_with("total"))?;
    total.split_whitespace().rev().find_map(|word| word.parse::<f64>().ok().filter(|calls| *calls >= 1_000.0))
}

/// From the start of the process until it says `ready`.
pub fn start(server: &Postgres, report: &mut Report) {
    const STARTS: usize = 60;
    let database = server.database();
    let config = database.config().stage("end", "pepsi-stage-discard", &[]).write();
    let once = |_| {
        let mut command = harness::pepsi("pepsi-stage-discard", &config);
        command.arg("worker").env("PEPSI_STAGE", "end").stdin(Stdio::piped()).stdout(Stdio::piped());
        let begin = Instant::now();
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("a pipe")).read_line(&mut line).expect("a line");
        let took = begin.elapsed().as_secs_f64() * 1e3;
        assert_eq!(line, "ready claims\n");
        drop(child.stdin.take());
        child.wait().expect("it ends");
        took
    };
    let times: Vec<f64> = (0..STARTS + 5).map(once).skip(5).collect();
    let times = Samples::new(times);
    let text = "a worker's start, to `ready`: median";
    report.line(text, times.median(), "ms", Target::AtMost(15.0), &times.spread());
}
