//! Simulated workers that are told to stop where they are, and to go on.

use super::process::Word;
use super::world::{Happening, MILLI, SECOND, World};
use crate::machine::{Exit, WorkerId};

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
                self.say(id, Word::Answer { status: 0, about: None });
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
}
