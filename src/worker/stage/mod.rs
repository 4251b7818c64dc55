//! The registry of stages.
