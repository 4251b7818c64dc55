//! The dispatcher as a process, with workers that are small shell scripts, on a private PostgreSQL. A script does not
//! write to the database: what becomes of its messages is what the dispatcher makes of its answers.

#[path = "dispatch/due.rs"]
mod due;
#[path = "dispatch/edges.rs"]
mod edges;
#[path = "dispatch/fair.rs"]
mod fair;
mod harness;
#[path = "dispatch/life.rs"]
mod life;
#[path = "dispatch/proxy.rs"]
#[allow(dead_code)]
mod proxy;
#[path = "dispatch/reload.rs"]
mod reload;
#[path = "dispatch/upkeep.rs"]
mod upkeep;
#[path = "dispatch/withdraw.rs"]
mod withdraw;
#[path = "dispatch/workers.rs"]
mod workers;
#[path = "dispatch/world.rs"]
mod world;
