//! Chance that can be replayed: a seeded generator (SplitMix64), the spread of pauses, and decorrelated jitter.
//! Not for secrets.

use super::Micros;

#[derive(Clone, Debug)]
pub(super) struct Chance {
    state: u64,
}

impl Chance {
    pub(super) fn new(seed: u64) -> Chance {
        Chance { state: seed }
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Evenly from 0 to `bound` - 1.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0);
        // The high half of the product; as the bound is below 2^64 it fits.
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// `pause` and a random share of up to a quarter more, so that what paused together does not return together (E8).
    pub(super) fn spread(&mut self, pause: Micros) -> Micros {
        pause.saturating_add(self.below(pause / 4 + 1))
    }
}

/// Decorrelated jitter: each delay is drawn between `base` and three times the last one, and never above `cap`.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    base: Micros,
    cap: Micros,
    last: Micros,
}

impl Backoff {
    pub(super) const fn new(base: Micros, cap: Micros) -> Backoff {
        Backoff { base, cap, last: base }
    }

    pub(super) fn next(&mut self, chance: &mut Chance) -> Micros {
        let high = self.last.saturating_mul(3).min(self.cap).max(self.base);
        self.last = self.base + chance.below(high - self.base + 1);
        self.last
    }

    pub(super) fn reset(&mut self) {
        self.last = self.base;
    }
}
