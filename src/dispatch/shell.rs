//! The loop: descriptors become events, the machine's actions become effects. The only reader of the clock.
//!
//! One turn: sleep until something is ready or due; collect every event that is ready; step them all, then `Turn`;
//! perform the actions in order. A database job is done at once, and its reply and whatever follows from that belong
//! to the same turn. So all answers that came while a statement blocked us are known before a deadline is judged.
//!
//! No policy here: what to do is the machine's, and an action about a worker that has just ended does nothing.

use super::announce::Supervisor;
use super::child::{Child, Launcher};
use super::listen::Link;
use super::machine::{Action, Announcement, Event, Machine, Micros, Severity, WorkerId};
use super::reread::Configuration;
use crate::sys::{self, PollFd, Signals};
use crate::{Level, log};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

/// Everything outside the machine, and the machine.
pub struct Shell {
    machine: Machine,
    link: Link,
    conf: Configuration,
    launcher: Launcher,
    signals: Signals,
    supervisor: Supervisor,
    children: BTreeMap<WorkerId, Child>,
    /// Where the machine's time begins.
    origin: Instant,
    /// When the supervisor last heard that the loop is alive.
    pinged: Micros,
    /// The machine's last word.
    exit: Option<u8>,
}

/// What a polled descriptor is.
#[derive(Clone, Copy)]
enum Source {
    Signals,
    Database,
    Output(WorkerId),
    Input(WorkerId),
}

impl Shell {
    pub fn new(
        machine: Machine,
        link: Link,
        conf: Configuration,
        launcher: Launcher,
        signals: Signals,
        supervisor: Supervisor,
    ) -> Shell {
        let (children, origin) = (BTreeMap::new(), Instant::now());
        Shell { machine, link, conf, launcher, signals, supervisor, children, origin, pinged: 0, exit: None }
    }

    /// Runs until the machine says Exit; returns its code.
    pub fn run(mut self) -> io::Result<u8> {
        let mut events = vec![Event::Start];
        loop {
            let mut actions = VecDeque::new();
            for event in events.drain(..).chain([Event::Turn]) {
                actions.extend(self.machine.step(self.now(), event));
            }
            self.perform(actions);
            if let Some(code) = self.exit {
                self.children.values().for_each(Child::kill);
                return Ok(code);
            }
            self.collect(&mut events)?;
        }
    }

    fn now(&self) -> Micros {
        self.origin.elapsed().as_micros() as Micros
    }

    /// Sleeps until there is something to do, then takes all of it.
    fn collect(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        events.extend(self.link.take_buffered());
        let (mut set, sources) = self.watched();
        let timeout = self.timeout();
        let is_idle = events.is_empty() && !self.children.values().any(Child::is_broken);
        sys::poll(&mut set, if is_idle { timeout } else { Some(Duration::ZERO) })?;
        let mut child_ended = false;
        for (entry, source) in set.iter().zip(sources).filter(|(entry, _)| entry.is_ready()) {
            match source {
                Source::Signals => {
                    let caught = self.signals.take();
                    events.extend((0..caught.terminate).map(|_| Event::Terminate));
                    events.extend(caught.reload.then_some(Event::ConfigChanged));
                    child_ended = caught.child;
                }
                Source::Database => events.extend(self.link.take_ready(entry.is_broken())),
                Source::Output(worker) => self.child(worker, |child| child.read(events)),
                Source::Input(worker) => self.child(worker, Child::flush),
            }
        }
        for child in self.children.values_mut().filter(|child| child.is_broken()) {
            child.report_broken(events);
        }
        if child_ended {
            self.reap(events)?;
        }
        self.children.values_mut().for_each(|child| child.report_halted(events));
        Ok(())
    }

    fn watched(&self) -> (Vec<PollFd>, Vec<Source>) {
        let mut watched = vec![(PollFd::input(self.signals.fd()), Source::Signals)];
        watched.extend(self.link.socket().map(|fd| (PollFd::input(fd), Source::Database)));
        for (&worker, child) in &self.children {
            watched.extend(child.output_fd().map(|fd| (PollFd::input(fd), Source::Output(worker))));
            watched.extend(child.input_fd().map(|fd| (PollFd::output(fd), Source::Input(worker))));
        }
        watched.into_iter().unzip()
    }

    /// Until the machine wants its next turn. The supervisor is told here, and only here, that the loop is alive.
    fn timeout(&mut self) -> Option<Duration> {
        let now = self.now();
        let mut deadline = self.machine.deadline();
        if let Some(every) = self.supervisor.ping_every() {
            let every = every.as_micros() as Micros;
            if now >= self.pinged + every {
                self.supervisor.say("WATCHDOG=1");
                self.pinged = now;
            }
            deadline = Some(deadline.unwrap_or(Micros::MAX).min(self.pinged + every));
        }
        deadline.map(|due| Duration::from_micros(due.saturating_sub(now)))
    }

    /// Everyone who has ended, also strangers left to us as process 1 of a container. What a worker of ours leaves behind
    /// in its process group ends with it: while it is not reaped, the group's number cannot be another's.
    fn reap(&mut self, events: &mut Vec<Event>) -> io::Result<()> {
        while let Some(pid) = sys::ended()? {
            let worker = self.children.iter().find(|(_, child)| child.pid() == pid).map(|(&id, _)| id);
            let child = worker.and_then(|worker| self.children.remove(&worker));
            child.iter().for_each(Child::kill);
            let status = sys::reap(pid)?;
            if let Some((child, status)) = child.zip(status) {
                child.finish(status, events);
            }
        }
        Ok(())
    }

    fn perform(&mut self, mut actions: VecDeque<Action>) {
        while let Some(action) = actions.pop_front() {
            if let Some(event) = self.act(action) {
                actions.extend(self.machine.step(self.now(), event));
            }
        }
    }

    /// Does one thing; what came of it, where that is known at once.
    fn act(&mut self, action: Action) -> Option<Event> {
        match action {
            Action::Job(job) => return Some(Event::Reply(self.link.run(job, &mut self.conf))),
            Action::Spawn { worker, stage, program, queue_limit } => {
                match self.launcher.spawn(worker, &stage, &program, queue_limit) {
                    Ok(child) => drop(self.children.insert(worker, child)),
                    Err(error) => return Some(Event::SpawnFailed { worker, error }),
                }
            }
            Action::Send { worker, rows } => self.child(worker, |child| child.send(&rows)),
            Action::Close { worker } => self.child(worker, Child::close),
            Action::Halt { worker } => self.child(worker, Child::halt),
            Action::Continue { worker } => self.child(worker, Child::resume),
            Action::Kill { worker } => self.child(worker, |child| child.kill()),
            Action::Log { level, stage, message } => log(severity(level), &stage, &message, &[]),
            Action::Announce(Announcement::Ready) => {
                log(Level::Info, "", "ready", &[]);
                self.supervisor.say("READY=1");
            }
            Action::Announce(Announcement::Stopping) => self.supervisor.say("STOPPING=1"),
            Action::Exit { code } => self.exit = Some(code),
        }
        None
    }

    fn child(&mut self, worker: WorkerId, act: impl FnOnce(&mut Child)) {
        if let Some(child) = self.children.get_mut(&worker) {
            act(child);
        }
    }
}

fn severity(level: Severity) -> Level {
    match level {
        Severity::Error => Level::Error,
        Severity::Warning => Level::Warning,
        Severity::Info => Level::Info,
        Severity::Debug => Level::Debug,
    }
}
