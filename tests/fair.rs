//! Fair shares (requirement group F): the SQL function against its model on random queues, and what the model does in the
//! long run. The room of shares is included alone: it needs nothing of the machine around it.

#[path = "fair/agree.rs"]
mod agree;
#[path = "fair/claim.rs"]
mod claim;
#[path = "fair/cost.rs"]
mod cost;
#[allow(dead_code)]
#[path = "../src/dispatch/machine/fair/mod.rs"]
mod fair;
mod harness;
#[path = "sim/prng.rs"]
mod prng;
#[path = "fair/reach.rs"]
mod reach;
#[path = "fair/shares.rs"]
mod shares;
#[path = "fair/world.rs"]
mod world;
