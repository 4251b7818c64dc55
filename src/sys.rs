//! The only unsafe code: poll, self-pipe, signals, prctl, descriptor look-up. Every signature here is safe.
#![allow(unsafe_code)]
