//! How fast a backlog is drained: metadata stages, fused and not, messages with bodies, many senders; beside the SQL limit.

use crate::harness::{Config, Postgres};
use crate::limit::{self, Work};
use crate::line::{Line, Lot, chain, fill, first};
use crate::report::{Report, Samples, Target};
use crate::sql::row::Load;
use std::path::Path;

pub const ROUNDS: usize = 5;
const WORKERS: usize = 4;

/// A way to drain a lot, and its rates.
struct Way {
    line: Line,
    stage: &'static str,
    lot: Lot,
    rates: Vec<f64>,
}

impl Way {
    fn new(
        server: &Postgres,
        stage: &'static str,
        lot: Lot,
        stages: impl Fn(Config, &Path) -> Config,
    ) -> Way {
        let mut line = Line::start(server, stages);
        // Workers are up, statements planned, averages known.
        line.rate(stage, Lot { messages: lot.messages / 4, ..lot });
        Way { line, stage, lot, rates: Vec::new() }
    }

    fn round(&mut self) {
        let rate = self.line.rate(self.stage, self.lot);
        self.rates.push(rate);
    }

    fn samples(self) -> Samples {
        self.line.stop();
        Samples::new(self.rates)
    }
}

/// All of them take turns.
fn rounds(ways: &mut [&mut Way]) {
    for _ in 0..ROUNDS {
        ways.iter_mut().for_each(|way| way.round());
    }
}

/// The median of the ratios within one round.
fn ratio(of: &Way, to: &Way) -> Samples {
    Samples::new(of.rates.iter().zip(&to.rates).map(|(of, to)| of / to).collect())
}

fn pool(limit: &str, workers: &str) -> [(&'static str, String); 2] {
    [("QUEUE_LIMIT", limit.to_owned()), ("PARALLELISM", workers.to_owned())]
}

fn discard(server: &Postgres, limit: &str, workers: &str, lot: Lot, fair: &str) -> Way {
    let pool = pool(limit, workers);
    let options: Vec<(&str, &str)> = pool.iter().map(|(name, value)| (*name, value.as_str())).collect();
    Way::new(server, "end", lot, |config, _| {
        chain(config, 1, true, &options).set("pepsi-dispatch", "FAIR_SCHEDULING", fair)
    })
}

/// One stage that needs metadata only, by default and with long pipes, with the SQL alone beside it.
pub fn metadata(server: &Postgres, report: &mut Report) {
    for (queue_limit, messages, least) in [(4, 8_000, 5_000.0), (64, 20_000, 15_000.0)] {
        let (lot, name) = (Lot::of(messages), queue_limit.to_string());
        let mut fair = discard(server, &name, "4", lot, "yes");
        let mut oldest = discard(server, &name, "4", lot, "no");
        let mut database = server.database();
        let mut limits = Vec::new();
        for _ in 0..ROUNDS {
            fair.round();
            oldest.round();
            fill(&mut database, "end", lot);
            let work = Work { stage: "end", workers: WORKERS, queue_limit, load: Load::Metadata };
            limits.push(limit::rate(&database, work, messages as usize));
        }
        let shares = fair.rates.iter().zip(&limits).map(|(rate, limit)| rate / limit).collect();
        let (shares, cost) = (Samples::new(shares), ratio(&fair, &oldest));
        let (rates, limits) = (fair.samples(), Samples::new(limits));
        oldest.samples();
        let text = format!("one metadata stage, 4 workers, QUEUE_LIMIT {queue_limit}");
        report.line(&text, rates.median(), "/s", Target::AtLeast(least), &rates.spread());
        report.line("  its SQL alone", limits.median(), "/s", Target::None, &limits.spread());
        report.line("  share of that", shares.median(), "", Target::AtLeast(0.8), &shares.spread());
        report.line("  fair to oldest first", cost.median(), "", Target::AtLeast(0.97), &cost.spread());
    }
}

/// Four stages: each message passes each of them.
pub fn fused(server: &Postgres, report: &mut Report) {
    const STAGES: usize = 4;
    let options = [("QUEUE_LIMIT", "64"), ("PARALLELISM", "4")];
    let way = |messages, fusion| {
        Way::new(server, first(STAGES), Lot::of(messages), |config, _| {
            chain(config, STAGES, fusion, &options)
        })
    };
    let (mut fused, mut unfused) = (way(16_000, true), way(5_000, false));
    rounds(&mut [&mut fused, &mut unfused]);
    let gain = ratio(&fused, &unfused);
    let executions = |samples: Samples| samples.median() * STAGES as f64;
    let (rates, others) = (fused.samples(), unfused.samples());
    let text = "four stages fused, QUEUE_LIMIT 64: stage executions";
    report.line(text, executions(rates.clone()), "/s", Target::AtLeast(30_000.0), "");
    report.line("  messages", rates.median(), "/s", Target::None, &rates.spread());
    report.line("  the same unfused: messages", others.median(), "/s", Target::None, &others.spread());
    report.line("  fused to unfused", gain.median(), "x", Target::AtLeast(3.0), &gain.spread());
}

/// A stage of Load::Full, which writes each message to the disk.
pub fn full(server: &Postgres, report: &mut Report) {
    for (name, body, messages) in [("4 KB", 4_000, 1_000), ("100 KB", 100_000, 200), ("5 MB", 5_000_000, 6)] {
        let lot = Lot { messages, senders: 10, body };
        let mut way = Way::new(server, "deliver", lot, |config, folder| {
            let folder = folder.join("mail-${local}");
            let folder = folder.to_str().expect("a path");
            config.stage(
                "deliver",
                "pepsi-stage-relay-to-maildir",
                &[("MAILDIR", folder), ("PARALLELISM", "4")],
            )
        });
        for _ in 0..ROUNDS {
            way.round();
        }
        let rates = way.samples();
        report.line(
            &format!("into a Maildir, bodies of {name}"),
            rates.median(),
            "/s",
            Target::None,
            &rates.spread(),
        );
    }
}

/// Few workers, few or many senders.
pub fn shapes(server: &Postgres, report: &mut Report) {
    for (workers, senders) in [("1", 10), ("4", 1), ("4", 100), ("4", 10_000)] {
        let lot = Lot { messages: 10_000, senders, body: 0 };
        let mut way = discard(server, "16", workers, lot, "yes");
        rounds(&mut [&mut way]);
        let rates = way.samples();
        let text = format!("one metadata stage, QUEUE_LIMIT 16, {workers} workers, {senders} senders");
        report.line(&text, rates.median(), "/s", Target::None, &rates.spread());
    }
}
