//! Pure parsers and encoders of bytes from outside. No I/O, no clock, no environment.

pub mod conf;
pub mod graph;
pub mod line;
pub mod text;
