//! Pure parsers and encoders of bytes from outside. No I/O, no clock, no environment.

pub mod conf;
pub mod duration;
pub mod graph;
pub mod ini;
pub mod line;
pub mod text;
pub mod variable;
