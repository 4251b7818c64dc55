//! Random maps against a model that only knows what can be reached from where.

use super::super::{maps::View, tests};
use super::*;
use std::collections::{BTreeMap, BTreeSet};

const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "f", "g"];

/// What a random entry stands for: the places of names, each with whether it is final; one beyond the names is discarded.
type Entries = BTreeMap<usize, Vec<(usize, bool)>>;

fn random(seed: &mut u64, below: usize) -> usize {
    // The multiplier and increment of Knuth's MMIX.
    *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    usize::try_from(*seed >> 33).unwrap() % below
}

fn entries(seed: &mut u64) -> Entries {
    let count = random(seed, NAMES.len() + 1);
    let mut entries = Entries::new();
    for _ in 0..count {
        let target = |seed: &mut u64| (random(seed, NAMES.len() + 1), random(seed, 8) == 0);
        let targets = (0..=random(seed, 3)).map(|_| target(seed)).collect();
        entries.insert(random(seed, NAMES.len()), targets);
    }
    entries
}

fn text(entries: &Entries) -> String {
    let target = |(place, is_final): &(usize, bool)| match NAMES.get(*place) {
        Some(name) => format!("{}{name}", if *is_final { "\\" } else { "" }),
        None => "/dev/null".to_owned(),
    };
    let line = |(place, targets): (&usize, &Vec<(usize, bool)>)| {
        format!("{}: {}\n", NAMES[*place], targets.iter().map(target).collect::<Vec<_>>().join(", "))
    };
    entries.iter().map(line).collect()
}

/// The names that mail for one arrives at, and whether some of it is discarded.
fn reached(entries: &Entries, from: usize) -> (BTreeSet<usize>, bool) {
    let (mut seen, mut arrived, mut is_discarded) = (BTreeSet::new(), BTreeSet::new(), false);
    let mut open = vec![from];
    while let Some(at) = open.pop() {
        let Some(targets) = entries.get(&at) else {
            arrived.insert(at);
            continue;
        };
        if !seen.insert(at) {
            continue;
        }
        for (target, is_final) in targets {
            match *target {
                target if target == NAMES.len() => is_discarded = true,
                target if *is_final || target == at => drop(arrived.insert(target)),
                target => open.push(target),
            }
        }
    }
    (arrived, is_discarded)
}

#[test]
fn no_recipient_of_a_random_map_is_lost_or_made_up() {
    let mut seed = 1;
    let mut circles = 0;
    for round in 0..3000 {
        let entries = entries(&mut seed);
        let maps = tests::stage(&text(&entries)).maps;
        let view = View::new(&maps);
        for (from, name) in NAMES.iter().enumerate() {
            let (arrived, is_discarded) = reached(&entries, from);
            let shown = format!("{round}: {name} in {}", text(&entries));
            let Some(ends) = expand(&view, &[name.to_string()]) else {
                assert!(!entries.contains_key(&from), "{shown}");
                continue;
            };
            let mut found = BTreeSet::new();
            for Ended { end, .. } in &ends {
                match end {
                    End::Recipient(text) => {
                        let local = text.strip_suffix("@example.org").expect(&shown);
                        let place = NAMES.iter().position(|name| *name == local).expect(&shown);
                        assert!(found.insert(place), "twice in {shown}");
                    }
                    End::Discarded => assert!(is_discarded, "{shown}"),
                    End::Broken { why, .. } => {
                        circles += 1;
                        assert!(arrived.is_empty() && !is_discarded && why.contains("circle"), "{shown}");
                    }
                    End::Failed { .. } | End::Waits(_) => panic!("{end:?} in {shown}"),
                }
            }
            assert_eq!(found, arrived, "{shown}");
            assert!(!ends.is_empty(), "{shown}");
        }
    }
    assert!(circles > 50, "{circles}");
}
