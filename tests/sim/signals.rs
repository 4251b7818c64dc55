//! What signals do to simulated workers: SIGSTOP and SIGCONT, which take their time, and SIGKILL, which some withstand and
//! whose victim's backend may commit after it.

use super::process::{How, Nature, Process, Word};
use super::world::{Happening, MILLI, SECOND, World};
use crate::machine::{Claim, Exit, WorkerId};

impl World {
    pub fn says_claims(&self, id: WorkerId) -> bool {
        self.processes.get(&id).is_some_and(|process| process.claims)
    }

    /// SIGSTOP: at once, but for a process that waits for a disk.
    pub fn halt(&mut self, id: WorkerId) {
        let wait = if self.faults && self.prng.chance(100) {
            self.prng.between(MILLI, 3 * SECOND)
        } else {
            self.prng.between(5, 300)
        };
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        process.halts += 1;
        let halt = process.halts;
        self.after(wait, Happening::Stops(id, halt));
    }

    pub fn stops(&mut self, id: WorkerId, halt: u64) {
        let Some(process) = self.processes.get_mut(&id).filter(|process| process.alive) else { return };
        if process.halts != halt || process.halt.is_none() {
            return;
        }
        process.frozen = true;
        self.note("a worker is stopped");
        self.say(id, Word::Halted(halt));
        if self.prng.chance(self.profile.words) {
            if self.prng.chance(500) {
                let wait = self.prng.between(0, 2 * MILLI);
                self.after(wait, Happening::Dies(id, Exit::Signal(9)));
            } else {
                // A process of its own has its output too.
                self.say(id, Word::nothing_asked());
            }
        }
    }

    /// SIGCONT.
    pub fn thaw(&mut self, id: WorkerId) {
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        process.frozen = false;
        if let Some(run) = process.late.take() {
            self.after(5, Happening::Finishes(id, run));
        }
        self.work(id);
    }

    /// Whether a worker that may go on works on it.
    pub fn is_run(&self, claim: Claim) -> bool {
        let runs = |process: &Process| process.run.is_some_and(|(_, row, _)| row == claim);
        self.processes.values().any(|process| process.killed_at.is_none() && process.alive && runs(process))
    }

    pub fn kill(&mut self, id: WorkerId) {
        let process = self.processes.get_mut(&id).expect("a worker that is there");
        if !process.alive {
            return;
        }
        if process.nature == Nature::Unkillable {
            process.quiet = true;
            process.run = None;
            self.after(25 * SECOND, Happening::Dies(id, Exit::Signal(9)));
            return;
        }
        // The backend of a killed worker may yet commit what was under way.
        if let Some((_, claim, How::Commit)) = process.run.take()
            && self.prng.chance(500)
        {
            let wait = self.prng.between(0, 5 * MILLI);
            self.after(wait, Happening::Backend(id, claim));
        }
        self.dies(id, Exit::Signal(9));
    }

    pub fn backend(&mut self, id: WorkerId, claim: Claim) {
        if !self.outage {
            self.note(if self.database.fence(claim) {
                "killed worker commits"
            } else {
                "killed worker is fenced"
            });
            self.commit(id, claim);
        }
    }
}
