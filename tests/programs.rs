//! Stages that end in another program: `pepsi-stage-pipe`, and the stage program of the tutorial.

mod harness;
#[path = "programs/pipe.rs"]
mod pipe;
#[path = "worker/talk.rs"]
#[allow(dead_code)]
mod talk;
#[path = "programs/writing.rs"]
mod writing;
